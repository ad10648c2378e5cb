# SPDX-License-Identifier: Apache-2.0
"""ETDump: what happened in runs of an ExecuTorch program, as the file that executorch.devtools.Inspector reads.

The file is a size-prefixed flatbuffer of ExecuTorch's schema etdump_schema_flatcc.fbs; tensors lie in another file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

from hexforge.addons.executorch.formats.pte import ScalarType
from hexforge.errors import FormatError
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable
from hexforge.ir import Array

IDENTIFIER = b"ED00"
NUMBERS = "debug_output.bin"
"""Beside an etdump, the file with the numbers of its tensors."""
_TENSOR, _TENSOR_LIST = 5, 6
_MOST_RANK = 16
_ALIGN = 64
_TYPES = {t.numpy: t for t in ScalarType}


@dataclass(frozen=True, slots=True)
class ProfileEvent:
    """Something that took time; `delegate_id` names a part of a delegate."""

    name: str
    start: int
    end: int
    instruction: int = -1
    delegate_id: str = ""


@dataclass(frozen=True, slots=True)
class LoggedTensor:
    """A tensor that was computed, and where its numbers lie in the file of tensors."""

    name: str
    dtype: ScalarType
    sizes: tuple[int, ...]
    offset: int
    instruction: int = -1
    delegate_id: str = ""
    is_output: bool = False
    strides: tuple[int, ...] | None = None
    """How its numbers lie, counted in elements; None: the last dimension side by side."""

    def array(self, data: memoryview, where: str) -> Array:
        """Its numbers, which lie in `data`; FormatError where they do not."""
        shape = self.sizes
        strides = _contiguous(shape) if self.strides is None else self.strides
        order = sorted(range(len(shape)), key=lambda axis: (-strides[axis], axis))
        lying = tuple(shape[axis] for axis in order)
        wide = [axis for axis in order if shape[axis] != 1]
        if [strides[axis] for axis in wide] != list(_contiguous([shape[axis] for axis in wide])):
            raise FormatError(f"{where}: tensor {self.name!r} has the sizes {shape} and the strides {strides}")
        size = int(np.prod(shape, dtype=object)) * self.dtype.numpy.itemsize
        if min(self.offset, size) < 0 or self.offset + size > len(data):
            raise FormatError(
                f"{where}: tensor {self.name!r} has {size} bytes from byte {self.offset} on, the file has {len(data)}"
            )
        numbers = np.frombuffer(data, self.dtype.numpy, size // self.dtype.numpy.itemsize, self.offset)
        return numbers.reshape(lying).transpose(np.argsort(order))


@dataclass(slots=True)
class RunLog:
    """The events of one run."""

    name: str
    events: list[ProfileEvent | LoggedTensor] = field(default_factory=list)


class TensorStore:
    """Numbers of tensors, one after the other; at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._parts: list[bytes] = []
        self._end = 0
        self._limit = limit
        self.is_full = False
        """True where a tensor was left out, and with it all that came later."""

    def put(self, array: np.ndarray[Any, Any]) -> int | None:
        """Store an array: its offset; None where there is no room."""
        data = np.ascontiguousarray(array).tobytes()
        if self.is_full or self._end + len(data) > self._limit:
            self.is_full = True
            return None
        offset = self._end
        padding = -len(data) % _ALIGN
        self._parts += [data, bytes(padding)]
        self._end += len(data) + padding
        return offset

    @property
    def parts(self) -> Sequence[bytes]:
        """The file's bytes."""
        return self._parts


def scalar_type(dtype: np.dtype[Any]) -> ScalarType | None:
    """ExecuTorch's name of a numpy type; None where it has none."""
    return _TYPES.get(dtype)


def read_tensors(data: bytes, where: str) -> list[list[LoggedTensor]]:
    """The tensors that each run of an etdump logged, in their order; FormatError where the file is none."""
    if len(data) < 12 or data[8:12] != IDENTIFIER or struct.unpack_from("<I", data)[0] != len(data) - 4:
        raise FormatError(f"{where}: is no etdump, or was cut short: {IDENTIFIER.decode()!r} and its size come first")
    root = Flatbuffer(memoryview(data)[4:], where, 4).root()
    return [[tensor for event in run.tables(3) for tensor in _logged(event.table(2))] for run in root.tables(1)]


def logged_arrays(path: Path) -> Iterator[tuple[str, Callable[[], Array]]]:
    """The tensors of an etdump: those of the first run that has any; their numbers lie in the file next to it."""
    runs = [tensors for tensors in read_tensors(path.read_bytes(), str(path)) if tensors]
    numbers = path.with_name(NUMBERS)
    if not runs:
        return
    if not numbers.is_file():
        raise FormatError(f"{path}: names tensors, whose numbers are to be in {numbers}, which is not there")
    data = memoryview(numbers.read_bytes())
    for tensor in runs[0]:
        yield tensor.name, lambda tensor=tensor: tensor.array(data, str(numbers))  # type: ignore[misc]


