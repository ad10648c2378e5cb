# SPDX-License-Identifier: Apache-2.0
"""QNN's RotaryEmbedding as slices, products and sums: no backend has an op of its own for it."""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.addons.qnn_graphs.declarations import QnnOp
from hexforge.errors import ModelError
from hexforge.ir import DType, Graph, TensorType, Value
from hexforge.ir.op import ParamValue


def rotary_embedding(graph: Graph, op: QnnOp, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
    """Write the nodes. Inputs: [batch, heads, tokens, size], cos and sin by position or by token, positions."""
    if len(inputs) not in (3, 4) or len(outputs) != 1 or any(value is None for value in inputs):
        raise ModelError("it reads data, cos, sin and maybe positions, and writes one tensor")
    x, cos, sin, *positions = [value for value in inputs if value is not None]
    if any(not value.dtype.is_float for value in (x, cos, sin, outputs[0])):
        raise ModelError("data of fixed point; dequantize them before, and quantize the result")
    if len(x.shape) != 4 or outputs[0].shape != x.shape:
        raise ModelError(f"data of shape {list(x.shape)}; it must be [batch, heads, tokens, size], as the output")
    size = int(op.params.get("rotary_embedding_dim", 0)) or x.shape[-1]
    nodes = _Nodes(graph, op.name)
    rows = [nodes.rows(cache, positions[0] if positions else None, x) for cache in (cos, sin)]
    if size % 2 or size > x.shape[-1] or any(2 * row.shape[-1] != size for row in rows):
        raise ModelError(f"caches of width {rows[0].shape[-1]} do not rotate {size} of {x.shape[-1]} elements")
    turned = nodes.rotated(nodes.part(x, 0, size), rows[0], rows[1], bool(op.params.get("interleaved", False)))
    if size < x.shape[-1]:
        turned = nodes.concat([turned, nodes.part(x, size, x.shape[-1])])
    graph.node("Reshape", [turned], [outputs[0]], source=(op.name,))


class _Nodes:
    """Nodes of one op, each with a value of its own."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name

    def rows(self, cache: Value, positions: Value | None, x: Value) -> Value:
        """Rows of cos or sin for every token, [batch, 1, tokens, half]."""
        batch, _, tokens, _ = x.shape
        if positions is not None:
            if len(cache.shape) != 2 or positions.shape != (batch, tokens):
                raise ModelError(f"a cache of shape {list(cache.shape)} with positions {list(positions.shape)}")
            index = positions
            if index.dtype is not DType.INT32:
                index = self._emit("Cast", [index], TensorType(DType.INT32, index.shape))
            cache = self._emit(
                "Gather", [cache, index], TensorType(cache.dtype, (batch, tokens, cache.shape[1])), axis=0
            )
        if cache.shape[:-1] != (batch, tokens):
            raise ModelError(f"a cache of shape {list(cache.shape)} for data of shape {list(x.shape)}")
        return self._reshape(cache, (batch, 1, tokens, cache.shape[-1]))

    def rotated(self, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
        """Pairs of the last axis rotated: neighbours where interleaved, else the halves."""
        shape, half = x.shape, x.shape[-1] // 2
        if interleaved:
            pairs = self._reshape(x, (*shape[:-1], half, 2))
            real, imaginary = (self._reshape(self.part(pairs, i, i + 1), (*shape[:-1], half)) for i in (0, 1))
        else:
            real, imaginary = self.part(x, 0, half), self.part(x, half, 2 * half)
        made = [
            self._binary("Subtract", self._binary("Multiply", real, cos), self._binary("Multiply", imaginary, sin)),
            self._binary("Add", self._binary("Multiply", real, sin), self._binary("Multiply", imaginary, cos)),
        ]
        if not interleaved:
            return self.concat(made)
        return self._reshape(self.concat([self._reshape(v, (*v.shape, 1)) for v in made]), shape)

    def part(self, x: Value, begin: int, end: int) -> Value:
        """Elements of the last axis."""
        if (begin, end) == (0, x.shape[-1]):
            return x
        ranges = (*((0, size, 1) for size in x.shape[:-1]), (begin, end, 1))
        return self._emit("StridedSlice", [x], TensorType(x.dtype, (*x.shape[:-1], end - begin)), ranges=ranges)

    def concat(self, values: Sequence[Value]) -> Value:
        """Values one after the other along the last axis."""
        first = values[0]
        width = sum(value.shape[-1] for value in values)
        type = TensorType(first.dtype, (*first.shape[:-1], width))
        return self._emit("Concat", list(values), type, axis=len(first.shape) - 1)

    def _binary(self, name: str, left: Value, right: Value) -> Value:
        return self._emit(f"ElementWise{name}", [left, right], TensorType(left.dtype, left.shape))

    def _reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self._emit("Reshape", [x], TensorType(x.dtype, shape))

    def _emit(self, op: str, inputs: Sequence[Value], type: TensorType, **params: ParamValue) -> Value:
        made = self._graph.value(self._graph.unique(f"{self._name}_{op}"), type)
        self._graph.node(op, list(inputs), [made], source=(self._name,), **params)
        return made
