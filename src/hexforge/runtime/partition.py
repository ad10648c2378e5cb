# SPDX-License-Identifier: Apache-2.0
"""Partition: steps in topological order into parts that run one after another, as few as can be.

The walk is by in-degree: it takes every step of one kind whose inputs are ready, however far that leads, and defers the
steps of the other kind at the border to the next part. A part reads only what parts before it wrote, so no cycle can
arise, and neighbouring parts differ in kind, so there is nothing left to merge.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartitionStep:
    """Something that is placed as a whole: the tensors it reads and writes, and whether the backend takes it."""

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    taken: bool
    convert: bool = False
    """A single Quantize or Dequantize, for which alone a graph is not worth making."""


@dataclass(frozen=True, slots=True)
class Part:
    """Steps that run together, by index and in order; names of the tensors that cross the part's border."""

    taken: bool
    steps: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def partition(steps: Sequence[PartitionStep], outputs: Collection[str], keep_converts: bool = False) -> list[Part]:
    """The parts, in an order that runs. A part of one single Quantize or Dequantize is not taken unless kept."""
    taken = [step.taken for step in steps]
    while True:
        groups = _walk(steps, taken)
        alone = [g[0] for kind, g in groups if kind and len(g) == 1 and steps[g[0]].convert]
        if keep_converts or not alone:
            break
        for index in alone:
            taken[index] = False
    return _borders(steps, groups, outputs)


def _walk(steps: Sequence[PartitionStep], taken: Sequence[bool]) -> list[tuple[bool, list[int]]]:
    writer = {name: i for i, step in enumerate(steps) for name in step.writes}
    before = [{writer[name] for name in step.reads if name in writer} for step in steps]
    after: list[list[int]] = [[] for _ in steps]
    for i, sources in enumerate(before):
        for source in sources:
            after[source].append(i)
    waiting = [len(sources) for sources in before]
    ready: dict[bool, list[int]] = {True: [], False: []}
    for i, count in enumerate(waiting):
        if count == 0:
            heapq.heappush(ready[taken[i]], i)
    groups: list[tuple[bool, list[int]]] = []
    kind = False  # CPU steps that need nothing go first: it can only make the first part of the backend larger
    while ready[True] or ready[False]:
        group: list[int] = []
        while ready[kind]:
            group.append(i := heapq.heappop(ready[kind]))
            for user in after[i]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready[taken[user]], user)
        if group:
            groups.append((kind, group))
        kind = not kind
    if sum(len(g) for _, g in groups) != len(steps):
        raise ValueError("the steps form a cycle")
    return groups


def _borders(
    steps: Sequence[PartitionStep], groups: list[tuple[bool, list[int]]], outputs: Collection[str]
) -> list[Part]:
    home = {name: part for part, (_, group) in enumerate(groups) for i in group for name in steps[i].writes}
    crossing = set(outputs)
    for part, (_, group) in enumerate(groups):
        for i in group:
            crossing.update(name for name in steps[i].reads if home.get(name) != part)
    parts = []
    for part, (kind, group) in enumerate(groups):
        reads = dict.fromkeys(name for i in group for name in steps[i].reads if home.get(name) != part)
        writes = dict.fromkeys(name for i in group for name in steps[i].writes if name in crossing)
        parts.append(Part(kind, tuple(group), tuple(reads), tuple(writes)))
    return parts
