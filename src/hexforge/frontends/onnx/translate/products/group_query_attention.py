# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention: rotation, a cache of keys and values that grows, and causal attention, composed of plain ops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.translate.builder import Builder, translates
from hexforge.frontends.onnx.translate.compose import binary, cast, concat, part, ranged, scalar, unary
from hexforge.frontends.onnx.translate.products.attention import attend, repeat_heads, rotate
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value

_KEY, _VALUE, _LENGTHS, _TOTAL, _POSITIONS, _BIAS, _SINK = 3, 4, 5, 6, 9, 10, 11
_SCALES = {_KEY: 12, _VALUE: 13}
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


@dataclass(frozen=True, slots=True)
class _Codes:
    """A cache of integers: their scale, and how many bits each has; two of 4 bits lie in a byte, the first one low."""

    scale: Value
    bits: int

    def taken(self, b: Builder, cache: Value) -> Value:
        """The integers of a cache as real numbers."""
        numbers = cast(b, cache, DType.FLOAT32)
        if self.bits == 8:
            return numbers
        high = unary(b, "Floor", binary(b, "Multiply", numbers, 1 / 16))
        low = binary(b, "Subtract", numbers, binary(b, "Multiply", high, 16))
        pairs = concat(b, [b.reshape(x, (*x.shape, 1)) for x in (low, high)], -1)
        return binary(b, "Subtract", b.reshape(pairs, (*cache.shape[:-1], 2 * cache.shape[-1])), 8)

    def rounded(self, b: Builder, x: Value) -> Value:
        """The nearest integers to real numbers, ties to even."""
        top = (1 << self.bits - 1) - 1
        steps = unary(b, "Round", binary(b, "Divide", cast(b, x, DType.FLOAT32), self.scale))
        return binary(b, "Minimum", binary(b, "Maximum", steps, -top - 1), top)

    def given(self, b: Builder, codes: Value) -> Value:
        """Integers as the cache holds them."""
        if self.bits == 8:
            return cast(b, codes, DType.INT8)
        pairs = b.reshape(binary(b, "Add", codes, 8), (*codes.shape[:-1], codes.shape[-1] // 2, 2))
        low, high = (part(b, pairs, -1, i, i + 1) for i in (0, 1))
        bytes_ = binary(b, "Add", low, binary(b, "Multiply", high, 16))
        return cast(b, b.reshape(bytes_, bytes_.shape[:-1]), DType.UINT8)

    def real(self, b: Builder, codes: Value, dtype: DType) -> Value:
        """What integers stand for."""
        return cast(b, binary(b, "Multiply", codes, self.scale), dtype)


def _codes(b: Builder, u: Unit, index: int, kind: str) -> _Codes | None:
    """How a quantized cache is read and written; None for one of real numbers."""
    mode = b.attr(u, kind, "NONE")
    mode = mode.decode() if isinstance(mode, bytes) else str(mode)
    if mode == "NONE":
        if b.has(u, _SCALES[index]):
            raise Refusal(f"a scale of a cache whose {kind} is NONE")
        return None
    bits = int(b.attr(u, "kv_cache_bit_width", 8)) or 8
    if mode not in ("PER_TENSOR", "PER_CHANNEL") or bits not in (4, 8) or not b.has(u, _SCALES[index]):
        raise Refusal(f"a cache of {bits} bits with {kind} {mode}; PER_TENSOR and PER_CHANNEL with a scale are known")
    cache = b.input(u, index)
    wanted = DType.INT8 if bits == 8 else DType.UINT8
    if cache.dtype is not wanted:
        raise Refusal(f"a cache of {bits} bits in {cache.dtype.value}; it is in {wanted.value}")
    scale = b.real(u, _SCALES[index])
    groups, size = cache.shape[1], cache.shape[3] * 8 // bits
    if scale.type.size not in (1, groups * size):
        raise Refusal(f"{kind} {mode} with a scale of shape {list(scale.shape)}")
    shape = (1, 1, 1, 1) if scale.type.size == 1 else (1, groups, 1, size)
    return _Codes(cast(b, b.reshape(scale, shape), DType.FLOAT32), bits)


def _joined(b: Builder, u: Unit, index: int, new: Value, start: Value) -> Value:
    """Keys or values with those of the cache before them; what the next run finds there is written."""
    output = index - 2
    codes = _codes(b, u, index, "k_quant_type" if index == _KEY else "v_quant_type") if b.has(u, index) else None
    if not b.has(u, index):
        if b.wants(u, output):
            b.finish(u, b.emit("Reshape", [new], new.type), output)
        return new
    past = b.real(u, index) if codes is None else codes.taken(b, b.input(u, index))
    rows = b.output(u, output).shape[2] if b.wants(u, output) else past.shape[2]
    whole = _cached(b, past, new if codes is None else codes.rounded(b, new), start, rows)
    if b.wants(u, output):
        kept = b.emit("Reshape", [whole], whole.type) if codes is None else codes.given(b, whole)
        b.finish(u, kept, output)
    return whole if codes is None else codes.real(b, whole, new.dtype)


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
    if int(b.attr(u, "sliding_window_cache", 0)):
        raise Refusal("caches that hold a window alone are not known here; give caches of the whole length")
    if b.wants(u, 3):
        raise Refusal("scores as an output (qk_output) are not known here; leave it out")
    if b.has(u, _NORMS[0]) != b.has(u, _NORMS[1]):
        raise Refusal("q_norm_weight and k_norm_weight must be given together")


@translates(
    "com.microsoft:GroupQueryAttention",
    writes=(
        "Cast", "Concat", "ElementWiseAdd", "ElementWiseAnd", "ElementWiseDivide", "ElementWiseEqual",
        "ElementWiseFloor", "ElementWiseGreaterEqual", "ElementWiseLess", "ElementWiseMaximum", "ElementWiseMinimum",
        "ElementWiseMultiply", "ElementWiseRound", "ElementWiseSelect", "ElementWiseSubtract", "Gather", "GatherNd",
        "MatMul", "ReduceMax", "RmsNorm", "Softmax", "StridedSlice", "Tanh", "Tile",
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
    if b.has(u, _KEY):  # a first prompt begins at row 0, however much of it is padding
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
    key, value = _joined(b, u, _KEY, key, start), _joined(b, u, _VALUE, value, start)
    keys = key.shape[2]
    scale = float(b.attr(u, "scale", 0.0)) or 1 / math.sqrt(size)
    scores = b.emit("MatMul", [query, repeat_heads(b, key, heads // groups)], transpose_in1=True)
    scores = binary(b, "Multiply", scores, scale)
    if (cap := float(b.attr(u, "softcap", 0.0))) > 0:
        scores = binary(b, "Multiply", b.emit("Tanh", [binary(b, "Divide", scores, cap)]), cap)
    if b.has(u, _BIAS):
        scores = binary(b, "Add", scores, _padded(b, cast(b, b.real(u, _BIAS), scores.dtype), keys))
    place = binary(b, "Add", start, ranged(b, (1, 1, length, 1), 2))
    distance = binary(b, "Subtract", place, ranged(b, (1, 1, 1, keys), 3))
    if int(b.attr(u, "causal", 1)):
        allowed = binary(b, "GreaterEqual", distance, 0)
    else:  # all keys that were written, to both sides
        last = binary(b, "Add", start, length)
        allowed = binary(b, "GreaterEqual", binary(b, "Subtract", last, ranged(b, (1, 1, 1, keys), 3)), 1)
    if (window := int(b.attr(u, "local_window_size", -1))) > 0:
        allowed = binary(b, "And", allowed, binary(b, "Less", distance, window))
    bias = b.emit("ElementWiseSelect", [allowed, scalar(b, 0, scores), scalar(b, -math.inf, scores)])
    mixed = b.emit("MatMul", [_shares(b, u, scores, bias, heads), repeat_heads(b, value, heads // groups)])
    b.finish(u, b.transpose(mixed, (0, 2, 1, 3)))


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
