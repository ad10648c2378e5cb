# SPDX-License-Identifier: Apache-2.0
"""Comparison: two profiles, contexts, models or estimates side by side: what a change did, in all and op by op."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hexforge import amounts
from hexforge.analysis.difference.changes import FACTS, Difference, LayerChange, layer_columns
from hexforge.analysis.profile.profile_text import average
from hexforge.formats.profile.record import FIRST_NODE, GraphProfile, Profile
from hexforge.report.page import sections_page
from hexforge.report.section import Bars, Column, Figure, Figures, Section, Step, Steps, Table

_BEFORE_AFTER = (
    Column("before", "number", 0, "sum"),
    Column("after", "number", 0, "sum"),
    Column("difference", "number", 0, "sum"),
    Column("ratio", "number", 3),
)


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
            Table((Column("type"), *_BEFORE_AFTER), types, "Cycles by QNN op type", sort=3, narrow=True),
            Table((Column("op"), Column("type", choose=True), *_BEFORE_AFTER), ops, "Cycles by op", sort=4),
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


def difference_page(difference: Difference) -> str:
    """Two contexts, models, profiles or estimates as a page: what changed, why, and every layer."""
    name = f"{difference.before.name} and {difference.after.name}"
    return sections_page(name, difference_sections(difference, difference.layers))


def difference_sections(difference: Difference, layers: Sequence[LayerChange]) -> tuple[Section, Section]:
    """What changed and why, then figures, op types, and layers one by one."""
    sides = difference.before, difference.after
    timed = [side.latency_us for side in sides]
    figures = [
        Figure(word, amounts.time(us) if us is not None else "no time", side.name)
        for word, us, side in zip(("before", "after"), timed, sides, strict=True)
    ]
    changed = difference.changed_layers
    figures.append(Figure("layers that changed", f"{len(changed)}", f"of {len(difference.layers)}"))
    parts: list[Any] = [Figures(figures), Steps([Step(sentence) for sentence in difference.why()], nothing="")]
    if timed[0] is not None and timed[1] is not None:
        parts.append(Bars(["before", "after"], [float(us or 0) for us in timed], "µs", "One inference", mark=1))
    types = [
        (op, one, two, two - one, two / one if one else None)
        for op, (one, two) in difference.by_type().items()
        if one or two
    ]
    unit = "µs" if any(layer.before and layer.before.us for layer in difference.layers) else "cycles"
    of_all = f"{len(changed)} of {len(difference.layers)} layers changed"
    facts = [fact for fact in difference.facts if fact.differs]
    slots = [(slot, word) for word, group in (("new", difference.slots_added), ("gone", difference.slots_gone))
             for slot in group]  # fmt: skip
    tables = (
        Table.of(FACTS, facts, "Figures that differ"),
        Table((Column("type"), *_BEFORE_AFTER), types, f"By op type, {unit}", sort=3, narrow=True),
        Table.of(layer_columns("us" if unit == "µs" else "cycles", unit), layers, of_all, sort=4),
        Table((Column("adapter slot"), Column("is", choose=True)), slots, "Adapter slots"),
    )
    return Section("What changed", parts), Section("In figures", [table for table in tables if table.rows])
