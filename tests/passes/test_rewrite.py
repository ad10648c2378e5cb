# SPDX-License-Identifier: Apache-2.0
"""Running passes: order, counts, observation."""

from __future__ import annotations

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import Graph
from hexforge.ir.text import loads
from hexforge.passes import NEUTRAL, run


def test_each_pass_runs_once_in_order_and_is_observed() -> None:
    seen: list[tuple[str, int]] = []

    def first(graph: Graph) -> int:
        return 2

    def second(graph: Graph) -> int:
        return 3

    total = run(Graph("g"), (first, second, first), lambda name, graph, changes: seen.append((name, changes)))
    assert total == 7
    assert seen == [("first", 2), ("second", 3), ("first", 2)]


def test_an_identity_between_input_and_output_stays() -> None:
    graph = loads('graph "g" { %x: float32[2] = APP_WRITE n: %y = Reshape(%x) : float32[2] return %y }')
    assert run(graph, NEUTRAL) == 0
    assert len(graph) == 1


def test_a_constant_output_stays_computed() -> None:
    graph = loads('graph "g" { %c: float32[1] = STATIC [2.0] n: %y = ElementWiseExp(%c) : float32[1] return %y }')
    assert run(graph, NEUTRAL) == 0
