# SPDX-License-Identifier: Apache-2.0
"""Vectors: outputs that are compared by their direction, and numbers that are read as they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.measure import OfOneOutput, Outputs, Tally, common_part, rows_of, share
from hexforge.ir import Array

LEAST_SPREAD = 0.05
"""The part of their squares that numbers spread by at least: one that is 24 in every sample is not far off at 24.4."""
FOLLOWED = 4096
"""Places of an output that are followed from sample to sample; of larger ones every so manieth."""
TELLING = 0.2
"""Samples tell what they differ by where they move numbers by this part of the spread."""
COUNTED, LEFT = 0.1, 0.9
"""How much of the error beside what samples differ by counts: numbers are good (0.99) where 90 % of that is explained.
Numbers that are near in units of their spread stay usable: samples may differ by little."""


@dataclass(frozen=True, slots=True)
class Embedding(OfOneOutput):
    """Vectors that are told apart by the cosine between them."""

    axis: int = -1
    kind: str = "embedding"
    about: str = "the cosine between both models' vectors"

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

    def figures(self, tally: Tally) -> dict[str, float]:
        """The mean cosine, and the least one."""
        mean = share(tally["cosine"], tally["vectors"])
        return {"agreement": mean, "least_cosine": tally["least"]}

    def words(self, decision: Array) -> str:
        """How many there are and how long they are."""
        rows, size = decision.shape
        return f"{rows} vector{'s' if rows > 1 else ''} of {size} numbers, length {np.linalg.norm(decision[0]):.4g}"


@dataclass(frozen=True, slots=True)
class Numbers(OfOneOutput):
    """Numbers that are read as they are: their error beside how far they lie apart, and how far samples move them."""

    about: str = "error beside the numbers' spread and what the samples differ by"
    kind: str = "numbers"

    def decide(self, outputs: Outputs) -> Array:
        """The numbers."""
        return np.ravel(outputs[self.output])

    def compare(self, reference: Array, other: Array) -> Tally:
        """Sums that spread, variation and error follow from; what is no finite number in float is left out."""
        first, second = (part.astype(np.float64) for part in common_part(reference, other))
        told = np.isfinite(first)
        first, second = np.where(told, first, 0.0), np.where(told & np.isfinite(second), second, 0.0)
        some = first[:: max(1, -(-first.size // FOLLOWED))]
        error = first - second
        return {
            "count": int(told.sum()), "sum": float(first.sum()), "squares": float(first @ first),
            "noise": float(error @ error), "samples": 1, "places": some, "place_squares": np.square(some),
            "size": first.size,
        }  # fmt: skip

    def figures(self, tally: Tally) -> dict[str, float]:
        """The part of the spread that is kept; less where the error is near what samples differ by, if they differ."""
        count, whole, squares, noise = (float(tally[key]) for key in ("count", "sum", "squares", "noise"))
        if not count:
            return {"agreement": float("nan")}
        variance = max(squares - whole * whole / count, 0.0)
        against = max(variance, LEAST_SPREAD * squares)
        if not against:
            return {"agreement": 1.0 if not noise else 0.0}
        moved = _variation(tally) * tally["size"]
        figures = {"agreement": max(0.0, 1 - noise / against), "error_of_spread": math.sqrt(noise / against)}
        if moved > 0:
            figures["error_of_variation"] = math.sqrt(noise / moved)
        if moved >= TELLING**2 * against:
            figures["agreement"] = min(figures["agreement"], max(LEFT, 1 - COUNTED * noise / moved))
        return figures

    def words(self, decision: Array) -> str:
        """The first numbers."""
        return " ".join(f"{x:.4g}" for x in decision[:6]) + (" …" if decision.size > 6 else "")


def _variation(tally: Tally) -> float:
    """The mean variance of a place over samples; 0 of one sample."""
    samples = tally["samples"]
    variance = tally["place_squares"] / samples - np.square(tally["places"] / samples)
    return float(np.maximum(variance, 0.0).mean()) if samples > 1 and variance.size else 0.0
