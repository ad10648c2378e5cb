# SPDX-License-Identifier: Apache-2.0
"""Raw files: input lists, tensors read from bytes as their types or as float32, and the folders of results."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from hexforge.errors import CallError
from hexforge.formats.files import file_names, write_atomically
from hexforge.ir import Array, TensorType
from hexforge.ir.fixed_point import dequantize, quantize

SKIPPED = "__"
"""In place of an input list: the graph is not run."""


class InputType(StrEnum):
    """How raw input files are read."""

    FLOAT = "float"
    NATIVE = "native"


class OutputType(StrEnum):
    """How outputs are written."""

    FLOAT_ONLY = "float_only"
    NATIVE_ONLY = "native_only"
    FLOAT_AND_NATIVE = "float_and_native"


@dataclass(frozen=True, slots=True)
class InputList:
    """The inferences of an input list."""

    path: Path
    outputs: tuple[str, ...]
    """The outputs that the first line names; empty: all of them."""
    inferences: tuple[tuple[tuple[str, Path], ...], ...]
    """For each inference its files in order, each with its tensor's name, or none."""


def read_input_list(path: Path) -> InputList:
    """An input list: one inference a line, files by order or as name:=file; CallError with the line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise CallError(f"{path}: is no text; an input list names one inference's raw files a line") from None
    outputs: tuple[str, ...] = ()
    inferences: list[tuple[tuple[str, Path], ...]] = []
    for number, line in enumerate(lines, 1):
        if line.startswith(("#", "%")):
            if inferences or outputs:
                raise CallError(f"{path}: line {number}: the names of outputs stand on the first line only")
            outputs = tuple(line[1:].split())
            continue
        items = line.split()
        if not items:
            continue
        files = []
        for item in items:
            name, given, file = item.rpartition(":=")
            files.append((name if given else "", Path(file)))
        if len({bool(name) for name, _ in files}) > 1:
            raise CallError(f"{path}: line {number}: some files have names (name:=file) and some have none")
        inferences.append(tuple(files))
    if not inferences:
        raise CallError(f"{path}: names no files; give one inference's raw files a line")
    return InputList(path, outputs, tuple(inferences))


def feeds_of(
    files: Sequence[tuple[str, Path]], inputs: Mapping[str, TensorType], native: Collection[str], where: str
) -> list[dict[str, Array]]:
    """The feeds of one line: several where the files hold a multiple of the graph's batch."""
    names = [name for name, _ in files] if files[0][0] else list(inputs)[: len(files)]
    if len(files) != len(inputs) or set(names) != set(inputs):
        listed = ", ".join(inputs)
        raise CallError(f"{where}: {len(files)} files ({', '.join(names)}) for the inputs {listed}; give one for each")
    parts = {
        name: _tensors(file, inputs[name], name in native, f"{where}: input {name!r}")
        for name, (_, file) in zip(names, files, strict=True)
    }
    counts = {name: len(tensors) for name, tensors in parts.items()}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise CallError(f"{where}: the files hold different multiples of the graph's batch: {each}")
    return [dict(zip(parts, tensors, strict=True)) for tensors in zip(*parts.values(), strict=True)]


def _tensors(file: Path, type: TensorType, native: bool, where: str) -> list[Array]:
    """The tensors that a raw file holds one after another."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CallError(f"{where}: {file}: cannot be read: {error.strerror or error}") from None
    dtype = type.dtype.numpy if native else np.dtype(np.float32)
    size = type.size * dtype.itemsize
    if size == 0 or not data or len(data) % size:
        other = np.dtype(np.float32) if native else type.dtype.numpy
        hint = ""
        if data and size and len(data) % (type.size * other.itemsize) == 0 and other != dtype:
            hint = f"; it fits {other}: --input_data_type {'float' if native else 'native'}"
        raise CallError(
            f"{where}: {file}: has {len(data):,} bytes, and {list(type.shape)} of {dtype} needs {size:,}{hint}"
        )
    arrays = np.frombuffer(data, dtype).reshape(-1, *type.shape)
    return [np.ascontiguousarray(_native_of(array, type, native)) for array in arrays]


def _native_of(array: Array, type: TensorType, native: bool) -> Array:
    """An array as the graph takes it."""
    if native or type.dtype.numpy == array.dtype:
        return array
    if type.encoding is not None:
        return quantize(array, type)
    return array.astype(type.dtype.numpy)


def write_results(
    folder: Path,
    index: int,
    outputs: Sequence[Mapping[str, Array]],
    types: Mapping[str, TensorType],
    wanted: Collection[str],
    kind: OutputType,
) -> None:
    """Write one inference's outputs into Result_<index>; those of a multiple of the batch one after another."""
    result = folder / f"Result_{index}"
    result.mkdir(parents=True, exist_ok=True)
    stems = file_names(wanted, ("", _NATIVE))
    for name in wanted:
        arrays = [np.ascontiguousarray(one[name]) for one in outputs]
        for suffix, data in _written(arrays, types[name], kind):
            write_atomically(result / f"{stems[name]}{suffix}.raw", [a.tobytes() for a in data])


_NATIVE = "_native"
"""What the name of a file ends in that holds the graph's own data type."""


def _written(arrays: Sequence[Array], type: TensorType, kind: OutputType) -> Iterator[tuple[str, Sequence[Array]]]:
    if kind is not OutputType.NATIVE_ONLY:
        yield "", [_float_of(array, type) for array in arrays]
    if kind is not OutputType.FLOAT_ONLY:
        yield _NATIVE, arrays


def _float_of(array: Array, type: TensorType) -> Array:
    if type.encoding is not None and not type.dtype.is_float:
        return dequantize(array, type, np.float32)
    return array.astype(np.float32)
