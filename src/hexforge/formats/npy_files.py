# SPDX-License-Identifier: Apache-2.0
"""Files of one array, as numpy.save writes them, and of several, as numpy.savez does."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from hexforge.errors import CapacityError, FormatError
from hexforge.ir import Array


def read_npy(path: Path, where: str = "") -> Array:
    """The array of a .npy file; FormatError for any other file, which says `where` the file was named."""
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        message = "not a .npy file of numbers, or a damaged one; write it with numpy.save"
        raise FormatError(f"{where or path}: {message}") from None
    if not isinstance(array, np.ndarray):
        raise FormatError(f"{where or path}: holds several arrays; give one .npy file for each input")
    return array


def read_npz(path: Path, shape_of: Callable[[str], Sequence[int | str | None] | None]) -> dict[str, Array]:
    """The arrays of a .npz file by name, each of the shape that it must have: one of another shape takes no memory.

    `shape_of` says the shape by the name, None where there is no such array. FormatError where the file has another.
    """
    arrays: dict[str, Array] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                name = entry.filename.removesuffix(".npy")
                wanted = shape_of(name)
                with archive.open(entry) as file:
                    shape, item_bytes = _header(file)
                if wanted is None or tuple(wanted) != shape:
                    due = "has no place here" if wanted is None else f"must be {list(wanted)}"
                    raise FormatError(f"{path}: {name!r} of shape {list(shape)} {due}")
                if item_bytes > _MOST_ITEM_BYTES:
                    raise FormatError(f"{path}: {name!r} has elements of {item_bytes:,} bytes; write numbers")
                with archive.open(entry) as file:
                    arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    except MemoryError:
        raise CapacityError(f"{path}: its arrays do not fit in memory") from None
    except (OSError, ValueError, EOFError, LookupError, NotImplementedError, RuntimeError, SyntaxError) as error:
        raise FormatError(f"{path}: cannot be read: {error}") from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise FormatError(f"{path}: is a damaged .npz file: {error}") from None
    return arrays


_MOST_ITEM_BYTES = 16
"""A complex number of two doubles."""


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], int]:
    """Shape and bytes of an element of the array that begins here."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return tuple(shape), dtype.itemsize
