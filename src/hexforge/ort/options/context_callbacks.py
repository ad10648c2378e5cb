# SPDX-License-Identifier: Apache-2.0
"""Context data handed to and taken from a caller's functions instead of files, as onnxruntime does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hexforge.errors import CallError


class EpContextData:
    """A context on its way out, as onnxruntime's OrtEpContextData; valid as long as the caller's function runs."""

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self.size = len(data)

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A range of it."""
        if self._data is None:
            raise CallError("the data are valid only while the write function runs")
        end = self.size if length is None else offset + length
        if not 0 <= offset <= end <= self.size:
            raise CallError(f"bytes {offset} to {end} are not in the data, which are {self.size}")
        return self._data[offset:end]

    def close(self) -> None:
        """The caller's function has returned."""
        self._data = None


class EpContextDataBuffer:
    """A context on its way in, as onnxruntime's OrtEpContextDataBuffer."""

    def __init__(self, name: str, max_size: int) -> None:
        self._name = name
        self.max_size = max_size
        self._data: bytearray | None = None

    @property
    def is_allocated(self) -> bool:
        """True after `allocate`."""
        return self._data is not None

    @property
    def size(self) -> int:
        """Bytes that were allocated."""
        return 0 if self._data is None else len(self._data)

    def allocate(self, size: int) -> None:
        """Make room, once."""
        if self._data is not None:
            raise CallError(f"{self._name}: allocate was called before; call it once")
        if not 0 <= size <= self.max_size:
            raise CallError(f"{self._name}: {size} bytes were asked for; at most {self.max_size} were announced")
        self._data = bytearray(size)

    def write(self, data: Any, offset: int = 0) -> None:
        """Put bytes at an offset."""
        view = memoryview(data).cast("B")
        if self._data is None:
            raise CallError(f"{self._name}: call allocate before write")
        if not 0 <= offset <= len(self._data) - len(view):
            raise CallError(f"{self._name}: {len(view)} bytes at {offset} do not fit the {len(self._data)} allocated")
        self._data[offset : offset + len(view)] = view

    def taken(self) -> bytearray:
        """What was written."""
        if self._data is None:
            raise CallError(f"{self._name}: the read function gave no data; it must call allocate and write")
        return self._data


def reader(function: Callable[[str, Any], None], max_size: int) -> Callable[[str], bytearray]:
    """A caller's read function as one that returns a context by its name."""

    def read(name: str) -> bytearray:
        buffer = EpContextDataBuffer(name, max_size)
        function(name, buffer)
        return buffer.taken()

    return read


def sender(function: Callable[[str, Any], None]) -> Callable[[str, bytes], None]:
    """A caller's write function as one that takes a context's name and bytes."""

    def send(name: str, data: bytes) -> None:
        given = EpContextData(data)
        try:
            function(name, given)
        finally:
            given.close()

    return send
