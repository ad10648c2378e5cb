# SPDX-License-Identifier: Apache-2.0
"""Measure: what a kind of decision brings: how outputs are decided on, and how two decisions are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from hexforge.ir import Array

Outputs = Mapping[str, Array]
LARGE = 1e30
"""What stands for an infinity: above all that a model computes, and its square is a number."""
Tally = dict[str, Any]
"""What one sample adds."""
LEAST = ("least", "columns", "size")
"""Of which the least counts; everything else is added."""


class DecisionMeasure(Protocol):
    """A kind of decision by some of a model's outputs."""

    @property
    def kind(self) -> str:
        """The word for it, as --metric takes it."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that it reads."""

    @property
    def about(self) -> str:
        """How they are read, in words."""

    def decide(self, outputs: Outputs) -> Any:
        """What a model decides on one sample."""

    def compare(self, reference: Any, other: Any) -> Tally:
        """How far two decisions on one sample are the same."""

    def figures(self, tally: Tally) -> dict[str, float]:
        """The figures of some samples: `agreement` first, NaN where nothing was decided."""

    def words(self, decision: Any) -> str:
        """A decision in words."""


@dataclass(frozen=True, slots=True)
class OfOneOutput:
    """A kind of decision by one output alone."""

    output: str

    @property
    def outputs(self) -> tuple[str, ...]:
        """It."""
        return (self.output,)


def together(mine: Tally, more: Tally) -> Tally:
    """The tallies of some samples and of one more; what is not known of every sample is not known of all."""
    return {key: _added(key, mine[key], more[key]) for key in mine if key in more}


def _added(key: str, first: Any, second: Any) -> Any:
    if key in LEAST:
        return min(first, second)
    if isinstance(first, np.ndarray) and len(first) != len(second):
        longer, shorter = (first, second) if len(first) > len(second) else (second, first)
        return longer + np.pad(shorter, (0, len(longer) - len(shorter)))
    return first + second


def share(part: float, whole: float) -> float:
    """A part of a whole; NaN of nothing."""
    return part / whole if whole else float("nan")


def common_part(first: Array, second: Array) -> tuple[Array, Array]:
    """What both arrays have: where a length depends on the data, the first so many elements."""
    if first.shape == second.shape:
        return first, second
    if first.ndim != second.ndim:
        size = min(first.size, second.size)
        return first.ravel()[:size], second.ravel()[:size]
    both = tuple(slice(min(a, b)) for a, b in zip(first.shape, second.shape, strict=True))
    return first[both], second[both]


def finite_numbers(outputs: Outputs) -> dict[str, Array]:
    """Outputs as decisions take them: floats of 32 bits, NaN as 0 and infinities as LARGE."""
    made = {}
    for name, output in outputs.items():
        array = np.asarray(output)
        if array.dtype.kind == "b":
            array = array.astype(np.uint8)
        elif array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
            if not np.isfinite(array).all():
                array = np.nan_to_num(array, nan=0.0, posinf=LARGE, neginf=-LARGE)
        made[name] = array
    return made


def rows_of(array: Array, axis: int = -1) -> Array:
    """An array as rows of what lies along an axis."""
    moved = np.moveaxis(np.asarray(array), axis, -1) if array.ndim else np.reshape(array, (1, 1))
    return moved.reshape(-1, moved.shape[-1]).astype(np.float64)
