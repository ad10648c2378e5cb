# SPDX-License-Identifier: Apache-2.0
"""Random graphs with transposes strewn in, float and fixed point, for the passes to remove."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType, Value

ORDERED_SUMS = ("ReduceMean", "ReduceSum", "Softmax", "LogSoftmax")
"""Ops whose float result depends on the order numpy adds in."""


KINDS = (
    "transpose " * 6
    + "reshape " * 2
    + "unary binary constant concat split pad slice reduce softmax argmax conv gather tile"
).split()


class Maker:
    """Draws nodes; every tensor is float32, or uint8 with an encoding of its own."""

    def __init__(self, draw: Any, fixed_point: bool) -> None:
        self.draw = draw
        self.fixed_point = fixed_point
        self.graph = Graph("random")
        self.rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
        self.pool: list[Value] = []

    def type(self, shape: tuple[int, ...]) -> TensorType:
        """A type of that shape."""
        if not self.fixed_point:
            return TensorType(DType.FLOAT32, shape)
        offset = -self.draw(st.integers(0, 255))
        return TensorType(DType.UINT8, shape, ScaleOffset(self.draw(st.sampled_from([0.01, 0.02, 0.0625])), offset))

    def array(self, type: TensorType) -> np.ndarray:
        """Data of that type."""
        if type.encoding is not None:
            return self.rng.integers(0, 256, type.shape).astype(np.uint8)
        return self.rng.standard_normal(type.shape).astype(np.float32)

    def add(self, op: str, inputs: list[Value], shape: tuple[int, ...], moves: bool = False, **params: Any) -> Value:
        """A node with one output, which joins the pool."""
        type = inputs[0].type.with_shape(shape) if moves else self.type(shape)
        out = self.graph.value(self.graph.unique("v"), type)
        self.graph.node(op, inputs, [out], **params)
        self.pool.append(out)
        return out

    def step(self) -> None:
        """One random node on random values of the pool."""
        draw, x = self.draw, self.draw(st.sampled_from(self.pool))
        rank, shape = len(x.shape), x.shape
        kind = draw(st.sampled_from(KINDS))
        axis = draw(st.integers(0, rank - 1)) if rank else 0
        match kind:
            case "transpose":
                perm = tuple(draw(st.permutations(range(rank))))
                if rank == 4 and draw(st.booleans()):
                    perm = draw(st.sampled_from([(0, 2, 3, 1), (0, 3, 1, 2)]))
                self.add("Transpose", [x], tuple(shape[p] for p in perm), True, perm=perm)
            case "unary":
                self.add(draw(st.sampled_from(["Sigmoid", "Relu", "ElementWiseAbs"])), [x], shape)
            case "binary":
                fitting = [v for v in self.pool if _broadcasts(v.shape, shape)]
                y = draw(st.sampled_from(fitting))
                order = [x, y] if draw(st.booleans()) else [y, x]
                out = np.broadcast_shapes(x.shape, y.shape)
                self.add(draw(st.sampled_from(["ElementWiseAdd", "ElementWiseMultiply"])), order, out)
            case "constant":
                kept = draw(st.integers(0, rank))
                type = self.type(tuple(n if draw(st.booleans()) else 1 for n in shape[rank - kept :]))
                name = self.graph.unique("c")
                c = self.graph.value(name, type, Role.STATIC, self.array(type))
                self.add("ElementWiseAdd", [x, c] if draw(st.booleans()) else [c, x], shape)
            case "concat" if rank:
                rest = (rank, shape[:axis], shape[axis + 1 :])
                fitting = [v for v in self.pool if (len(v.shape), v.shape[:axis], v.shape[axis + 1 :]) == rest]
                y = draw(st.sampled_from(fitting))
                total = (*shape[:axis], shape[axis] + y.shape[axis], *shape[axis + 1 :])
                if total[axis] <= 8:
                    self.add("Concat", [x, y], total, axis=axis)
            case "split" if rank:
                cut = draw(st.integers(0, shape[axis]))
                parts = [
                    self.graph.value(self.graph.unique("s"), x.type.with_shape((*shape[:axis], n, *shape[axis + 1 :])))
                    for n in (cut, shape[axis] - cut)
                ]
                self.graph.node("Split", [x], parts, axis=axis, split_index=(cut,))
                self.pool += [p for p in parts if p.type.size]
            case "pad" if rank and x.type.size < 200:
                amount = tuple((draw(st.integers(0, 1)), draw(st.integers(0, 1))) for _ in shape)
                padded = tuple(n + a + b for n, (a, b) in zip(shape, amount, strict=True))
                self.add("Pad", [x], padded, True, scheme=0, pad_amount=amount, pad_constant_value=0.5)
            case "slice" if rank:
                ranges = tuple((draw(st.integers(0, n - 1)), n, draw(st.integers(1, 2))) for n in shape)
                sizes = [len(range(*r)) for r in ranges]
                shrunk = draw(st.sampled_from([0, 1 << axis]))
                kept_sizes = tuple(n for i, n in enumerate(sizes) if not shrunk >> i & 1)
                self.add("StridedSlice", [x], kept_sizes, True, ranges=ranges, shrink_axes=shrunk)
            case "reduce" if rank:
                axes = tuple(a for a in range(rank) if a == axis or draw(st.booleans()))
                keep = draw(st.booleans())
                out = tuple(1 if i in axes else n for i, n in enumerate(shape) if keep or i not in axes)
                op = draw(st.sampled_from(["ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin"]))
                self.add(op, [x], out, axes=axes, keep_dims=keep)
            case "softmax" if rank:
                self.add(draw(st.sampled_from(["Softmax", "LogSoftmax"])), [x], shape, axis=axis)
            case "argmax" if rank:
                keep = draw(st.booleans())
                out = tuple(1 if i == axis else n for i, n in enumerate(shape) if keep or i != axis)
                index = self.graph.value(self.graph.unique("i"), TensorType(DType.INT32, out), Role.APP_READ)
                self.graph.node("Argmax", [x], [index], axis=axis, keep_dims=keep)
            case "reshape":
                merged = (*shape[:axis], math.prod(shape[axis : axis + 2]), *shape[axis + 2 :])
                squeezed = tuple(n for n in shape if n != 1)
                flat = (1, x.type.size, 1, 1)
                out = draw(st.sampled_from([merged, merged, squeezed, flat, (*shape, 1), (1, *shape), shape]))
                if len(out) <= 4:
                    self.add("Reshape", [x], out, True)
            case "conv" if rank == 4:
                type = self.type((1, 1, shape[3], draw(st.integers(1, 4))))
                filters = self.graph.value(self.graph.unique("w"), type, Role.STATIC, self.array(type))
                out = (*shape[:3], type.shape[3])
                self.add("Conv2d", [x, filters], out, stride=(1, 1), pad_amount=((0, 0), (0, 0)))
            case "gather" if rank:
                picked = self.rng.integers(0, shape[axis], 2).astype(np.int32)
                indices = self.graph.static(picked, name="picked")
                self.add("Gather", [x, indices], (*shape[:axis], 2, *shape[axis + 1 :]), True, axis=axis)
            case "tile" if rank and x.type.size < 100:
                multiples = tuple(draw(st.integers(1, 2)) for _ in shape)
                out = tuple(n * m for n, m in zip(shape, multiples, strict=True))
                self.add("Tile", [x], out, True, multiples=multiples)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return len(np.broadcast_shapes(a, b)) <= 4 and math.prod(np.broadcast_shapes(a, b)) < 1000
    except ValueError:
        return False


@st.composite
def layout_graphs(draw: Any) -> tuple[Graph, dict[str, np.ndarray]]:
    """A graph and inputs for it."""
    maker = Maker(draw, draw(st.booleans()))
    feeds = {}
    for i in range(draw(st.integers(1, 2))):
        shape = tuple(draw(st.lists(st.integers(1, 4), min_size=4, max_size=4))) if i == 0 else (2, 3, 1)
        value = maker.graph.value(f"x{i}", maker.type(shape), Role.APP_WRITE)
        maker.pool.append(value)
        feeds[value.name] = maker.array(value.type)
    for _ in range(draw(st.integers(3, 14))):
        maker.step()
    for value in maker.graph.values.values():
        if value.producer is not None and (not value.users or draw(st.integers(0, 5)) == 0):
            value.role = Role.APP_READ
    return maker.graph, feeds
