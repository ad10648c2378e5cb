"""Samples: calibration and evaluation data from files, Python objects or onnxruntime's readers, each sample checked."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import onnx_ir

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.quant.decide.plan import Feeds


@dataclass(frozen=True, slots=True)
class Input:
    """What a model reads; None in its shape is a dimension of any size."""

    name: str
    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        dims = ", ".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.name!r} {self.dtype.name}[{dims}]"


def inputs_of(model: onnx_ir.Model) -> tuple[Input, ...]:
    """The inputs of a model."""
    found = []
    for value in model.graph.inputs:
        if value.dtype is None or value.shape is None or value.dtype == onnx_ir.DataType.STRING:
            raise CallError(
                f"input {value.name!r} is not a tensor of numbers with a known rank; samples cannot be made for it"
            )
        shape = tuple(d if isinstance(d, int) else None for d in value.shape)
        found.append(Input(str(value.name), shape, np.dtype(value.dtype.numpy())))
    return tuple(found)


class Origin(Protocol):
    """Where samples come from, unchecked: pairs of where one is from and what is there."""

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """From sample `start` on."""
        ...

    def count(self) -> int:
        """How many there are."""
        ...


class CheckedSamples:
    """Samples of an origin, each checked against the model's inputs when it is read."""

    def __init__(self, origin: Origin, inputs: Sequence[Input], skip: int = 0, limit: int | None = None) -> None:
        if skip < 0 or (limit is not None and limit < 0):
            raise CallError(f"skip {skip} and limit {limit} must not be negative")
        self.origin, self.inputs, self.skip, self.limit = origin, tuple(inputs), skip, limit

    def __iter__(self) -> Iterator[Feeds]:
        for where, raw in itertools.islice(self.origin.read(self.skip), self.limit):
            yield checked(raw, self.inputs, where)

    def __len__(self) -> int:
        left = max(0, self.origin.count() - self.skip)
        return left if self.limit is None else min(left, self.limit)


def checked(raw: Any, inputs: Sequence[Input], where: str) -> dict[str, Array]:
    """A sample as arrays by name; CallError where it does not fit the inputs or holds NaN or infinity."""
    if not isinstance(raw, Mapping):
        if len(inputs) != 1:
            raise CallError(f"{where}: the model has {len(inputs)} inputs; give a dict of {_names(inputs)}")
        raw = {inputs[0].name: raw}
    unknown = sorted(str(name) for name in set(raw) - {i.name for i in inputs})
    if unknown:
        raise CallError(f"{where}: the model has no input {unknown[0]!r}; it reads {_names(inputs)}")
    return {i.name: _checked_array(raw, i, where) for i in inputs}


def _names(inputs: Sequence[Input]) -> str:
    return ", ".join(map(str, inputs))


def _checked_array(raw: Mapping[str, Any], wanted: Input, where: str) -> Array:
    if wanted.name not in raw:
        raise CallError(f"{where}: input {wanted} is missing; there is {', '.join(map(str, raw)) or 'nothing'}")
    value = raw[wanted.name]
    try:
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    except (ValueError, TypeError) as error:
        raise CallError(f"{where}: input {wanted.name!r} is not an array: {error}") from None
    if array.dtype != wanted.dtype:
        raise CallError(
            f"{where}: input {wanted.name!r} is {array.dtype.name}, the model reads {wanted.dtype.name}; "
            f"convert it with .astype({wanted.dtype.name!r})"
        )
    if not _fits(array.shape, wanted.shape):
        missing = array.shape == wanted.shape[1:] and wanted.shape[0] == 1
        hint = "add the batch with array[None]" if missing else "reshape it, or fix the model's shapes to it"
        raise CallError(
            f"{where}: input {wanted.name!r} has shape {list(array.shape)}, the model reads {wanted}; {hint}"
        )
    if array.dtype.kind in "fV" and not np.isfinite(array).all():
        flat = array.ravel()
        at = int(np.argmin(np.isfinite(flat)))
        bad = len(flat) - int(np.isfinite(flat).sum())
        raise CallError(
            f"{where}: input {wanted.name!r} holds {bad} value(s) that are NaN or infinite, the first {flat[at]} at "
            f"{[int(n) for n in np.unravel_index(at, array.shape)]}; leave this sample out, or mend it"
        )
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    return len(shape) == len(wanted) and all(w in (None, n) for n, w in zip(shape, wanted, strict=True))


# -- origins ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Indexed:
    """Samples that are read by number."""

    total: int
    get: Callable[[int], tuple[str, Any]]
    names: Sequence[str] = ()
    """The file of each, where each has one."""

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        """From sample `start` on."""
        return map(self.get, range(start, self.total))

    def count(self) -> int:
        """How many there are."""
        return self.total


class _Stream:
    """Samples that can be read again from the beginning, only."""

    def __init__(self, begin: Callable[[], Iterator[Any]], name: str) -> None:
        self.begin, self.name, self.total = begin, name, -1

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        number = -1
        for number, raw in enumerate(self.begin()):
            if number >= start:
                yield f"sample {number} of {self.name}", raw
        self.total = number + 1

    def count(self) -> int:
        if self.total < 0:
            for _ in self.read(0):
                pass
        return self.total


