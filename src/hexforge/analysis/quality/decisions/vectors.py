# SPDX-License-Identifier: Apache-2.0
"""Vectors: outputs that are compared by their direction, and numbers that are read as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.measure import Outputs, Tally, common_part, rows_of, share, total
from hexforge.ir import Array


@dataclass(frozen=True, slots=True)
class Embedding:
    """Vectors that are told apart by the cosine between them."""

    output: str
    axis: int = -1
    kind: str = "embedding"
    about: str = "the cosine between both models' vectors"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output with the vectors."""
        return (self.output,)

    def decide(self, outputs: Outputs) -> Array:
        """The vectors, one a row."""
        return rows_of(outputs[self.output], self.axis)

    def compare(self, reference: Array, other: Array) -> Tally:
        """The cosines; vectors of no length have a cosine of 1 with another such."""
        first, second = common_part(reference, other)
        lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        same = (first == second).all(1)
        products = np.einsum("ij,ij->i", first, second)
        cosines = np.where(same, 1.0, np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0))
        return {"vectors": len(cosines), "cosine": float(cosines.sum()), "least": float(cosines.min(initial=1.0))}

    def figures(self, tallies: Sequence[Tally]) -> dict[str, float]:
        """The mean cosine, and the least one."""
        mean = share(total(tallies, "cosine"), total(tallies, "vectors"))
        return {"agreement": mean, "least_cosine": min((t["least"] for t in tallies), default=float("nan"))}

    def words(self, decision: Array) -> str:
        """How many there are and how long they are."""
        rows, size = decision.shape
        return f"{rows} vector{'s' if rows > 1 else ''} of {size} numbers, length {np.linalg.norm(decision[0]):.4g}"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Numbers that are read as they are: how much of what they tell is kept."""

    output: str
    kind: str = "numbers"
    about: str = "how much of the numbers' variance is explained"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The output."""
        return (self.output,)

    def decide(self, outputs: Outputs) -> Array:
        """The numbers."""
        return np.ravel(outputs[self.output]).astype(np.float64)

    def compare(self, reference: Array, other: Array) -> Tally:
        """Sums that variance and error follow from; elements that are no finite number in float are left out."""
        first, second = common_part(reference, other)
        told = np.isfinite(first)
        first, second = first[told], np.nan_to_num(second[told], nan=0.0, posinf=0.0, neginf=0.0)
        return {
            "count": first.size,
            "sum": float(first.sum()),
            "squares": float(first @ first),
            "noise": float(np.square(first - second).sum()),
        }

    def figures(self, tallies: Sequence[Tally]) -> dict[str, float]:
        """The part of the variance, or of the square of a single number, that is not lost."""
        count, whole, squares, noise = (total(tallies, key) for key in ("count", "sum", "squares", "noise"))
        if not count:
            return {"agreement": float("nan")}
        variance = squares - whole * whole / count
        against = variance if variance > 1e-9 * squares else squares
        if not against:
            return {"agreement": 1.0 if not noise else 0.0}
        return {"agreement": max(0.0, 1 - noise / against)}

    def words(self, decision: Array) -> str:
        """The first numbers."""
        return " ".join(f"{x:.4g}" for x in decision[:6]) + (" …" if decision.size > 6 else "")
