# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention: rotation, a cache of keys and values that grows, and causal attention, composed of plain ops."""

from __future__ import annotations

import math

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, cast, concat, part, ranged, scalar
from hexforge.frontends.onnx.translate.products.attention import attend, rotate
from hexforge.frontends.onnx.translate.products.group_query_cache import (
    KEY,
    VALUE,
    CacheWindow,
    Tokens,
    joined,
    positions_of_rows,
)
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value

_LENGTHS, _TOTAL, _POSITIONS, _BIAS, _SINK = 5, 6, 9, 10, 11
_NORMS = (14, 15)


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


def _positions(b: Builder, u: Unit, start: Value, prompt: Value | None, batch: int, length: int) -> Value:
    """[batch, length]: where each new token is, for its rotation. A first prompt uses one position id, its first."""
    counted = binary(b, "Add", b.reshape(start, (batch, 1)), ranged(b, (1, length), 1))
    if not b.has(u, _POSITIONS):
        return counted
    given = cast(b, b.input(u, _POSITIONS), DType.INT32)
    if given.shape != (batch, length):
        raise Refusal(f"position_ids of shape {list(given.shape)} for {batch} x {length} tokens")
    first = part(b, part(b, given, 0, 0, 1), 1, 0, 1)
    onwards = binary(b, "Add", first, b.static(np.arange(length, dtype=np.int32)[None].repeat(batch, 0)))
    if prompt is None:
        return onwards
    return b.emit("ElementWiseSelect", [b.reshape(prompt, (1, 1)), onwards, given])


def _shares(b: Builder, u: Unit, scores: Value, bias: Value, heads: int) -> Value:
    """Softmax over the keys, and over a sink of each head that takes its share and gives nothing."""
    if b.has(u, _SINK):
        sink = b.reshape(b.real(u, _SINK), (1, heads, 1, 1))
    elif int(b.attr(u, "smooth_softmax", 0)) > 0:
        sink = b.reshape(scalar(b, 0, scores), (1, 1, 1, 1))
    else:
        return attend(b, scores, bias, scores.dtype)
    column = binary(b, "Add", _zeros(b, scores, 1), cast(b, sink, scores.dtype))
    total = concat(b, [binary(b, "Add", scores, bias), column], -1)
    shares = b.emit("Softmax", [total], axis=3)
    return part(b, shares, -1, 0, scores.shape[-1])


def _refused(b: Builder, u: Unit) -> None:
    if b.wants(u, 3):
        raise Refusal("scores as an output (qk_output) are not known here; leave it out")
    if b.has(u, _NORMS[0]) != b.has(u, _NORMS[1]):
        raise Refusal("q_norm_weight and k_norm_weight must be given together")