def _logged(event: FlatTable | None) -> list[LoggedTensor]:
    """The tensors of a debug event."""
    value = None if event is None else event.table(2)
    if event is None or value is None:
        return []
    kind, tables = value.integer(0, "b"), []
    if kind == _TENSOR:
        tables = [value.table(1)]
    elif kind == _TENSOR_LIST and (listed := value.table(2)) is not None:
        tables = list(listed.tables(0))
    delegate = event.text(4) or ""
    name = delegate or event.text(5) or ""
    tensors = []
    for table in tables:
        if table is None:
            raise value.fault("has a tensor that says nothing about itself")
        sizes, strides, number = table.numbers(1, "q"), table.numbers(2, "q"), table.integer(0, "b")
        if (
            number not in set(ScalarType)
            or len(sizes) > _MOST_RANK
            or len(strides) != len(sizes)
            or min(sizes, default=0) < 0
        ):
            raise table.fault(f"has the tensor {name!r} of the type {number}, sizes {sizes}, strides {strides}")
        where = (table.integer(3, "q"), event.integer(1, "i", -1))
        tensors.append(
            LoggedTensor(name, ScalarType(number), sizes, *where, delegate, value.table(7) is not None, strides)
        )
    return tensors


def _contiguous(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor whose last dimension lies side by side."""
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    return tuple(strides[: len(sizes)])


def dump(runs: Sequence[RunLog]) -> bytes:
    """The bytes of an etdump with these runs."""
    builder = flatbuffers.Builder(1 << 16)
    blocks = _offsets(builder, [_run(builder, run) for run in runs])
    builder.FinishSizePrefixed(_table(builder, 2, {1: blocks}), IDENTIFIER)
    return bytes(builder.Output())


def _table(builder: Any, fields: int, offsets: Mapping[int, int], **numbers: Mapping[int, tuple[int, int]]) -> int:
    """A table of so many fields, by their numbers: offsets of what they point to (0: none), and numbers by their type,
    each with its default.
    """
    rows: dict[int, tuple[str, int, int]] = {at: ("UOffsetTRelative", offset, 0) for at, offset in offsets.items()}
    for kind, own in numbers.items():
        rows |= {at: (kind, *number) for at, number in own.items()}
    builder.StartObject(fields)
    for at, (kind, value, default) in sorted(rows.items()):
        getattr(builder, f"Prepend{kind}Slot")(at, value, default)
    return int(builder.EndObject())


def _offsets(builder: Any, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return int(builder.EndVector())


def _longs(builder: Any, numbers: Sequence[int]) -> int:
    builder.StartVector(8, len(numbers), 8)
    for number in reversed(numbers):
        builder.PrependInt64(number)
    return int(builder.EndVector())


def _text(builder: Any, text: str) -> int:
    return int(builder.CreateString(text)) if text else 0


def _run(builder: Any, run: RunLog) -> int:
    name = builder.CreateString(run.name)
    return _table(builder, 4, {0: name, 3: _offsets(builder, [_event(builder, event) for event in run.events])})


def _event(builder: Any, event: ProfileEvent | LoggedTensor) -> int:
    inner = {0: _profile(builder, event)} if isinstance(event, ProfileEvent) else {2: _debug(builder, event)}
    return _table(builder, 3, inner)


def _profile(builder: Any, event: ProfileEvent) -> int:
    names = {0: _text(builder, "" if event.delegate_id else event.name), 4: _text(builder, event.delegate_id)}
    times = {6: (event.start, 0), 7: (event.end, 0)}
    return _table(builder, 8, names, Int32={2: (event.instruction, -1)}, Uint64=times)


def _debug(builder: Any, event: LoggedTensor) -> int:
    parts = {5: builder.CreateString(event.name), 4: _text(builder, event.delegate_id), 2: _value(builder, event)}
    return _table(builder, 6, parts, Int32={1: (event.instruction, -1)})


def _value(builder: Any, event: LoggedTensor) -> int:
    layout = {1: _longs(builder, event.sizes), 2: _longs(builder, _contiguous(event.sizes))}
    tensor = _table(builder, 4, layout, Int8={0: (int(event.dtype), 0)}, Int64={3: (event.offset, 0)})
    output = _table(builder, 1, {}, Bool={0: (event.is_output, False)})
    return _table(builder, 8, {1: tensor, 7: output if event.is_output else 0}, Int8={0: (_TENSOR, 0)})
