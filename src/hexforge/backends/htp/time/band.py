# SPDX-License-Identifier: Apache-2.0
"""Band: how far an estimate may be off, from how far the fits of the bag differ and how well its work is known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.backends.htp.time import cost
from hexforge.errors import FormatError

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
    "reduce": "reductions and large windows", "across": "reductions over pixels", "pool": "pooling",
    "scalar": "averages of windows element by element",
    "resize": "resizing", "shuffle": "transposes and reshapes", "copy": "slices, joins and gathers",
    "piece": "cuts and joins of rows", "cut": "slices of rows in onnx graphs", "split": "splits of rows",
    "stride": "strided windows", "pack": "shallow images", "operand": "operands of products",
    "border_transpose": "transposes at the border", "loose_product": "products of loose rows",
    "large_sum": "arithmetic beyond VTCM", "sorted": "sorting", "loose_row": "arithmetic of loose rows",
    "narrow_shuffle": "shuffles of narrow channels", "vector_op": "small ops", "handover": "small moves",
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
    distance: float = 0.0
    """The part of the time that is other work than that of the measured graph most like it."""


def certainty(
    work: WorkTimes,
    costs: cost.Costs,
    support: Mapping[str, Mapping[str, int]],
    measured: Mapping[str, np.ndarray] | None = None,
) -> Certainty:
    """How far the fits of the bag differ on a graph, and how well its work is known.

    `measured` has for each matrix rate the profiles of the graphs that were measured; without it none is missed.
    """
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
    far = 0.0 if measured is None else distance(each, measured)
    return Certainty(spread, named, sum(part for part, _ in rare), far)


def profile(work: WorkTimes) -> np.ndarray:
    """The part of the time that each kind of work takes, in the order of NAMES; a kind without a name is a sum."""
    parts = dict.fromkeys(NAMES, 0.0)
    for _, kind, us in work:
        parts[kind if kind in parts else "add"] += us
    times = np.array(list(parts.values()))
    return np.asarray(times / (times.sum() or 1.0))


def distance(work: WorkTimes, measured: Mapping[str, np.ndarray]) -> float:
    """The part of a graph's time that is other work than that of the measured graph most like it: 0 to 1."""
    each = list(work)
    by_rate: dict[str, float] = {}
    for rate, _, us in each:
        by_rate[rate] = by_rate.get(rate, 0.0) + us
    known = measured.get(max(by_rate, key=lambda rate: by_rate[rate], default=""), np.zeros((0, len(NAMES))))
    if not len(known):
        return 1.0
    return float(np.maximum(0.0, profile(each) - known).sum(1).min())


def measured_profiles(fit: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The profiles that a file of costs holds, by matrix rate; FormatError for one that is none."""
    kinds, profiles = fit["profile_kinds"], {}
    column = [kinds.index(kind) if kind in kinds else -1 for kind in NAMES]
    for rate, by_model in fit["profiles"].items():
        try:
            parts = np.array(list(by_model.values()), float).reshape(len(by_model), len(kinds))
        except (TypeError, ValueError):
            raise FormatError(f"profiles of {rate}: a profile is {len(kinds)} numbers, one for each kind") from None
        profiles[rate] = np.hstack([parts, np.zeros((len(parts), 1))])[:, column]
    return profiles


def band_shape(known: Certainty) -> float:
    """How much wider the band is than for a graph near a measured one, on which all fits agree."""
    apart = (known.spread / SPREAD_UNIT, known.little_known_part / RARE_UNIT, max(1.0, known.distance / NEAR) ** STEEP)
    return math.hypot(1.0, *apart) / math.sqrt(2)


SPREAD_UNIT, RARE_UNIT = 0.1, 0.2
"""The spread, and the part of the time in little known work, that each make a band 1.2 times as wide."""
NEAR, STEEP = 0.1, 1.5
"""The distance up to which a graph is near a measured one, and how steeply bands widen beyond it. Of distances from
0.1 to 0.25, and of 1 and 1.5, with these the bands of every kind of model hold most."""


def band_width(
    known: Certainty, rates: Iterable[str], runtime: str, measured: bool, fit: Mapping[str, Any] | None = None
) -> float:
    """The logarithm an estimate may be off by, as nine of ten models of held-out families were at most."""
    band = (cost.fitted() if fit is None else fit)["band"]
    half = max((band["half_width"][rate][runtime] for rate in rates), default=0.0) * band_shape(known)
    return float(half if measured else math.hypot(half, band["unmeasured_chip"]))
