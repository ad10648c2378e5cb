# SPDX-License-Identifier: Apache-2.0
"""Passes change no number: outputs before and after are the same, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from hexforge.backends.cpu import CpuBackend
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType
from hexforge.ir.text import dumps, loads
from hexforge.ir.verify import verify
from hexforge.passes import NEUTRAL, run
from tests.passes.layouts import ORDERED_SUMS, layout_graphs


def transposes(graph: Graph) -> int:
    return sum(node.op.name == "Transpose" for node in graph)


@settings(max_examples=120, deadline=None)
@given(layout_graphs())
def test_numbers_stay(case: tuple[Graph, dict[str, np.ndarray]]) -> None:
    graph, feeds = case
    verify(graph)
    before = CpuBackend().compile(loads(dumps(graph))).run(feeds)
    count = transposes(graph)
    types = {v.name: v.type for v in graph.outputs}
    run(graph, NEUTRAL, observe=lambda name, g, changes: verify(g))
    assert transposes(graph) <= count
    assert {v.name: v.type for v in graph.outputs} == types
    after = CpuBackend().compile(loads(dumps(graph))).run(feeds)
    exact = not any(node.op.name in ORDERED_SUMS for node in graph) or any(v.encoding for v in graph.inputs)
    for name, array in before.items():
        assert after[name].dtype == array.dtype
        if exact:
            assert after[name].tobytes() == array.tobytes(), name
        else:
            np.testing.assert_allclose(after[name], array, rtol=1e-5, atol=1e-5, err_msg=name)
    assert run(graph, NEUTRAL) == 0, "a second run still finds something to do"


def test_a_large_constant_read_in_parts_is_made_once() -> None:
    """As the weights of an LSTM's directions: larger as floats than what else is folded, but only slices read them."""
    graph = Graph("parts")
    half = TensorType(DType.FLOAT16, (2, 800, 500))
    fixed = TensorType(DType.INT8, half.shape, ScaleOffset(0.5, 0))
    weights = graph.value("w", fixed, Role.STATIC, data=np.ones(half.shape, np.int8))
    real = graph.value("real", half)
    graph.node("Dequantize", [weights], [real])
    x = graph.value("x", TensorType(DType.FLOAT16, (1, 800, 500)), Role.APP_WRITE)
    for direction in range(2):
        part = graph.value(f"part{direction}", x.type)
        ranges = np.array([[direction, direction + 1, 1], [0, 800, 1], [0, 500, 1]], np.int32)
        graph.node("StridedSlice", [real], [part], ranges=ranges)
        graph.node("ElementWiseAdd", [x, part], [graph.value(f"y{direction}", x.type, Role.APP_READ)])
    run(graph, NEUTRAL)
    assert [node.op.name for node in graph] == ["ElementWiseAdd"] * 2
