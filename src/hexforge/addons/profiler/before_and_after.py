# SPDX-License-Identifier: Apache-2.0
"""Before and after: two profiles side by side: what a change did, in all and op by op."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from hexforge import amounts
from hexforge.addons.profiler.profile_text import average
from hexforge.addons.profiler.record import FIRST_NODE, GraphProfile, Profile
from hexforge.report.section import Bars, Column, Figure, Figures, Section, Table

BEFORE_AFTER = (
    Column("before", "number", 0, "sum"),
    Column("after", "number", 0, "sum"),
    Column("difference", "number", 0, "sum"),
    Column("ratio", "number", 3),
)
"""Columns of a figure of both, what it changed by, and one as a part of the other."""


def comparison_section(before: Profile, after: Profile) -> Section:
    """The call, op types and ops of both; ops belong together by the model's nodes that they came from."""
    graphs = before.graphs[0], after.graphs[0]
    runs = [average(graph) for graph in graphs]
    ratio = runs[1].netrun_us / runs[0].netrun_us if runs[0].netrun_us else 1.0
    cycles = runs[1].critical_cycles / runs[0].critical_cycles if runs[0].critical_cycles else 1.0
    word = "faster" if ratio < 1 else "slower"
    times = 1 / ratio if 0 < ratio < 1 else ratio
    figures = Figures(
        [
            Figure("before", amounts.time(runs[0].netrun_us), f"{before.model} on {graphs[0].chip}"),
            Figure("after", amounts.time(runs[1].netrun_us), f"{after.model} on {graphs[1].chip}"),
            Figure(
                "critical path", f"{cycles:.3f}", f"{runs[0].critical_cycles:,} to {runs[1].critical_cycles:,} cycles"
            ),
        ],
        f"The call is {times:.2f} times {word} than before." if abs(ratio - 1) > 0.005 else "The call takes as long.",
    )
    types, ops = (_matched(graphs, by) for by in ("type", "op"))
    bars = Bars(["before", "after"], [r.netrun_us for r in runs], "µs", "One inference", mark=1)
    return Section(
        "Before and after",
        [
            figures,
            bars,
            Table((Column("type"), *BEFORE_AFTER), types, "Cycles by QNN op type", sort=3, narrow=True),
            Table((Column("op"), Column("type", choose=True), *BEFORE_AFTER), ops, "Cycles by op", sort=4),
        ],
        "Cycles of the main thread with waits. Ops belong together by the nodes of the model that they came from.",
    )


def _matched(graphs: tuple[GraphProfile, GraphProfile], by: str) -> list[tuple[Any, ...]]:
    sums: dict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0])
    for side, graph in enumerate(graphs):
        run = average(graph)
        for i, op in enumerate(graph.ops):
            if by == "type":
                key: tuple[str, ...] = (op.type,)
            else:
                name = "+".join(op.sources) if op.sources and op.id >= FIRST_NODE else op.name or op.label
                key = (name, op.type)
            if run.costs:
                sums[key][side] += run.costs[i].cycles + run.costs[i].wait
    return [
        (*key, before, after, after - before, after / before if before else None)
        for key, (before, after) in sums.items()
        if before or after
    ]
