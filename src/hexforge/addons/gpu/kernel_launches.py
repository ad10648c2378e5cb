# SPDX-License-Identifier: Apache-2.0
"""A graph becomes launches of kernels, in the order they run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.grouping import Groups, group
from hexforge.addons.gpu.kernels import maps, moves_searching, reductions, reductions_windows, vision
from hexforge.addons.gpu.kernels.code import FLOAT, BufferType, NotVectorizedError
from hexforge.addons.gpu.kernels.element import MAPS, Elements
from hexforge.addons.gpu.kernels.launch import Constant, Epilogue, Kernel, Launch, Machine, Piece, Scratch
from hexforge.addons.gpu.kernels.moves import ALIASES
from hexforge.addons.gpu.kernels.products import recurrent, winograd
from hexforge.addons.gpu.kernels.products.attention import (
    Attention,
    attention_tile,
    register_attention,
    tiled_attention,
)
from hexforge.addons.gpu.kernels.products.blocks import FourBitWeight
from hexforge.addons.gpu.kernels.products.depthwise import depthwise
from hexforge.addons.gpu.kernels.products.few_rows import suits, vector_product
from hexforge.addons.gpu.kernels.products.product import Product
from hexforge.addons.gpu.kernels.products.registers import register_product
from hexforge.addons.gpu.kernels.products.tiles import ProductTile, partial_sum, tiled_product
from hexforge.addons.gpu.kernels.products.tiling import tiles, winograd_pays
from hexforge.addons.gpu.kernels.reductions_windows import Columns, reduce_columns
from hexforge.addons.gpu.products import Products
from hexforge.ir import Array, DType, Graph, Node, Role, Value

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
    products: Products = field(init=False)
    faults: list[Node] = field(default_factory=list)
    aliases: dict[Value, Value] = field(default_factory=dict)
    """Values that lie where another one does."""
    packed: dict[Value, FourBitWeight] = field(default_factory=dict)
    """Weights that stay in 4 bits."""
    _constants: dict[object, Constant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # in fp16 every result is rounded, scores too, so they are written there
        attention = self.config.gpu_precision != "fp16"
        planes = attention and not self.machine.is_processor
        self.groups = group(self.graph, self.config.gpu_use_node_optimizations, attention, planes)
        self.products = Products(self)

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

    def bytes_of(self, value: Value) -> int:
        """What a value takes of memory."""
        return self.storage(value).bytes * value.type.size

    def placed(self, value: Value) -> Value:
        """The value whose memory a value is read from."""
        while value in self.aliases:
            value = self.aliases[value]
        return value

    @property
    def real(self) -> str:
        """What pointwise ops and products compute in: half where fp16 is wanted and the device can."""
        return "half" if self.config.gpu_precision == "fp16" and self.machine.half_math else "float"

    @property
    def widths(self) -> tuple[int, ...]:
        """Neighbours that a work-item takes at once, best first: as many as 16 bytes hold on a GPU."""
        return (8, 4, 1) if self.real == "half" else self.machine.widths

    def kernel(self) -> Kernel:
        """An empty kernel."""
        fp16 = self.config.gpu_precision == "fp16"
        return Kernel(Elements(self.storage, self.groups.inlined, self.faults, fp16, self.real))

    def constant(self, value: Value, name: str, make: Callable[[Array], Array], whole: bool = False) -> Constant:
        """A constant of the graph in another form, made once; in float32 where it is to be whole."""
        key = (value, name)
        if key not in self._constants:
            half = self.config.half(value.dtype is DType.FLOAT16) and not whole
            storage = BufferType.of(DType.FLOAT32, half)
            assert value.data is not None

            def made(data: Array = value.data) -> Array:
                return np.ascontiguousarray(make(np.asarray(data))).astype(storage.numpy)

            size = math.prod(make(np.broadcast_to(np.zeros((), np.float32), value.shape)).shape)
            self._constants[key] = Constant(f"{value.name}:{name}", storage, made, size * storage.bytes)
        return self._constants[key]

    def _launches(self, node: Node) -> list[Launch]:
        name = node.op.name
        turned = self.groups.turned.get(node)
        epilogue = Epilogue((turned or node).outputs[0], self.groups.chains.get(node, ()))
        epilogue.piece = self._piece(epilogue.out)
        first = node.inputs[0] if node.inputs else None
        if name in ALIASES and first is not None and self._aliased(first, node.outputs[0]):
            return []
        if name in MAPS:
            return [self._map(node, i) for i, v in enumerate(node.outputs) if v.type.size]
        local, wg = self.machine.local, self.machine.row_group
        if not self.machine.is_processor and (columns := Columns.of(node)) is not None:
            return [self._columns(node, columns, epilogue)]
        match name:
            case "Conv2d" | "Conv3d" | "TransposeConv2d" | "TransposeConv3d":
                return self._convolution(node, epilogue)
            case "FullyConnected":
                return self._product(self.products.fully_connected(node), epilogue)
            case "MatMul" if node in self.groups.attention:
                return [self._attention(node, epilogue)]
            case "MatMul":
                return self._product(self.products.matmul(node), epilogue)
            case "DepthWiseConv2d":
                across = 1 if self.machine.is_processor else 2
                return [self._widest(node, lambda k, w: depthwise(k, node, epilogue, w, local, across))]
            case "PoolMax2d" | "PoolMax3d" | "PoolAvg2d" | "PoolAvg3d" | "L2Pool2d":
                return [self._widest(node, lambda k, w: reductions_windows.pool(k, node, epilogue, w, local))]
            case "Lrn":
                return [reductions_windows.local_response(self.kernel(), node, epilogue, local)]
            case "RoiAlign":
                return [vision.roi_align(self.kernel(), node, epilogue, local)]
            case "Lstm":
                return self._lstm(node)
            case "Argmax" | "Argmin":
                return [reductions.argument(self.kernel(), node, epilogue)]
            case "CumulativeSum":
                return [reductions.cumulative(self.kernel(), node)]
            case "Softmax" | "LogSoftmax" | "LayerNorm" | "RmsNorm" | "L2Norm" | "InstanceNorm" | "GroupNorm":
                return [reductions.normalize(self.kernel(), node, epilogue, wg)]
            case "Resize" | "ResizeBilinear" | "ResizeNearestNeighbor":
                return [vision.resize(self.kernel(), node, epilogue, local)]
            case "ScatterElements" | "ScatterNd":
                return [moves_searching.scatter(self.kernel(), node, local)]
            case "GridSample":
                return [vision.grid_sample(self.kernel(), node, epilogue, local)]
            case "TopK":
                return [moves_searching.top_k(self.kernel(), node)]
            case _ if name.startswith("Reduce"):
                return [reductions.reduce(self.kernel(), node, epilogue, wg)]
        raise AssertionError(f"{name} has no kernel")

    def _piece(self, value: Value) -> Piece | None:
        """Where a value lies in a concatenation that its kernel writes it into."""
        if value not in self.groups.joined:
            return None
        node, number = self.groups.joined[value]
        whole, axis = node.outputs[0], node.params["axis"] % len(value.shape)
        inner = math.prod(value.shape[axis + 1 :])
        begin = sum(v.shape[axis] for v in node.inputs[:number] if v is not None)
        return Piece(whole, value.shape[axis] * inner, whole.shape[axis] * inner, begin * inner)

    # -- maps ---------------------------------------------------------------------------------------------------------

    def _aliased(self, source: Value, out: Value) -> bool:
        """Let a reshaped value lie where its source does, where both are stored alike."""
        inline = source.producer is not None and source.producer in self.groups.inlined
        if inline or source.is_static or self.storage(source) != self.storage(out):
            return False
        self.aliases[out] = source
        return True

    def _map(self, node: Node, output: int) -> Launch:
        return maps.map_values(self.kernel, node, output, self.widths, self.machine.local)

    def _widest(self, node: Node, make: Callable[[Kernel, int], Launch]) -> Launch:
        return self._by_width(node.outputs[0].shape[-1], make)

    def _columns(self, node: Node, columns: Columns, epilogue: Epilogue) -> Launch:
        units, items = self.machine.units, self.machine.most_items
        return self._by_width(
            columns.channels, lambda k, w: reduce_columns(k, node, columns, epilogue, w, units, items)
        )

    def _by_width(self, channels: int, make: Callable[[Kernel, int], Launch]) -> Launch:
        for width in self.widths:
            if channels % width == 0:
                try:
                    return make(self.kernel(), width)
                except NotVectorizedError:
                    continue
        raise AssertionError("width 1 always works")

    # -- products -----------------------------------------------------------------------------------------------------

    def _product(self, product: Product, epilogue: Epilogue) -> list[Launch]:
        if self.machine.is_processor:
            return [register_product(self.kernel(), product, epilogue, self._zeros(product.depth, product.a.storage))]
        if suits(product):
            return [vector_product(self.kernel(), product, epilogue, self.machine.units, self.machine.most_items)]
        choices = [
            (tile.name, self.tiled(product, epilogue, replace(tile, real=self.real)))
            for tile in tiles(product, self.machine)
        ]
        if self.choose is None or len(choices) == 1:
            return choices[0][1]
        key = product.key if self.real == "float" else f"{product.key} multiplied in half"
        return list(self.choose(key, choices))

    def _lstm(self, node: Node) -> list[Launch]:
        """The inputs of all times as one product, then the states through time."""
        lstm = recurrent.LstmShape.of(node)
        projected, weight, bias, hidden = lstm.projected(), *(lstm.stacked(kind) for kind in ("W_x", "b_", "W_h"))
        if weight is not None and bias is not None:
            first = self._product(self.products.dense(node, lstm.given["in"], weight, bias), Epilogue(projected))
        else:
            first = [recurrent.project(self.kernel(), lstm, projected, self.machine.local)]
        turned = self.constant(hidden, "turned", lambda data: data.T) if hidden is not None else None
        wg = min(self.machine.row_group, self.machine.most_items)
        return [*first, recurrent.run_states(self.kernel(), lstm, projected, turned, wg)]

    def _convolution(self, node: Node, epilogue: Epilogue) -> list[Launch]:
        weight = node.inputs[1]
        if weight is not None and not weight.is_static and "Transpose" in node.op.name and node.params["group"] > 1:
            lay = maps.grouped_filter(self.kernel(), node, self.machine.local)
            (grouped,) = lay.writes
            assert isinstance(grouped, Value)
            return [lay, *self._product(self.products.convolution(node, grouped), epilogue)]
        product = self.products.convolution(node)
        fits = weight is not None and weight.is_static and self.real == "float" and winograd.suits(product)
        if not fits or not winograd_pays(product, self.machine):
            return self._product(product, epilogue)
        made = winograd.Winograd.of(product, node.outputs[0].shape[0])
        stored = (self.storage(made.inputs), product.a.storage if self.machine.is_processor else FLOAT)
        if stored != (FLOAT, FLOAT):  # tiles are float32, and on processors their filters would take 8 times the memory
            return self._product(product, epilogue)
        middle = self._product(self.products.winograd(product, made), Epilogue(made.sums))
        local = self.machine.local
        into = self._by_width(product.depth, lambda k, w: winograd.into_tiles(k, made, w, local))
        back = self._by_width(product.n, lambda k, w: winograd.out_of_tiles(k, made, epilogue, w, local))
        return [into, *middle, back]

    def tiled(self, product: Product, epilogue: Epilogue, tile: ProductTile) -> list[Launch]:
        """The kernels of a product that is cut in a way."""
        if tile.parts == 1:
            return [tiled_product(self.kernel(), product, epilogue, tile)]
        partial = Scratch(
            f"{product.node.name}:parts", 4 * tile.parts * math.prod(product.batch) * product.m * product.n
        )
        return [
            tiled_product(self.kernel(), product, epilogue, tile, partial),
            partial_sum(self.kernel(), product, epilogue, partial, tile.parts, self.machine.local),
        ]

    def _attention(self, node: Node, epilogue: Epilogue) -> Launch:
        """Two products and the softmax between them as one kernel."""
        scores, softmax = self.groups.attention[node]
        chain = Epilogue(scores.outputs[0], self.groups.scored[node])
        attention = Attention(self.products.matmul(scores), chain, softmax, self.products.matmul(node))
        if self.machine.is_processor:
            return register_attention(self.kernel(), attention, epilogue)
        tile = attention_tile(attention, self.machine.units, self.machine.local_bytes)
        return tiled_attention(self.kernel(), attention, epilogue, tile)

    def _zeros(self, count: int, storage: BufferType) -> Constant:
        count = 1 << (max(1, count) - 1).bit_length()
        key = ("zeros", count, storage)
        if key not in self._constants:
            dtype = storage.numpy
            self._constants[key] = Constant(
                f"zeros{count}{storage.type}", storage, lambda: np.zeros(count, dtype), count * storage.bytes
            )
        return self._constants[key]
