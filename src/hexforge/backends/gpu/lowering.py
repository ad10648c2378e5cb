# SPDX-License-Identifier: Apache-2.0
"""Lowering: a graph becomes launches of kernels, in the order they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hexforge.backends.gpu.config import GpuConfig
from hexforge.backends.gpu.grouping import Groups, group
from hexforge.backends.gpu.kernels import gemm, other, rows, windows
from hexforge.backends.gpu.kernels.code import FLOAT, BufferType, NotVectorizedError, strides
from hexforge.backends.gpu.kernels.element import MAPS, Elements
from hexforge.backends.gpu.kernels.gemm import ConvWindow, Matrix, Product, ProductTile
from hexforge.backends.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch, Scratch
from hexforge.backends.gpu.kernels.moves import ALIASES
from hexforge.ir import Array, DType, Graph, Node, Role, Value
from hexforge.ir.fixed_point import dequantize


@dataclass(frozen=True, slots=True)
class Machine:
    """What of a device decides how kernels are written; kernels made for equal machines are the same."""

    is_processor: bool
    units: int
    local_bytes: int

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


Choose = Callable[[str, Sequence[tuple[str, Sequence[Launch]]]], Sequence[Launch]]


@dataclass(slots=True)
class GpuLowering:
    """Turns a graph into launches."""

    graph: Graph
    config: GpuConfig
    machine: Machine
    choose: Choose | None = None
    """Picks one of several ways to compute a product, by name, for the key of what it is."""
    groups: Groups = field(init=False)
    faults: list[Node] = field(default_factory=list)
    aliases: dict[Value, Value] = field(default_factory=dict)
    """Values that lie where another one does."""
    _constants: dict[object, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.groups = group(self.graph, self.config.gpu_use_node_optimizations)

    def launches(self) -> list[Launch]:
        """Every kernel of the graph."""
        made: list[Launch] = []
        for node in self.groups.roots:
            if all(v.type.size == 0 for v in node.outputs):
                continue
            made += self._launches(node)
        return made

    # -- values -------------------------------------------------------------------------------------------------------

    def storage(self, value: Value) -> BufferType:
        """How a value is stored: inputs and outputs as they are, others by the precision."""
        if value.role in (Role.APP_READ, Role.APP_WRITE):
            return BufferType.of(value.dtype, value.dtype is DType.FLOAT16)
        return BufferType.of(value.dtype, self.config.half(value.dtype is DType.FLOAT16))

    def placed(self, value: Value) -> Value:
        """The value whose memory a value is read from."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    def kernel(self) -> Kernel:
        """An empty kernel."""
        fp16 = self.config.gpu_precision == "fp16"
        return Kernel(Elements(self.storage, self.groups.inlined, self.faults, fp16))

    def constant(self, value: Value, name: str, make: Callable[[Array], Array]) -> Constant:
        """A constant of the graph in another form, made once."""
        key = (value, name)
        if key not in self._constants:
            storage = BufferType.of(DType.FLOAT32, self.config.half(value.dtype is DType.FLOAT16))
            assert value.data is not None

            def made(data: Array = value.data, type=value.type) -> Array:  # type: ignore[no-untyped-def]
                real = dequantize(data, type).astype(np.float32) if type.encoding is not None else data
                return np.ascontiguousarray(make(np.asarray(real))).astype(storage.numpy)

            size = math.prod(make(np.broadcast_to(np.zeros((), np.float32), value.shape)).shape)
            self._constants[key] = Constant(f"{value.name}:{name}", storage, made, size * storage.bytes)
        return self._constants[key]

    def _launches(self, node: Node) -> list[Launch]:
        name = node.op.name
        turned = self.groups.turned.get(node)
        epilogue = Epilogue((turned or node).outputs[0], self.groups.chains.get(node, ()))
        first = node.inputs[0] if node.inputs else None
        if name in ALIASES and first is not None and self._aliased(first, node.outputs[0]):
            return []
        if name in MAPS:
            return [self._map(node, i) for i, v in enumerate(node.outputs) if v.type.size]
        local, wg = self.machine.local, self.machine.row_group
        match name:
            case "Conv2d" | "Conv3d" | "TransposeConv2d" | "TransposeConv3d":
                return self._product(self._convolution(node), epilogue)
            case "FullyConnected" | "MatMul":
                product = self._fully_connected(node) if name == "FullyConnected" else self._matmul(node)
                return self._product(product, epilogue)
            case "DepthWiseConv2d":
                across = 1 if self.machine.is_processor else 2
                return [self._widest(node, lambda k, w: windows.depthwise(k, node, epilogue, w, local, across))]
            case "PoolMax2d" | "PoolMax3d" | "PoolAvg2d" | "PoolAvg3d" | "L2Pool2d":
                return [self._widest(node, lambda k, w: windows.pool(k, node, epilogue, w, local))]
            case "Lrn":
                return [windows.local_response(self.kernel(), node, epilogue, local)]
            case "Argmax" | "Argmin":
                return [rows.argument(self.kernel(), node, epilogue)]
            case "CumulativeSum":
                return [rows.cumulative(self.kernel(), node)]
            case "Softmax" | "LogSoftmax" | "LayerNorm" | "RmsNorm" | "L2Norm" | "InstanceNorm" | "GroupNorm":
                return [rows.normalize(self.kernel(), node, epilogue, wg)]
            case "Resize" | "ResizeBilinear" | "ResizeNearestNeighbor":
                return [other.resize(self.kernel(), node, epilogue, local)]
            case "ScatterElements" | "ScatterNd":
                return [other.scatter(self.kernel(), node, local)]
            case "GridSample":
                return [other.grid_sample(self.kernel(), node, epilogue, local)]
            case "TopK":
                return [other.top_k(self.kernel(), node)]
            case _ if name.startswith("Reduce"):
                return [rows.reduce(self.kernel(), node, epilogue, wg)]
        raise AssertionError(f"{name} has no kernel")

    # -- maps ---------------------------------------------------------------------------------------------------------

    def _aliased(self, source: Value, out: Value) -> bool:
        """Let a reshaped value lie where its source does, where both are stored alike."""
        inline = source.producer is not None and source.producer in self.groups.inlined
        if inline or source.is_static or self.storage(source) != self.storage(out):
            return False
        self.aliases[out] = source
        return True

    def _map(self, node: Node, output: int) -> Launch:
        return other.map_values(self.kernel, node, output, self.machine.widths, self.machine.local)

    def _widest(self, node: Node, make: Callable[[Kernel, int], Launch]) -> Launch:
        channels = node.outputs[0].shape[-1]
        for width in self.machine.widths:
            if channels % width == 0:
                try:
                    return make(self.kernel(), width)
                except NotVectorizedError:
                    continue
        raise AssertionError("width 1 always works")

    # -- products -----------------------------------------------------------------------------------------------------

    def _panels(self, value: Value, name: str, matrix: Callable[[Array], Array]) -> Constant:
        """A weight as [batch, K, N], for processors in panels of columns with zeros at the end."""
        if not self.machine.is_processor:
            return self.constant(value, name, matrix)
        columns = _COLUMNS

        def packed(data: Array) -> Array:
            w = matrix(data)
            batch, k, n = w.shape
            panels = -(-n // columns)
            padded = np.zeros((batch, k, panels * columns), w.dtype)
            padded[..., :n] = w
            return padded.reshape(batch, k, panels, columns).transpose(0, 2, 1, 3)

        return self.constant(value, f"{name}:panels{columns}", packed)

    def _weight(self, value: Value, name: str, k: int, n: int, groups: int, matrix: Callable[[Array], Array]) -> Matrix:
        constant = self._panels(value, name, matrix)
        padded = -(-n // _COLUMNS) * _COLUMNS if self.machine.is_processor else n
        return Matrix(constant, constant.storage, (k * padded if groups > 1 else 0,), n, 1)

    def _convolution(self, node: Node) -> Product:
        x, w = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        out, params = node.outputs[0], node.params
        assert x is not None
        assert w is not None
        dims, group = len(x.shape) - 2, int(params["group"])
        taps = w.shape[:dims]
        transposed = node.op.name.startswith("Transpose")
        depth, columns = x.shape[-1] // group, out.shape[-1] // group
        k = math.prod(taps) * depth
        window = ConvWindow(
            x.shape[1:-1], out.shape[1:-1], taps, tuple(params["stride"]), tuple(params.get("dilation", (1,) * dims)),
            tuple(p[0] for p in params["pad_amount"]), x.shape[-1], transposed,
        )  # fmt: skip

        def matrix(data: Array) -> Array:
            if transposed:  # [taps, Cin, Cout / group]: channels of a group lie together
                split = data.reshape(math.prod(taps), group, depth, columns)
                return split.transpose(1, 0, 2, 3).reshape(group, k, columns)
            return data.reshape(k, group, columns).transpose(1, 0, 2)

        b = self._weight(w, "conv", k, columns, group, matrix)
        a = Matrix(self.placed(x), self.storage(x), (depth if group > 1 else 0,), 0, 1)
        rows_count = x.shape[0] * math.prod(out.shape[1:-1])
        plain = (
            not transposed
            and math.prod(taps) == 1
            and set(window.stride) == {1}
            and not any(map(any, params["pad_amount"]))
        )
        if plain:
            a = replace(a, row=x.shape[-1])
        return Product(
            node, rows_count, columns, depth, (group,), a, b, bias, out.shape[-1], (columns if group > 1 else 0,),
            None if plain else window,
        )  # fmt: skip

    def _fully_connected(self, node: Node) -> Product:
        x, w = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        assert x is not None
        assert w is not None
        n, k = w.shape
        m = x.type.size // k
        a = Matrix(self.placed(x), self.storage(x), (0,), k, 1)
        if w.is_static:
            b = self._weight(w, "transposed", k, n, 1, lambda data: data.T[None])
        else:
            b = Matrix(self.placed(w), self.storage(w), (0,), 1, k)
        return Product(node, m, n, k, (1,), a, b, bias, n, (0,))

    def _matmul(self, node: Node) -> Product:
        x, w = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        out = node.outputs[0]
        assert x is not None
        assert w is not None
        m, n = out.shape[-2:]
        first, second = bool(node.params["transpose_in0"]), bool(node.params["transpose_in1"])
        k = x.shape[-2] if first else x.shape[-1]
        batch = out.shape[:-2]
        if w.is_static and all(s == 1 for s in w.shape[:-2]):

            def matrix(data: Array) -> Array:
                flat = data.reshape(data.shape[-2:])
                return (flat.T if second else flat)[None]

            b = self._weight(w, f"matmul{int(second)}", k, n, 1, matrix)
            if not first and self._view(x)[1] == strides(x.shape) and node not in self.groups.turned:
                # all batches are rows of one product
                rows_count = math.prod(batch) * m
                a = Matrix(self.placed(x), self.storage(x), (0,), k, 1)
                if math.prod(x.shape[:-2]) == math.prod(batch):
                    return Product(node, rows_count, n, k, (1,), a, b, bias, n, (0,))
            b = replace(b, batch=(0,) * len(batch))
        else:
            b = self._operand(w, len(batch), second)
        a = self._operand(x, len(batch), first)
        if node in self.groups.turned:  # the axis before the rows comes behind them
            steps = strides((*batch[:-1], m, batch[-1], n))
            return Product(node, m, n, k, batch, a, b, bias, batch[-1] * n, (*steps[: len(batch) - 1], n))
        return Product(node, m, n, k, batch, a, b, bias, n, strides((*batch, m * n))[:-1])

    def _view(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        """Where a value's elements are, and its strides: a transpose that products read through is not in memory."""
        producer = value.producer
        if producer is None or producer not in self.groups.views:
            return value, strides(value.shape)
        source = producer.inputs[0]
        assert source is not None
        steps = strides(source.shape)
        return source, tuple(steps[axis] for axis in producer.params["perm"])

    def _operand(self, value: Value, rank: int, flipped: bool) -> Matrix:
        """A matrix that broadcasts to `rank` axes of batches."""
        source, steps = self._view(value)
        row, column = (steps[-1], steps[-2]) if flipped else (steps[-2], steps[-1])
        batch = [0 if n == 1 else s for n, s in zip(value.shape[:-2], steps[:-2], strict=True)]
        return Matrix(self.placed(source), self.storage(source), (*(0,) * (rank - len(batch)), *batch), row, column)

    def _product(self, product: Product, epilogue: Epilogue) -> list[Launch]:
        if self.machine.is_processor:
            largest = max(1, product.depth)
            zeros = self._zeros(largest, product.a.storage)
            return [gemm.register_product(self.kernel(), product, epilogue, zeros, 6, 8, _COLUMNS // 8)]
        choices = [(tile.name, self.tiled(product, epilogue, tile)) for tile in tiles(product, self.machine)]
        if self.choose is None or len(choices) == 1:
            return choices[0][1]
        return list(self.choose(product.key, choices))

    def tiled(self, product: Product, epilogue: Epilogue, tile: ProductTile) -> list[Launch]:
        """The kernels of a product that is cut in a way."""
        if tile.parts == 1:
            return [gemm.tiled_product(self.kernel(), product, epilogue, tile)]
        partial = Scratch(
            f"{product.node.name}:parts", 4 * tile.parts * math.prod(product.batch) * product.m * product.n
        )
        return [
            gemm.tiled_product(self.kernel(), product, epilogue, tile, partial),
            gemm.partial_sum(self.kernel(), product, epilogue, partial, tile.parts, self.machine.local),
        ]

    def _zeros(self, count: int, storage: BufferType) -> Constant:
        count = 1 << (count - 1).bit_length()
        key = ("zeros", count, storage)
        if key not in self._constants:
            dtype = storage.numpy
            self._constants[key] = Constant(
                f"zeros{count}{storage.type}", storage, lambda: np.zeros(count, dtype), count * storage.bytes
            )
        return self._constants[key]


_COLUMNS = 16
"""Columns of a panel of weights on processors: two vectors of eight."""


_SHAPES = ((128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4))
"""Rows and columns of a work-group and of a work-item, the largest first."""


def tiles(product: Product, machine: Machine) -> list[ProductTile]:
    """Tiles for a product on a GPU, the likeliest first; all of them sum up in the same order."""
    batches = math.prod(product.batch)

    def groups(bm: int, bn: int) -> int:
        return -(-product.m // bm) * -(-product.n // bn) * batches

    fitting = [
        s for s in _SHAPES if groups(s[0], s[1]) >= machine.units and product.n > s[1] // 2 and product.m > s[0] // 2
    ]
    roomy = [s for s in fitting if groups(s[0], s[1]) >= 2 * machine.units]
    if roomy:
        return [ProductTile(bm, bn, 16, tm, tn) for bm, bn, tm, tn in roomy[:4]]
    # too little for every unit to be busy: the depth is cut, inside work-groups and, where it is long, between them
    bm, bn = (32, 32) if product.m > 16 else (16, 32)
    steps, count, slices, parts = -(-product.k // 16), groups(bm, bn), 1, 1
    while slices < 4 and count * slices < 4 * machine.units and steps // (slices * 2) >= 2:
        slices *= 2
    while parts < 16 and count * parts < 2 * machine.units and steps // (slices * parts * 2) >= 4:
        parts *= 2
    if parts == 2:  # adding the parts up would take as long
        parts = 1
    return [ProductTile(bm, bn, 16, 4, 4, slices, parts)]


__all__ = ["FLOAT", "GpuLowering", "Machine", "tiles"]
