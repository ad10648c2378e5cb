# SPDX-License-Identifier: Apache-2.0
"""Partitioning: every step once, in an order that runs, in as few parts as the graph allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.runtime.partition import Part, PartitionStep, partition


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[PartitionStep], list[str]]:
    """A random DAG with random support; some steps write two tensors."""
    steps: list[PartitionStep] = []
    names = ["in0", "in1"]
    for i in range(draw(st.integers(1, 14))):
        reads = draw(st.lists(st.sampled_from(names), max_size=3))
        writes = [f"t{i}"] if draw(st.booleans()) else [f"t{i}", f"u{i}"]
        steps.append(PartitionStep(tuple(reads), tuple(writes), draw(st.booleans()), draw(st.integers(0, 3)) == 0))
        names.extend(writes)
    outputs = draw(st.lists(st.sampled_from(names[2:]), min_size=1, unique=True))
    return steps, outputs


def check(steps: list[PartitionStep], outputs: list[str], parts: list[Part]) -> None:
    """What holds for every partition."""
    assert sorted(i for part in parts for i in part.steps) == list(range(len(steps)))
    known = {"in0", "in1"}
    for part in parts:
        assert set(part.inputs) <= known
        inner = set(part.inputs)
        for i in part.steps:
            assert set(steps[i].reads) <= inner
            inner.update(steps[i].writes)
            assert steps[i].taken or not part.taken
        assert set(part.outputs) <= inner
        known.update(part.outputs)
    assert set(outputs) <= known
    assert all(a.taken != b.taken for a, b in itertools.pairwise(parts))


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_every_step_once_in_an_order_that_runs(graph: tuple[list[PartitionStep], list[str]]) -> None:
    steps, outputs = graph
    parts = partition(steps, outputs)
    check(steps, outputs, parts)
    assert not any(p.taken and len(p.steps) == 1 and steps[p.steps[0]].convert for p in parts)


def fewest(steps: list[PartitionStep]) -> int:
    """Fewest parts of the backend by trying every choice of what to run next."""
    best = len(steps) + 1

    def extend(done: frozenset[int], kind: bool | None, count: int) -> None:
        nonlocal best
        if count >= best:
            return
        if len(done) == len(steps):
            best = count
            return
        written = {w for i in done for w in steps[i].writes} | {"in0", "in1"}
        for i, step in enumerate(steps):
            if i not in done and set(step.reads) <= written:
                extend(done | {i}, step.taken, count + (step.taken and kind is not True))

    extend(frozenset(), None, 0)
    return best


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_as_few_parts_as_any_order_gives(graph: tuple[list[PartitionStep], list[str]]) -> None:
    steps, outputs = graph[0][:7], []
    parts = partition(steps, outputs, keep_converts=True)
    assert sum(p.taken for p in parts) == fewest(steps)


def test_border_steps_are_deferred() -> None:
    # a(backend) feeds b(cpu) and c(backend); d(backend) reads both: c joins a's part, d must wait for b.
    steps = [
        PartitionStep(("in0",), ("a",), True),
        PartitionStep(("a",), ("b",), False),
        PartitionStep(("a",), ("c",), True),
        PartitionStep(("b", "c"), ("d",), True),
    ]
    parts = partition(steps, ["d"])
    assert [(p.taken, p.steps) for p in parts] == [(True, (0, 2)), (False, (1,)), (True, (3,))]
    assert parts[0].outputs == ("a", "c")
    assert parts[2].inputs == ("b", "c")


def test_single_convert_is_not_worth_a_part() -> None:
    steps = [
        PartitionStep(("in0",), ("a",), False),
        PartitionStep(("a",), ("b",), True, convert=True),
        PartitionStep(("b",), ("c",), False),
    ]
    assert [(p.taken, p.steps) for p in partition(steps, ["c"])] == [(False, (0, 1, 2))]
    assert len(partition(steps, ["c"], keep_converts=True)) == 3


def test_cycle_is_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        partition([PartitionStep(("b",), ("a",), True), PartitionStep(("a",), ("b",), True)], ["a"])
