# SPDX-License-Identifier: Apache-2.0
"""Samples: calibration and evaluation data from files, Python objects or onnxruntime's readers, each sample checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from hexforge.errors import CallError, HexforgeError
from hexforge.ir import Array
from hexforge.quant.data.data_sets import ShardSamples, data_set
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.data.model_inputs import Input, checked_sample, inputs_of
from hexforge.quant.data.pictures import PictureFolder
from hexforge.quant.data.sample_files import file_samples, stacked_samples
from hexforge.quant.data.sample_sources import (
    IndexedSamples,
    OnceReadSamples,
    SampleSource,
    StreamedSamples,
    UnreadableSample,
)

_REASONS = 20
"""Of samples that cannot be read, as many say why."""


class LeftOutSamples:
    """Samples that could not be read and were left out: how many, and why the first."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.numbers: set[int] = set()

    def add(self, number: int, why: HexforgeError) -> None:
        """One more, unless it is known from an earlier reading."""
        if number not in self.numbers:
            self.numbers.add(number)
            if len(self.reasons) < _REASONS:
                self.reasons.append(str(why))

    def told(self) -> str:
        """How many there are and why the first was left out; nothing where there is none."""
        count = len(self.numbers)
        if not count:
            return ""
        said = "sample could not be read and was" if count == 1 else "samples could not be read and were"
        return f"{count:,} {said} left out; the first: {self.reasons[0]}"


class CheckedSamples:
    """Samples of an origin, each checked against the model's inputs when it is read."""

    def __init__(
        self,
        origin: SampleSource,
        inputs: Sequence[Input],
        skip: int = 0,
        limit: int | None = None,
        *,
        strict: bool = True,
    ) -> None:
        if skip < 0 or (limit is not None and limit < 0):
            raise CallError(f"skip {skip} and limit {limit} must not be negative")
        self.origin, self.inputs, self.skip, self.limit = origin, tuple(inputs), skip, limit
        self.strict, self.left_out = strict, LeftOutSamples()

    def __iter__(self) -> Iterator[Feeds]:
        return (feeds for _, feeds in self.numbered())

    def numbered(self) -> Iterator[tuple[int, Feeds]]:
        """The samples that can be read, with their numbers; an error where one cannot and all must, or none can."""
        first: HexforgeError | None = None
        any_read = False
        for number, sample in enumerate(self.from_number(0)):
            if not isinstance(sample, UnreadableSample):
                any_read = True
                yield number, sample
                continue
            if self.strict:
                raise sample.error
            first = first or sample.error
            self.left_out.add(number, sample.error)
        if first is not None and not any_read:
            raise CallError(f"no sample can be read; the first: {first}") from None

    def from_number(self, start: int) -> Iterator[Feeds | UnreadableSample]:
        """The samples from number `start` on, those that cannot be read among them."""
        most = None if self.limit is None else max(0, self.limit - start)
        for where, raw in itertools.islice(self.origin.read(self.skip + start), most):
            yield self.checked(where, raw)

    def checked(self, where: str, raw: Any) -> Feeds | UnreadableSample:
        """What was read as a sample of the model's inputs."""
        if isinstance(raw, UnreadableSample):
            return raw
        try:
            return checked_sample(raw, self.inputs, where)
        except HexforgeError as error:
            return UnreadableSample(error)

    def __len__(self) -> int:
        left = max(0, self.origin.count() - self.skip)
        return left if self.limit is None else min(left, self.limit)


def samples(
    source: Any,
    of: onnx_ir.Model | Sequence[Input],
    *,
    skip: int = 0,
    limit: int | None = None,
    strict: bool = True,
    **pictures: Any,
) -> CheckedSamples:
    """Samples for a model, or for its inputs, from:

    a folder or file (see hexforge.quant.data.sample_files), tar or Parquet shards or what fsspec opens (see
    hexforge.quant.data.data_sets), `random:N` or `random:N:SEED`, a list or other sequence, a
    function that gives an iterator, an iterable, or onnxruntime's CalibrationDataReader. A sample is a dict of arrays
    by input name, or an array where there is one input. `skip` and `limit` choose among them. A file that
    cannot be read is an error where they are `strict`, and else left out and counted. `pictures` are PictureOptions by
    name.
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
        origin = _stored(source.path, inputs, {**source.options, **pictures})
    elif isinstance(source, (str, Path)):
        origin = _stored(source, inputs, pictures)
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
    stored = isinstance(origin, ShardSamples | IndexedSamples) and origin.stored
    return CheckedSamples(origin, inputs, skip, limit, strict=strict or not stored)


def _stored(source: str | Path, inputs: Sequence[Input], pictures: Mapping[str, Any]) -> SampleSource:
    return data_set(str(source), inputs, pictures) or file_samples(Path(source), inputs, pictures)


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

    return IndexedSamples(int(parts[0]), get, stored=True, remote=True)


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
