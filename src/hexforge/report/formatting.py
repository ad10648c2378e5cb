# SPDX-License-Identifier: Apache-2.0
"""Formatting: amounts with their units, and what bounds a model or a task, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.amounts import size, time
from hexforge.analysis.estimate import Estimate
from hexforge.timeline import Event, Row, Timeline


def npu_part_only(estimate: Estimate) -> str:
    """What a latency is of, where nodes stay with the CPU."""
    count = len(estimate.left_on_cpu)
    return f"NPU part only, {count} {'node' if count == 1 else 'nodes'} on the CPU"


def whole_time(estimate: Estimate) -> str:
    """NPU and CPU together in a sentence, marked as rough; why there is no such time where there is none."""
    total, cpu = estimate.total_us_rough, estimate.cpu
    if cpu is None or total is None or cpu.us is None:
        why = "its measurement was left out" if cpu is None else cpu.missing
        return f"The CPU's part is not known: {why}."
    rate = f", {_two_digits(1e6 * estimate.timeline.batch / total)} per second" if estimate.threads == 1 else ""
    return (
        f"About {time(total)} in all{rate}, rough (within a factor of two): the CPU takes about {time(cpu.us)}, "
        f"measured as {time(cpu.here_us)} on one core of this computer and scaled to a {cpu.core}; of the NPU's part "
        f"{time(estimate.transfers_us)} is what passing tensors between them takes."
    )


def _two_digits(amount: float) -> str:
    return f"{float(f'{amount:.2g}'):,.0f}" if amount >= 1 else f"{amount:.2g}"


def bottleneck(rows: Sequence[Row], whole_us: float) -> str:
    """Why tasks of the same work take their time; the name of the first goes before."""
    row, whole = rows[0], sum(r.us for r in rows)
    more, in_each = (f", with {len(rows) - 1} more of the same work", " in each") if len(rows) > 1 else ("", "")
    took = f"{time(whole)}, {100 * whole / whole_us:.0f} % of the accelerator's time{more}. "
    if row.bound == "DMA":
        moved = [
            f"{size(count)} of {kind_moved}"
            for count, kind_moved in ((row.weight_bytes, "weights"), (row.spill_bytes, "activations"))
            if count
        ]
        return took + f"Waits {time(row.wait_us)} for {' and '.join(moved) or 'transfers'} from DRAM{in_each}."
    if row.bound in ("HMX", "HVX"):
        kind, busy = ("Matrix", row.hmx_us) if row.bound == "HMX" else ("Vector", row.hvx_us)
        return took + f"{kind} work: {row.bound} is busy for {time(busy)}{in_each}."
    return took + "Mostly the fixed cost of starting a task."


BOUND = {
    "hmx": "Bound by matrix work: HMX takes {:.0f} % of the call, more than anything else.",
    "hvx": "Bound by vector work: HVX takes {:.0f} % of the call, more than anything else.",
    "dma": "Bound by DRAM: {:.0f} % of the call goes by waiting for weights and activations to arrive.",
    "overhead": "Bound by the number of tasks: starting them takes {:.0f} % of the call.",
    "host": "Bound by the call itself: {:.0f} % of it is on the host. Batches or several threads share that cost.",
    "queue": "Bound by the other threads: {:.0f} % of the call waits for theirs.",
}
"""What takes the largest part of a call, with its percentage."""


def critical(line: Timeline) -> str:
    """What the end of the inference waited for."""
    if not line.critical:
        return "The graph has no tasks."
    on_the_way = pieces(line.critical)
    longest = max(on_the_way, key=lambda e: e.end_us - e.start_us)
    return (
        f"What the end waited for, back to the start: {len(on_the_way)} pieces, {time(line.accelerator_us)}. "
        f"The longest is {longest.name}: {time(longest.end_us - longest.start_us)} on {longest.unit}."
    )


def pieces(events: Sequence[Event]) -> list[Event]:
    """The events, with consecutive events of one task and unit joined."""
    joined: list[Event] = []
    for event in events:
        last = joined[-1] if joined else None
        if last and (last.unit, last.name) == (event.unit, event.name) and event.start_us - last.end_us < 1e-9:
            joined[-1] = Event(last.unit, last.name, last.start_us, event.end_us, last.bytes + event.bytes)
        else:
            joined.append(event)
    return joined
