# SPDX-License-Identifier: Apache-2.0
"""Views of an estimate: one line, a small page for notebooks, a pandas table and a matplotlib plot."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from hexforge.errors import UnsupportedError
from hexforge.timeline import Row

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate

_SHOWN = 12
"""Tasks that the small pictures show: those that take longest."""
_BAR, _HEIGHT, _LABEL = 320, 18, 260
_COLORS = {"HMX": "#3b6fb6", "HVX": "#3f9b62", "DMA": "#c07a2c"}
_OTHER = "#8a8a8a"


def one_line(estimate: Estimate) -> str:
    """What an estimate says, in one line."""
    parts = [
        f"{estimate.model} on {estimate.soc}, {estimate.precision}, {estimate.runtime}",
        f"{estimate.latency_ms:.3f} ms ({estimate.low_ms:.3f} to {estimate.high_ms:.3f})",
        f"{estimate.throughput:,.0f} per second",
        f"{len(estimate.rows)} tasks",
    ]
    if estimate.left_on_cpu:
        parts.insert(2, f"NPU part only, {len(estimate.left_on_cpu)} nodes on the CPU")
        if (total := estimate.total_us_rough) is not None:
            parts.insert(3, f"roughly {total / 1e3:.1f} ms with them")
    return f"<Estimate: {'; '.join(parts)}>"


def as_html(estimate: Estimate) -> str:
    """The line, and the tasks that take longest as bars, for a notebook."""
    rows = _longest(estimate)
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
    head = html.escape(one_line(estimate).removeprefix("<Estimate: ").removesuffix(">"))
    size = f'width="{_LABEL + _BAR + 140}" height="{_HEIGHT * len(rows)}"'
    return f'<p>{head}</p><svg xmlns="http://www.w3.org/2000/svg" {size} font-size="11">{"".join(bars)}</svg>'


def as_dataframe(estimate: Estimate) -> Any:
    """The tasks in the order they run, one row each, as a pandas.DataFrame."""
    try:
        import pandas as pd
    except ImportError:
        message = "to_dataframe needs pandas: pip install pandas; to_json() has the same numbers"
        raise UnsupportedError(message) from None
    return pd.DataFrame(estimate.to_json()["ops"])


def plot(estimate: Estimate, ax: Any = None) -> Any:
    """The tasks that take longest as bars, on matplotlib's axes, which are returned."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        message = "plot needs matplotlib: pip install matplotlib; hexforge estimate --report needs none"
        raise UnsupportedError(message) from None
    if ax is None:
        ax = plt.subplots(figsize=(8, 0.3 * _SHOWN + 1))[1]
    rows = _longest(estimate)[::-1]
    colors = [_COLORS.get(row.bound.upper(), _OTHER) for row in rows]
    ax.barh(range(len(rows)), [row.us for row in rows], color=colors)
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.set_xlabel("µs")
    ax.set_title(f"{estimate.model}, {estimate.soc}: {estimate.latency_ms:.3f} ms")
    return ax


def _longest(estimate: Estimate) -> list[Row]:
    """The tasks that take longest, longest first."""
    return sorted(estimate.rows, key=lambda row: -row.us)[:_SHOWN]
