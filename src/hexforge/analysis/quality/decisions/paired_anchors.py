# SPDX-License-Identifier: Apache-2.0
"""Paired anchors: a detector's raw outputs, judged without decoding them: which anchors pass, and how far they moved.

Both models have the same anchors, so an anchor of one is the anchor of the same number of the other, whatever grid,
scale or logarithm its numbers are in. How far it moved is told in units of what that number varies by among anchors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.detection import RANKED, THRESHOLD, AnchorScores, OutputPart, pictures_of
from hexforge.analysis.quality.decisions.measure import Outputs, Tally, share
from hexforge.ir import Array

SAME = 0.6
"""An anchor that passes in both models stays where it is if it moved by no more than this part of the spread."""
KEPT = 0.5
"""The part of the threshold that an anchor which passes in one model must keep in the other: several anchors find an
object, and of these some are always near the threshold."""
NEIGHBOURS = 3
"""Anchors of numbers that differ by no more lie beside each other."""
SPARSE = 8
"""Numbers that most anchors have alike vary by this part of their range."""
CANDIDATES = 4096
"""Anchors of a head that are looked at, the best first."""


@dataclass(frozen=True, slots=True)
class Anchors:
    """Scores and numbers of the same anchors."""

    scores: AnchorScores
    numbers: tuple[OutputPart, ...]
    """What moves: boxes, points, distributions."""
    units: tuple[float, ...]
    """What each column of `numbers` varies by in the float model; 0 where it does not."""

    @classmethod
    def of(cls, scores: AnchorScores, numbers: Sequence[OutputPart], outputs: Outputs) -> Anchors:
        """Anchors with what their numbers vary by in these outputs of the float model."""
        rows = np.concatenate([part.rows(outputs) for part in numbers], 1)
        rows = np.where(np.isfinite(rows).all(0), rows, 0.0)
        spread = np.maximum(rows.std(0), np.ptp(rows, axis=0) / SPARSE)
        return cls(scores, tuple(numbers), tuple(spread.tolist()))

    def places(self, outputs: Outputs, chosen: Array) -> Array:
        """The numbers of some anchors in their units."""
        units = np.array(self.units)
        rows = np.concatenate([part.rows(outputs)[chosen] for part in self.numbers], 1)
        return np.asarray(np.clip(rows[:, units > 0] / units[units > 0], -1e9, 1e9))


@dataclass(frozen=True, slots=True, eq=False)
class PassingAnchors:
    """The anchors of one head that pass, or come near it."""

    numbers: Array
    """Which they are, in rising order."""
    scores: Array
    classes: Array
    places: Array

    def runs(self, threshold: float) -> list[Array]:
        """The anchors that pass, those together that lie beside each other: they have found one object."""
        passing = np.flatnonzero(self.scores >= threshold)
        if not len(passing):
            return []
        return np.split(passing, np.flatnonzero(np.diff(self.numbers[passing]) > NEIGHBOURS) + 1)


@dataclass(frozen=True, slots=True)
class PairedAnchors:
    """Which of a detector's anchors pass in both models, and how far these moved."""

    heads: tuple[Anchors, ...]
    threshold: float = THRESHOLD
    batch: int = 1
    """Pictures of one sample, of which each has all anchors."""
    beside: tuple[str, ...] = ()
    """None is left: all outputs about the anchors are read."""
    kind: str = "detection"

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs with scores and numbers."""
        parts = [part for head in self.heads for part in (*head.scores.parts, *head.numbers)]
        return tuple(dict.fromkeys(part.output for part in parts))

    @property
    def about(self) -> str:
        """How they are read."""
        first = self.heads[0]
        more = f" and {len(self.heads) - 1} more such" if len(self.heads) > 1 else ""
        numbers = ", ".join(map(str, first.numbers))
        return f"anchor by anchor: which pass {self.threshold:g} by {first.scores}, and how far {numbers} moved{more}"

    def decide(self, outputs: Outputs) -> tuple[PassingAnchors, ...]:
        """The anchors that pass or come near it, the best few where none does."""
        pairs = [(head, picture) for picture in pictures_of(outputs, self.batch) for head in self.heads]
        best = [head.scores.best(picture) for head, picture in pairs]
        every = np.concatenate([scores for scores, _ in best])
        least = KEPT * self.threshold
        if not (every >= self.threshold).any():
            least = min(least, float(np.sort(every)[-2 * RANKED :].min(initial=least)))
        found = []
        for (head, picture), (scores, classes) in zip(pairs, best, strict=True):
            chosen = np.flatnonzero(scores >= least)
            if len(chosen) > CANDIDATES:
                chosen = np.sort(chosen[np.argsort(-scores[chosen], kind="stable")[:CANDIDATES]])
            found.append(PassingAnchors(chosen, scores[chosen], classes[chosen], head.places(picture, chosen)))
        return tuple(found)

    def compare(self, reference: tuple[PassingAnchors, ...], other: tuple[PassingAnchors, ...]) -> Tally:
        """Objects that either model finds, those that the other finds there, and how far they moved.

        An object counts at every threshold from this one up to its score: at which one it is looked for is not known,
        and what is found just so is lost as easily by either.
        """
        tally: Tally = dict.fromkeys(
            ("one", "two", "kept", "found", "moved", "pairs", "boxes", "ranked", "ranked_both"), 0
        )
        sure = any((own.scores >= self.threshold).any() for own in reference)
        for one, two in zip(reference, other, strict=True):
            if not sure:  # the best guesses of both
                tally["ranked"] += len(one.numbers)
                tally["ranked_both"] += len(np.intersect1d(one.numbers, two.numbers, assume_unique=True))
            for first, second, whole, again in ((one, two, "one", "kept"), (two, one, "two", "found")):
                for run in first.runs(self.threshold):
                    moved, again_by = self._found_again(first, run, second)
                    sure_by = float(first.scores[run].max()) - self.threshold
                    tally[whole] += sure_by
                    tally[again] += min(sure_by, max(0.0, again_by - self.threshold)) * (moved <= SAME)
                    tally["boxes"] += first is one
                    if first is one and np.isfinite(moved):
                        tally["moved"] += moved
                        tally["pairs"] += 1
        return tally

    def _found_again(self, own: PassingAnchors, run: Array, other: PassingAnchors) -> tuple[float, float]:
        """How far an object of one model is from the other's at these anchors or beside them, and its score there.

        Infinitely far where the other has none.
        """
        first, last = own.numbers[run[0]] - NEIGHBOURS, own.numbers[run[-1]] + NEIGHBOURS
        near = (other.numbers >= first) & (other.numbers <= last) & (other.scores >= KEPT * self.threshold)
        near &= np.isin(other.classes, own.classes[run])
        if not near.any():
            return float("inf"), 0.0
        score = float(other.scores[near].max())
        _, mine, theirs = np.intersect1d(own.numbers[run], other.numbers[near], True, return_indices=True)
        if not len(mine):
            return 0.0, score
        best = int(own.scores[run[mine]].argmax())
        places = own.places[run[mine[best]]], other.places[np.flatnonzero(near)[theirs[best]]]
        return (float(np.sqrt(np.square(places[0] - places[1]).mean())) if places[0].size else 0.0), score

    def figures(self, tally: Tally) -> dict[str, float]:
        """Objects that both find over those of either model, precision, recall, and how far they moved."""
        one, two, kept, found = (float(tally[key]) for key in ("one", "two", "kept", "found"))
        if not one + two:
            return {"agreement": share(tally["ranked_both"], tally["ranked"]), "boxes": 0.0}
        moved = share(tally["moved"], tally["pairs"])
        return {"agreement": share(kept + found, one + two), "precision": share(found, two),
                "recall": share(kept, one), "moved": moved, "boxes": tally["boxes"]}  # fmt: skip

    def words(self, decision: tuple[PassingAnchors, ...]) -> str:
        """How many pass, and the best of them."""
        scores = np.concatenate([own.scores for own in decision])
        classes = np.concatenate([own.classes for own in decision])
        passing = int((scores >= self.threshold).sum())
        order = np.argsort(-scores, kind="stable")[:4]
        shown = ", ".join(f"class {classes[i]}: {scores[i]:.2f}" for i in order)
        return f"{passing} anchor{'' if passing == 1 else 's'} of {self.threshold:g} and more (best: {shown or 'none'})"

    def can_change(self, output: str, highest: float) -> bool:
        """Whether an anchor passes whose scores reach this high in the float model."""
        scored = [head for head in self.heads if output in [part.output for part in head.scores.parts]]
        placed = any(part.output == output for head in self.heads for part in head.numbers)
        return placed or all(head.scores.can_pass(output, highest, KEPT * self.threshold) for head in scored)