class _Once:
    """Samples that can be read only once: kept in a temporary folder, one file each, as far as they have been read."""

    def __init__(self, items: Iterator[Any], inputs: Sequence[Input], name: str) -> None:
        self.items, self.inputs, self.name, self.kept, self.ended = items, inputs, name, 0, False
        self.folder = tempfile.TemporaryDirectory(prefix="hexforge-samples-")

    def read(self, start: int) -> Iterator[tuple[str, Any]]:
        number = start
        while number < self.kept or self._keep(number):
            path = Path(self.folder.name) / f"{number}.npz"
            with np.load(path, allow_pickle=False) as file:
                yield f"sample {number} of {self.name}", {i.name: file[str(k)] for k, i in enumerate(self.inputs)}
            number += 1

    def count(self) -> int:
        while self._keep(self.kept):
            pass
        return self.kept

    def _keep(self, number: int) -> bool:
        """Read on to sample `number`; False where the samples end before it."""
        while self.kept <= number and not self.ended:
            raw = next(self.items, None)
            if raw is None:
                self.ended = True
                break
            arrays = checked(raw, self.inputs, f"sample {self.kept} of {self.name}")
            named = {str(k): arrays[i.name] for k, i in enumerate(self.inputs)}
            np.savez(Path(self.folder.name) / f"{self.kept}.npz", **named)  # type: ignore[arg-type]
            self.kept += 1
        return number < self.kept


def samples(
    source: Any, of: onnx_ir.Model | Sequence[Input], *, skip: int = 0, limit: int | None = None, **pictures: Any
) -> CheckedSamples:
    """Samples for a model, or for its inputs, from:

    a folder or file (see hexforge.quant.data.sample_files), `random:N` or `random:N:SEED`, a list or other sequence, a
    function that gives an iterator, an iterable, or onnxruntime's CalibrationDataReader. A sample is a dict of arrays
    by input name, or an array where there is one input. `skip` and `limit` choose among them; `pictures` are
    PictureOptions by name.
    """
    from hexforge.quant.data.sample_files import file_samples, stacked

    inputs = inputs_of(of) if isinstance(of, onnx_ir.Model) else tuple(of)
    origin: Origin
    if isinstance(source, CheckedSamples):
        origin = source.origin
        if source.limit is not None:
            left = max(0, source.limit - skip)
            limit = left if limit is None else min(limit, left)
        skip += source.skip
    elif isinstance(source, str) and source.startswith("random:"):
        origin = _random(source, inputs)
    elif isinstance(source, (str, Path)):
        origin = file_samples(Path(source), inputs, pictures)
    elif isinstance(source, (Mapping, np.ndarray)):
        origin = stacked(source, inputs, "the array")
    elif callable(getattr(source, "get_next", None)):
        origin = _reader(source, inputs)
    elif hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        origin = Indexed(len(source), lambda i: (f"sample {i}", source[i]))
    elif hasattr(source, "__next__"):
        origin = _Once(source, inputs, type(source).__name__)
    elif callable(source) or hasattr(source, "__iter__"):
        begin = source if callable(source) else source.__iter__
        origin = _Stream(lambda: iter(begin()), getattr(source, "__name__", type(source).__name__))
    else:
        raise CallError(
            f"no samples can be made from {type(source).__name__}; give a folder, a list of dicts of arrays, a "
            "function that yields them, a CalibrationDataReader or 'random:8'"
        )
    return CheckedSamples(origin, inputs, skip, limit)


def _reader(reader: Any, inputs: Sequence[Input]) -> Origin:
    """onnxruntime's CalibrationDataReader: get_next gives samples until None, rewind starts anew where there is one."""

    def rest() -> Iterator[Any]:
        while (raw := reader.get_next()) is not None and (not isinstance(raw, Mapping) or raw):
            yield raw

    def anew() -> Iterator[Any]:
        reader.rewind()
        return rest()

    name = type(reader).__name__
    return _Stream(anew, name) if callable(getattr(reader, "rewind", None)) else _Once(rest(), inputs, name)


def _random(text: str, inputs: Sequence[Input]) -> Indexed:
    """random:N[:SEED]: normal numbers, bytes of all values, other integers and booleans 0 or 1."""
    parts = text.split(":")[1:]
    if len(parts) > 2 or not all(p.isdecimal() for p in parts) or not int(parts[0]):
        raise CallError(f"{text!r}: random samples are given as random:N or random:N:SEED, N at least 1")
    seed = int(parts[1]) if len(parts) == 2 else 0

    def get(i: int) -> tuple[str, Any]:
        random = np.random.default_rng((seed, i))
        return f"random sample {i}", {wanted.name: _random_array(random, wanted) for wanted in inputs}

    return Indexed(int(parts[0]), get)


def _random_array(random: np.random.Generator, wanted: Input) -> Array:
    if None in wanted.shape:
        raise CallError(f"random samples need a fixed shape, and input {wanted} has none; fix it with --dim or --shape")
    shape = tuple(d or 0 for d in wanted.shape)
    if wanted.dtype.kind in "fV":  # V: the small floats that numpy does not know itself
        return random.standard_normal(shape, np.float32).astype(wanted.dtype)
    if wanted.dtype.kind in "iu" and wanted.dtype.itemsize == 1:
        info = np.iinfo(wanted.dtype)
        return random.integers(info.min, info.max, shape, wanted.dtype, endpoint=True)
    return random.integers(0, 2, shape).astype(wanted.dtype)
