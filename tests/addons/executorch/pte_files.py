# SPDX-License-Identifier: Apache-2.0
"""Small .pte files made without ExecuTorch: tables written field by field, as its schema program.fbs has them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import flatbuffers
import numpy as np

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.executorch import blob
from hexforge.addons.executorch.formats.etdump import scalar_type
from hexforge.backends.htp.backend import HtpBackend
from hexforge.ir import DType, Graph, Role, TensorType
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph


@dataclass
class Tensor:
    """A tensor of a plan; `data` is its constant."""

    dtype: Any
    sizes: Sequence[int]
    data: np.ndarray[Any, Any] | None = None
    memory: tuple[int, int] | None = None
    dynamism: int = 0


@dataclass(frozen=True)
class Ints:
    """Numbers of values."""

    items: tuple[int, ...]


@dataclass
class Plan:
    """A method to write: values, instructions as (kind, first, second), delegates as (id, blob)."""

    values: Sequence[Any]
    inputs: Sequence[int]
    outputs: Sequence[int]
    instructions: Sequence[tuple[str, int, Any]]
    operators: Sequence[str] = ()
    delegates: Sequence[tuple[str, bytes]] = ()
    specs: Mapping[str, bytes] = field(default_factory=dict)
    name: str = "forward"
    memory: Sequence[int] = (0, 4096)


class Writer:
    """Writes one file."""

    def __init__(self) -> None:
        self.made = flatbuffers.Builder(4096)
        self.segments: list[bytes] = []
        self.constants: list[bytes] = [b""]

    def table(self, count: int, **slots: tuple[str, Any]) -> int:
        self.made.StartObject(count)
        for name, (kind, value) in slots.items():
            slot = int(name[1:])
            if kind == "o":
                self.made.PrependUOffsetTRelativeSlot(slot, value, 0)
            else:
                getattr(self.made, f"Prepend{kind}Slot")(slot, value, 0)
        return int(self.made.EndObject())

    def vector(self, items: Sequence[int], width: int, put: str) -> int:
        self.made.StartVector(width, len(items), width)
        for item in reversed(items):
            getattr(self.made, put)(item)
        return int(self.made.EndVector())

    def tables(self, items: Sequence[int]) -> int:
        return self.vector(items, 4, "PrependUOffsetTRelative")

    def ints(self, items: Sequence[int]) -> int:
        return self.vector(items, 4, "PrependInt32")

    def longs(self, items: Sequence[int]) -> int:
        return self.vector(items, 8, "PrependInt64")

    def text(self, value: str) -> int:
        return int(self.made.CreateString(value))

    def value(self, value: Any) -> int:
        if isinstance(value, Tensor):
            kind, inner = 5, self.tensor(value)
        elif value is None:
            kind, inner = 1, self.table(0)
        elif isinstance(value, bool):
            kind, inner = 3, self.table(1, f0=("Bool", value))
        elif isinstance(value, int):
            kind, inner = 2, self.table(1, f0=("Int64", value))
        elif isinstance(value, float):
            kind, inner = 4, self.table(1, f0=("Float64", value))
        elif isinstance(value, Ints):
            kind, inner = 7, self.table(1, f0=("o", self.longs(value.items)))
        else:
            kind, inner = 6, self.table(1, f0=("o", self.text(value)))
        return self.table(2, f0=("Uint8", kind), f1=("o", inner))

    def tensor(self, tensor: Tensor) -> int:
        kind = scalar_type(np.dtype(tensor.dtype))
        assert kind is not None
        index = 0
        if tensor.data is not None:
            index = len(self.constants)
            self.constants.append(tensor.data.tobytes())
        sizes, order = self.ints(tensor.sizes), self.vector(list(range(len(tensor.sizes))), 1, "PrependUint8")
        slots: dict[str, tuple[str, Any]] = {
            "f0": ("Int8", int(kind)), "f2": ("o", sizes), "f3": ("o", order), "f5": ("Uint32", index),
            "f8": ("Int8", tensor.dynamism),
        }  # fmt: skip
        if tensor.memory is not None:
            place = self.table(3, f0=("Uint32", tensor.memory[0]), f1=("Uint32", tensor.memory[1]))
            slots["f6"] = ("o", place)
        return self.table(10, **slots)

    def instruction(self, kind: str, first: int, second: Any) -> int:
        number = ("kernel", "delegate", "move", "jump", "free").index(kind) + 1
        if number <= 2:
            inner = self.table(2, f0=("Int32", first), f1=("o", self.ints(second)))
        else:
            inner = self.table(2, f0=("Int32", first), f1=("Int32", second or 0))
        return self.table(2, f0=("Uint8", number), f1=("o", inner))

    def delegate(self, name: str, data: bytes, specs: Mapping[str, bytes]) -> int:
        if data not in self.segments:
            self.segments.append(data)
        place = self.table(2, f0=("Int8", 1), f1=("Uint32", self.segments.index(data)))
        rows = [
            self.table(2, f0=("o", self.text(k)), f1=("o", int(self.made.CreateByteVector(v))))
            for k, v in specs.items()
        ]
        return self.table(3, f0=("o", self.text(name)), f1=("o", place), f2=("o", self.tables(rows)))

    def plan(self, plan: Plan) -> int:
        values = self.tables([self.value(v) for v in plan.values])
        calls = self.tables([self.instruction(*i) for i in plan.instructions])
        chain = self.tables([self.table(4, f2=("o", calls))])
        operators = self.tables(
            [
                self.table(2, f0=("o", self.text(n)), f1=("o", self.text(o)))
                for n, _, o in (op.partition(".") for op in plan.operators)
            ]
        )
        delegates = self.tables([self.delegate(i, d, plan.specs) for i, d in plan.delegates])
        name, memory = self.text(plan.name), self.longs(plan.memory)
        return self.table(
            9, f0=("o", name), f2=("o", values), f3=("o", self.ints(plan.inputs)), f4=("o", self.ints(plan.outputs)),
            f5=("o", chain), f6=("o", operators), f7=("o", delegates), f8=("o", memory),
        )  # fmt: skip


def viewed() -> Plan:
    """An input, a delegate's output and an output that are seen under other shapes at their own places."""
    wide, flat = Tensor(np.float32, (2, 3), memory=(1, 0)), Tensor(np.float32, (6,), memory=(1, 0))
    made, turned = Tensor(np.float32, (2, 3), memory=(1, 64)), Tensor(np.float32, (3, 2), memory=(1, 64))
    return Plan(
        [flat, wide, made, turned, Tensor(np.float32, (2, 3), memory=(1, 128))],
        [0],
        [3, 4, 2],
        [("delegate", 0, [1, 2]), ("delegate", 0, [3, 4])],
        delegates=[("QnnBackend", context_blob(doubling("forward")))],
    )


