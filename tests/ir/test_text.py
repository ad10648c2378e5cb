# SPDX-License-Identifier: Apache-2.0
"""The text form: exact both ways, readable, and safe to read from anywhere."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import FormatError
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType
from hexforge.ir.text import dumps, loads
from hexforge.ir.verify import verify
from tests.ir.graphs import described, graphs


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_round_trip(graph: Graph) -> None:
    verify(graph)
    text = dumps(graph)
    back = loads(text)
    verify(back)
    assert described(back) == described(graph)
    assert dumps(back) == text


SMALL = """\
graph "g" {
  %x: uint8[1, 4] {scale=0.5, offset=-128} = APP_WRITE
  %w: uint8[4] {scale=0.1, offset=0} = STATIC [0, 1, 2, 255]
  Add_0: %y = ElementWiseAdd(%x, %w) : uint8[1, 4] {scale=1.0, offset=-3} from "Add_0", "Relu 1"
  n: %"a b" = ElementWiseNeuron(%y) {operation=0, alpha=1.0, beta=inf} : uint8[1, 4] {scale=1.0, offset=0, bitwidth=4}
  return %"a b"
}
"""


def test_reads_as_written() -> None:
    graph = loads(SMALL)
    assert dumps(graph) == SMALL
    assert graph.values["w"].encoding == ScaleOffset(0.1, 0)
    assert graph.nodes[0].source == ("Add_0", "Relu 1")


def test_comments_and_spacing_are_free() -> None:
    loose = SMALL.replace("{\n", "{ # a comment\n\n").replace("  ", "\n\t ").replace(", ", " ,")
    assert described(loads(loose)) == described(loads(SMALL))


def test_splat_stays_a_splat() -> None:
    graph = Graph("g")
    graph.static(np.broadcast_to(np.float32(0.1), (1 << 20, 1 << 20)), name="c")
    text = dumps(graph)
    assert "splat 0.10000000149011612" in text
    assert not any(loads(text).values["c"].data.strides)


def test_elided_text_is_for_reading_only() -> None:
    graph = Graph("g")
    graph.static(np.arange(100, dtype=np.int32), name="c")
    graph.static(np.arange(3, dtype=np.int32), name="d")
    text = dumps(graph, elide=10)
    assert "%c: int32[100] = STATIC elided  # 400 bytes" in text
    assert "[0, 1, 2]" in text
    with pytest.raises(FormatError, match="line 2, column 27: the data were elided"):
        loads(text)


def test_output_order_is_kept() -> None:
    graph = Graph("g")
    x = graph.value("x", TensorType(DType.FLOAT32, (2,)), Role.APP_WRITE)
    second, first = (graph.value(n, x.type, Role.APP_READ) for n in "ba")
    graph.node("ElementWiseExp", [x], [first])
    graph.node("ElementWiseAbs", [x], [second])
    assert [v.name for v in loads(dumps(graph)).outputs] == ["b", "a"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("graph", "grape", "line 1, column 1: expected 'graph', found 'grape \"g\" {'"),
        ("ElementWiseAdd", "ElementWiseSum", "line 4, .*no QNN op is named 'ElementWiseSum'"),
        ("(%x", "(%z", "line 4, column .*no tensor %z"),
        ("uint8[4]", "uint9[4]", "line 3, column 7: no data type is named 'uint9'"),
        ("[4]", "[5]", "needs a list of 5 elements"),
        ("[4]", "[-4]", "a shape is a list of sizes"),
        ("[4]", "[4611686018427387904, 4611686018427387904]", "too large"),
        ("[0, 1, 2, 255]", "[0, 1, 2, 256]", "256 is no uint8"),
        ("[0, 1, 2, 255]", "[0, 1, 2, 1.0]", "1.0 is no uint8"),
        ("[0, 1, 2, 255]", 'base64 "AAEC"', "4 bytes are 8 base64 characters, not 4"),
        ("[0, 1, 2, 255]", 'base64 "AAEC/w=!"', "bad base64"),
        ("[0, 1, 2, 255]", "splat [1]", "no uint8"),
        ("[0, 1, 2, 255]", "[" * 50 + "]" * 50, "nested too deeply"),
        ("[0, 1, 2, 255]", "9" * 5000, "too long"),
        ("scale=0.1", "scale=1", "scale of ScaleOffset must be float"),
        ("scale=0.1", "scala=0.1", "an encoding has"),
        ("offset=0}", "offset=0, zero=1}", "no field zero"),
        ("operation=0", "operation=0, operation=0", "given twice"),
        ("operation=0, ", "", "parameter operation is missing"),
        ("operation=0", "name=0", "no parameter named name"),
        ('return %"a b"', "return %x", "only a tensor that a node writes"),
        ("n: ", "Add_0: ", "two nodes are named 'Add_0'"),
        ('n: %"a b"', "n: %y", "two tensors are named 'y'"),
        ('"g"', '"\\q"', "bad string"),
        ("}\n", "} more", "found 'more'|expected"),
        (SMALL[200:], "", "line 4"),
    ],
)
def test_faults_are_placed(old: str, new: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        loads(SMALL.replace(old, new, 1))


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(SMALL) - 1), st.integers(0, 30), st.text(max_size=5))
def test_damaged_text_never_crashes(at: int, cut: int, put: str) -> None:
    with contextlib.suppress(FormatError):
        loads(SMALL[:at] + put + SMALL[at + cut :])
