# SPDX-License-Identifier: Apache-2.0
"""Amounts: bytes and times in the unit that suits them."""

from __future__ import annotations

import math


def time(us: float) -> str:
    """A time in the unit that suits it."""
    return f"{us / 1e3:,.2f} ms" if us >= 1e3 else f"{us:.1f} µs" if us >= 1 else f"{us:.2g} µs"


def decibels(ratio: float | None, digits: int = 2) -> str:
    """A ratio in dB, without its unit; infinite where nothing is lost, or everything."""
    if ratio is None or math.isnan(ratio):
        return "-"
    return f"{ratio:.{digits}f}" if math.isfinite(ratio) else "exact" if ratio > 0 else "lost"


def with_decibels(ratio: float) -> str:
    """A ratio with its unit."""
    return decibels(ratio, 1) + " dB" * math.isfinite(ratio)


def size(count: float) -> str:
    """Bytes in the unit that suits them."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"