def pte(*plans: Plan, version: int = 0, magic: bytes = b"ET12") -> bytes:
    """A file with these methods."""
    writer = Writer()
    made = [writer.plan(p) for p in plans]
    table = writer.tables(made)
    constants = b"".join(c.ljust(-(-len(c) // 16) * 16, b"\0") for c in writer.constants)
    offsets = np.cumsum([0] + [-(-len(c) // 16) * 16 for c in writer.constants[:-1]]).tolist()
    blobs = [*writer.segments, constants]
    places, at = [], 0
    for data in blobs:
        places.append(writer.table(2, f0=("Uint64", at), f1=("Uint64", len(data))))
        at += -(-len(data) // 256) * 256
    segments = writer.tables(places)
    constant = writer.table(2, f0=("Uint32", len(blobs) - 1), f1=("o", writer.longs(offsets)))
    root = writer.table(8, f0=("Uint32", version), f1=("o", table), f4=("o", segments), f5=("o", constant))
    writer.made.Finish(root, magic)
    program = bytes(writer.made.Output())
    header = 32  # ExecuTorch inserts it behind the identifier, and moves the root with it
    start = struct.unpack_from("<I", program)[0] + header
    size = len(program) + header
    base = -(-size // 256) * 256
    extended = struct.pack("<4sIQQQ", b"eh00", header, size, base, at)
    whole = struct.pack("<I", start) + magic + extended + program[8:]
    body = b"".join(d.ljust(-(-len(d) // 256) * 256, b"\0") for d in blobs)
    return whole.ljust(base, b"\0") + body


def ptd_bytes(**tensors: np.ndarray[Any, Any]) -> bytes:
    """A .ptd file with these tensors; with two of its own where none is given."""
    tensors = tensors or {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "bias": np.ones(3, np.float32)}
    writer = Writer()
    places, named, at = [], [], 0
    for i, (name, array) in enumerate(tensors.items()):
        places.append(writer.table(2, f0=("Uint64", at), f1=("Uint64", array.nbytes)))
        at += -(-array.nbytes // 16) * 16
        sizes, order = writer.ints(array.shape), writer.vector(range(array.ndim), 1, "PrependUint8")
        layout = writer.table(3, f0=("Int8", scalar_type(array.dtype)), f1=("o", sizes), f2=("o", order))
        key = writer.made.CreateString(name)
        named.append(writer.table(3, f0=("o", key), f1=("Uint32", i), f2=("o", layout)))
    root = writer.table(3, f1=("o", writer.tables(places)), f2=("o", writer.tables(named)))
    writer.made.Finish(root, b"FT01")
    program = bytes(writer.made.Output())
    start, size = struct.unpack_from("<I", program)[0] + 40, len(program) + 40
    base = -(-size // 16) * 16
    header = struct.pack("<4sIQQQQ", b"FH01", 40, 40, size, base, at)
    body = b"".join(a.tobytes().ljust(-(-a.nbytes // 16) * 16, b"\0") for a in tensors.values())
    return (struct.pack("<I", start) + b"FT01" + header + program[8:]).ljust(base, b"\0") + body


# -- delegates --------------------------------------------------------------------------------------------------------


def doubling(name: str = "g", shape: tuple[int, ...] = (2, 3)) -> Graph:
    """Its output is its input twice over."""
    made = Graph(name)
    like = TensorType(DType.FLOAT32, shape)
    x = made.value("input_0_x@0", like, Role.APP_WRITE)
    made.node("ElementWiseAdd", [x, x], [made.value("output_y@0", like, Role.APP_READ)])
    return made


def counting(name: str = "forward") -> Graph:
    """A buffer to which every run adds its input; the output is the sum."""
    made = Graph(name)
    like = TensorType(DType.FLOAT32, (4,))
    x = made.value("input_0_x@0", like, Role.APP_WRITE)
    kept = made.value("input_1_mutbuf_0_sum@0", like, Role.APP_WRITE)
    after = made.value("output_mutbuf_0_next@0", like, Role.APP_READ)
    made.node("ElementWiseAdd", [x, kept], [after])
    made.node("ElementWiseAdd", [x, kept], [made.value("output_y@0", like, Role.APP_READ)])
    return made


def context_blob(*graphs: Graph) -> bytes:
    """The blob of a delegate with these graphs."""
    backend = HtpBackend(threads=1)
    rows = [PreparedGraph(g.name, backend.compile(g), backend.graph_settings()) for g in graphs]
    return blob.wrap_context(ContextBuilder.of(backend, rows).writer().to_bytes())


def compile_spec(log_level: int = 1) -> bytes:
    """What the htp delegate of a chip is compiled with."""
    writer = Writer()
    soc, chosen = writer.table(2, s0=("Int32", 57)), writer.table(4, s0=("Int32", 2))
    root = writer.table(9, s0=("o", soc), s1=("o", chosen), s3=("Int32", log_level))
    writer.made.Finish(root)
    return bytes(writer.made.Output())


def delegated(data: bytes | None = None, backend: str = "QnnBackend", name: str = "forward") -> Plan:
    """A method that is one delegate: twice its input."""
    like = Tensor(np.float32, (2, 3))
    data = context_blob(doubling(name)) if data is None else data
    return Plan([like, like], [0], [1], [("delegate", 0, [0, 1])], delegates=[(backend, data)], name=name)
