# SPDX-License-Identifier: Apache-2.0
"""Groups: the smallest groups of units that Qualcomm's package computes otherwise than hexforge does.

What a unit computes alone need not be what it computes among others: the package may compute several ops in one. Every
group of few units whose tensors nobody else reads is computed by all three judges from the package's tensors, with
nothing inside it shown. Groups that have a smaller one inside that differs already are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.addons.vendor.judges import JudgedTensor, Progress, separate_options
from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.backend import Backend
from hexforge.frontends.onnx.placing import PlacedUnits, reads_of, writes_of
from hexforge.frontends.onnx.separate_units import MADE, grouped_model, unit_tensors
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.results import Key, Result
from hexforge.runtime.cpu_part import WholeOnCpu
from hexforge.runtime.opening import open_stages

LARGEST_GROUP = 3
AT_ONCE = 48
"""Groups that are put into one model."""


@dataclass(frozen=True, slots=True)
class JudgedGroup(Result):
    """A group of units and what the judges say of the tensor that it gives."""

    units: tuple[int, ...]
    """Numbers of its placements, in the model's order."""
    names: tuple[str, ...]
    ops: tuple[str, ...]
    judged: JudgedTensor
    unlike_alone: float
    """The share of the package's numbers that are other ones, beyond the tolerance, than with every tensor shown."""

    described = ("ops", Key("nodes", of="names"), Key("unlike_alone", rounded=6), Key("judged", inline=True))

    @property
    def title(self) -> str:
        """The ops, in their order."""
        return " + ".join(self.ops)


def candidate_groups(placed: PlacedUnits, largest: int = LARGEST_GROUP) -> list[tuple[int, ...]]:
    """Groups of two units or more that give one tensor and have all that is inside for themselves."""
    made_by = {name: i for i, p in enumerate(placed.placements) if p.taken for name in writes_of(p)}
    readers: dict[str, set[int]] = {}
    for i, placement in enumerate(placed.placements):
        for name in reads_of(placement):
            readers.setdefault(name, set()).add(i)
    outputs = set(placed.outputs)

    def private(group: frozenset[int], last: int) -> bool:
        inside = [name for i in group if i != last for name in writes_of(placed.placements[i])]
        return all(name not in outputs and readers.get(name, set()) <= group for name in inside)

    groups: dict[tuple[int, ...], None] = {}
    for last in sorted(set(made_by.values())):
        layer = {frozenset({last})}
        for _ in range(largest - 1):
            grown = set()
            for group in layer:
                producers = {made_by[n] for i in group for n in reads_of(placed.placements[i]) if n in made_by}
                grown |= {group | {p} for p in producers - group}
            groups.update((tuple(sorted(g)), None) for g in grown if private(g, last))
            layer = grown
    return sorted(groups, key=lambda group: (len(group), group))


def judged_groups(
    placed: PlacedUnits,
    tensors: Sequence[Mapping[str, Array]],
    backend: Backend,
    options: VendorOptions,
    process: VendorProcess,
    progress: Progress = lambda what, done, of: None,
) -> tuple[JudgedGroup, ...]:
    """The smallest groups on which the package and hexforge disagree."""
    candidates = candidate_groups(placed)
    disagree: list[JudgedGroup] = []
    for size in range(2, LARGEST_GROUP + 1):
        known = [set(group.units) for group in disagree]
        left = [g for g in candidates if len(g) == size and not any(smaller <= set(g) for smaller in known)]
        for start in range(0, len(left), AT_ONCE):
            progress(f"judging groups of {size} units", start, len(left))
            some = left[start : start + AT_ONCE]
            disagree += _disagreeing(placed, some, tensors, backend, options, process)
    return tuple(disagree)


def _disagreeing(
    placed: PlacedUnits,
    groups: Sequence[tuple[int, ...]],
    tensors: Sequence[Mapping[str, Array]],
    backend: Backend,
    options: VendorOptions,
    process: VendorProcess,
) -> list[JudgedGroup]:
    model = grouped_model(placed, groups)
    units = unit_tensors(placed)
    session = VendorSession(process, model, separate_options(options), f"groups of {placed.model.name}")
    plan, outputs = open_stages(model, backend)
    exact = WholeOnCpu(model, placed.model.name)
    names = [value.name for value in read(model).inputs]
    rows: dict[int, tuple[JudgedTensor, StepCounts]] = {}
    try:
        for sample in tensors:
            feeds = {name: sample[name] for name in names}
            results = session.run_steadily(feeds)[0], plan.run(feeds, outputs), exact.run(feeds)
            for number, group in enumerate(groups):
                tensor = units[group[-1]].writes[0]
                vendor, ours, theirs = (np.asarray(result[f"{tensor}{MADE}{number}"]) for result in results)
                if number not in rows:
                    counts = StepCounts(tolerance_of(vendor.dtype).steps)
                    rows[number] = JudgedTensor.nothing_yet(tensor, units[group[-1]], vendor), counts
                row, alone = rows[number]
                row.add(vendor, ours, theirs)
                alone.add(vendor, np.asarray(sample[tensor]))
    finally:
        session.close()
    return [
        JudgedGroup(group, tuple(units[i].name for i in group), tuple(units[i].op for i in group), row, 1 - alone.share)
        for group, (row, alone) in zip(groups, rows.values(), strict=True)
        if not row.agree
    ]
