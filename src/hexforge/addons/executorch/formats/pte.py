# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's program file (.pte), read as what it says: methods, values, instructions, delegates, segments.

    bytes 0..8    offset of the root table, "ET12"
    byte 8        extended header: "eh00", its length, size of the flatbuffer, where segments begin, their size
    flatbuffer    the program (ExecuTorch's schema program.fbs)
    segments      constants, first values of buffers, blobs of delegates

The file is untrusted: every offset, index and size in it is checked before it is used.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from hexforge.addons.executorch.formats.ptd import NamedTensor
from hexforge.errors import CallError, FormatError
from hexforge.formats.container import map_file
from hexforge.formats.file_kinds import UNKNOWN, kind_of_bytes
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable

MAGIC = b"ET12"
_HEADER = struct.Struct("<4sIQQQ")
_HEADER_AT, _SHORT_HEADER = 8, 24
_MOST_RANK = 16


class ScalarType(IntEnum):
    """Element types of ExecuTorch's tensors, under its numbers."""

    BYTE = 0
    CHAR = 1
    SHORT = 2
    INT = 3
    LONG = 4
    HALF = 5
    FLOAT = 6
    DOUBLE = 7
    BOOL = 11
    BFLOAT16 = 15
    UINT16 = 27
    UINT32 = 28
    UINT64 = 29

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy (or ml_dtypes) type that holds one element."""
        return _NUMPY[self]


_NUMPY: dict[ScalarType, np.dtype[Any]] = {
    t: np.dtype(d)
    for t, d in zip(
        ScalarType,
        (np.uint8, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32, np.float64, np.bool_,
         ml_dtypes.bfloat16, np.uint16, np.uint32, np.uint64),
        strict=True,
    )
}  # fmt: skip


class Dynamism(IntEnum):
    """Whether a tensor's sizes are fixed, at most as large, or unknown."""

    STATIC = 0
    BOUND = 1
    UNBOUND = 2


# -- values -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Allocation:
    """Where the planned memory of a tensor is."""

    memory: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class TensorValue:
    """A tensor of a method; `data` is its constant, or what it holds first."""

    dtype: ScalarType
    sizes: tuple[int, ...]
    dim_order: tuple[int, ...]
    dynamism: Dynamism
    allocation: Allocation | None
    data: memoryview | None
    name: str = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes, or the largest ones."""
        return self.sizes

    @property
    def nbytes(self) -> int:
        """Bytes of the largest sizes."""
        return math.prod(self.sizes) * self.dtype.numpy.itemsize

    @property
    def is_constant(self) -> bool:
        """True where nothing may write it."""
        return self.data is not None and self.allocation is None

    def __str__(self) -> str:
        return f"{self.dtype.numpy.name}{list(self.sizes)}"


@dataclass(frozen=True, slots=True)
class TensorList:
    """Tensors of the same method, by the numbers of their values; -1 is None where `optional`."""

    items: tuple[int, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class IntList:
    """Integers of the same method, by the numbers of their values: some may be computed while it runs."""

    items: tuple[int, ...]


EValue = None | int | bool | float | str | tuple[float, ...] | tuple[bool, ...] | TensorValue | TensorList | IntList
"""A value of a method: what ExecuTorch calls an EValue."""


# -- instructions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KernelCall:
    """Run an operator; the last arguments are its outputs."""

    operator: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DelegateCall:
    """Run a delegate: inputs, then outputs."""

    delegate: int
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class MoveCall:
    """Let a value be another one."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class JumpFalseCall:
    """Go on elsewhere where a value is false."""

    condition: int
    destination: int


@dataclass(frozen=True, slots=True)
class FreeCall:
    """Let go of the memory of a tensor."""

    value: int


Instruction = KernelCall | DelegateCall | MoveCall | JumpFalseCall | FreeCall


# -- the file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Delegate:
    """Something that a backend runs: its blob, and how it was compiled."""

    id: str
    data: memoryview
    offset: int
    """Where the blob begins in the file."""
    specs: Mapping[str, memoryview]


@dataclass(frozen=True, slots=True, eq=False)
class ExecutionPlan:
    """A method of a program: its values, and the instructions that compute them."""

    name: str
    values: tuple[EValue, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...]
    operators: tuple[str, ...]
    delegates: tuple[Delegate, ...]
    memory_bytes: tuple[int, ...]
    """Sizes of the planned memories; the first is not used."""


@dataclass(frozen=True, slots=True, eq=False)
class PteFile:
    """A program: methods, and data under names."""

    where: str
    plans: tuple[ExecutionPlan, ...]
    named_data: Mapping[str, memoryview] = field(default_factory=dict)

    def plan(self, name: str) -> ExecutionPlan:
        """A method by name."""
        for plan in self.plans:
            if plan.name == name:
                return plan
        raise CallError(f"{self.where}: has no method {name!r}; it has {', '.join(p.name for p in self.plans)}")


def read_pte(
    source: str | os.PathLike[str] | bytes | memoryview,
    where: str = "",
    external: Mapping[str, NamedTensor] | None = None,
) -> PteFile:
    """Read a program; FormatError where the file is damaged, of another version, or something else.

    A path is mapped, not read: constants and blobs come in when they are used. `external` are tensors that the program
    keeps in other files (.ptd), by their names.
    """
    if isinstance(source, bytes | memoryview):
        return _Reader(memoryview(source).cast("B"), where or "program", external or {}).file()
    where = where or os.fspath(source)
    data = map_file(Path(source)) or b""
    return _Reader(memoryview(data), where, external or {}).file()


class _Reader:
    """Reads one file."""

    def __init__(self, data: memoryview, where: str, external: Mapping[str, NamedTensor]) -> None:
        self.data, self.where, self.external = data, where, external
        program_bytes, self.base, self.segment_bytes = self._header()
        self.root = Flatbuffer(data[:program_bytes], where).root()
        version = self.root.integer(0, "I")
        if version != 0:
            raise FormatError(f"{where}: is of schema version {version}; versions up to 0 are read")

    def _header(self) -> tuple[int, int, int]:
        data, where = self.data, self.where
        start = bytes(data[4:8])
        if start != MAGIC and start[:2] == b"ET" and start[2:].isdigit():
            what = f"is of version {start.decode()!r}, this hexforge reads {MAGIC.decode()!r}; export it again"
            raise FormatError(f"{where}: {what}", 4)
        if start != MAGIC:
            kind = kind_of_bytes(data)
            other = "" if kind is UNKNOWN else f"; it is {kind.name}: {kind.advice}"
            raise FormatError(f"{where}: is not an ExecuTorch program (.pte){other}", 4)
        if len(data) < _HEADER_AT + _HEADER.size:
            raise FormatError(f"{where}: ends within the header", len(data))
        magic, length, program, base, segments = _HEADER.unpack_from(data, _HEADER_AT)
        if magic != b"eh00":  # without segments there is no header
            return len(data), 0, 0
        if length < _SHORT_HEADER:
            raise FormatError(f"{where}: the extended header is {length} bytes, it must be {_SHORT_HEADER} or more", 12)
        if not _HEADER_AT + length <= program <= len(data):
            raise FormatError(
                f"{where}: is cut short or damaged: it has {len(data)} bytes, the program alone {program}", 16
            )
        if base > len(data) or (base and base < program):
            raise FormatError(f"{where}: is cut short or damaged: segments begin at {base} of {len(data)} bytes", 24)
        size = segments if length >= _HEADER.size else len(data) - base
        if base and size > len(data) - base:
            raise FormatError(
                f"{where}: is cut short: it has {len(data)} bytes, with its segments it should have {base + size}", 32
            )
        return int(program), int(base), int(size) if base else 0

    def file(self) -> PteFile:
        root = self.root
        self.segments = [self._segment(t) for t in root.tables(4)]
        self.constants = self._constants()
        self.mutable = [self._pieces(t) for t in root.tables(6)]
        inline = [t.raw(0) or memoryview(b"") for t in root.tables(3)]
        plans = tuple(self._plan(t, inline) for t in root.tables(1))
        names = [p.name for p in plans]
        if not plans or len(set(names)) != len(names):
            raise FormatError(f"{self.where}: has {len(plans)} methods; one or more, each with its own name, must be")
        named = {t.text(0) or "": self._segment_at(t.integer(1, "I"), t)[1] for t in root.tables(7)}
        return PteFile(self.where, plans, named)

    # -- data --------------------------------------------------------------------------------------------------------

    def _segment(self, table: FlatTable) -> tuple[int, memoryview]:
        offset, size = table.integer(0, "Q"), table.integer(1, "Q")
        if offset + size > self.segment_bytes:
            raise table.fault(
                f"has a segment from {offset} to {offset + size}; its segments have {self.segment_bytes} bytes"
            )
        first = self.base + offset
        return first, self.data[first : first + size]

    def _segment_at(self, index: int, table: FlatTable) -> tuple[int, memoryview]:
        if index >= len(self.segments):
            raise table.fault(f"refers to segment {index} of {len(self.segments)}")
        return self.segments[index]

    def _pieces(self, table: FlatTable) -> list[memoryview]:
        """What each offset of a segment begins."""
        _, data = self._segment_at(table.integer(0, "I"), table) if self.segments else (0, memoryview(b""))
        offsets = table.numbers(1, "Q")
        if any(offset > len(data) for offset in offsets):
            raise table.fault(f"has tensors outside their segment of {len(data)} bytes")
        return [data[offset:] for offset in offsets]

    def _constants(self) -> list[memoryview]:
        table = self.root.table(5)
        pieces = self._pieces(table) if table is not None else []
        return pieces or [t.raw(0) or memoryview(b"") for t in self.root.tables(2)]

    # -- methods -----------------------------------------------------------------------------------------------------

    def _plan(self, table: FlatTable, inline: list[memoryview]) -> ExecutionPlan:
        name = table.text(0) or ""
        memory = table.numbers(8, "q")
        if any(size < 0 for size in memory):
            raise table.fault(f"method {name!r}: has a memory of less than no bytes")
        values = tuple(self._value(t, memory) for t in table.tables(2))
        operators = tuple(f"{t.text(0) or ''}.{t.text(1) or ''}".rstrip(".") for t in table.tables(6))
        delegates = tuple(self._delegate(t, inline) for t in table.tables(7))
        chains = list(table.tables(5))
        if len(chains) != 1:
            raise table.fault(f"method {name!r}: has {len(chains)} chains of instructions; programs have one")
        calls = list(chains[0].tables(2))
        instructions = tuple(self._instruction(t, len(values), operators, len(delegates), len(calls)) for t in calls)
        inputs, outputs = table.numbers(3, "i"), table.numbers(4, "i")
        for index in (*inputs, *outputs):
            _within(index, len(values), "value", table)
        _check_lists(values, table)
        return ExecutionPlan(name, values, inputs, outputs, instructions, operators, delegates, memory)

    def _value(self, table: FlatTable, memory: tuple[int, ...]) -> EValue:
        kind, value = table.union(0)
        if kind == 1:
            return None
        if kind == 2:
            return value.integer(0, "q")
        if kind == 3:
            return value.flag(0)
        if kind == 4:
            return value.real(0)
        if kind == 5:
            return self._tensor(value, memory)
        if kind == 6:
            return value.text(0) or ""
        if kind == 7:
            return IntList(value.numbers(0, "q"))
        if kind == 8:
            return value.reals(0)
        if kind == 9:
            return tuple(bool(b) for b in value.numbers(0, "B"))
        if kind in (10, 11):
            return TensorList(value.numbers(0, "i"), kind == 11)
        raise table.fault(f"has a value of kind {kind}, which this hexforge does not know")

    def _tensor(self, table: FlatTable, memory: tuple[int, ...]) -> TensorValue:
        number = table.integer(0, "b")
        if number not in _NUMBERS:
            raise table.fault(f"has a tensor of element type {number}, which this hexforge does not know")
        sizes, order = table.numbers(2, "i"), table.numbers(3, "B")
        if len(sizes) > _MOST_RANK or any(d < 0 for d in sizes):
            raise table.fault(f"has a tensor of sizes {list(sizes)[:_MOST_RANK]}")
        if order and sorted(order) != list(range(len(sizes))):
            raise table.fault(f"has a tensor of {len(sizes)} dimensions in the order {list(order)[:_MOST_RANK]}")
        if table.integer(1, "i"):
            raise table.fault(f"has a tensor that begins at element {table.integer(1, 'i')} of its storage")
        dynamism = table.integer(8, "b")
        if dynamism not in (0, 1, 2):
            raise table.fault(f"has a tensor of dynamism {dynamism}")
        extra = table.table(9)
        name = (extra.text(1) if extra is not None else None) or ""
        place = self._allocation(table)
        value = TensorValue(
            ScalarType(number), sizes, order or tuple(range(len(sizes))), Dynamism(dynamism), place, None, name
        )
        size = value.nbytes
        if place is not None and (place.memory >= len(memory) or place.offset + size > memory[place.memory]):
            raise table.fault(f"has a tensor {value} outside the memory planned for it")
        if extra is not None and extra.integer(2, "b"):
            return replace(value, data=self._external(value, table))
        index = table.integer(5, "I")
        if not index and not (place is None and size == 0 and not value.dynamism):
            return value
        data = self._data(table, index, extra, place is not None, size)
        return TensorValue(value.dtype, sizes, value.dim_order, value.dynamism, place, data, name)

    def _external(self, tensor: TensorValue, table: FlatTable) -> memoryview:
        """What another file has under a tensor's name."""
        named = self.external.get(tensor.name)
        if named is None:
            known = f"; the files that were given have {', '.join(self.external)[:200]}" if self.external else ""
            raise table.fault(
                f"keeps tensor {tensor.name!r} in another file (.ptd), to be given with the program{known}"
            )
        order = named.dim_order or tensor.dim_order
        if named.scalar_type not in (None, tensor.dtype) or (
            named.scalar_type is not None and (named.sizes, order) != (tensor.sizes, tensor.dim_order)
        ):
            raise table.fault(f"has a tensor {tensor.name!r} {tensor}, which is another one in the .ptd file")
        if len(named.data) < tensor.nbytes:
            raise table.fault(f"has a tensor of {tensor.nbytes} bytes, of which {len(named.data)} are in the .ptd file")
        return named.data[: tensor.nbytes]

    def _data(self, table: FlatTable, index: int, extra: FlatTable | None, mutable: bool, size: int) -> memoryview:
        pieces = self.constants
        if mutable:
            which = extra.integer(0, "Q") if extra is not None else 0
            _within(which, len(self.mutable), "mutable segment", table)
            pieces = self.mutable[which]
        if not size:
            return memoryview(b"")
        _within(index, len(pieces), "constant", table)
        if size > len(pieces[index]):
            raise table.fault(f"has a tensor of {size} bytes, of which {len(pieces[index])} are there")
        return pieces[index][:size]

    def _allocation(self, table: FlatTable) -> Allocation | None:
        place = table.table(6)
        if place is None:
            return None
        return Allocation(place.integer(0, "I"), place.integer(1, "I") | place.integer(2, "I") << 32)

    def _delegate(self, table: FlatTable, inline: list[memoryview]) -> Delegate:
        reference = table.table(1)
        if reference is None:
            raise table.fault("has a delegate without data")
        index = reference.integer(1, "I")
        if reference.integer(0, "b"):
            offset, data = self._segment_at(index, table)
        else:
            _within(index, len(inline), "blob", table)
            offset, data = 0, inline[index]
        specs = {t.text(0) or "": t.raw(1) or memoryview(b"") for t in table.tables(2)}
        return Delegate(table.text(0) or "", data, offset, specs)

    def _instruction(
        self, table: FlatTable, values: int, operators: tuple[str, ...], delegates: int, count: int
    ) -> Instruction:
        kind, call = table.union(0)
        if kind in (1, 2):
            which, args = call.integer(0, "i"), call.numbers(1, "i")
            for arg in args:
                _within(arg, values, "value", call)
            _within(which, len(operators) if kind == 1 else delegates, "operator" if kind == 1 else "delegate", call)
            return KernelCall(operators[which], args) if kind == 1 else DelegateCall(which, args)
        first, second = call.integer(0, "i"), call.integer(1, "i")
        if kind not in (3, 4, 5):
            raise table.fault(f"has an instruction of kind {kind}, which this hexforge does not know")
        _within(first, values, "value", call)
        if kind == 3:
            _within(second, values, "value", call)
            return MoveCall(first, second)
        if kind == 4:
            _within(second, count + 1, "instruction", call)
            return JumpFalseCall(first, second)
        return FreeCall(first)


def _check_lists(values: tuple[EValue, ...], table: FlatTable) -> None:
    """FormatError where a list of values has something else in it than it says."""
    for value in values:
        if isinstance(value, TensorList | IntList):
            kind = TensorValue if isinstance(value, TensorList) else int
            for index in value.items:
                if isinstance(value, TensorList) and value.optional and index == -1:
                    continue
                _within(index, len(values), "value", table)
                if not isinstance(values[index], kind | None):  # an item may be None where it is optional
                    raise table.fault(f"has a list whose item {index} is no {kind.__name__}")


_NUMBERS = frozenset(int(t) for t in ScalarType)


def _within(index: int, count: int, what: str, table: FlatTable) -> None:
    if not 0 <= index < count:
        raise table.fault(f"refers to {what} {index} of {count}")
