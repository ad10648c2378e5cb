# SPDX-License-Identifier: Apache-2.0
"""Zoom: the part of a profile that lies between two nodes, named as QNN or as the model names them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from hexforge.addons.profiler.record import GraphProfile, OpCost, Profile, ProfiledOp, ProfiledRun
from hexforge.errors import CallError
from hexforge.options import did_you_mean


def zoom_profile(profile: Profile, start: str, end: str) -> Profile:
    """The profile of what lies on a way from one node to another, both included; CallError where there is none.

    An empty name is the graph's own beginning or end. Figures of the whole call are left out: they are not the part's.
    """
    if not start and not end:
        return profile
    holding = [g for g in profile.graphs if all(not name or _places_named(g.ops, name) for name in (start, end))]
    if not holding:
        names = [n for g in profile.graphs for op in g.ops for n in (op.name, *op.sources) if n]
        strange = next(n for n in (start, end) if n and not any(_places_named(g.ops, n) for g in profile.graphs))
        raise CallError(f"no node {strange!r} to zoom to{did_you_mean(strange, names)}")
    graph = holding[0]
    after = (
        _reachable_places(_places_named(graph.ops, start), _readers(graph.ops).__getitem__)
        if start
        else set(range(len(graph.ops)))
    )
    before = (
        _reachable_places(_places_named(graph.ops, end), lambda i: graph.ops[i].reads)
        if end
        else set(range(len(graph.ops)))
    )
    on_the_way = sorted(after & before)
    if not on_the_way:
        raise CallError(f"no way leads from {start!r} to {end!r}; is it the other way round?")
    return replace(profile, graphs=(graph_part(graph, on_the_way),))


def _places_named(ops: Sequence[ProfiledOp], name: str) -> list[int]:
    """Places of the op of that name, else of those that came from the model's node of that name."""
    own = [i for i, op in enumerate(ops) if name in (op.name, op.label)]
    return own or [i for i, op in enumerate(ops) if name in op.sources]


def _readers(ops: Sequence[ProfiledOp]) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in ops]
    for i, op in enumerate(ops):
        for source in op.reads:
            readers[source].append(i)
    return readers


def _reachable_places(places: Iterable[int], step: Callable[[int], Iterable[int]]) -> set[int]:
    reached = set(places)
    todo = list(reached)
    while todo:
        new = set(step(todo.pop())) - reached
        reached |= new
        todo += new
    return reached


def graph_part(graph: GraphProfile, places: Sequence[int]) -> GraphProfile:
    """A graph with some of its ops only, and what runs did for these."""
    at = {old: new for new, old in enumerate(places)}
    ops = tuple(replace(graph.ops[i], reads=tuple(at[r] for r in graph.ops[i].reads if r in at)) for i in places)
    runs = tuple(_part_of_run(run, graph.clock_mhz, at) for run in graph.runs)
    return replace(graph, ops=ops, runs=runs)


def _part_of_run(run: ProfiledRun, mhz: float, at: dict[int, int]) -> ProfiledRun:
    costs = tuple(_renumbered_cost(run.costs[i], at) for i in at) if run.costs else ()
    cycles = sum(c.cycles + c.wait for c in costs)
    us = cycles / mhz if mhz else 0.0
    activities = tuple(replace(a, op=at[a.op]) for a in run.activities if a.op in at)
    return replace(
        run,
        netrun_us=us,
        rpc_us=us,
        accelerator_us=us,
        critical_cycles=cycles,
        costs=costs,
        activities=activities,
        counters=(),
        spans=(),
    )


def _renumbered_cost(cost: OpCost, at: dict[int, int]) -> OpCost:
    return replace(
        cost,
        beside=tuple(at[b] for b in cost.beside if b in at),
        beside_wait=tuple(at[b] for b in cost.beside_wait if b in at),
    )
