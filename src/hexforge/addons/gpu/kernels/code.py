# SPDX-License-Identifier: Apache-2.0
"""KernelCode: OpenCL C as it is written, statement by statement, with the buffers it reads."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from hexforge.ir import Array, DType, Value

C_TYPES: dict[DType, str] = {
    DType.FLOAT32: "float",
    DType.FLOAT16: "float",
    DType.INT8: "char",
    DType.UINT8: "uchar",
    DType.INT16: "short",
    DType.UINT16: "ushort",
    DType.INT32: "int",
    DType.UINT32: "uint",
    DType.INT64: "long",
    DType.BOOL: "uchar",
    DType.UINT4: "uchar",
    DType.INT4: "char",
}
"""What elements are computed in; where a device computes in half, `KernelCode.type` says where it does."""


class NotVectorizedError(Exception):
    """A chain has a part that is written for one element at a time only."""


@dataclass(frozen=True, slots=True)
class BufferType:
    """How a value lies in a buffer: `half` for float16, else the C type."""

    type: str
    bytes: int

    @classmethod
    def of(cls, dtype: DType, half: bool = False) -> BufferType:
        """BufferType of a data type; floats as half where asked."""
        if dtype.is_float:
            return HALF if half else FLOAT
        return cls(C_TYPES[dtype], max(1, dtype.bits // 8))

    def load(self, buffer: str, at: str, width: int = 1, real: str = "float") -> str:
        """The elements at `at`, a multiple of the width, as they are computed with: floats as `real`."""
        if real == "half" and self.type in ("half", "float"):
            wide = "" if width == 1 else str(width)
            there = f"{buffer}[{at}]" if width == 1 else f"*(global const {self.type}{wide}*)({buffer} + {at})"
            return there if self.type == "half" else f"convert_half{wide}_rte({there})"
        if self.type == "half":
            if width == 4:
                return f"half4_at({buffer} + {at})"
            return f"vload_half({at}, {buffer})" if width == 1 else f"vloada_half{width}(0, {buffer} + {at})"
        return f"{buffer}[{at}]" if width == 1 else f"*(global const {self.type}{width}*)({buffer} + {at})"

    def store(self, buffer: str, at: str, what: str, width: int = 1, real: str = "float") -> str:
        """The statement that stores elements at `at`, a multiple of the width; floats come as `real`."""
        if real == "half" and self.type == "float":
            what = f"convert_float{'' if width == 1 else width}({what})"
        elif self.type == "half" and real != "half":
            suffix = "vstore_half_rte" if width == 1 else f"vstorea_half{width}_rte"
            return f"{suffix}({what}, 0, {buffer} + {at});"
        return (
            f"{buffer}[{at}] = {what};" if width == 1 else f"*(global {self.type}{width}*)({buffer} + {at}) = {what};"
        )

    @property
    def numpy(self) -> np.dtype:
        """The type of an array with these elements."""
        names = {
            "half": "float16",
            "float": "float32",
            "char": "int8",
            "short": "int16",
            "int": "int32",
            "long": "int64",
        }
        return np.dtype(names.get(self.type) or "u" + names[self.type[1:]])


HALF = BufferType("half", 2)
FLOAT = BufferType("float", 4)


@dataclass(frozen=True, slots=True)
class Buffer:
    """An argument of a kernel: what it is called there, and how its elements lie."""

    name: str
    storage: BufferType

    def load(self, at: str, width: int = 1, real: str = "float") -> str:
        """The elements at `at`, a multiple of the width, as they are computed with: floats as `real`."""
        return self.storage.load(self.name, at, width, real)

    def store(self, at: str, what: str, width: int = 1, real: str = "float") -> str:
        """The statement that stores elements at `at`, a multiple of the width; floats come as `real`."""
        return self.storage.store(self.name, at, what, width, real)


@dataclass(slots=True)
class Index:
    """An element of a tensor: its place in row-major order, or one number for each axis; C expressions."""

    shape: tuple[int, ...]
    flat: str | None = None
    axes: tuple[str, ...] | None = None


@dataclass(slots=True)
class Buffers:
    """The arguments of a kernel in their order, by what they are: values, arrays of constants, the fault word."""

    names: dict[object, str] = field(default_factory=dict)
    declared: list[str] = field(default_factory=list)

    def read(self, key: object, storage: BufferType) -> str:
        """The name of an argument that is read."""
        if key not in self.names:
            self.names[key] = f"in{len(self.names)}"
            self.declared.append(f"global const {storage.type}* restrict {self.names[key]}")
        return self.names[key]

    def write(self, key: object, type: str, name: str) -> str:
        """The name of an argument that is written."""
        if key not in self.names:
            self.names[key] = name
            self.declared.append(f"global {type}* restrict {name}")
        return self.names[key]


FAULT = "fault"
"""The argument that a kernel reports an index outside its axis in."""


class KernelCode:
    """Statements of a block, and what is known in it already."""

    def __init__(self, buffers: Buffers, width: int = 1, depth: int = 1, real: str = "float") -> None:
        self.buffers = buffers
        self.width = width
        self.real = real
        self.lines: list[str] = []
        self.known: dict[object, str] = {}
        self._depth = depth
        self._counter = [0]

    def type(self, dtype: DType) -> str:
        """What an element of a data type is computed in here."""
        return self.real if dtype.is_float else C_TYPES[dtype]

    @property
    def vector(self) -> str:
        """What the neighbours that are computed at once are computed in."""
        return self.real if self.width == 1 else f"{self.real}{self.width}"

    def let(self, type: str, expression: str) -> str:
        """A constant of that type; one that is known already is not computed again."""
        if expression.isidentifier() or expression.lstrip("-").isdigit():
            return expression
        key = (type, expression)
        if key not in self.known:
            self.known[key] = name = self.fresh()
            self.add(f"const {type} {name} = {expression};")
        return self.known[key]

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self._counter[0] += 1
        return f"t{self._counter[0]}"

    def add(self, line: str) -> None:
        """Add a statement."""
        self.lines.append("  " * self._depth + line)

    def item_of(self, total: int) -> None:
        """Begin a kernel of so many work-items: `g` is which of them; those beyond do nothing."""
        self.add("const int g = get_global_id(0);")
        self.add(f"if (g >= {total}) return;")

    @contextmanager
    def block(self, head: str) -> Iterator[KernelCode]:
        """A nested block; what becomes known in it is forgotten after it."""
        inner = KernelCode(self.buffers, self.width, self._depth + 1, self.real)
        inner.known, inner._counter = dict(self.known), self._counter
        yield inner
        self.add(f"{head} {{")
        self.lines += inner.lines
        self.add("}")

    def widened(self, width: int) -> KernelCode:
        """An empty block at this place that works on as many neighbours at once."""
        wide = KernelCode(self.buffers, width, self._depth + 1, self.real)
        wide.known, wide._counter = dict(self.known), self._counter
        return wide

    def narrowed(self) -> KernelCode:
        """This very block, working on one element at a time."""
        narrow = KernelCode(self.buffers, 1, self._depth, self.real)
        narrow.lines, narrow.known, narrow._counter = self.lines, self.known, self._counter
        return narrow

    # -- indices ------------------------------------------------------------------------------------------------------

    def flat(self, index: Index) -> str:
        """The place in row-major order."""
        if index.flat is None:
            assert index.axes is not None
            index.flat = self.let("int", affine(index.axes, strides(index.shape)))
        return index.flat

    def axes(self, index: Index) -> tuple[str, ...]:
        """One number for each axis."""
        if index.axes is None:
            assert index.flat is not None
            numbers: list[str] = []
            steps = strides(index.shape)
            outermost = next((i for i, n in enumerate(index.shape) if n > 1), -1)
            for i, (size, step) in enumerate(zip(index.shape, steps, strict=True)):
                if size == 1:
                    numbers.append("0")
                    continue
                at = index.flat if step == 1 else f"({index.flat} / {step})"
                numbers.append(self.let("int", at if i == outermost else f"{at} % {size}"))
            index.axes = tuple(numbers)
        return index.axes


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def affine(terms: Sequence[str], factors: Sequence[int], constant: int = 0) -> str:
    """The sum of terms times factors."""
    parts = [t if f == 1 else f"{t} * {f}" for t, f in zip(terms, factors, strict=True) if t != "0" and f]
    if constant or not parts:
        parts.append(str(constant))
    return " + ".join(parts)


def literal(value: float | int | bool, type: str) -> str:
    """A constant of a C type, exactly; of half as near as there is one."""
    if type == "half":
        return f"(half){literal(float(np.float16(value)), 'float')}"
    if type != "float":
        whole = int(value)
        if type == "long":
            return "LONG_MIN" if whole == -(1 << 63) else f"{whole}L" if whole >= 0 else f"({whole}L)"
        if type == "uint":
            return f"{whole}u"
        return "INT_MIN" if whole == -(1 << 31) else str(whole) if whole >= 0 else f"({whole})"
    number = float(np.float32(value))
    if math.isnan(number):
        return "NAN"
    if math.isinf(number):
        return "INFINITY" if number > 0 else "(-INFINITY)"
    bits = struct.unpack("<I", struct.pack("<f", number))[0]
    text = f"{number:.9g}"
    if np.float32(text).view(np.uint32) != bits:  # pragma: no cover - nine digits name every float
        return f"as_float(0x{bits:08x}u)"
    text = text if any(c in text for c in ".en") else text + ".0"
    return f"({text}f)" if text.startswith("-") else f"{text}f"


def single(value: Value) -> float | int | bool | None:
    """The one number that a constant consists of, None where it has several or is none."""
    data: Array | None = value.data
    if data is None or data.size == 0 or value.encoding is not None:
        return None
    if data.size == 1 or not any(data.strides):
        number: float | int | bool = data.reshape(-1)[:1].astype(np.float64 if value.dtype.is_float else np.int64)[0]
        return number
    return None
