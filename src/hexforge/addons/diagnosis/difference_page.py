# SPDX-License-Identifier: Apache-2.0
"""Difference page: two contexts, models, profiles or estimates side by side: what changed, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hexforge import amounts
from hexforge.addons.diagnosis.changes import FACTS, Difference, LayerChange, layer_columns
from hexforge.addons.profiler.before_and_after import BEFORE_AFTER
from hexforge.report.page import sections_page
from hexforge.report.section import Bars, Column, Figure, Figures, Section, Step, Steps, Table


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
        Table((Column("type"), *BEFORE_AFTER), types, f"By op type, {unit}", sort=3, narrow=True),
        Table.of(layer_columns("us" if unit == "µs" else "cycles", unit), layers, of_all, sort=4),
        Table((Column("adapter slot"), Column("is", choose=True)), slots, "Adapter slots"),
    )
    return Section("What changed", parts), Section("In figures", [table for table in tables if table.rows])
