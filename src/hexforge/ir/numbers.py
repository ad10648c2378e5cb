# SPDX-License-Identifier: Apache-2.0
"""Numbers: what a long tuple of numbers is, in a fraction of its memory: the scales of a language model's blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

MANY = 4096
"""More numbers than these are an array, fewer a tuple: equal ones are then of one kind."""
_PIECE = 1 << 16
_KINDS = {"f": ("float16", "float32", "float64"), "i": ("int8", "int16", "int32", "int64")}
KINDS = tuple(kind for kinds in _KINDS.values() for kind in kinds)
"""The types that numbers are kept in: the smallest that holds all of them exactly."""


class NumberArray(Sequence[Any]):
    """Floats or integers that never change, as an array of the smallest type that holds them."""

    __slots__ = ("array",)

    def __init__(self, values: Any) -> None:
        given = np.asarray(values).reshape(-1)
        self.array = next(
            kept for kind in _KINDS["f" if given.dtype.kind == "f" else "i"] for kept in _kept(given, kind)
        )
        self.array.flags.writeable = False

    def __len__(self) -> int:
        return int(self.array.size)

    def __getitem__(self, index: Any) -> Any:
        part = self.array[index]
        return tuple(part.tolist()) if isinstance(part, np.ndarray) else part.item()

    def __iter__(self) -> Iterator[Any]:
        for first in range(0, self.array.size, _PIECE):
            yield from self.array[first : first + _PIECE].tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.array.astype(self.array.dtype if dtype is None else dtype, copy=bool(copy))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberArray) and np.array_equal(self.array, other.array)

    def __hash__(self) -> int:
        return hash((self.array.dtype.str, self.array.tobytes()))

    def __repr__(self) -> str:
        return f"NumberArray({len(self)} of {self.array.dtype.name})"


def _kept(values: np.ndarray[Any, Any], kind: str) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers as a smaller type, where that holds them."""
    with np.errstate(over="ignore", invalid="ignore"):
        kept = values.astype(kind)
    if np.array_equal(kept, values) or kept.dtype == np.promote_types(values.dtype, kind):
        yield kept


def many(values: Sequence[Any]) -> Sequence[Any]:
    """A sequence as encodings have it: a tuple, or an array of many."""
    if len(values) > MANY:
        return values if isinstance(values, NumberArray) else NumberArray(values)
    return values if isinstance(values, tuple) else tuple(values)
