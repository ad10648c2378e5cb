# SPDX-License-Identifier: Apache-2.0
"""Samples: calibration and evaluation data from files, Python objects or onnxruntime's readers, each sample checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.data.model_inputs import Input, checked_sample, inputs_of
from hexforge.quant.data.pictures import PictureFolder
from hexforge.quant.data.sample_files import file_samples, stacked_samples
from hexforge.quant.data.sample_sources import IndexedSamples, OnceReadSamples, SampleSource, StreamedSamples


class CheckedSamples:
    """Samples of an origin, each checked against the model's inputs when it is read."""

    def __init__(self, origin: SampleSource, inputs: Sequence[Input], skip: int = 0, limit: int | None = None) -> None:
        if skip < 0 or (limit is not None and limit < 0):
            raise CallError(f"skip {skip} and limit {limit} must not be negative")
        self.origin, self.inputs, self.skip, self.limit = origin, tuple(inputs), skip, limit

    def __iter__(self) -> Iterator[Feeds]:
        for where, raw in itertools.islice(self.origin.read(self.skip), self.limit):
            yield checked_sample(raw, self.inputs, where)

    def __len__(self) -> int:
        left = max(0, self.origin.count() - self.skip)
        return left if self.limit is None else min(left, self.limit)


def samples(
    source: Any, of: onnx_ir.Model | Sequence[Input], *, skip: int = 0, limit: int | None = None, **pictures: Any
) -> CheckedSamples:
    """Samples for a model, or for its inputs, from:

    a folder or file (see hexforge.quant.data.sample_files), `random:N` or `random:N:SEED`, a list or other sequence, a
    function that gives an iterator, an iterable, or onnxruntime's CalibrationDataReader. A sample is a dict of arrays
    by input name, or an array where there is one input. `skip` and `limit` choose among them; `pictures` are
    PictureOptions by name.
    """
    inputs = inputs_of(of) if isinstance(of, onnx_ir.Model) else tuple(of)
    origin: SampleSource
    if isinstance(source, CheckedSamples):
        origin = source.origin
        if source.limit is not None:
            left = max(0, source.limit - skip)
            limit = left if limit is None else min(limit, left)
        skip += source.skip
    elif isinstance(source, str) and source.startswith("random:"):
        origin = _random(source, inputs)
    elif isinstance(source, PictureFolder):
        origin = file_samples(source.path, inputs, {**source.options, **pictures})
    elif isinstance(source, (str, Path)):
        origin = file_samples(Path(source), inputs, pictures)
    elif isinstance(source, (Mapping, np.ndarray)):
        origin = stacked_samples(source, inputs, "the array")
    elif callable(getattr(source, "get_next", None)):
        origin = _reader(source, inputs)
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        origin = IndexedSamples(len(source), lambda i: (f"sample {i}", source[i]))
    elif hasattr(source, "__next__"):
        origin = OnceReadSamples(source, inputs, type(source).__name__)
    elif callable(source) or hasattr(source, "__iter__"):
        begin = source if callable(source) else source.__iter__
        origin = StreamedSamples(lambda: iter(begin()), getattr(source, "__name__", type(source).__name__))
    else:
        raise CallError(
            f"no samples can be made from {type(source).__name__}; give a folder, a list of dicts of arrays, a "
            "function that yields them, a CalibrationDataReader or 'random:8'"
        )
    return CheckedSamples(origin, inputs, skip, limit)


def _reader(reader: Any, inputs: Sequence[Input]) -> SampleSource:
    """onnxruntime's CalibrationDataReader: get_next gives samples until None, rewind starts anew where there is one."""

    def rest() -> Iterator[Any]:
        while (raw := reader.get_next()) is not None and (not isinstance(raw, Mapping) or raw):
            yield raw

    def restart_reader() -> Iterator[Any]:
        reader.rewind()
        return rest()

    name = type(reader).__name__
    return (
        StreamedSamples(restart_reader, name)
        if callable(getattr(reader, "rewind", None))
        else OnceReadSamples(rest(), inputs, name)
    )


def _random(text: str, inputs: Sequence[Input]) -> IndexedSamples:
    """random:N[:SEED]: normal numbers, bytes of all values, other integers and booleans 0 or 1."""
    parts = text.split(":")[1:]
    if len(parts) > 2 or not all(p.isdecimal() for p in parts) or not int(parts[0]):
        raise CallError(f"{text!r}: random samples are given as random:N or random:N:SEED, N at least 1")
    seed = int(parts[1]) if len(parts) == 2 else 0

    def get(i: int) -> tuple[str, Any]:
        random = np.random.default_rng((seed, i))
        return f"random sample {i}", {model_input.name: _random_array(random, model_input) for model_input in inputs}

    return IndexedSamples(int(parts[0]), get)


def _random_array(random: np.random.Generator, model_input: Input) -> Array:
    if None in model_input.shape:
        raise CallError(
            f"random samples need a fixed shape, and input {model_input} has none; fix it with --dim or --shape"
        )
    shape = tuple(d or 0 for d in model_input.shape)
    if model_input.dtype.kind in "fV":  # V: the small floats that numpy does not know itself
        return random.standard_normal(shape, np.float32).astype(model_input.dtype)
    if model_input.dtype.kind in "iu" and model_input.dtype.itemsize == 1:
        info = np.iinfo(model_input.dtype)
        return random.integers(info.min, info.max, shape, model_input.dtype, endpoint=True)
    return random.integers(0, 2, shape).astype(model_input.dtype)
