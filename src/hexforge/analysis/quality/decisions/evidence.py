# SPDX-License-Identifier: Apache-2.0
"""Evidence: whether an output's numbers behave over the samples as a kind of decision says; else numbers are judged.

A class is told by a winner that stands out from the others, and that is not always the same; a label by numbers that
are seldom near a half. Only the float model's numbers say so, so every model beside it is judged by the same kind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.measure import DecisionMeasure, Outputs, Tally

OUT = 1.8
"""How many times further than among random numbers the winner stands out from the second."""
MOST_ROWS = 4096
"""Rows of a sample that are looked at, about; of more every so manieth."""
WINNERS = 61
"""Winners are counted by their number modulo this, which tells whether it is always the same."""
SAME_PATTERN = 0.5
"""The part of the scores' variance that is the same in all samples at most: landmarks keep their pattern."""
CURVED, LEAST_CURVE = 0.5, 20
"""Classes have no order. Where the second of so many numbers is beside the first in this part of the rows, they are a
curve, such as pitches or chances over time."""
FEW_CLASSES = 4
"""Of so few numbers one stands out by chance."""
FEW_ROWS = 3
"""Of fewer rows one winner may be all there is to see."""
UNDECIDED = 0.25, 0.75
"""Between these a probability is near a half ..."""
MOST_UNDECIDED = 0.3
"""... as at most so many of all labels are."""


@dataclass(frozen=True, slots=True)
class Supposed:
    """A kind of decision that an output may be, for the samples to confirm; it stands behind the output's numbers."""

    measure: DecisionMeasure
    axis: int | None
    """Where the scores of classes lie; None where every number is a label of its own."""

    def confirmed(self, tally: Tally) -> bool:
        """Whether the float model's numbers behave so over these samples."""
        if self.axis is None:
            return bool(tally["undecided"] <= MOST_UNDECIDED * tally["numbers"])
        rows, size = tally["scored"], tally["columns"]
        varied = rows < FEW_ROWS or np.count_nonzero(tally["winners"]) > 1
        if size <= FEW_CLASSES or not rows or not varied:
            return False
        if self.measure.kind == "classification" and rows >= FEW_ROWS:
            mean = tally["scores_sum"] / rows
            if mean.var() > SAME_PATTERN * tally["variance"] / rows:
                return False
        if size >= LEAST_CURVE and rows >= FEW_ROWS and tally["beside"] >= CURVED * rows:
            return False
        return bool(tally["gap"] >= OUT * _random_gap(size) * rows)

    def evidence(self, outputs: Outputs) -> Tally:
        """What the float model's numbers of one sample say of the kind."""
        numbers = outputs[self.measure.outputs[0]]
        if self.axis is None:
            between = (numbers > UNDECIDED[0]) & (numbers < UNDECIDED[1])
            return {"undecided": int(between.sum()), "numbers": numbers.size}
        rows = np.moveaxis(numbers, self.axis, -1).reshape(-1, numbers.shape[self.axis])
        rows = rows[:: max(1, len(rows) // MOST_ROWS)].astype(np.float64)
        deviation = rows.std(1)
        told = deviation > 0
        first_two = np.argpartition(-rows, min(1, rows.shape[1] - 1), 1)[:, :2]
        best = -np.sort(-np.take_along_axis(rows, first_two, 1))
        gap = np.divide(best[:, 0] - best[:, -1], deviation, out=np.zeros(len(rows)), where=told)
        winners = np.bincount(rows[told].argmax(1) % WINNERS, minlength=WINNERS)
        rows = rows[told]
        return {"scored": len(rows), "gap": float(gap.sum()), "winners": winners, "columns": rows.shape[1],
                "scores_sum": rows.sum(0), "variance": float(rows.var(1).sum()),
                "beside": int((np.abs(first_two[told, 0] - first_two[told, -1]) == 1).sum())}  # fmt: skip


def _random_gap(size: int) -> float:
    """How far the largest of so many random numbers is above the second, in deviations, about."""
    return 1 / math.sqrt(2 * math.log(size)) if size > 1 else math.inf
