# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, one-hot, top-k."""

from __future__ import annotations

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, carried, translates
from hexforge.frontends.onnx.translate.moves_layout import ints, normal_axis
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import Array, DType, TensorType, Value


def _indices(b: Builder, u: Unit, sizes: tuple[int, ...], index: int = 1) -> Value:
    """An index input: constant ones checked and made positive; run-time ones the op itself reads from the end.

    `sizes` are the sizes of the indexed axes: one, or one per element of the last axis of the indices.
    """
    if not b.is_constant(u, index):
        return b.input(u, index)
    data = b.constant(u, index)
    assert data is not None
    limit = np.asarray(sizes, np.int64)
    wide = data.astype(np.int64)
    if ((wide >= limit) | (wide < -limit)).any():
        raise Refusal(f"an index is outside the axes of size {list(sizes)}; ONNX does not define what it reads")
    positive = np.where(wide < 0, wide + limit, wide).reshape(data.shape)  # a scalar stays one
    positive = positive.astype(np.int32 if limit.max(initial=0) <= 1 << 31 else np.int64)
    return b.static(positive, name=b.operand(u, index).value.name)


@translates("Gather", writes=("Gather",))
def gather(b: Builder, u: Unit) -> None:
    """Gather along one axis."""
    x = carried(b, u)
    axis = normal_axis(b.attr(u, "axis", 0), len(x.shape))
    b.emit("Gather", [x, _indices(b, u, (x.shape[axis],))], b.output(u), axis=axis)


@translates("ai.onnx.ml:ArrayFeatureExtractor", writes=("Gather",))
def array_feature_extractor(b: Builder, u: Unit) -> None:
    """ArrayFeatureExtractor as Gather along the last axis."""
    x = b.input(u, 0)
    indices = _indices(b, u, x.shape[-1:])
    picked = b.emit("Gather", [x, b.reshape(indices, (indices.type.size,))], axis=len(x.shape) - 1)
    b.finish(u, picked)


@translates("GatherElements", writes=("GatherElements",))
def gather_elements(b: Builder, u: Unit) -> None:
    """GatherElements."""
    x = carried(b, u)
    axis = normal_axis(b.attr(u, "axis", 0), len(x.shape))
    b.emit("GatherElements", [x, _indices(b, u, (x.shape[axis],))], b.output(u), axis=axis)


def _named_axes(b: Builder, u: Unit, x: Value, batch: int = 0) -> tuple[int, ...]:
    """Sizes of the axes that the index tuples of GatherND and ScatterND name."""
    shape = b.input(u, 1).shape
    if batch < 0 or not shape or not 1 <= shape[-1] <= len(x.shape) - batch:
        raise Refusal(f"indices of shape {list(shape)} do not name axes of {list(x.shape)} after {batch} common ones")
    return x.shape[batch : batch + shape[-1]]


@translates("GatherND", writes=("GatherNd",))
def gather_nd(b: Builder, u: Unit) -> None:
    """GatherND."""
    x, batch = carried(b, u), int(b.attr(u, "batch_dims", 0))
    b.emit("GatherNd", [x, _indices(b, u, _named_axes(b, u, x, batch))], b.output(u), batch_dims=batch)


_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _reduction(b: Builder, u: Unit) -> int:
    name = b.attr(u, "reduction", "none")
    if name not in _REDUCTIONS:
        raise Refusal(f"reduction {name!r} is unknown; there are {', '.join(_REDUCTIONS)}")
    return _REDUCTIONS.index(name)


@translates("ScatterElements", writes=("ScatterElements",))
def scatter_elements(b: Builder, u: Unit) -> None:
    """ScatterElements."""
    x = carried(b, u)
    axis = normal_axis(b.attr(u, "axis", 0), len(x.shape))
    inputs = [x, _indices(b, u, (x.shape[axis],)), carried(b, u, 2)]
    b.emit("ScatterElements", inputs, b.output(u), axis=axis, reduction=_reduction(b, u))


@translates("ScatterND", writes=("ScatterNd",))
def scatter_nd(b: Builder, u: Unit) -> None:
    """ScatterND."""
    x = carried(b, u)
    inputs = [x, _indices(b, u, _named_axes(b, u, x)), carried(b, u, 2)]
    b.emit("ScatterNd", inputs, b.output(u), reduction=_reduction(b, u))


@translates("OneHot", writes=("OneHot",))
def one_hot(b: Builder, u: Unit) -> None:
    """OneHot with constant depth and values; float indices are truncated."""
    x, out = b.input(u, 0), b.output(u)
    depth, values = ints(b, u, 1, "depth"), b.constant(u, 2, "values")
    if depth is None or values is None or len(depth) != 1 or values.size != 2:
        raise Refusal("one depth and two values must be given")
    off, on = (float(v) for v in np.ravel(values))
    if out.dtype.is_integer and [int(on), int(off)] != [int(v) for v in np.ravel(values)[::-1]]:
        raise Refusal(f"values {values.tolist()} are not float64 numbers; use ones below 2**53")
    if not x.dtype.is_integer:
        x = b.emit("Cast", [x], TensorType(DType.INT32, x.shape))
    axis = normal_axis(b.attr(u, "axis", -1), len(out.shape))
    b.emit("OneHot", [x], out, depth=depth[0], axis=axis, on_value=on, off_value=off)


