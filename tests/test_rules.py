# SPDX-License-Identifier: Apache-2.0
"""Nodes that are refused for one reason are told together."""

from __future__ import annotations

from hexforge.rules import by_reason, refusal_lines


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
