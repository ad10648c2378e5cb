# SPDX-License-Identifier: Apache-2.0
"""Launch: a kernel with what it is called with, and the chain it ends with; and the device that it is written for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexforge.addons.gpu.kernels.code import Buffer, Buffers, BufferType, Index, KernelCode, NotVectorizedError
from hexforge.addons.gpu.kernels.element import Elements
from hexforge.addons.gpu.kernels.moves import ALIASES
from hexforge.addons.gpu.kernels.pointwise import HALF_PREAMBLE, PREAMBLE, softplus
from hexforge.ir import Array, Node, Value


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a device that decide how kernels are written; equal machines get the same kernels."""

    is_processor: bool
    units: int
    local_bytes: int
    most_items: int = 256
    """Work-items of a work-group at most."""
    half_math: bool = False
    """Whether it computes in float16 (cl_khr_fp16)."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Neighbours that a work-item takes at once, best first."""
        return (8, 4, 1) if self.is_processor else (4, 1)

    @property
    def local(self) -> int:
        """Work-items of a work-group where nothing else decides."""
        return 64 if self.is_processor else 128

    @property
    def row_group(self) -> int:
        """Work-items that share a row."""
        return 1 if self.is_processor else 256


_ROUND = """
float round_half(float x) {
  ushort h;
  vstore_half_rte(x, 0, (private half*)&h);
  return vload_half(0, (private half*)&h);
}
"""
_HALF4 = """
#ifdef __NV_CL_C_VERSION  // whose compiler reads vloada_half4 one half at a time
float4 half4_at(global const half* at) {
  const uint2 both = *(global const uint2*)at;
  ushort h[4];
  vstore4(as_ushort4(both), 0, h);
  return (float4)(vload_half(0, (private half*)&h[0]), vload_half(0, (private half*)&h[1]),
                  vload_half(0, (private half*)&h[2]), vload_half(0, (private half*)&h[3]));
}
#else
#define half4_at(at) vloada_half4(0, at)
#endif
"""


@dataclass(frozen=True, eq=False, slots=True)
class Constant:
    """An array that a kernel reads, made from constants of the graph when it is first needed."""

    name: str
    storage: BufferType
    make: Callable[[], Array]
    bytes: int


@dataclass(frozen=True, eq=False, slots=True)
class Scratch:
    """Memory that kernels of one node hand results to each other in."""

    name: str
    bytes: int


Argument = Value | Constant | Scratch | str