@translates("TopK", writes=("TopK",))
def top_k(b: Builder, u: Unit) -> None:
    """TopK along any axis: the axis is brought to the end and back."""
    x, k = carried(b, u), ints(b, u, 1, "k")
    if k is None or len(k) != 1:
        raise Refusal("one k must be given")
    rank = len(x.shape)
    axis = normal_axis(b.attr(u, "axis", -1), rank)
    perm = (*(i for i in range(rank) if i != axis), axis)
    back = tuple(perm.index(i) for i in range(rank))
    shape = (*(x.shape[i] for i in perm[:-1]), k[0])
    types = [x.type.with_shape(shape), TensorType(DType.INT64, shape)]
    if b.wants(u, 0):
        types[0] = b.output(u, 0).type.with_shape(shape)
    last = axis == rank - 1
    outs = [b.output(u, i) if last and b.wants(u, i) else b.temp(types[i]) for i in range(2)]
    b.emit_many("TopK", [b.transpose(x, perm)], outs, k=k[0], largest=bool(b.attr(u, "largest", 1)))
    for i, value in enumerate(outs):
        if not last and b.wants(u, i):
            b.transpose(value, back, b.output(u, i))


@translates("NonZero", writes=("NonZero",))
def non_zero(b: Builder, u: Unit) -> None:
    """NonZero where the model says how many there are."""
    x, out = b.input(u, 0), b.output(u)
    rows = b.emit("NonZero", [x], TensorType(out.dtype, out.shape[::-1]))
    b.transpose(rows, (1, 0), out)


def _unpacked(data: Array, bits: int) -> Array:
    """Integers of a byte array that holds several along its last axis, the low bits first."""
    if bits == 8:
        return data
    parts = [data >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)]
    return np.stack(parts, -1).reshape(*data.shape[:-1], -1)


def _halves_of_bytes(b: Builder, pairs: Value) -> Value:
    """Numbers from 0 to 255 as twice as many of 4 bits along the last axis, the low ones first; exact in float16."""
    high = b.emit(
        "ElementWiseFloor", [b.emit("ElementWiseMultiply", [pairs, b.static(np.asarray(1 / 16, np.float32))])]
    )
    low = b.emit(
        "ElementWiseSubtract", [pairs, b.emit("ElementWiseMultiply", [high, b.static(np.asarray(16, np.float32))])]
    )
    parts = [b.reshape(part, (*part.shape, 1)) for part in (low, high)]
    joined = b.emit("Concat", parts, axis=len(pairs.shape))
    return b.reshape(joined, (*pairs.shape[:-1], 2 * pairs.shape[-1]))


@translates(
    "com.microsoft:GatherBlockQuantized",
    writes=("Concat", "ElementWiseFloor", "ElementWiseMultiply", "ElementWiseSubtract", "Gather"),
)
def gather_block_quantized(b: Builder, u: Unit) -> None:
    """GatherBlockQuantized: integers, scales and zero points gathered each, then (q - zero point) * scale.

    A table of 4 bits stays packed: rows are unpacked once they are gathered.
    """
    data = b.constant(u, 0, "data")
    if data is None:
        raise Refusal("data is missing")
    bits, block = int(b.attr(u, "bits", 4)), int(b.attr(u, "block_size", 128))
    packed = data.dtype == np.uint8
    rank = data.ndim
    axis, blocked = normal_axis(b.attr(u, "gather_axis", 0), rank), normal_axis(b.attr(u, "quantize_axis", 1), rank)
    if axis == blocked or block < 1 or bits not in (2, 4, 8) or (packed and blocked != rank - 1):
        raise Refusal(f"gather_axis {axis}, quantize_axis {blocked}, block_size {block}, bits {bits} do not fit")
    bytes_of = np.uint8 if data.dtype in (np.uint8, DType.UINT4.numpy) else np.int8
    in_pairs = packed and bits == 4
    integers = data if in_pairs else (_unpacked(data, bits) if packed else data).astype(bytes_of, copy=False)
    sizes = (*integers.shape[:-1], integers.shape[-1] * (2 if in_pairs else 1))
    size = sizes[blocked]
    indices = _indices(b, u, (integers.shape[axis],))
    # the block of each element along the quantized axis, which the gather moves if it lies behind the gathered one
    of_element = b.static(np.arange(size, dtype=np.int32) // block)
    moved = blocked if blocked < axis else blocked + len(indices.shape) - 1

    def picked(values: Array, spread: bool) -> Value:
        gathered = b.emit("Gather", [b.static(values), indices], axis=axis)
        if gathered.dtype is not DType.FLOAT32:
            gathered = b.emit("Cast", [gathered], TensorType(DType.FLOAT32, gathered.shape))
        return b.emit("Gather", [gathered, of_element], axis=moved) if spread else gathered

    scales = b.constant(u, 2, "scales")
    blocks = tuple(-(-n // block) if i == blocked else n for i, n in enumerate(sizes))
    if scales is None or scales.shape != blocks:
        raise Refusal(f"scales must be given, one per block of {block} along axis {blocked}")
    value = picked(integers, False)
    if in_pairs:
        value = _halves_of_bytes(b, value)
    zeros = b.constant(u, 3, "zero_points")
    if zeros is not None:
        zeros = _unpacked(zeros, bits)[..., : scales.shape[-1]] if packed else zeros.astype(bytes_of)
        if zeros.shape != blocks:
            raise Refusal(f"zero points of shape {list(zeros.shape)} for blocks {list(blocks)}")
        value = b.emit("ElementWiseSubtract", [value, picked(zeros, True)])
    elif packed:
        value = b.emit("ElementWiseSubtract", [value, b.static(np.asarray(1 << bits - 1, np.float32))])
    b.finish(u, b.emit("ElementWiseMultiply", [value, picked(scales, True)]))
