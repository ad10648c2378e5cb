# SPDX-License-Identifier: Apache-2.0
"""Several graphs on one accelerator: who runs when, what yielding costs, and what always holds."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.addons.device.scheduling.concurrent import ConcurrentRun, Tenant, simulate_concurrent
from hexforge.addons.device.scheduling.scheduler import Inference
from hexforge.chips.power import BURST, Power
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.timeline import Accelerator

MB = 1 << 20
TIMES = st.integers(0, 40).map(float)
LOWER = (Priority.LOW, Priority.NORMAL, Priority.NORMAL_HIGH, Priority.HIGH)


def called(
    name: str,
    pieces: tuple[float, ...],
    priority: Priority = Priority.NORMAL,
    vtcm_bytes: int = 0,
    count: int = 1,
    threads: int = 1,
    host_us: float = 0.0,
    start_us: float = 0.0,
    period_us: float = 0.0,
    reserved: int = 8 * MB,
) -> Tenant:
    """A model that reserves all VTCM unless another amount is said, so that it is saved when it gives way."""
    inference = Inference(pieces, host_us, vtcm_bytes=vtcm_bytes)
    return Tenant(name, inference, priority, reserved, count, threads, start_us, period_us)


def share(tenants: list[Tenant], us_per_mb: float = 0.0, power: Power = BURST) -> ConcurrentRun:
    return simulate_concurrent(tenants, Accelerator(8 * MB, us_per_mb), power)


@st.composite
def jobs(draw: st.DrawFn, count: int = 4) -> list[Tenant]:
    return [
        called(
            f"g{i}",
            tuple(draw(st.lists(st.integers(1, 30).map(float), min_size=1, max_size=5))),
            draw(st.sampled_from(LOWER)),
            draw(st.integers(0, 8)) * MB,
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(TIMES),
            draw(TIMES),
            draw(TIMES),
        )
        for i in range(draw(st.integers(1, count)))
    ]


def kinds(shared: ConcurrentRun) -> list[tuple[str, str, float, float]]:
    return [(s.name, s.kind, s.start_us, s.end_us) for s in shared.spans]


# -- what happens ----------------------------------------------------------------------------------------------------


def test_a_higher_priority_waits_for_the_piece_and_the_save_and_the_other_is_restored() -> None:
    low = called("low", (10.0, 10.0), Priority.LOW, 4 * MB)
    high = called("high", (5.0,), Priority.HIGH, start_us=3.0)
    shared = share([low, high], us_per_mb=0.5)
    assert kinds(shared) == [
        ("low", "run", 0, 10),
        ("low", "yield", 10, 12),
        ("high", "run", 12, 17),
        ("low", "restore", 17, 19),
        ("low", "run", 19, 29),
    ]
    first, second = shared.jobs
    assert (first.latencies_us, first.yields, first.moved_us) == ((29.0,), 1, 4.0)
    assert (second.latencies_us, second.yields, second.moved_us) == ((14.0,), 0, 0.0)


def test_same_priority_is_first_come_first_served() -> None:
    shared = share([called("late", (5.0, 5.0), start_us=1.0), called("early", (5.0, 5.0))], us_per_mb=1.0)
    assert [s.name for s in shared.spans] == ["early", "early", "late", "late"]


def test_the_most_urgent_goes_first_even_if_it_came_while_another_was_saved() -> None:
    low = called("low", (10.0, 10.0), Priority.LOW, 4 * MB)
    middle, high = called("middle", (5.0,), start_us=3.0), called("high", (5.0,), Priority.HIGH, start_us=11.0)
    shared = share([low, middle, high], us_per_mb=0.5)
    assert [s.name for s in shared.spans if s.kind == "run"] == ["low", "high", "middle", "low"]
    assert shared.jobs[0].yields == 1


def test_a_period_counts_from_when_the_inference_was_wanted() -> None:
    behind = share([called("a", (10.0,), count=3, period_us=4.0)]).jobs[0]
    assert behind.latencies_us == (10.0, 16.0, 22.0)
    ahead = share([called("a", (10.0,), count=3, period_us=40.0)]).jobs[0]
    assert ahead.latencies_us == (10.0, 10.0, 10.0)
    assert ahead.per_second == pytest.approx(3 / 90e-6)


def test_the_host_of_one_thread_hides_behind_the_accelerator_of_another() -> None:
    one, two, three = (share([called("a", (100.0,), count=400, threads=n, host_us=60.0)]).jobs[0] for n in (1, 2, 3))
    assert one.per_second == pytest.approx(1e6 / 160)
    assert two.per_second == pytest.approx(1e6 / 100, rel=0.01)  # the accelerator never idles
    assert three.per_second == pytest.approx(two.per_second, rel=0.01)
    assert three.mean_us > two.mean_us > one.mean_us  # for which calls queue


def test_priorities_are_those_of_the_option_and_of_the_published_table() -> None:
    names = [p.name.lower() for p in Priority]
    for name in names:
        assert ProviderOptions.parse({"qnn_context_priority": name}).qnn_context_priority == name
        assert Priority.of(name).name.lower() == name
    assert Priority.of("default") is Priority.NORMAL
    for name, published in {"low": 0, "normal": 100, "normal_high": 150, "high": 200}.items():
        assert Priority.of(name) == published
    with pytest.raises(CallError, match="'urgent' is not known; it is one of low, normal_low"):
        Priority.of("urgent")


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: share([]), "no model"),
        (lambda: share([called("a", (1.0,))], us_per_mb=-1.0), "us_per_mb -1"),
        (lambda: called("a", ()), "a: asks nothing of the accelerator"),
        (lambda: called("a", (1.0, -1.0)), "not below 0"),
        (lambda: called("a", (float("nan"),)), "finite"),
        (lambda: called("a", (1.0,), count=0), "at least 1"),
    ],
)
def test_bad_calls(call: object, match: str) -> None:
    with pytest.raises(CallError, match=match):
        call()  # type: ignore[operator]


# -- what always holds -----------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(jobs(), TIMES)
def test_work_is_conserved_and_the_accelerator_does_one_thing_at_a_time(
    given_jobs: list[Tenant], us_per_mb: float
) -> None:
    shared = share(given_jobs, us_per_mb)
    assert shared == share(given_jobs, us_per_mb)
    device = [s for s in shared.spans if s.unit == "HTP"]
    assert all(before.end_us <= after.start_us for before, after in pairwise(device))
    ran_us = sum(s.end_us - s.start_us for s in device if s.kind == "run")
    assert ran_us == pytest.approx(sum(sum(j.inference.pieces_us) * j.count for j in given_jobs))
    for job, found in zip(given_jobs, shared.jobs, strict=True):
        assert len(found.latencies_us) == job.count
        assert found.moved_us == pytest.approx(2 * found.yields * job.inference.vtcm_bytes / MB * us_per_mb)
        assert min(found.latencies_us) >= sum(job.inference.pieces_us) + job.inference.rpc_us - 1e-6
        for number in range(job.count):  # its pieces, all, in order
            ran = [s for s in device if (s.name, s.inference, s.kind) == (job.name, number, "run")]
            assert [s.end_us - s.start_us for s in ran] == pytest.approx(list(job.inference.pieces_us))


@settings(max_examples=40)
@given(jobs(), TIMES)
def test_the_accelerator_is_never_idle_or_at_less_urgent_work(given_jobs: list[Tenant], us_per_mb: float) -> None:
    """While a call waits the accelerator works; a piece is not chosen while one of higher priority waits."""
    shared = share(given_jobs, us_per_mb)
    priority = {job.name: job.priority for job in given_jobs}
    host = {job.name: job.inference.rpc_us / 2 for job in given_jobs}
    pieces = [s for s in shared.spans if s.kind == "run"]
    began = {(s.name, s.inference): s.start_us for s in reversed(pieces)}
    chosen = {s: s.start_us for s in pieces}
    for before, after in pairwise(s for s in shared.spans if s.unit == "HTP"):
        if before.kind == "restore":
            chosen[after] = before.start_us
    reached = {(s.name, s.inference): s.end_us for s in reversed(shared.spans) if s.kind == "host" and host[s.name] > 0}
    for piece, at in chosen.items():
        for call, ready in reached.items():
            if priority[call[0]] > priority[piece.name] and ready < at:
                assert began[call] < at
    ended = {(s.name, s.inference): s.end_us for s in pieces}
    for before, after in pairwise(s for s in shared.spans if s.unit == "HTP"):
        if before.end_us < after.start_us:
            assert all(ended[call] <= before.end_us for call, ready in reached.items() if ready < after.start_us)


@settings(max_examples=40)
@given(jobs(3), jobs(1), TIMES)
def test_the_most_urgent_waits_for_one_piece_and_one_exchange(
    others: list[Tenant], own: list[Tenant], us_per_mb: float
) -> None:
    job = replace(own[0], name="urgent", priority=Priority.CRITICAL, threads=1, period_us=0.0)
    found = share([*others, job], us_per_mb).jobs[-1]
    blocked = max(max(o.inference.pieces_us) + 2 * o.inference.vtcm_bytes / MB * us_per_mb for o in others)
    assert found.worst_us <= sum(job.inference.pieces_us) + job.inference.rpc_us + blocked + 1e-6
    assert found.yields == 0


@settings(max_examples=40)
@given(jobs(3), jobs(1), st.sampled_from(LOWER), TIMES)
def test_no_priority_is_faster_than_the_highest_but_for_the_exchange(
    others: list[Tenant], own: list[Tenant], lower: Priority, us_per_mb: float
) -> None:
    """Of one inference. Its save may take longer than what it would have waited for; later calls may meet others."""
    job = replace(own[0], name="one", count=1)
    raised, before = (
        share([*others, replace(job, priority=p)], us_per_mb).jobs[-1].mean_us for p in (Priority.CRITICAL, lower)
    )
    exchange = max(o.inference.vtcm_bytes for o in others) / MB * us_per_mb
    assert raised <= before + exchange + 1e-6


def test_raising_a_priority_can_cost_more_than_it_gains() -> None:
    """Why the property above is no stronger: to wait for one microsecond is cheaper than to save 8 MB."""
    long = called("long", (10.0, 1.0), vtcm_bytes=8 * MB)
    short = called("short", (5.0,), start_us=1.0)
    same, higher = (
        share([long, replace(short, priority=p)], 15.0).jobs[1].mean_us for p in (Priority.NORMAL, Priority.HIGH)
    )
    assert same < higher


@settings(max_examples=40)
@given(jobs(1), st.integers(1, 4))
def test_another_thread_never_lowers_the_throughput(own: list[Tenant], threads: int) -> None:
    job = replace(own[0], threads=threads)
    fewer, more = (share([replace(job, threads=n)]).jobs[0].per_second for n in (threads, threads + 1))
    assert more >= fewer * (1 - 1e-9)


# -- VTCM that stays, and the chip that sleeps -----------------------------------------------------------------------


def test_vtcm_stays_where_all_have_room_and_is_saved_when_one_more_comes() -> None:
    low = called("low", (10.0, 10.0), Priority.LOW, 2 * MB, reserved=3 * MB)
    middle = called("middle", (10.0, 10.0), Priority.NORMAL, 2 * MB, reserved=3 * MB, start_us=5.0)
    high = called("high", (5.0,), Priority.HIGH, 1 * MB, reserved=5 * MB, start_us=15.0)
    both = share([low, middle], us_per_mb=1.0)
    assert kinds(both) == [
        ("low", "run", 0, 10),
        ("low", "yield", 10, 10),
        ("middle", "run", 10, 20),
        ("middle", "run", 20, 30),
        ("low", "restore", 30, 30),
        ("low", "run", 30, 40),
    ]
    assert [(job.yields, job.moved_us) for job in both.jobs] == [(1, 0.0), (0, 0.0)]
    three = share([low, middle, high], us_per_mb=1.0)
    moves = [kind for kind in kinds(three) if kind[1] in ("yield", "save", "restore")]
    assert moves == [
        ("low", "yield", 10, 10),
        ("middle", "yield", 20, 22),  # 3 + 3 + 5 MB are too much; without middle's there is room for low's
        ("middle", "restore", 27, 29),
        ("low", "restore", 39, 39),
    ]
    huge = share([low, middle, replace(high, vtcm_bytes=8 * MB)], us_per_mb=1.0)
    assert [kind for kind in kinds(huge) if kind[1] == "save"] == [("low", "save", 22, 24)]
    assert huge.jobs[0].moved_us == 4.0


@settings(max_examples=60)
@given(jobs(), st.lists(st.integers(1, 8), min_size=4, max_size=4), st.integers(1, 40).map(float))
def test_what_lies_in_vtcm_fits(given_jobs: list[Tenant], sizes: list[int], us_per_mb: float) -> None:
    tenants = [
        replace(job, vtcm_bytes=size * MB, inference=replace(job.inference, vtcm_bytes=MB))
        for job, size in zip(given_jobs, sizes, strict=False)
    ]
    reserved = {tenant.name: tenant.vtcm_bytes for tenant in tenants}
    spans = [s for s in share(tenants, us_per_mb).spans if s.unit == "HTP"]
    last = {(s.name, s.inference): s for s in spans}
    inside: set[tuple[str, int]] = set()
    for span in spans:
        call = span.name, span.inference
        if span.kind in ("run", "restore"):
            inside.add(call)
            assert sum(reserved[name] for name, _ in inside) <= 8 * MB
        if span is last[call] or (span.kind in ("yield", "save") and span.end_us > span.start_us):
            inside.remove(call)


def test_a_chip_that_was_idle_wakes_and_one_that_others_keep_busy_does_not() -> None:
    power = Power("balanced", vote="sustained")  # sleeps as deep as 1000 us, polls for no result
    alone = share([called("a", (10.0,), count=2, host_us=300.0)], power=power)
    wakes = [s.end_us - s.start_us for s in alone.spans if s.kind == "wake"]
    assert wakes == [460.0, 460.0]  # it slept for the call and the CPU's waking; it was called before the first, too
    assert alone.jobs[0].latencies_us == (970.0, 970.0)
    other = called("b", (500.0,) * 8, Priority.LOW)
    busy = share([called("a", (10.0,), count=2, host_us=300.0), other], power=power)
    assert sum(s.kind == "wake" for s in busy.spans) == 1
