# SPDX-License-Identifier: Apache-2.0
"""Products: what is multiplied, where it lies, and how results are stored.

C[m, n] = sum over taps and depth of A[m, k] B[k, n]. A convolution is one whose A is never written: a row is an output
position, and a tap says where in the input it reads. The order of a sum depends on the shape and the device alone,
never on a tile that was measured to be fast.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hexforge.addons.gpu.kernels.code import HALF, BufferType, Index, KernelCode, NotVectorizedError
from hexforge.addons.gpu.kernels.launch import Constant, Epilogue, Kernel
from hexforge.addons.gpu.kernels.products.blocks import FourBitWeight
from hexforge.ir import Node, Value

HALF_RUN = 16
"""Products that are summed up in half before their sum goes to a float: longer sums in half lose what they add."""


@dataclass(frozen=True, slots=True)
class ConvWindow:
    """How the rows of an implicit A read an input: sizes, taps and steps of each spatial axis."""

    sizes: tuple[int, ...]
    outs: tuple[int, ...]
    taps: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    channels: int
    """Channels of the whole input, all groups together."""
    transposed: bool = False
    planes: bool = False
    """Whether every channel is a picture of its own in memory, as ONNX has them."""

    @property
    def channel_step(self) -> int:
        """Elements from one channel to the next."""
        return math.prod(self.sizes) if self.planes else 1


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory: where element (batch, row, column) lies, in elements."""

    value: Value | Constant
    storage: BufferType
    batch: tuple[int, ...]
    """Strides of the batch axes."""
    row: int
    column: int
    offset: int = 0
    packed: FourBitWeight | None = None
    """What unpacks its elements, where they are 4 bits each."""

    def read(self, kernel: Kernel, at: str, width: int = 1, real: str = "float") -> str:
        """The elements from `at` on, a multiple of the width."""
        if self.packed is not None:
            elements = self.packed.read(kernel, at, width)
            return elements if real == "float" else f"convert_half{'' if width == 1 else width}_rte({elements})"
        return self.storage.load(argument(kernel, self), at, width, real)


@dataclass(frozen=True, slots=True)
class DepthwiseRows:
    """Rows of A that a depthwise convolution would have written: they are computed where they are read."""

    node: Node
    chain: tuple[Node, ...]
    window: ConvWindow

    @property
    def flops(self) -> int:
        """Additions and multiplications, once for each element."""
        return 2 * self.node.outputs[0].type.size * math.prod(self.window.taps)


@dataclass(frozen=True, slots=True)
class ScaledRows:
    """Rows of A that are multiplied by the factors of their picture's channels where they are read."""

    node: Node
    factors: Value
    """As [pictures, channels]."""
    positions: int
    """Rows of a picture."""

    def times(self, kernel: Kernel, element: str, row: str, channel: str, width: int) -> str:
        """Elements of a row times their factors, rounded as if the products had been stored."""
        out = self.node.outputs[0]
        rounds = kernel.elements.storage(out) == HALF
        first = f"{row} / {self.positions} * {out.shape[-1]} + " if out.shape[0] > 1 else ""
        factor = kernel.source(self.factors).load(f"({first}{channel})", width)
        suffix = "" if width == 1 else str(width)
        return f"round_half{suffix}({element} * {factor})" if rounds else f"({element} * {factor})"


