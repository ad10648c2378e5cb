# SPDX-License-Identifier: Apache-2.0
"""Band: how far an estimate may be off, from how far the fits of the bag differ and how well its work is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.backends.htp.time import cost

FEW = 3
"""Families below which a kind of work is little known at a precision."""
LEANS = 0.05
"""Part of the time from which on a graph leans on a kind of work."""
NAMES: Mapping[str, str] = {
    "conv": "dense convolutions", "pointwise": "pointwise convolutions", "depthwise": "depthwise convolutions",
    "grouped": "convolutions in groups", "product": "matrix products", "linear": "products of pixels",
    "classifier": "a product of one row", "conv3d": "3-D convolutions", "dilation": "dilated convolutions",
    "large_window": "large depthwise windows",
    "add": "element-wise arithmetic", "divide": "divisions", "batchnorm": "batch norms", "lookup": "look-ups",
    "softmax": "softmax", "large_attention": "attention beyond VTCM", "norm": "norms over rows",
    "reduce": "reductions and large windows", "row_reduce": "reductions over rows", "pool": "pooling",
    "resize": "resizing", "shuffle": "transposes and reshapes", "copy": "slices, joins and gathers",
    "piece": "cuts and joins of rows", "cut": "slices of rows in onnx graphs", "split": "splits of rows",
    "stride": "strided windows", "pack": "shallow images", "operand": "operands of products",
    "border_transpose": "transposes at the border", "vector_op": "small ops", "handover": "small moves",
    "dram": "transfers", "task": "small tasks",
    "mac": "convolutions off HMX", "host.call": "the call", "host.io": "inputs and outputs",
}  # fmt: skip
"""Kinds of work in words."""

WorkTimes = Iterable[tuple[str, str, float]]
"""Matrix rate, kind of work, time: what a timeline has as `work_us`."""


@dataclass(frozen=True, slots=True)
class Certainty:
    """How well an estimate is known."""

    spread: float
    """Standard deviation of the logarithm of what the fits of the bag say."""
    little_known: tuple[str, ...]
    """Kinds of work it leans on that few measured families have at its precision, the longest first."""
    little_known_part: float
    """Their part of the time."""


def certainty(work: WorkTimes, costs: cost.Costs, support: Mapping[str, Mapping[str, int]]) -> Certainty:
    """How far the fits of the bag differ on a graph, and which of its work is little known."""
    each = [(rate, kind, us) for rate, kind, us in work if us > 0]
    whole = sum(us for _, _, us in each) or 1.0
    times = sum((us / whole * costs.member_ratio(kind, rate) for rate, kind, us in each), np.zeros(1))
    spread = float(np.log(times).std()) if len(times) > 1 else 0.0
    rare = sorted(
        (
            (us / whole, kind)
            for rate, kind, us in each
            if us >= LEANS * whole and support.get(rate, {}).get(kind, 0) < FEW
        ),
        reverse=True,
    )
    named = tuple(dict.fromkeys(NAMES.get(kind, kind) for _, kind in rare))
    return Certainty(spread, named, sum(part for part, _ in rare))


def band_shape(known: Certainty) -> float:
    """How much wider the band is than for a graph on which all fits agree."""
    return math.sqrt(1 + (known.spread / SPREAD_UNIT) ** 2 + (known.little_known_part / RARE_UNIT) ** 2)


SPREAD_UNIT = 0.1

RARE_UNIT = 0.2
"""The same for the part of the time in little known work."""


def band_width(
    known: Certainty, rates: Iterable[str], runtime: str, measured: bool, fit: Mapping[str, Any] | None = None
) -> float:
    """The logarithm an estimate may be off by, as nine of ten models of held-out families were at most."""
    band = (cost.fitted() if fit is None else fit)["band"]
    half = max((band["half_width"][rate][runtime] for rate in rates), default=0.0) * band_shape(known)
    return float(half if measured else math.hypot(half, band["unmeasured_chip"]))
