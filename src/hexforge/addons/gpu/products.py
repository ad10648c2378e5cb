# SPDX-License-Identifier: Apache-2.0
"""Products of a graph: convolutions, dense layers and matrix products as what the product kernels take."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from hexforge.addons.gpu.grouping import Groups
from hexforge.addons.gpu.kernels.code import FLOAT, BufferType, strides
from hexforge.addons.gpu.kernels.launch import Constant, Machine
from hexforge.addons.gpu.kernels.products.blocks import FourBitWeight
from hexforge.addons.gpu.kernels.products.product import ConvWindow, DepthwiseRows, Matrix, Product, ScaledRows
from hexforge.addons.gpu.kernels.products.registers import COLUMNS
from hexforge.addons.gpu.kernels.products.winograd import POINTS, Winograd, transformed_filters
from hexforge.ir import Array, Block, Node, Value


class Operands(Protocol):
    """Where the values of a graph are read, and in which form."""

    machine: Machine
    groups: Groups
    packed: dict[Value, FourBitWeight]

    def storage(self, value: Value) -> BufferType:
        """How a value is stored."""

    def placed(self, value: Value) -> Value:
        """The value whose memory a value is read from."""

    def constant(self, value: Value, name: str, make: Callable[[Array], Array], whole: bool = False) -> Constant:
        """A constant of the graph in another form; in float32 where it is to be whole."""


@dataclass(frozen=True, slots=True)
class Products:
    """Reads products off the nodes of a graph."""

    operands: Operands

    def _panels(self, value: Value, name: str, matrix: Callable[[Array], Array], whole: bool) -> Constant:
        """A weight as [batch, K, N], for processors in panels of columns with zeros at the end."""
        if not self.operands.machine.is_processor:
            return self.operands.constant(value, name, matrix, whole)
        columns = COLUMNS

        def packed(data: Array) -> Array:
            w = matrix(data)
            batch, k, n = w.shape
            panels = -(-n // columns)
            padded = np.zeros((batch, k, panels * columns), w.dtype)
            padded[..., :n] = w
            return padded.reshape(batch, k, panels, columns).transpose(0, 2, 1, 3)

        return self.operands.constant(value, f"{name}:panels{columns}", packed, whole)

    def _weight(
        self, value: Value, name: str, k: int, n: int, groups: int, matrix: Callable[[Array], Array],
        whole: bool = False,
    ) -> Matrix:  # fmt: skip
        constant = self._panels(value, name, matrix, whole)
        padded = -(-n // COLUMNS) * COLUMNS if self.operands.machine.is_processor else n
        return Matrix(constant, constant.storage, (k * padded if groups > 1 else 0,), n, 1)

    def convolution(self, node: Node, grouped: Value | None = None) -> Product:
        """A convolution; `grouped` is a computed filter of a transposed one, laid out by groups."""
        x, w = node.operands(2)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        out, params = node.outputs[0], node.params
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

        if grouped is not None:
            b = Matrix(grouped, self.operands.storage(grouped), (k * columns,), columns, 1)
        elif w.is_static:
            b = self._weight(w, "conv", k, columns, group, matrix)
        else:  # [taps, Cin / group, Cout] as it lies
            b = Matrix(
                self.operands.placed(w), self.operands.storage(w), (columns if group > 1 else 0,), w.shape[-1], 1
            )
        if node in self.operands.groups.depthwise:
            return self._after_depthwise(node, b)
        if node in self.operands.groups.scaled:
            return self._after_scaling(node, b)
        source = self.view(x)[0]
        window = replace(window, planes=source is not x)
        a = Matrix(self.operands.placed(source), self.operands.storage(source), (depth if group > 1 else 0,), 0, 1)
        rows_count = x.shape[0] * math.prod(out.shape[1:-1])
        plain = (
            not transposed
            and math.prod(taps) == 1
            and set(window.stride) == {1}
            and not any(map(any, params["pad_amount"]))
            and not window.planes
        )
        if plain:
            a = replace(a, row=x.shape[-1])
        return Product(
            node, rows_count, columns, depth, (group,), a, b, bias, out.shape[-1], (columns if group > 1 else 0,),
            None if plain else window, bias_batch=columns if group > 1 else 0,
        )  # fmt: skip

    def _after_depthwise(self, node: Node, b: Matrix) -> Product:
        """A convolution of one tap whose rows a depthwise one gives."""
        before = self.operands.groups.depthwise[node]
        x, filters, out, params = before.inputs[0], before.inputs[1], node.outputs[0], before.params
        assert x is not None
        assert filters is not None
        window = ConvWindow(
            x.shape[1:-1], before.outputs[0].shape[1:-1], filters.shape[:2], tuple(params["stride"]),
            tuple(params["dilation"]), tuple(p[0] for p in params["pad_amount"]), x.shape[-1],
        )  # fmt: skip
        rows = DepthwiseRows(before, self.operands.groups.chains.get(before, ()), window)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        a = Matrix(self.operands.placed(x), self.operands.storage(x), (0,), x.shape[-1], 1)
        m, n = math.prod(out.shape[:-1]), out.shape[-1]
        return Product(node, m, n, x.shape[-1], (1,), a, b, bias, n, (0,), rows=rows)

    def _after_scaling(self, node: Node, b: Matrix) -> Product:
        """A convolution of one tap whose rows are multiplied by factors of channels."""
        times, out = self.operands.groups.scaled[node], node.outputs[0]
        x = next(v for v in times.inputs if v is not None and v.shape == times.outputs[0].shape)
        factors = next(v for v in times.inputs if v is not None and v is not x)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        rows = ScaledRows(times, factors, math.prod(x.shape[1:-1]))
        a = Matrix(self.operands.placed(x), self.operands.storage(x), (0,), x.shape[-1], 1)
        m, n = math.prod(out.shape[:-1]), out.shape[-1]
        return Product(node, m, n, x.shape[-1], (1,), a, b, bias, n, (0,), scaled=rows)

    def winograd(self, direct: Product, winograd: Winograd) -> Product:
        """The 36 products of a Winograd convolution."""
        weight = direct.node.inputs[1]
        assert weight is not None
        k, n, count = direct.depth, direct.n, winograd.inputs.shape[1]
        a = Matrix(winograd.inputs, FLOAT, (count * k,), k, 1)
        b = self._weight(weight, "winograd", k, n, POINTS, transformed_filters, whole=True)
        return Product(direct.node, count, n, k, (POINTS,), a, b, None, n, (count * n,))

    def _four_bits(self, weight: Value) -> FourBitWeight:
        """A weight of 4 bits, packed once."""
        made = self.operands.packed
        if weight not in made:
            made[weight] = FourBitWeight.of(weight, COLUMNS if self.operands.machine.is_processor else 0)
        return made[weight]

    def fully_connected(self, node: Node) -> Product:
        x, w = node.operands(2)
        return self.dense(node, x, w, node.inputs[2] if len(node.inputs) > 2 else None)

    def dense(self, node: Node, x: Value, w: Value, bias: Value | None) -> Product:
        """Rows of a value times a weight [N, K]."""
        n, k = w.shape
        m = x.type.size // k
        a = Matrix(self.operands.placed(x), self.operands.storage(x), (0,), k, 1)
        if isinstance(w.encoding, Block):
            packed = self._four_bits(w)
            b = Matrix(packed.numbers, packed.numbers.storage, (0,), 1, k, packed=packed)
        elif w.is_static:
            b = self._weight(w, "transposed", k, n, 1, lambda data: data.T[None])
        else:
            b = Matrix(self.operands.placed(w), self.operands.storage(w), (0,), 1, k)
        return Product(node, m, n, k, (1,), a, b, bias, n, (0,))

    def matmul(self, node: Node) -> Product:
        x, w = node.operands(2)
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        out = node.outputs[0]
        m, n = out.shape[-2:]
        first, second = bool(node.params["transpose_in0"]), bool(node.params["transpose_in1"])
        k = x.shape[-2] if first else x.shape[-1]
        batch = out.shape[:-2]
        if w.is_static and all(s == 1 for s in w.shape[:-2]):

            def matrix(data: Array) -> Array:
                flat = data.reshape(data.shape[-2:])
                return (flat.T if second else flat)[None]

            b = self._weight(w, f"matmul{int(second)}", k, n, 1, matrix)
            if not first and self.view(x)[1] == strides(x.shape) and node not in self.operands.groups.turned:
                # all batches are rows of one product
                rows_count = math.prod(batch) * m
                a = Matrix(self.operands.placed(x), self.operands.storage(x), (0,), k, 1)
                if math.prod(x.shape[:-2]) == math.prod(batch):
                    return Product(node, rows_count, n, k, (1,), a, b, bias, n, (0,))
            b = replace(b, batch=(0,) * len(batch))
        else:
            b = self._operand(w, len(batch), second)
        a = self._operand(x, len(batch), first)
        if node in self.operands.groups.turned:  # the axis before the rows comes behind them
            steps = strides((*batch[:-1], m, batch[-1], n))
            return Product(node, m, n, k, batch, a, b, bias, batch[-1] * n, (*steps[: len(batch) - 1], n))
        return Product(node, m, n, k, batch, a, b, bias, n, strides((*batch, m * n))[:-1])

    def view(self, value: Value) -> tuple[Value, tuple[int, ...]]:
        """Where a value's elements are, and its strides: a transpose that products read through is not in memory."""
        producer = value.producer
        if producer is None or producer not in self.operands.groups.views:
            return value, strides(value.shape)
        source = producer.inputs[0]
        assert source is not None
        steps = strides(source.shape)
        return source, tuple(steps[axis] for axis in producer.params["perm"])

    def _operand(self, value: Value, rank: int, flipped: bool) -> Matrix:
        """A matrix that broadcasts to `rank` axes of batches."""
        source, steps = self.view(value)
        row, column = (steps[-1], steps[-2]) if flipped else (steps[-2], steps[-1])
        batch = [0 if n == 1 else s for n, s in zip(value.shape[:-2], steps[:-2], strict=True)]
        return Matrix(
            self.operands.placed(source),
            self.operands.storage(source),
            (*(0,) * (rank - len(batch)), *batch),
            row,
            column,
        )
