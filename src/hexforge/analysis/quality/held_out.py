# SPDX-License-Identifier: Apache-2.0
"""Held out: samples that calibration does not see, and how good a quantized model is on them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hexforge.analysis.quality.comparison import Comparison, TensorError
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.quant.data.feeds import Feeds, Samples
from hexforge.quant.data.samples import CheckedSamples
from hexforge.results import Column, Result

ONE_OF, MOST = 5, 12
"""One sample of five is held out, and no more than so many; of fewer than five there is none to spare."""
WORST = 3
POOR_DB, GOOD_DB = 20.0, 35.0
"""Below the first a classifier begins to answer otherwise; above the second few tasks notice."""


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSamples:
    """Some of the samples, by number."""

    samples: Samples
    numbers: frozenset[int]

    def __iter__(self) -> Iterator[Feeds]:
        numbered = self.samples.numbered() if isinstance(self.samples, CheckedSamples) else enumerate(self.samples)
        return (feeds for number, feeds in numbered if number in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def sample_names(samples: Samples) -> tuple[Sequence[str], Sequence[int]]:
    """The files that samples come from, where they come from files, and their numbers."""
    if isinstance(samples, ChosenSamples):
        names, numbers = sample_names(samples.samples)
        places = [place for place, number in enumerate(numbers) if number in samples.numbers]
        return [names[place] for place in places if place < len(names)], [numbers[place] for place in places]
    origin, skip = getattr(samples, "origin", None), getattr(samples, "skip", 0)
    names = list(getattr(origin, "names", ()))[skip:]
    left_out = samples.left_out.numbers if isinstance(samples, CheckedSamples) else set()
    read = [i for i in range(len(samples)) if i not in left_out]
    return [names[i] for i in read if i < len(names)], read


@dataclass(frozen=True, slots=True, eq=False)
class SplitSamples:
    """What a model is calibrated on, and what it is judged by: others, where there are enough."""

    calibration: Samples
    judged: Samples
    held_out: bool

    @classmethod
    def of(cls, samples: Samples) -> SplitSamples:
        """Hold out samples that are spread over all of them."""
        count = len(samples)
        held_out_count = min(count // ONE_OF, MOST)
        if not held_out_count:
            return cls(samples, samples, held_out=False)
        numbers = frozenset((2 * i + 1) * count // (2 * held_out_count) for i in range(held_out_count))
        return cls(
            ChosenSamples(samples, frozenset(range(count)) - numbers), ChosenSamples(samples, numbers), held_out=True
        )


@dataclass(frozen=True, slots=True)
class LayerQuality(Result):
    """A tensor of the running model and its SQNR against the float model's."""

    name: str
    op_type: str
    sqnr_db: float

    described = (
        Column("worst layers", key="name"),
        Column("op", of="op_type"),
        Column("SQNR dB", "decibels", key="sqnr_db", rounded=3),
    )


@dataclass(frozen=True, slots=True)
class Quality(Result):
    """How near a quantized model comes to the float one."""

    samples: int
    held_out: bool
    """False where there were too few samples, so that it is judged by those it was calibrated on."""
    outputs: tuple[LayerQuality, ...]
    worst: tuple[LayerQuality, ...]
    """The layers that lost most, the worst first."""
    decisions: Decisions | None = None
    """How often it decides as the float model does, and alarms; None where that was not asked for."""

    described = ("sqnr_db decisions samples held_out outputs worst",)
    decimals = 3

    @classmethod
    def of(cls, compared: Comparison, *, held_out: bool) -> Quality:
        """The quality that a comparison with the float model shows."""
        worst = [row for row in compared.tensors if row.kind == "tensor"][:WORST]
        return cls(compared.samples, held_out, _rows(compared.outputs), _rows(worst), compared.decisions)

    @property
    def sqnr_db(self) -> float:
        """The SQNR of the output that lost most; infinite where nothing is lost."""
        return min((row.sqnr_db for row in self.outputs), default=math.nan)


def _rows(rows: Sequence[TensorError]) -> tuple[LayerQuality, ...]:
    return tuple(LayerQuality(row.name, row.op_type, row.sqnr_db) for row in rows)