@translates(
    "com.microsoft:GroupQueryAttention",
    writes=(
        "Cast", "Concat", "ElementWiseAdd", "ElementWiseAnd", "ElementWiseDivide", "ElementWiseEqual",
        "ElementWiseFloor", "ElementWiseFloorDiv", "ElementWiseGreaterEqual", "ElementWiseLess", "ElementWiseMaximum",
        "ElementWiseMinimum", "ElementWiseMultiply", "ElementWiseRound", "ElementWiseSelect", "ElementWiseSubtract",
        "Gather", "GatherElements", "GatherNd", "MatMul", "ReduceMax", "RmsNorm", "ScatterElements", "Softmax",
        "StridedSlice", "Tanh", "Tile",
    ),
)  # fmt: skip
def group_query_attention(b: Builder, u: Unit) -> None:
    """Causal attention of grouped heads over a cache; seqlens_k says how many keys each batch has, less one."""
    _refused(b, u)
    heads, groups = int(b.attr(u, "num_heads", 0)), int(b.attr(u, "kv_num_heads", 0))
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
    total = b.reshape(binary(b, "Add", cast(b, b.input(u, _LENGTHS), DType.INT32), 1), (batch, 1, 1, 1))
    start, prompt = binary(b, "Subtract", total, length), None
    if b.has(u, KEY):  # a first prompt begins at row 0, however much of it is padding
        whole = b.reshape(cast(b, b.input(u, _TOTAL), DType.INT32), (1, 1, 1, 1))
        prompt = binary(b, "Equal", whole, length)
        start = b.emit("ElementWiseSelect", [prompt, scalar(b, 0, start), start])
    else:
        start = binary(b, "Multiply", start, 0)
    split = [b.reshape(v, (batch, length, n, size)) for v, n in ((query, heads), (key, groups), (value, groups))]
    if b.has(u, _NORMS[0]):
        epsilon = float(b.attr(u, "qk_norm_epsilon", 1e-6))
        weights = [cast(b, b.real(u, index), query.dtype) for index in _NORMS]
        split[:2] = [
            b.emit("RmsNorm", [v, w], axes=(3,), epsilon=epsilon) for v, w in zip(split[:2], weights, strict=True)
        ]
    if int(b.attr(u, "do_rotary", 0)):
        positions = _positions(b, u, start, prompt, batch, length)
        split[:2] = [_rotated(b, u, v, positions) for v in split[:2]]
    query, key, value = (b.transpose(v, (0, 2, 1, 3)) for v in split)
    tokens, window = Tokens(start, total), _window(b, u)
    keys, values = joined(b, u, KEY, key, tokens, window), joined(b, u, VALUE, value, tokens, window)
    rows = keys.numbers.shape[2]
    # queries of heads that share keys lie below each other, so that no key is repeated
    together = keys.met_by(b, b.reshape(query, (batch, groups, heads // groups * length, size)))
    scores = b.emit("MatMul", [together, keys.numbers], transpose_in1=True)
    scores = b.reshape(scores, (batch, heads, length, rows))
    scores = binary(b, "Multiply", scores, float(b.attr(u, "scale", 0.0)) or 1 / math.sqrt(size))
    if (cap := float(b.attr(u, "softcap", 0.0))) > 0:
        scores = binary(b, "Multiply", b.emit("Tanh", [binary(b, "Divide", scores, cap)]), cap)
    known = positions_of_rows(b, rows, tokens, window)
    if b.has(u, _BIAS):
        bias = cast(b, b.real(u, _BIAS), scores.dtype)
        bias = _padded(b, bias, rows) if window is None else _chosen(b, bias, known, batch)
        scores = binary(b, "Add", scores, bias)
    distance = binary(b, "Subtract", binary(b, "Add", start, ranged(b, (1, 1, length, 1), 2)), known)
    if int(b.attr(u, "causal", 1)):
        allowed = binary(b, "GreaterEqual", distance, 0)
    else:  # all keys that were written, to both sides
        allowed = binary(b, "GreaterEqual", binary(b, "Subtract", binary(b, "Add", start, length), known), 1)
    if (seen := int(b.attr(u, "local_window_size", -1))) > 0:
        allowed = binary(b, "And", allowed, binary(b, "Less", distance, seen))
    limits = b.emit("ElementWiseSelect", [allowed, scalar(b, 0, scores), scalar(b, -math.inf, scores)])
    shares = b.reshape(_shares(b, u, scores, limits, heads), (batch, groups, heads // groups * length, rows))
    mixed = values.worth(b, b.emit("MatMul", [shares, values.numbers]))
    b.finish(u, b.transpose(b.reshape(mixed, (batch, heads, length, size)), (0, 2, 1, 3)))


def _window(b: Builder, u: Unit) -> CacheWindow | None:
    """The window that caches hold, where they hold no more."""
    if not int(b.attr(u, "sliding_window_cache", 0)):
        return None
    size = int(b.attr(u, "local_window_size", -1))
    if not b.has(u, KEY) or size < 1:
        raise Refusal(f"sliding_window_cache with local_window_size {size}; give caches, and a window of 1 or more")
    capacity = b.input(u, KEY).shape[2]
    if capacity < size:
        raise Refusal(f"caches of {capacity} rows for a window of {size}; give as many rows or more")
    return CacheWindow(size, capacity)


def _chosen(b: Builder, bias: Value, known: Value, batch: int) -> Value:
    """The columns of a bias, which has one for each position, of the rows that a window holds."""
    bias = b.emit("Tile", [bias], multiples=(batch // bias.shape[0], 1, 1, 1))
    columns = binary(b, "Minimum", binary(b, "Maximum", known, 0), bias.shape[-1] - 1)
    columns = b.emit("Tile", [columns], multiples=(batch // columns.shape[0], *bias.shape[1:3], 1))
    return b.emit("GatherElements", [bias, columns], axis=3)


def _padded(b: Builder, bias: Value, keys: int) -> Value:
    """A bias for keys that are there, with nothing added to the rest of a cache."""
    missing = keys - bias.shape[-1]
    if missing < 0:
        raise Refusal(f"an attention bias for {bias.shape[-1]} keys of {keys}")
    if not missing:
        return bias
    return concat(b, [bias, _zeros(b, bias, missing)], -1)


def _zeros(b: Builder, like: Value, columns: int) -> Value:
    """Nothing, in the shape of a value but for its columns."""
    return b.static(np.zeros((*like.shape[:-1], columns), like.dtype.numpy))