@dataclass(frozen=True, eq=False, slots=True)
class Launch:
    """A kernel, its arguments and how many work-items run it."""

    name: str
    nodes: tuple[Node, ...]
    source: str
    arguments: tuple[Argument, ...]
    writes: tuple[Value | Scratch, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    flops: int = 0

    @property
    def key(self) -> str:
        """What the compiled kernel is known by."""
        return hashlib.blake2b(self.source.encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class Kernel:
    """A kernel in the making: its buffers, and functions and statements in text."""

    elements: Elements
    buffers: Buffers = field(default_factory=Buffers)
    functions: dict[str, str] = field(default_factory=dict)
    """Functions that the statements call, by name."""

    def code(self, width: int = 1, real: str = "float") -> KernelCode:
        """An empty body that computes floats in `real`."""
        return KernelCode(self.buffers, width, real=real)

    def source(self, what: Value | Constant) -> Buffer:
        """Where the kernel reads a value or an array of constants."""
        storage = what.storage if isinstance(what, Constant) else self.elements.storage(what)
        return Buffer(self.buffers.read(what, storage), storage)

    def target(self, value: Value, name: str = "out") -> Buffer:
        """Where the kernel writes a value."""
        storage = self.elements.storage(value)
        return Buffer(self.buffers.write(value, storage.type, name), storage)

    def text(self, code: KernelCode, before: str = "", attributes: str = "", contract: bool = False) -> str:
        """The whole source of the kernel: functions before it, its attributes, and whether products join with sums."""
        body = "\n".join(code.lines)
        widths = sorted({w for w in (2, 4, 8, 16) if f"float{w}" in body or f"float{w}" in before})
        parts = [f"#pragma OPENCL FP_CONTRACT {'ON' if contract else 'OFF'}"]
        text = body + before
        if self.elements.real == "half":
            parts.insert(0, "#pragma OPENCL EXTENSION cl_khr_fp16 : enable")
            parts += [HALF_PREAMBLE] if "half_mod(" in text else []
        if any(name in text for name in ("int_", "float_mod(")):
            parts.append(PREAMBLE)
        types = (f"{real}{width}" for real in ("float", "half") for width in ("", "2", "4", "8", "16"))
        parts += [softplus(t) for t in types if f"softplus_{t}(" in text]
        if "half4_at" in text:
            parts.append(_HALF4)
        if "round_half" in text:
            parts.append(_ROUND)
            parts += [_wide_round(w) for w in widths]
        parts += self.functions.values()
        parts.append(before)
        parts.append(f"kernel {attributes}void run({', '.join(self.buffers.declared)}) {{\n{body}\n}}\n")
        return "\n".join(parts)

    def launch(
        self, name: str, nodes: Sequence[Node], code: KernelCode, writes: Sequence[Value | Scratch] | Epilogue,
        global_size: tuple[int, ...], local_size: tuple[int, ...], flops: int = 0, **text: Any,
    ) -> Launch:  # fmt: skip
        """The finished kernel, which writes values, or what its chain ends with; `text` is what `text` takes."""
        if isinstance(writes, Epilogue):
            nodes, writes = (*nodes, *writes.chain), (writes.target,)
        arguments: tuple[Argument, ...] = tuple(self.buffers.names)  # type: ignore[arg-type]
        source = self.text(code, **text)
        return Launch(name, tuple(nodes), source, arguments, tuple(writes), global_size, local_size, flops)

    def launch_items(
        self, name: str, nodes: Sequence[Node], code: KernelCode, writes: Sequence[Value | Scratch] | Epilogue,
        total: int, local: int, flops: int = 0, **text: Any,
    ) -> Launch:  # fmt: skip
        """The finished kernel of so many work-items, `local` of which are a work-group."""
        return self.launch(name, nodes, code, writes, (rounded_up(total, local),), (local,), flops, **text)


def _wide_round(width: int) -> str:
    return (
        f"float{width} round_half{width}(float{width} x) {{ ushort{width} h; vstore_half{width}_rte(x, 0, "
        f"(private half*)&h); return vload_half{width}(0, (private half*)&h); }}"
    )


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a value lies inside another one that it is a piece of: rows of it, with something between them."""

    whole: Value
    row: int
    """Elements of a row of the piece."""
    step: int
    """Elements from one row to the next."""
    offset: int


@dataclass(slots=True)
class Epilogue:
    """What happens to a result before it is stored: pointwise ops on it and on what is in memory already."""

    result: Value
    chain: tuple[Node, ...] = ()
    piece: Piece | None = None
    """Where the result is a piece of a concatenation that nobody else need put together."""

    @property
    def out(self) -> Value:
        """What is stored."""
        return self.chain[-1].outputs[0] if self.chain else self.result

    @property
    def target(self) -> Value:
        """Where it is stored."""
        return self.piece.whole if self.piece is not None else self.out

    def value(self, kernel: Kernel, code: KernelCode, result: str, index: Index) -> tuple[str, Index]:
        """An element (or neighbours, as wide as the code is) of the result after the chain, and which one it is."""
        elements = kernel.elements
        suffix = "" if code.width == 1 else str(code.width)
        here = {self.result: (result, index)}
        if code.real == "half" and self.result.dtype.is_float:
            here[self.result] = (code.let(code.vector, f"convert_half{suffix}_rte({result})"), index)
        elif elements.round_half and self.chain:
            here[self.result] = (code.let(f"float{suffix}", f"round_half{suffix}({result})"), index)
        for node in self.chain:
            out = node.outputs[0]
            known = next(here[v] for v in node.inputs if v is not None and v in here)
            if node.op.name in ALIASES:
                here[out] = (known[0], Index(out.shape, code.flat(known[1])))
                continue
            place = Index(out.shape, code.flat(known[1]), known[1].axes if known[1].shape == out.shape else None)
            arguments = tuple(
                here[v][0] if v in here else elements.operand(code, v, place) for v in node.inputs if v is not None
            )
            value = elements.applied(code, node, arguments)
            if elements.round_half and code.real == "float" and out.dtype.is_float and node is not self.chain[-1]:
                value = code.let(f"float{suffix}", f"round_half{suffix}({value})")
            here[out] = (value, place)
        return here[self.out]

    def write(self, kernel: Kernel, code: KernelCode, result: str, index: Index) -> None:
        """Store an element (or neighbours) of the result after the chain; its chain may be in half."""
        before, code.real = code.real, kernel.elements.real
        value, place = self.value(kernel, code, result, index)
        code.real = before
        storage = kernel.elements.storage(self.out)
        buffer = code.buffers.write(self.target, storage.type, "out")
        at = code.flat(place)
        if self.piece is not None:
            if any(n % code.width for n in (self.piece.row, self.piece.step, self.piece.offset)):
                raise NotVectorizedError
            row, step, offset = self.piece.row, self.piece.step, self.piece.offset
            at = code.let("int", f"{at} / {row} * {step} + {at} % {row} + {offset}")
        code.add(storage.store(buffer, at, value, code.width, kernel.elements.real))


def rounded_up(count: int, step: int) -> int:
    """The next multiple of `step`."""
    return -(-count // step) * step
