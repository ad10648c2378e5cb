# SPDX-License-Identifier: Apache-2.0
"""Random graphs for property tests, and what it means that two are the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import (
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    DType,
    Encoding,
    Graph,
    Role,
    ScaleOffset,
    TensorType,
    Value,
)

AWKWARD = ["x", "/model.0/conv/Conv_output_0", "return", "a b", 'q"\\', "é", ""]
NAMES = st.one_of(st.sampled_from(AWKWARD), st.text(max_size=6))
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
SCALES = st.floats(min_value=1e-30, max_value=1e30, allow_subnormal=False)


@st.composite
def encodings(draw: Any, dtype: DType, shape: tuple[int, ...], static: bool) -> Encoding | None:
    """An encoding that fits a tensor, or None."""
    if not dtype.is_integer or dtype.bits > 32 or draw(st.booleans()):
        return None
    width = draw(st.sampled_from([0, 0, 2, 4])) if dtype.bits == 8 else 0
    bits = width or dtype.bits
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
    offsets = st.integers(-high, -low)

    def many(strategy: Any, count: int) -> tuple[Any, ...]:
        return tuple(draw(st.lists(strategy, min_size=count, max_size=count)))

    kinds = ["tensor"]
    if static and shape and math.prod(shape):  # type: ignore[arg-type]
        kinds += ["axis", "block"] + (["blockwise"] if len(shape) > 1 else [])
    match draw(st.sampled_from(kinds)):
        case "axis":
            axis = draw(st.integers(0, len(shape) - 1))
            return AxisScaleOffset(axis, many(SCALES, shape[axis]), many(offsets, shape[axis]), width)
        case "block":
            block = tuple(draw(st.sampled_from([b for b in range(1, n + 1) if n % b == 0])) for n in shape)
            count = math.prod(n // b for n, b in zip(shape, block, strict=True))
            return Block(block, many(SCALES, count), many(offsets, count), width)
        case "blockwise":
            axis, block_axis = draw(st.permutations(range(len(shape))))[:2]
            n = shape[axis]
            blocks = draw(st.sampled_from([b for b in range(1, shape[block_axis] + 1) if shape[block_axis] % b == 0]))
            return BlockwiseExpansion(
                axis, block_axis, many(SCALES, n), many(offsets, n), many(st.integers(1, 16), n * blocks),
                width, draw(st.sampled_from([4, 8])),
            )  # fmt: skip
    return ScaleOffset(draw(SCALES), draw(offsets), width)


@st.composite
def types(draw: Any, static: bool = False) -> TensorType:
    """Any tensor type."""
    dtype, shape = draw(st.sampled_from(list(DType))), draw(SHAPES)
    return TensorType(dtype, shape, draw(encodings(dtype, shape, static)))


def random_array(rng: np.random.Generator, type: TensorType) -> np.ndarray:
    """Any bit pattern the data type has."""
    if type.dtype.bits == 4:
        low, high = type.dtype.range
        return rng.integers(low, high + 1, type.shape).astype(type.dtype.numpy)
    if type.dtype is DType.BOOL:
        return rng.integers(0, 2, type.shape).astype(bool)
    return np.frombuffer(rng.bytes(type.nbytes), type.dtype.numpy).reshape(type.shape)


@st.composite
def graphs(draw: Any) -> Graph:
    """Graphs of inputs, statics, copies (Reshape), Concats and slices: every type and awkward names, not much sense."""
    graph = Graph(draw(NAMES))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    pool: list[Value] = []
    for _ in range(draw(st.integers(0, 3))):
        pool.append(graph.value(graph.unique(draw(NAMES)), draw(types()), Role.APP_WRITE))
    for _ in range(draw(st.integers(0, 4))):
        type = draw(types(static=True))
        data = random_array(rng, type)
        if draw(st.booleans()) and type.size:
            data = np.broadcast_to(data.reshape(-1)[0], type.shape)
        pool.append(graph.value(graph.unique(draw(NAMES)), type, Role.STATIC, data))
    plain = [v for v in pool if not v.is_static or v.encoding is None or isinstance(v.encoding, ScaleOffset)]
    for _ in range(draw(st.integers(0, 4))):
        if not plain:
            break
        x = draw(st.sampled_from(plain))
        role = draw(st.sampled_from([Role.NATIVE, Role.APP_READ]))
        source = tuple(draw(st.lists(NAMES, max_size=2)))
        out = graph.value(graph.unique(draw(NAMES)), x.type, role)
        if x.shape and draw(st.booleans()):
            ranges = tuple((0, n, 1) for n in x.shape)
            graph.node("StridedSlice", [x], [out], name=draw(NAMES), source=source, ranges=ranges)
        else:
            graph.node("Reshape", [x], [out], name=draw(NAMES), source=source)
        plain.append(out)
    if draw(st.booleans()):  # a float parameter and an absent input
        x = graph.value(graph.unique("r"), TensorType(DType.FLOAT32, (2,)), Role.APP_WRITE)
        graph.node("ElementWiseNeuron", [x], operation=0, alpha=draw(st.floats(width=32, allow_nan=False)))
    return graph


def described(graph: Graph) -> dict[str, Any]:
    """Everything that must survive a round trip."""

    def data(value: Value) -> Any:
        if value.data is None:
            return None
        splat = value.data.size > 1 and not any(value.data.strides)
        return splat, value.data.dtype, np.ascontiguousarray(value.data).tobytes()

    return {
        "name": graph.name,
        "inputs": [v.name for v in graph.inputs],
        "outputs": [v.name for v in graph.outputs],
        "values": {n: (v.type, v.role, data(v), v.producer and v.producer.name) for n, v in graph.values.items()},
        "users": {n: {u.name: c for u, c in v.users.items()} for n, v in graph.values.items()},
        "nodes": [
            (n.name, n.op.name, [v and v.name for v in n.inputs], [v.name for v in n.outputs], n.params, n.source)
            for n in graph.nodes
        ],
    }
