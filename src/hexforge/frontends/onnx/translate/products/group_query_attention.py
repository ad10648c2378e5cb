# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention: rotation, a cache of keys and values that grows, and causal attention, composed of plain ops."""

from __future__ import annotations

import math

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, cast, concat, part, ranged, scalar
from hexforge.frontends.onnx.translate.products.attention import attend, repeat_heads, rotate
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value


def _rotated(b: Builder, u: Unit, x: Value, positions: Value) -> Value:
    """[batch, sequence, heads, size] with its first elements turned by the rows of the caches."""
    rows = []
    for index in (7, 8):
        cache = b.real(u, index)
        gathered = b.emit("Gather", [cache, positions], axis=0)
        rows.append(cast(b, b.reshape(gathered, (*gathered.shape[:2], 1, gathered.shape[2])), x.dtype))
    size = 2 * rows[0].shape[-1]
    if size > x.shape[-1]:
        raise Refusal(f"caches of width {size // 2} rotate more than the {x.shape[-1]} elements of a head")
    turned = rotate(b, part(b, x, -1, 0, size), rows[0], rows[1], bool(b.attr(u, "rotary_interleaved", 0)))
    return turned if size == x.shape[-1] else concat(b, [turned, part(b, x, -1, size, x.shape[-1])], -1)


def _cached(b: Builder, past: Value, new: Value, start: Value, length: int) -> Value:
    """The cache with new rows put in from row `start` [batch, 1, 1, 1] on, `length` rows altogether."""
    joined = concat(b, [past, new], 2)
    row = ranged(b, (1, 1, length, 1), 2)
    beyond = binary(b, "Add", binary(b, "Subtract", row, start), past.shape[2])
    chosen = b.emit("ElementWiseSelect", [binary(b, "Less", row, start), row, beyond])
    chosen = binary(b, "Minimum", chosen, joined.shape[2] - 1)
    batch, heads = joined.shape[:2]
    rows = b.emit("Tile", [chosen], multiples=(batch // chosen.shape[0], heads, 1, 1))
    return b.emit("GatherNd", [joined, rows], batch_dims=2)


@translates(
    "com.microsoft:GroupQueryAttention",
    writes=(
        "Concat", "ElementWiseAdd", "ElementWiseAnd", "ElementWiseDivide", "ElementWiseEqual",
        "ElementWiseGreaterEqual", "ElementWiseLess", "ElementWiseLessEqual", "ElementWiseMinimum",
        "ElementWiseMultiply", "ElementWiseSelect", "ElementWiseSubtract", "Gather", "GatherNd", "MatMul",
        "ReduceMax", "Softmax", "StridedSlice", "Tanh", "Tile",
    ),
)  # fmt: skip
def group_query_attention(b: Builder, u: Unit) -> None:
    """Causal attention of grouped heads over a cache; seqlens_k says how many keys each batch has, less one."""
    heads, groups = int(b.attr(u, "num_heads", 0)), int(b.attr(u, "kv_num_heads", 0))
    if any(b.has(u, i) for i in (9, 10, 11, 12, 13)) or int(b.attr(u, "smooth_softmax", 0)) > 0:
        raise Refusal("position ids, an attention bias, a head sink and quantized caches are not known here; drop them")
    query = b.real(u, 0)
    if len(query.shape) != 3 or heads < 1 or groups < 1 or heads % groups:
        raise Refusal(f"query of shape {list(query.shape)} with {heads} heads on {groups}")
    batch, length, _ = query.shape
    if b.has(u, 1):
        key, value = b.real(u, 1), b.real(u, 2)
    else:
        size = query.shape[2] // (heads + 2 * groups)
        edges = (heads * size, (heads + groups) * size, (heads + 2 * groups) * size)
        key, value = part(b, query, -1, edges[0], edges[1]), part(b, query, -1, edges[1], edges[2])
        query = part(b, query, -1, 0, edges[0])
    size = query.shape[2] // heads
    if key.shape != (batch, length, groups * size) or value.shape != key.shape:
        raise Refusal(
            f"keys {list(key.shape)} and values {list(value.shape)} beside a query of {heads} heads of {size}"
        )
    total = b.reshape(binary(b, "Add", cast(b, b.input(u, 5), DType.INT32), 1), (batch, 1, 1, 1))
    past = b.real(u, 3).shape[2] if b.has(u, 3) else 0
    start = binary(b, "Subtract", total, length)
    if past:  # a first prompt begins at row 0, however much of it is padding
        whole = b.reshape(cast(b, b.input(u, 6), DType.INT32), (1, 1, 1, 1))
        start = b.emit("ElementWiseSelect", [binary(b, "Equal", whole, length), scalar(b, 0, start), start])
    else:
        start = binary(b, "Multiply", start, 0)
    split = [b.reshape(v, (batch, length, n, size)) for v, n in ((query, heads), (key, groups), (value, groups))]
    if int(b.attr(u, "do_rotary", 0)):
        positions = binary(b, "Add", b.reshape(start, (batch, 1)), ranged(b, (1, length), 1))
        split[:2] = [_rotated(b, u, v, positions) for v in split[:2]]
    query, key, value = (b.transpose(v, (0, 2, 1, 3)) for v in split)
    if past:
        keys = b.output(u, 1).shape[2] if b.wants(u, 1) else past
        key, value = (
            _cached(b, b.real(u, i), new, start, keys) for i, new in ((3, key), (4, value))
        )  # fmt: skip
    for index, present in ((1, key), (2, value)):
        if b.wants(u, index):
            b.finish(u, b.emit("Reshape", [present], present.type), index)
    keys = key.shape[2]
    scale = float(b.attr(u, "scale", 0.0)) or 1 / math.sqrt(size)
    scores = b.emit("MatMul", [query, repeat_heads(b, key, heads // groups)], transpose_in1=True)
    scores = binary(b, "Multiply", scores, scale)
    if (cap := float(b.attr(u, "softcap", 0.0))) > 0:
        scores = binary(b, "Multiply", b.emit("Tanh", [binary(b, "Divide", scores, cap)]), cap)
    place = binary(b, "Add", start, ranged(b, (1, 1, length, 1), 2))
    distance = binary(b, "Subtract", place, ranged(b, (1, 1, 1, keys), 3))
    allowed = binary(b, "GreaterEqual", distance, 0)
    if (window := int(b.attr(u, "local_window_size", -1))) > 0:
        allowed = binary(b, "And", allowed, binary(b, "LessEqual", distance, window))
    bias = b.emit("ElementWiseSelect", [allowed, scalar(b, 0, scores), scalar(b, -math.inf, scores)])
    mixed = b.emit("MatMul", [attend(b, scores, bias, scores.dtype), repeat_heads(b, value, heads // groups)])
    b.finish(u, b.transpose(mixed, (0, 2, 1, 3)))
