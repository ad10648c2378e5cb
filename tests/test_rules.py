# SPDX-License-Identifier: Apache-2.0
"""Rules: the first that applies is the reason; nodes that are refused for one reason are told together."""

from __future__ import annotations

import pytest

from hexforge.errors import UnsupportedError
from hexforge.ir import DType, Graph, TensorType
from hexforge.rules import Rule, RuleTable, by_reason, refusal_lines, require_taken


def test_a_reason_is_told_once_however_many_nodes_have_it() -> None:
    floats = [(f"'conv{i}' (Conv)", f"Conv2d: no float math; quantize 'x{i}' to 8 bits") for i in range(47)]
    lines = refusal_lines([("'loop' (Loop)", "a loop"), *floats])
    assert lines == [
        "  47 nodes ('conv0' (Conv), 'conv1' (Conv), 'conv2' (Conv) and 44 more): no float math; quantize … to 8 bits",
        "  'loop' (Loop): a loop",
    ]


def test_a_reason_that_all_have_word_by_word_is_left_as_it_is() -> None:
    assert by_reason([("a", "Relu: quantize 'x'"), ("b", "Relu: quantize 'x'")]) == [("Relu: quantize 'x'", ["a", "b"])]


def test_other_reasons_stay_apart() -> None:
    assert by_reason([("a", "rank 6"), ("b", "rank 7")]) == [("rank 6", ["a"]), ("rank 7", ["b"])]


def test_the_first_rule_of_an_op_that_applies_is_the_reason() -> None:
    table: RuleTable[int] = RuleTable(
        (
            Rule.of("A B", lambda n: n > 5, "above 5; take less", "seen"),
            Rule.of("*", lambda n: f"{n} is odd; add 1" if n % 2 else None, "odd; add 1", "seen"),
        )
    )
    assert [len(table.of(op)) for op in "ABC"] == [2, 2, 1]
    told = [(op, n, refused[1]) for op in "AC" for n in (4, 5, 7) if (refused := table.refusal(op, n)) is not None]
    assert told == [
        ("A", 5, "5 is odd; add 1"),
        ("A", 7, "above 5; take less"),
        ("C", 5, "5 is odd; add 1"),
        ("C", 7, "7 is odd; add 1"),
    ]


def test_a_rule_for_no_op_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="names its ops"):
        Rule.of(" ".join(()), lambda _: True, "nothing; nothing", "seen")


def test_a_graph_is_refused_with_every_node() -> None:
    graph = Graph("g")
    value = graph.value("x", TensorType(DType.FLOAT32, (2,)))
    for op in ("Relu", "Tanh", "Relu"):
        value = graph.node(op, [value]).outputs[0]
    require_taken(graph, lambda node: None, "nobody")
    with pytest.raises(
        UnsupportedError, match=r"^it refuses 2 of 3 nodes:\n  '[^']+' \(Relu\), '[^']+' \(Relu\): bad$"
    ):
        require_taken(graph, lambda node: "bad" if node.op.name == "Relu" else None, "it")
