# SPDX-License-Identifier: Apache-2.0
"""Passes change no number: outputs before and after are the same, bit for bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from hexforge.backends.cpu import CpuBackend
from hexforge.ir import Graph
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
