# SPDX-License-Identifier: Apache-2.0
"""Answers: decisions by the highest of some scores: a class, a set of labels, a text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.analysis.quality.decisions.measure import OfOneOutput, Outputs, Tally, common_part, rows_of, share
from hexforge.ir import Array

TOP = 5
LIKELY = 0.5
"""A label is given from this probability on."""
SHOWN = 12
MOST_SYMBOLS = 4096
"""Symbols of a text whose difference is counted; what is longer is compared place by place."""


@dataclass(frozen=True, slots=True)
class Classification(OfOneOutput):
    """The class with the highest score, for each row."""

    axis: int = -1
    kind: str = "classification"
    about: str = "the class with the highest score"

    def decide(self, outputs: Outputs) -> Array:
        """The scores, a row for each decision; classes themselves where the model gives those."""
        array = outputs[self.output]
        return np.ravel(array) if array.dtype.kind in "iu" else rows_of(array, self.axis)

    def compare(self, reference: Array, other: Array) -> Tally:
        """Rows, and in how many the first class, in how far the first five and the margin are the same."""
        reference, other = common_part(reference, other)
        if reference.ndim == 1:
            return {"rows": len(reference), "top1": int((reference == other).sum())}
        first = reference.argmax(1)
        tally: Tally = {"rows": len(reference), "top1": int((other.argmax(1) == first).sum())}
        if reference.shape[1] > TOP:
            tops = [np.argsort(-scores, axis=1, kind="stable")[:, :TOP] for scores in (reference, other)]
            tally["top5"] = float((tops[0][:, :, None] == tops[1][:, None]).any(2).mean(1).sum())
        if reference.shape[1] > 1:
            tally["margin"], tally["kept"] = _margins(reference, first), _margins(other, first)
        return tally

    def figures(self, tally: Tally) -> dict[str, float]:
        """Top-1, top-5 (how many of the first five are the same), and how much of the margin is kept."""
        rows = tally["rows"]
        figures = {"agreement": share(tally["top1"], rows)}
        if "top5" in tally:
            figures["top5"] = share(tally["top5"], rows)
        if "margin" in tally:
            figures["margin"] = share(tally["kept"], tally["margin"])
        return figures

    def words(self, decision: Array) -> str:
        """The classes."""
        classes = decision if decision.ndim == 1 else decision.argmax(1)
        return f"class {_listed(classes)}"


def _margins(scores: Array, classes: Array) -> float:
    """How far the scores of these classes are above the best other ones, summed up."""
    own = scores[np.arange(len(scores)), classes]
    others = scores.copy()
    others[np.arange(len(scores)), classes] = -np.inf
    margins = own - others.max(1)
    return float(margins[np.isfinite(margins)].sum())


@dataclass(frozen=True, slots=True)
class Labels(OfOneOutput):
    """Every label whose probability is at least a half; without any, the most likely one."""

    kind: str = "labels"
    about: str = "every label of a probability of at least 0.5"

    def decide(self, outputs: Outputs) -> Array:
        """The probabilities of one sample's labels."""
        return rows_of(outputs[self.output])

    def compare(self, reference: Array, other: Array) -> Tally:
        """Labels of either, and those of both."""
        reference, other = common_part(reference, other)
        one, two = reference >= LIKELY, other >= LIKELY
        first = int((reference.argmax(1) == other.argmax(1)).sum())
        return {
            "one": int(one.sum()), "two": int(two.sum()), "both": int((one & two).sum()), "top1": first,
            "rows": len(reference), "columns": reference.shape[1],
        }  # fmt: skip

    def figures(self, tally: Tally) -> dict[str, float]:
        """Twice the labels that both give, over all labels of either; the first label where none is likely."""
        one, two, both = (float(tally[key]) for key in ("one", "two", "both"))
        top1 = share(tally["top1"], tally["rows"])
        if not one + two:  # without any label the likeliest one counts, where there are several
            return {"agreement": top1 if tally["columns"] > 1 else float("nan")}
        figures = {"agreement": share(2 * both, one + two), "precision": share(both, two), "recall": share(both, one)}
        return figures | {"labels": one}

    def words(self, decision: Array) -> str:
        """The labels."""
        return f"labels {_listed(np.flatnonzero((decision >= LIKELY).any(0)))}"


@dataclass(frozen=True, slots=True)
class SymbolSequence(OfOneOutput):
    """A symbol at each place, or the text that CTC makes of them: repeats are one, and blanks are left out."""

    axis: int = -1
    blank: int | None = None
    """The blank of CTC; None where every place is a symbol of its own."""
    kind: str = "sequence"

    @property
    def about(self) -> str:
        """How symbols become a text."""
        if self.blank is None:
            return "the symbol with the highest score at each place"
        return f"the text without repeats and blanks (CTC, symbol {self.blank} is blank)"

    def decide(self, outputs: Outputs) -> Array:
        """The symbols at all places."""
        array = outputs[self.output]
        return np.ravel(array) if array.dtype.kind in "iu" else rows_of(array, self.axis).argmax(1)

    def text(self, symbols: Array) -> Array:
        """The text of symbols."""
        if self.blank is None or not len(symbols):
            return symbols
        first = np.concatenate([[True], symbols[1:] != symbols[:-1]])
        return np.asarray(symbols[first & (symbols != self.blank)])

    def compare(self, reference: Array, other: Array) -> Tally:
        """Places and symbols, and in how many both differ."""
        places = [part.tolist() for part in common_part(reference, other)]
        same = sum(a == b for a, b in zip(*places, strict=True))
        tally: Tally = {"places": max(len(reference), len(other)), "same": same}
        if self.blank is not None:
            texts = self.text(reference), self.text(other)
            tally["symbols"] = max(map(len, texts))
            tally["edits"] = edit_distance(*texts)
            tally["texts"], tally["exact"] = 1, int(np.array_equal(*texts))
        return tally

    def figures(self, tally: Tally) -> dict[str, float]:
        """The share of symbols that are the same, after CTC where there is one, and of whole texts."""
        places = share(tally["same"], tally["places"])
        if self.blank is None:
            return {"agreement": places}
        symbols = tally["symbols"]
        agreement = 1 - share(tally["edits"], symbols) if symbols else places
        texts = share(tally["exact"], tally["texts"])
        return {"agreement": agreement, "same_texts": texts, "places": places}

    def words(self, decision: Array) -> str:
        """The text as numbers of symbols."""
        return f"symbols {_listed(self.text(decision))}"


def edit_distance(first: Array, second: Array) -> int:
    """How many symbols must be changed, added or left out to make one text the other."""
    if max(len(first), len(second)) > MOST_SYMBOLS:
        size = min(len(first), len(second))
        return int((first[:size] != second[:size]).sum()) + abs(len(first) - len(second))
    numbers = np.arange(len(second) + 1)
    row = numbers.copy()
    for done, symbol in enumerate(first, 1):
        step = np.minimum(row[1:] + 1, row[:-1] + (second != symbol))
        row = np.concatenate([[done], step])
        row = np.minimum.accumulate(row - numbers) + numbers  # symbols added one after another
    return int(row[-1])


def _listed(numbers: Array) -> str:
    """The first of some numbers."""
    shown = " ".join(map(str, numbers[:SHOWN].tolist()))
    return f"{shown or 'none'}{' …' if len(numbers) > SHOWN else ''}"
