# SPDX-License-Identifier: Apache-2.0
"""Steps: how far two results of one tensor are apart, in steps of its encoding, and how far they may be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.ir import Array
from hexforge.results import Key, Result

ENOUGH = 0.95
"""The share of a tensor's numbers that is within the tolerance where two results agree."""
HALF_BITS = 10
"""A step of a real number is so many bits below its tensor's largest: what float16 keeps of that."""


@dataclass(frozen=True, slots=True)
class StepTolerance:
    """How far results of a tensor may be apart: so many steps, and what a step is."""

    steps: int
    about: str


BY_BITS = {
    8: StepTolerance(1, "a step of 8 bits"),
    16: StepTolerance(32, "32 steps of 16 bits, an eighth of one of 8 bits"),
}
REAL = StepTolerance(8, "8 of 1,024 parts of the largest number")
EXACT = StepTolerance(0, "nothing: these are indices or truth values")


def tolerance_of(dtype: np.dtype[np.generic]) -> StepTolerance:
    """The tolerance for a tensor by the type that it is stored in."""
    if dtype.kind == "f":
        return REAL
    return BY_BITS.get(8 * dtype.itemsize, EXACT) if dtype.kind in "iu" else EXACT


@dataclass(slots=True)
class StepCounts(Result):
    """Differences of two results of a tensor, summed up over samples."""

    tolerance: int
    count: int = 0
    within: int = 0
    within_one: int = 0
    equal: int = 0
    largest: float = 0.0
    total: float = 0.0

    described = (
        Key("within_tolerance", of="share", rounded=6),
        Key("within_one_step", of=lambda counts: counts.within_one / counts.count if counts.count else 1.0, rounded=6),
        Key("largest_steps", of="largest", rounded=3),
        Key("mean_steps", of="mean", rounded=6),
    )

    def add(self, first: Array, second: Array) -> None:
        """Count the differences of one more sample."""
        apart = steps_apart(first, second)
        self.count += apart.size
        self.within += int((apart <= self.tolerance).sum())
        self.within_one += int((apart <= 1).sum())
        self.equal += int((apart == 0).sum())
        self.largest = max(self.largest, float(apart.max(initial=0.0)))
        self.total += float(apart.sum())

    @property
    def share(self) -> float:
        """The share within the tolerance."""
        return self.within / self.count if self.count else 1.0

    @property
    def mean(self) -> float:
        """The mean difference."""
        return self.total / self.count if self.count else 0.0

    @property
    def agree(self) -> bool:
        """True where enough is within the tolerance."""
        return self.share >= ENOUGH


def steps_apart(first: Array, second: Array) -> Array:
    """How many steps each number is apart; numbers that are not finite in both are none, in one infinitely many."""
    if first.shape != second.shape:
        return np.full(max(first.size, 1), np.inf)
    if first.dtype.kind == "f":
        finite = np.isfinite(first) & np.isfinite(second)
        largest = float(np.abs(first[np.isfinite(first)]).max(initial=0.0)) or 1.0
        with np.errstate(invalid="ignore"):
            apart = np.abs(first.astype(np.float64) - second.astype(np.float64)) * 2**HALF_BITS / largest
        same = (first == second) | (np.isnan(first) & np.isnan(second))
        return np.where(finite, apart, np.where(same, 0.0, np.inf))
    return np.abs(first.astype(np.int64) - second.astype(np.int64)).astype(np.float64)
