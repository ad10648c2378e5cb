# SPDX-License-Identifier: Apache-2.0
"""Views of an estimate: a small page for notebooks, a pandas table and a matplotlib plot."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from hexforge.errors import UnsupportedError
from hexforge.results import Column, Key
from hexforge.timeline import Row, Timeline

_SHOWN = 12
"""Tasks that the small pictures show: those that take longest."""
_BAR, _HEIGHT, _LABEL = 320, 18, 260
_COLORS = {"HMX": "#3b6fb6", "HVX": "#3f9b62", "DMA": "#c07a2c"}
_OTHER = "#8a8a8a"


def as_html(line: str, tasks: Sequence[Row]) -> str:
    """The line, and the tasks that take longest as bars, for a notebook."""
    rows = _longest(tasks)
    longest = max((row.us for row in rows), default=0.0) or 1.0
    bars = []
    for i, row in enumerate(rows):
        y, width = i * _HEIGHT, max(1.0, _BAR * row.us / longest)
        name, color = html.escape(row.name), _COLORS.get(row.bound.upper(), _OTHER)
        shown = name if len(row.name) <= 40 else html.escape(row.name[:39]) + "…"
        bars.append(
            f'<text x="{_LABEL - 6}" y="{y + 13}" text-anchor="end">{shown}<title>{name}</title></text>'
            f'<rect x="{_LABEL}" y="{y + 3}" width="{width:.1f}" height="{_HEIGHT - 6}" fill="{color}"/>'
            f'<text x="{_LABEL + width + 6:.1f}" y="{y + 13}">{row.us:,.1f} µs, {html.escape(row.bound)}</text>'
        )
    head = html.escape(line)
    size = f'width="{_LABEL + _BAR + 140}" height="{_HEIGHT * len(rows)}"'
    return f'<p>{head}</p><svg xmlns="http://www.w3.org/2000/svg" {size} font-size="11">{"".join(bars)}</svg>'


def task_columns(line: Timeline) -> tuple[Key, ...]:
    """The figures of a task, each rounded as JSON has it; its share is of the accelerator's time."""
    whole_us = line.accelerator_us
    return (
        Column("task", about="The node that names the task", key="name", text=_short_name),
        Column("op", choose=True, about="Its QNN op", text=_with_fused),
        Key("nodes", of="ops"),
        Column("start µs", "number", 2, about="From the accelerator's start", key="start_us", rounded=3),
        Column("µs", "number", 2, "sum", about="By how much the inference is longer for it", key="us", rounded=3),
        Column("cycles", "number", 0, "sum", about="The same in core clocks", leaves=1),
        Column(
            "share", "share", 2, "sum", about="Of the accelerator's time", rounded=5,
            of=lambda row: row.us / whole_us if whole_us else 0.0,
        ),
        Column("bound by", choose=True, about="What it took longest for", key="bound"),
        _busy("HMX", "The matrix unit at work", 6),
        _busy("HVX", "The vector units at work", 5),
        _busy("DMA", "Transfers for it, before or during the task", 4),
        _busy("wait", "Of its time, what it waited for DMA", 3),
        _busy("overlap", "Of its time, while two units or more were at work", 2),
        Column("weights", "bytes", total="sum", key="weight_bytes"),
        Column("activations", "bytes", total="sum", about="Activations that go to DRAM and back", key="spill_bytes"),
        Column("VTCM", "bytes", total="max", about="In use while it runs", key="vtcm_bytes"),
    )  # fmt: skip


def _busy(name: str, about: str, leaves: int) -> Column:
    """A part of a task's time."""
    return Column(f"{name} µs", "number", 2, "sum", about=about, key=f"{name.lower()}_us", rounded=3, leaves=leaves)


def _short_name(task: Row) -> str:
    return task.name.removesuffix(f"_{task.op}")


def _with_fused(task: Row) -> str:
    return task.op + (f" (+{len(task.ops) - 1})" if len(task.ops) > 1 else "")


def plot(title: str, tasks: Sequence[Row], ax: Any = None) -> Any:
    """The tasks that take longest as bars, on matplotlib's axes, which are returned."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        message = "plot needs matplotlib: pip install matplotlib; hexforge estimate --report needs none"
        raise UnsupportedError(message) from None
    if ax is None:
        ax = plt.subplots(figsize=(8, 0.3 * _SHOWN + 1))[1]
    rows = _longest(tasks)[::-1]
    colors = [_COLORS.get(row.bound.upper(), _OTHER) for row in rows]
    ax.barh(range(len(rows)), [row.us for row in rows], color=colors)
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_xlabel("µs")
    ax.set_title(title)
    return ax


def _longest(tasks: Sequence[Row]) -> list[Row]:
    """The tasks that take longest, longest first."""
    return sorted(tasks, key=lambda row: -row.us)[:_SHOWN]
