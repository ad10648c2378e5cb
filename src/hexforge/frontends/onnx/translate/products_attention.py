# SPDX-License-Identifier: Apache-2.0
"""Attention and rotary embedding, composed of matrix products, softmax and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    cast,
    concat,
    part,
    ranged,
    reduce,
    scalar,
    translates,
)
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value


def _heads(b: Builder, x: Value, count: int | None, name: str) -> Value:
    """[batch, sequence, heads * size] as [batch, heads, sequence, size]; 4-D as it is."""
    if len(x.shape) == 4:
        return x
    if len(x.shape) != 3 or not count or x.shape[2] % count:
        raise Refusal(f"input of shape {list(x.shape)} with {name} {count}; it must be 4-D, or 3-D with heads that fit")
    return b.transpose(b.reshape(x, (*x.shape[:2], count, x.shape[2] // count)), (0, 2, 1, 3))


def repeat_heads(b: Builder, x: Value, times: int) -> Value:
    """Each head `times` times in a row."""
    if times == 1:
        return x
    batch, heads, length, size = x.shape
    tiled = b.emit("Tile", [b.reshape(x, (batch, heads, 1, length * size))], multiples=(1, 1, times, 1))
    return b.reshape(tiled, (batch, heads * times, length, size))


def _allowed(b: Builder, u: Unit, queries: int, keys: int, past: int) -> tuple[list[Value], list[Value]]:
    """Boolean masks from causality, windows and padding: those known now, and those that depend on run-time lengths."""
    left, right = int(b.attr(u, "left_window_size", -1)), int(b.attr(u, "right_window_size", -1))
    causal = bool(b.attr(u, "is_causal", 0))
    lengths = b.optional(u, 6)
    if lengths is None:
        distance = np.arange(past, past + queries)[:, None] - np.arange(keys)[None, :]
        allowed = np.ones(distance.shape, bool)
        allowed &= (distance >= 0) if causal else True
        allowed &= (distance <= left) if left >= 0 else True
        allowed &= (-distance <= right) if right >= 0 else True
        return ([] if allowed.all() else [b.static(allowed)]), []
    lengths = b.reshape(cast(b, lengths, DType.INT32), (lengths.type.size, 1, 1, 1))
    key = ranged(b, (1, 1, 1, keys), 3)
    masks = [binary(b, "Less", key, lengths)]
    if causal or left >= 0 or right >= 0:
        query = ranged(b, (1, 1, queries, 1), 2)
        position = binary(b, "Add", query, binary(b, "Subtract", lengths, queries))
        distance_now = binary(b, "Subtract", position, key)
        if causal:
            masks.append(binary(b, "GreaterEqual", distance_now, 0))
        if left >= 0:
            masks.append(binary(b, "LessEqual", distance_now, left))
        if right >= 0:
            masks.append(binary(b, "GreaterEqual", distance_now, -right))
    return [], masks


def _masked(b: Builder, allowed: Value, like: Value) -> Value:
    """0 where allowed, minus infinity elsewhere."""
    zero, lowest = scalar(b, 0, like), scalar(b, -np.inf, like)
    return b.emit("ElementWiseSelect", [allowed, zero, lowest])


def _padded_mask(b: Builder, mask: Value, keys: int) -> Value:
    """A mask whose last axis is made as long as the keys; what is added is not attended to."""
    missing = keys - mask.shape[-1]
    if missing <= 0:
        return mask
    fill = np.asarray(False) if mask.dtype is DType.BOOL else np.asarray(-np.inf).astype(mask.dtype.numpy)
    return concat(b, [mask, b.static(np.broadcast_to(fill, (*mask.shape[:-1], missing)))], -1)


def _bias(b: Builder, u: Unit, scores: Value, past: int) -> Value | None:
    """What is added to the scores: attn_mask, causality, windows and padding together."""
    queries, keys = scores.shape[-2:]
    static, dynamic = _allowed(b, u, queries, keys, past)
    allowed, bias = [*static, *dynamic], None
    if b.has(u, 3):
        mask = _padded_mask(b, b.real(u, 3), keys)
        if len(mask.shape) == 1:
            mask = b.reshape(mask, (1, *mask.shape))
        if mask.dtype is DType.BOOL:
            allowed.append(mask)
        else:
            bias = cast(b, mask, scores.dtype)
    if allowed:
        together = allowed[0]
        for other in allowed[1:]:
            together = binary(b, "And", together, other)
        limits = _masked(b, together, scores)
        bias = limits if bias is None else binary(b, "Add", bias, limits)
    return bias


def attend(b: Builder, scores: Value, bias: Value | None, precision: DType) -> Value:
    """Softmax of the scores; a row with nothing to attend to is zero."""
    total = cast(b, scores if bias is None else binary(b, "Add", scores, bias), precision)
    weights = cast(b, b.emit("Softmax", [total], axis=len(total.shape) - 1), scores.dtype)
    if bias is None:
        return weights
    top = reduce(b, "Max", bias, (len(bias.shape) - 1,))
    empty = binary(b, "Equal", top, -np.inf)
    return b.emit("ElementWiseSelect", [empty, scalar(b, 0, weights), weights])


def _precision(b: Builder, u: Unit, default: DType) -> DType:
    code = b.attr(u, "softmax_precision", None)
    if not code or int(code) == onnx_ir.DataType.DOUBLE:
        return DType.FLOAT32 if code else default
    try:
        return DType.of(onnx_ir.DataType(int(code)).numpy())
    except (ModelError, TypeError, ValueError):
        raise Refusal(f"softmax_precision {code} is no type QNN has") from None


@translates(
    "Attention",
    writes=(
        "Concat", "ElementWiseAdd", "ElementWiseAnd", "ElementWiseDivide", "ElementWiseEqual",
        "ElementWiseGreaterEqual", "ElementWiseLess", "ElementWiseLessEqual", "ElementWiseMultiply",
        "ElementWiseSelect", "ElementWiseSubtract", "MatMul", "ReduceMax", "Softmax", "Tanh", "Tile",
    ),
)  # fmt: skip
def attention(b: Builder, u: Unit) -> None:
    """Scaled dot-product attention with grouped heads, masks, soft cap, and a cache of keys and values."""
    query = _heads(b, b.real(u, 0), b.attr(u, "q_num_heads"), "q_num_heads")
    key, value = (_heads(b, b.real(u, i), b.attr(u, "kv_num_heads"), "kv_num_heads") for i in (1, 2))
    past = 0
    if b.has(u, 4) != b.has(u, 5):
        raise Refusal("past_key and past_value must be given together")
    if b.has(u, 4):
        if b.has(u, 6):
            raise Refusal("nonpad_kv_seqlen together with past_key; use one kind of cache")
        past = b.real(u, 4).shape[2]
        key, value = concat(b, [b.real(u, 4), key], 2), concat(b, [b.real(u, 5), value], 2)
    for index, present in ((1, key), (2, value)):
        if b.wants(u, index):
            b.finish(u, b.emit("Reshape", [present], present.type), index)
    if not key.shape[1] or query.shape[1] % key.shape[1] or value.shape[1] != key.shape[1]:
        raise Refusal(f"{query.shape[1]} query heads on {key.shape[1]} key and {value.shape[1]} value heads")
    times = query.shape[1] // key.shape[1]
    scale = float(b.attr(u, "scale", 1 / math.sqrt(max(query.shape[-1], 1))))
    if scale < 0:
        raise Refusal(f"scale {scale} is negative")
    root = math.sqrt(scale)  # both operands scaled by it, as the definition has it: float16 products stay in range
    left, right = binary(b, "Multiply", query, root), binary(b, "Multiply", key, root)
    raw = b.emit("MatMul", [left, repeat_heads(b, right, times)], transpose_in1=True)
    cap = float(b.attr(u, "softcap", 0.0))
    scores = raw
    if cap > 0:
        scores = binary(b, "Multiply", b.emit("Tanh", [binary(b, "Divide", raw, cap)]), cap)
    bias = _bias(b, u, scores, past)
    weights = attend(b, scores, bias, _precision(b, u, scores.dtype))
    result = b.emit("MatMul", [weights, repeat_heads(b, value, times)])
    if b.wants(u, 3):
        mode = int(b.attr(u, "qk_matmul_output_mode", 0))
        biased = scores if bias is None or mode != 2 else binary(b, "Add", scores, bias)
        exposed = {0: raw, 1: scores, 2: biased, 3: weights}.get(mode)
        if exposed is None:
            raise Refusal(f"qk_matmul_output_mode {mode} is not 0 to 3")
        b.finish(u, b.emit("Reshape", [exposed], exposed.type), 3)
    if len(b.output(u).shape) == 3:
        result = b.transpose(result, (0, 2, 1, 3))
    b.finish(u, result)


def rotate(b: Builder, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """Pairs of the last axis rotated: neighbours where interleaved, else the halves; cos and sin broadcast."""
    shape = x.shape
    half = shape[-1] // 2
    if interleaved:
        x = b.reshape(x, (*shape[:-1], half, 2))
        real, imaginary = (b.reshape(part(b, x, -1, i, i + 1), (*shape[:-1], half)) for i in (0, 1))
    else:
        real, imaginary = part(b, x, -1, 0, half), part(b, x, -1, half, 2 * half)
    rotated = [
        binary(b, "Subtract", binary(b, "Multiply", real, cos), binary(b, "Multiply", imaginary, sin)),
        binary(b, "Add", binary(b, "Multiply", real, sin), binary(b, "Multiply", imaginary, cos)),
    ]
    if not interleaved:
        return concat(b, rotated, -1)
    return b.reshape(concat(b, [b.reshape(v, (*v.shape, 1)) for v in rotated], -1), shape)


def _cache(b: Builder, cache: Value, positions: Value | None, shape: Sequence[int]) -> Value:
    """Rows of cos or sin [batch, sequence, 1, half] for the positions."""
    if positions is not None:
        if len(cache.shape) != 2:
            raise Refusal(f"a cache of shape {list(cache.shape)} with position_ids; it must be [positions, half]")
        cache = b.emit("Gather", [cache, cast(b, positions, DType.INT32)], axis=0)
    if len(cache.shape) != 3 or cache.shape[1] != shape[1]:
        raise Refusal(f"caches of shape {list(cache.shape)} for an input of shape {list(shape)}")
    return b.reshape(cache, (*cache.shape[:2], 1, cache.shape[2]))


def embed(b: Builder, u: Unit, cos: Value, sin: Value, positions: Value | None) -> None:
    """Rotary embedding of input 0, over all of each head or its first `rotary_embedding_dim`."""
    x = b.real(u, 0)
    shape, rank, heads = x.shape, len(x.shape), int(b.attr(u, "num_heads", 0))
    if rank == 4:
        x = b.transpose(x, (0, 2, 1, 3))
    elif rank == 3 and not heads and not b.attr(u, "rotary_embedding_dim", 0):
        heads = shape[2] // (2 * cos.shape[-1])
    if rank == 3:
        if not heads or shape[2] % heads:
            raise Refusal(f"num_heads {heads} does not divide {shape[2]}")
        x = b.reshape(x, (*shape[:2], heads, shape[2] // heads))
    if len(x.shape) != 4:
        raise Refusal(f"input of shape {list(shape)}; it must be 3-D or 4-D")
    size = int(b.attr(u, "rotary_embedding_dim", 0)) or x.shape[-1]
    if size % 2 or size > x.shape[-1] or 2 * cos.shape[-1] != size or sin.shape != cos.shape:
        raise Refusal(f"caches of width {cos.shape[-1]} do not rotate {size} of {x.shape[-1]} elements per head")
    rows = [cast(b, _cache(b, cache, positions, x.shape), x.dtype) for cache in (cos, sin)]
    turned = rotate(b, part(b, x, -1, 0, size), rows[0], rows[1], bool(b.attr(u, "interleaved", 0)))
    if size < x.shape[-1]:
        turned = concat(b, [turned, part(b, x, -1, size, x.shape[-1])], -1)
    b.finish(u, b.transpose(turned, (0, 2, 1, 3)) if rank == 4 else turned)


@translates(
    "RotaryEmbedding",
    writes=(
        "Concat", "ElementWiseAdd", "ElementWiseMultiply", "ElementWiseSubtract", "Gather", "StridedSlice",
    ),
)  # fmt: skip
def rotary_embedding(b: Builder, u: Unit) -> None:
    """ai.onnx: input, cos, sin, and positions unless the caches hold a row per token."""
    embed(b, u, b.real(u, 1), b.real(u, 2), b.optional(u, 3))


@translates(
    "com.microsoft:RotaryEmbedding",
    writes=(
        "Concat", "ElementWiseAdd", "ElementWiseMultiply", "ElementWiseSubtract", "Gather", "StridedSlice", "Tile",
    ),
)  # fmt: skip
def rotary_embedding_contrib(b: Builder, u: Unit) -> None:
    """com.microsoft: input, positions (or one offset), cos, sin."""
    if b.attr(u, "is_packed_batching", 0) or float(b.attr(u, "scale", 1.0)) != 1:
        raise Refusal("packed batching and a scale are not supported; drop them")
    positions, shape = b.input(u, 1), b.type_of(b.operand(u, 0)).shape
    if len(positions.shape) != 2:
        length = shape[2] if len(shape) == 4 else shape[1]
        offset = b.reshape(cast(b, positions, DType.INT32), (1, 1))
        row = binary(b, "Add", offset, ranged(b, (1, length), 1))
        positions = b.emit("Tile", [row], multiples=(shape[0], 1)) if shape[0] > 1 else row
    embed(b, u, b.real(u, 2), b.real(u, 3), positions)