@dataclass(frozen=True, slots=True)
class Product:
    """What is multiplied."""

    node: Node
    m: int
    n: int
    depth: int
    """Elements that are summed up for each tap."""
    batch: tuple[int, ...]
    a: Matrix
    b: Matrix
    bias: Value | None
    out_row: int
    """Elements from one row of the output to the next."""
    out_batch: tuple[int, ...]
    window: ConvWindow | None = None
    rows: DepthwiseRows | None = None
    scaled: ScaledRows | None = None
    bias_batch: int = 0
    """Elements of the bias from one of the last batch axis to the next."""

    @property
    def taps(self) -> int:
        """How often the depth is gone through."""
        return math.prod(self.window.taps) if self.window else 1

    @property
    def k(self) -> int:
        """How many products each element sums up."""
        return self.taps * self.depth

    @property
    def key(self) -> str:
        """What it is known by in the cache of measurements."""
        kind = "depthwise product" if self.rows else "scaled product" if self.scaled else "product"
        kind = kind if self.window is None else f"taps {self.window.taps} stride {self.window.stride}"
        types = f"{self.a.storage.type} {self.b.storage.type}"
        return f"{kind} {self.m}x{self.n}x{self.k} of {self.batch} {self.a.row},{self.a.column} {types}"

    @property
    def flops(self) -> int:
        """Additions and multiplications."""
        return 2 * self.m * self.n * self.k * math.prod(self.batch) + (self.rows.flops if self.rows else 0)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that it computes."""
        scaling = (self.scaled.node,) if self.scaled else ()
        return (*((self.rows.node, *self.rows.chain) if self.rows else scaling), self.node)


def operand_base(code: KernelCode, operand: Matrix, batch: tuple[str, ...]) -> str:
    """Where a batch of an operand begins."""
    terms = [f"{b} * {s}" for b, s in zip(batch, operand.batch, strict=True) if s and b != "0"]
    if operand.offset:
        terms.append(str(operand.offset))
    return code.let("int", " + ".join(terms)) if terms else "0"


def batch_axes(code: KernelCode, product: Product, at: str) -> tuple[str, ...]:
    """The axes of the batch that number `at` of all is."""
    if math.prod(product.batch) == 1:
        return ("0",) * len(product.batch)
    return code.axes(Index(product.batch, at))


def window_row(code: KernelCode, window: ConvWindow, m: str, name: str) -> None:
    """The first coordinates that row `m` reads, as name_i, and where its image begins, as name_n."""
    at = code.axes(Index((1 << 30, *window.outs), m))
    # the leading axis has no bound of its own: it is what is left
    code.add(f"const int {name}_n = {at[0]} * {math.prod(window.sizes) * window.channels};")
    for i, (a, s, p) in enumerate(zip(at[1:], window.stride, window.pads, strict=True)):
        first = f"{a} + {p}" if window.transposed else f"{a} * {s} - {p}"
        code.add(f"const int {name}_{i} = {first};")


def window_read(window: ConvWindow, name: str, taps: tuple[str, ...]) -> tuple[str, str]:
    """The condition that a tap is inside the input, and the offset of its first channel."""
    inside, place = [], "0"
    for i, (n, tap) in enumerate(zip(window.sizes, taps, strict=True)):
        if window.transposed:
            at = f"({name}_{i} - {tap})"
            stride = window.stride[i]
            if stride > 1:
                inside.append(f"{at} % {stride} == 0")
                at = f"({at} / {stride})"
            inside.append(f"{name}_{i} >= {tap}")
        else:
            at = f"({name}_{i} + {tap} * {window.dilation[i]})" if window.taps[i] > 1 else f"{name}_{i}"
            reach = (window.taps[i] - 1) * window.dilation[i]
            if not window.pads[i] and (window.outs[i] - 1) * window.stride[i] + reach < n:
                place = f"({place} * {n} + {at})" if place != "0" else at
                continue
        inside.append(f"(uint){at} < {n}u")
        place = f"({place} * {n} + {at})" if place != "0" else at
    return " && ".join(inside), f"{name}_n + {place}" + ("" if window.planes else f" * {window.channels}")


def argument(kernel: Kernel, operand: Matrix) -> str:
    """The name of the buffer that an operand is read from."""
    return kernel.buffers.read(operand.value, operand.storage)


@dataclass(frozen=True, slots=True)
class Results:
    """Stores results of a product in one batch: the bias and the chain come on top."""

    kernel: Kernel
    product: Product
    epilogue: Epilogue
    base: str
    bias_base: str

    @classmethod
    def of(
        cls, kernel: Kernel, code: KernelCode, product: Product, epilogue: Epilogue, batch: tuple[str, ...]
    ) -> Results:
        """Results of the batch with these axes."""
        terms = [f"{b} * {s}" for b, s in zip(batch, product.out_batch, strict=True) if s and b != "0"]
        base = code.let("int", " + ".join(terms)) if terms else "0"
        biased = product.bias_batch and batch[-1] != "0"
        bias = code.let("int", f"{batch[-1]} * {product.bias_batch}") if biased else "0"
        return cls(kernel, product, epilogue, base, bias)

    def finish(self, code: KernelCode, row: str, column: str, result: str) -> None:
        """Store one element, or as many neighbours as the code is wide."""
        at = code.let("int", f"{self.base} + {row} * {self.product.out_row} + {column}")
        value = result
        if self.product.bias is not None:
            load = self.kernel.source(self.product.bias).load(f"({self.bias_base} + {column})", code.width)
            value = code.let(f"float{code.width if code.width > 1 else ''}", f"{result} + {load}")
        self.epilogue.write(self.kernel, code, value, Index(self.epilogue.result.shape, at))

    def store(self, code: KernelCode, row: str, column: str, result: str, width: int) -> None:
        """Store neighbours of a row: as a vector where the chain and the row's end allow, else one by one."""
        n = code.let("int", column)
        count = self.product.n
        aligned = count % width == 0 and self.product.out_row % width == 0 and self.product.bias_batch % width == 0
        if aligned and all(s % width == 0 for s in self.product.out_batch):
            wide = code.widened(width)
            try:
                self.finish(wide, row, n, result)
            except NotVectorizedError:
                pass
            else:
                code.add(f"if ({n} < {count}) {{")
                code.lines += wide.lines
                code.add("}")
                return
        items, counter = code.fresh(), code.fresh()
        code.add(f"float {items}[{width}]; vstore{width}({result}, 0, {items});")
        head = f"for (int {counter} = 0; {counter} < {width} && {n} + {counter} < {count}; {counter}++)"
        with code.block(head) as inner:
            place = inner.let("int", f"{n} + {counter}")
            self.finish(inner, row, place, inner.let("float", f"{items}[{counter}]"))
