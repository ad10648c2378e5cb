# SPDX-License-Identifier: Apache-2.0
"""Safetensors and npz: files of arrays by name, read with suspicion.

Read here rather than with the `safetensors` package: the format is a JSON table and bytes, ml_dtypes has the bfloat16
that the package's numpy side lacks, and a LoRA adapter needs no further dependency.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hexforge.errors import CallError, CapacityError, FormatError
from hexforge.formats.container import parse_json_bytes
from hexforge.ir import Array

MOST_HEADER_BYTES = 100_000_000
"""As the format's own reader allows."""
_DTYPES: dict[str, Any] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
    "I32": np.int32, "I16": np.int16, "I8": np.int8, "U64": np.uint64, "U32": np.uint32, "U16": np.uint16,
    "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip


def read_arrays(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a .safetensors or .npz file by name."""
    at = Path(path)
    try:
        with at.open("rb") as file:
            start = file.read(4)
        return _npz(at) if start == b"PK\x03\x04" else _safetensors(at)
    except FileNotFoundError:
        raise CallError(f"{at}: no such file; check the path") from None
    except OSError as error:
        raise CallError(f"{at}: cannot be read: {error.strerror or error}") from None


def map_safetensors(path: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a .safetensors file by name, mapped: what is not looked at is not read."""
    at = Path(path)
    try:
        return _safetensors(at, copied=False)
    except FileNotFoundError:
        raise CallError(f"{at}: no such file; check the path") from None
    except OSError as error:
        raise CallError(f"{at}: cannot be read: {error.strerror or error}") from None


def _npz(path: Path) -> dict[str, Array]:
    try:
        # Opened here: numpy does not close a file that begins as a zip and is none.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays.files}
    except MemoryError:
        raise CapacityError(f"{path}: its arrays do not fit in memory") from None
    except (ValueError, zipfile.BadZipFile, zlib.error, EOFError, LookupError, RuntimeError, SyntaxError) as error:
        raise FormatError(f"{path}: is a damaged .npz file, or holds Python objects: {error}") from None


def _safetensors(path: Path, copied: bool = True) -> dict[str, Array]:
    size = path.stat().st_size
    data: Array = np.memmap(path, np.uint8, mode="r") if size else np.zeros(0, np.uint8)
    header = int.from_bytes(data[:8].tobytes(), "little")
    if size < 8 or header > min(size - 8, MOST_HEADER_BYTES):
        raise FormatError(f"{path}: is neither a .safetensors nor an .npz file", 0)
    table = parse_json_bytes(data[8 : 8 + header].tobytes(), str(path), 8)
    if not isinstance(table, dict):
        raise FormatError(f"{path}: the table of tensors is malformed", 8)
    body = data[8 + header :]
    return {name: _tensor(name, row, body, path, copied) for name, row in table.items() if name != "__metadata__"}


def _tensor(name: str, row: Any, body: Array, path: Path, copied: bool) -> Array:
    try:
        dtype, shape, (start, end) = np.dtype(_DTYPES[row["dtype"]]), row["shape"], row["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise FormatError(f"{path}: tensor {name!r} is malformed, or of a type that is not read here", 8) from None
    sizes = [start, end, *shape] if isinstance(shape, list) else [None]
    if not all(type(n) is int and 0 <= n <= 1 << 48 for n in sizes) or not start <= end <= body.size:
        raise FormatError(f"{path}: tensor {name!r} lies outside the file", 8)
    if math.prod(shape) * dtype.itemsize != end - start:
        raise FormatError(f"{path}: tensor {name!r} of {dtype.name}{shape} has not {end - start} bytes", 8)
    raw = body[start:end].tobytes() if copied else np.asarray(body[start:end])
    array: Array = np.frombuffer(raw, dtype).reshape(shape)
    return array
