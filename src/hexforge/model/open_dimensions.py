# SPDX-License-Identifier: Apache-2.0
"""Open dimensions: which are batches and become 1, and what size suits the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hexforge.model.declarations import InputShape, declare, is_named, overridden_sizes
from hexforge.model.source import ModelSource, open_source

_BATCH = ("n", "b", "bs")
_PICTURE = ("height", "width", "h", "w", "size", "imgsz")
_SOUNDS = ("audio", "wave", "speech")
_LONG = ("audio", "samples", "wave", "frames_in", "time_steps")
PICTURE_SIZE, SEQUENCE_SIZE, AUDIO_SIZE = 224, 128, 16_000


@dataclass(frozen=True, slots=True)
class FixedSizes:
    """Sizes for `read`: those given, and a batch of one where none was."""

    dims: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    note: str = ""
    """What was assumed, for people; empty where nothing was."""
    overridden: str = ""
    """Which sizes that the model fixes were given others, for people; empty where none was."""


def with_batch_of_one(
    source: ModelSource, dims: Mapping[str, int] | None = None, shapes: Mapping[str, Sequence[int]] | None = None
) -> FixedSizes:
    """The sizes given, with 1 for every open dimension that is a batch; the others stay open."""
    return batch_of_one(declared_inputs(source), dims or {}, shapes or {})


def declared_inputs(source: ModelSource) -> dict[str, InputShape]:
    """The inputs of a model with the shapes that it declares."""
    proto = open_source(source, schemas=False).proto
    constants = {t.name for t in proto.graph.initializer}
    return {v.name: declare(v).shape for v in proto.graph.input if v.name not in constants}


def batch_of_one(
    declared: Mapping[str, InputShape], dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]
) -> FixedSizes:
    """The sizes given for inputs as a model declares them, with 1 for every open dimension that is a batch."""
    fixed = {name: tuple(shape) for name, shape in shapes.items()}
    named = dict(dims)
    fixed_names = {d for name in fixed for d in declared.get(name) or () if isinstance(d, str)}
    assumed: list[str] = []
    for name, shape in declared.items():
        if shape is None or name in fixed or not any(_is_open(d) for d in shape):
            continue
        for dim in shape:
            if (
                isinstance(dim, str)
                and is_named(dim)
                and dim not in fixed_names | named.keys()
                and _is_batch(dim, declared)
            ):
                named[dim] = 1
                assumed.append(f"{dim} is 1")
        unnamed = [axis for axis, d in enumerate(shape) if _is_open(d) and not (isinstance(d, str) and is_named(d))]
        sizes = [named.get(d) if isinstance(d, str) else d for d in shape]
        if unnamed == [0] and len(shape) > 1 and all(isinstance(s, int) and s >= 0 for s in sizes[1:]):
            fixed[name] = (1, *(s for s in sizes[1:] if s is not None))
            assumed.append(f"the batch of {name!r} is 1")
    return FixedSizes(named, fixed, ", ".join(assumed), "; ".join(overridden_sizes(declared, shapes)))


def suggested_size(symbol: str | None, axis: int, shape: Sequence[Any], name: str = "") -> int:
    """A size that suits an open dimension, by its name and its place in the input called `name`."""
    words = (symbol or "").lower()
    if axis == 0 or "batch" in words:  # an input of one dimension has a value for each of the batch
        return SEQUENCE_SIZE if len(shape) == 1 and "batch" not in words and words not in _BATCH else 1
    if words in _BATCH and not any("batch" in str(dim).lower() for dim in shape):
        return 1
    if len(shape) == 3 and axis == 1 and not symbol and isinstance(shape[0], int):
        return 1  # the state of a recurrent layer: [layers, batch, width]
    if any(word in words for word in _LONG) or (len(shape) == 2 and any(word in name.lower() for word in _SOUNDS)):
        return AUDIO_SIZE
    if words in _PICTURE or len(shape) == 4 or any(word in words for word in ("height", "width")):
        return PICTURE_SIZE
    return SEQUENCE_SIZE


def _is_open(dim: int | str | None) -> bool:
    return not isinstance(dim, int) or dim < 0


def _is_batch(symbol: str, declared: Mapping[str, InputShape]) -> bool:
    """True for a name that says so, or where it is the first but not the only dimension of every input that has it."""
    words = symbol.lower()
    places = [
        (axis, len(shape or ())) for shape in declared.values() for axis, dim in enumerate(shape or ()) if dim == symbol
    ]
    if "batch" in words or (words in _BATCH and any(place == 0 for place, _ in places)):
        return True
    return all(place == 0 and rank > 1 for place, rank in places) and not any(
        word in words for word in ("len", "seq", "time", "height", "width", "tokens")
    )
