# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention: rotation, its caches of keys and values, and causal attention, composed of plain ops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hexforge.frontends.onnx.translate.builder import (
    Builder,
    binary,
    cast,
    concat,
    part,
    ranged,
    scalar,
    translates,
    unary,
)
from hexforge.frontends.onnx.translate.products_attention import attend, rotate
from hexforge.frontends.onnx.unit import Refusal, Unit
from hexforge.ir import DType, Value

KEY, VALUE = 3, 4
SCALES = {KEY: 12, VALUE: 13}
NOWHERE = -(1 << 30)
"""The position of a row that holds no token: further away than any window reaches."""


@dataclass(frozen=True, slots=True)
class CacheWindow:
    """Caches that hold a window alone (`sliding_window_cache`): how far a token sees, and how many rows there are.

    Rows are in the order of positions from row 0 on. Where they would be more than the capacity, as many are evicted at
    once as are not needed, so how many are there follows from the number of tokens, however those came.
    """

    size: int
    capacity: int

    def evicted(self, b: Builder, tokens: Value) -> Value:
        """How many positions are gone after so many tokens: that of the first row."""
        spare = self.capacity - self.size + 1
        beyond = binary(b, "Maximum", binary(b, "Subtract", tokens, self.capacity), 0)
        if spare == 1:
            return beyond
        times = binary(b, "FloorDiv", binary(b, "Add", beyond, spare - 1), spare)
        return binary(b, "Multiply", times, spare)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Where the new tokens of a run are: the first one's position, and how many there are then, [batch, 1, 1, 1]."""

    start: Value
    total: Value


@dataclass(frozen=True, slots=True)
class Rows:
    """Keys or values that queries meet, [batch, groups, rows, size], and what integers among them are worth.

    Where numbers of 4 bits were pairs in bytes, all first ones lie before all second ones: the few numbers that meet
    them are brought into that order and back, not the many of a cache.
    """

    numbers: Value
    scale: Value | None = None
    halved: bool = False

    def met_by(self, b: Builder, query: Value) -> Value:
        """A query, so that its products with the numbers are those with the keys."""
        return _turned(b, self._scaled(b, query), 2) if self.halved else self._scaled(b, query)

    def worth(self, b: Builder, mixed: Value) -> Value:
        """A mixture of the numbers as one of the values."""
        return self._scaled(b, _turned(b, mixed, mixed.shape[-1] // 2) if self.halved else mixed)

    def _scaled(self, b: Builder, x: Value) -> Value:
        if self.scale is None:
            return x
        return cast(b, binary(b, "Multiply", cast(b, x, DType.FLOAT32), self.scale), x.dtype)


def _turned(b: Builder, x: Value, columns: int) -> Value:
    """The last axis as a table of so many columns, read column after column."""
    table = b.reshape(x, (*x.shape[:-1], x.shape[-1] // columns, columns))
    return b.reshape(b.transpose(table, (*range(len(x.shape) - 1), len(x.shape), len(x.shape) - 1)), x.shape)


@dataclass(frozen=True, slots=True)
class _Codes:
    """A cache of integers: their scale, and how many bits each has; two of 4 bits lie in a byte, the first one low."""

    scale: Value
    bits: int

    def taken(self, b: Builder, cache: Value, dtype: DType) -> Rows:
        """The integers of a cache as real numbers."""
        if self.bits == 8:
            return Rows(cast(b, cache, dtype), self.scale)
        numbers = cast(b, cache, DType.FLOAT32)
        high = unary(b, "Floor", binary(b, "Multiply", numbers, 1 / 16))
        low = binary(b, "Subtract", numbers, binary(b, "Multiply", high, 16))
        return Rows(cast(b, binary(b, "Subtract", concat(b, [low, high], -1), 8), dtype), self.scale, halved=True)

    def given(self, b: Builder, x: Value) -> Value:
        """Real numbers as the cache holds them: the nearest integers, ties to even."""
        top = (1 << self.bits - 1) - 1
        steps = unary(b, "Round", binary(b, "Divide", cast(b, x, DType.FLOAT32), self.scale))
        codes = binary(b, "Minimum", binary(b, "Maximum", steps, -top - 1), top)
        if self.bits == 8:
            return cast(b, codes, DType.INT8)
        pairs = b.reshape(binary(b, "Add", codes, 8), (*codes.shape[:-1], codes.shape[-1] // 2, 2))
        low, high = (part(b, pairs, -1, i, i + 1) for i in (0, 1))
        bytes_ = binary(b, "Add", low, binary(b, "Multiply", high, 16))
        return cast(b, b.reshape(bytes_, bytes_.shape[:-1]), DType.UINT8)


def _codes(b: Builder, u: Unit, index: int, kind: str) -> _Codes | None:
    """How a quantized cache is read and written; None for one of real numbers."""
    mode = b.attr(u, kind, "NONE")
    mode = mode.decode() if isinstance(mode, bytes) else str(mode)
    if mode == "NONE":
        if b.has(u, SCALES[index]):
            raise Refusal(f"a scale of a cache whose {kind} is NONE")
        return None
    bits = int(b.attr(u, "kv_cache_bit_width", 8)) or 8
    if mode not in ("PER_TENSOR", "PER_CHANNEL") or bits not in (4, 8) or not b.has(u, SCALES[index]):
        raise Refusal(f"a cache of {bits} bits with {kind} {mode}; PER_TENSOR and PER_CHANNEL with a scale are known")
    cache = b.input(u, index)
    wanted = DType.INT8 if bits == 8 else DType.UINT8
    if cache.dtype is not wanted:
        raise Refusal(f"a cache of {bits} bits in {cache.dtype.value}; it is in {wanted.value}")
    scale = b.real(u, SCALES[index])
    groups, size = cache.shape[1], cache.shape[3] * 8 // bits
    if scale.type.size not in (1, groups * size):
        raise Refusal(f"{kind} {mode} with a scale of shape {list(scale.shape)}")
    shape = (1, 1, 1, 1) if scale.type.size == 1 else (1, groups, 1, size)
    return _Codes(cast(b, b.reshape(scale, shape), DType.FLOAT32), bits)


def joined(b: Builder, u: Unit, index: int, new: Value, tokens: Tokens, window: CacheWindow | None) -> Rows:
    """Keys or values with those of the cache before them; what the next run finds there is written.

    A cache of one length before and after has the new rows put in, so that both may be one buffer.
    """
    output = index - 2
    if not b.has(u, index):
        if b.wants(u, output):
            b.finish(u, b.emit("Reshape", [new], new.type), output)
        return Rows(new)
    codes = _codes(b, u, index, "k_quant_type" if index == KEY else "v_quant_type")
    past = b.real(u, index) if codes is None else b.input(u, index)
    fresh = cast(b, new, past.dtype) if codes is None else codes.given(b, new)
    rows = b.output(u, output).shape[2] if b.wants(u, output) else past.shape[2]
    if window is not None:
        whole, kept = _slid(b, past, fresh, tokens, window)
    else:
        put = rows == past.shape[2]
        kept = whole = _put(b, past, fresh, tokens.start) if put else _appended(b, past, fresh, tokens.start, rows)
    if b.wants(u, output):
        b.finish(u, kept, output)
        whole = b.output(u, output) if whole is kept and kept.type == b.output(u, output).type else whole
    if codes is None:
        return Rows(cast(b, whole, new.dtype))
    return codes.taken(b, whole, new.dtype)


def positions_of_rows(b: Builder, rows: int, tokens: Tokens, window: CacheWindow | None) -> Value:
    """[batch or 1, 1, 1, rows]: the position that each row's token has in the text."""
    if window is None:
        return ranged(b, (1, 1, 1, rows), 3)
    old = binary(b, "Add", window.evicted(b, tokens.start), ranged(b, (1, 1, 1, window.capacity), 3))
    old = b.emit("ElementWiseSelect", [binary(b, "Less", old, tokens.start), old, scalar(b, NOWHERE, old)])
    new = binary(b, "Add", tokens.start, ranged(b, (1, 1, 1, rows - window.capacity), 3))
    return concat(b, [old, new], 3)


def _slid(b: Builder, past: Value, new: Value, tokens: Tokens, window: CacheWindow) -> tuple[Value, Value]:
    """The rows of a cache and the new ones behind them, and those that stay.

    Rows of the cache that hold no token may be anything, no numbers even: the first new one stands in for them.
    """
    row = ranged(b, (1, 1, window.capacity, 1), 2)
    gone, going = window.evicted(b, tokens.start), window.evicted(b, tokens.total)
    length = binary(b, "Subtract", tokens.start, gone)
    both = concat(b, [past, new], 2)
    instead = scalar(b, window.capacity, row)
    known = b.emit("ElementWiseSelect", [binary(b, "Less", row, length), row, instead])
    known = _rows(b, both, known)
    position = binary(b, "Add", going, row)
    old = binary(b, "Subtract", position, gone)
    fresh = binary(b, "Add", binary(b, "Subtract", position, tokens.start), window.capacity)
    stays = b.emit("ElementWiseSelect", [binary(b, "Less", position, tokens.start), old, fresh])
    return concat(b, [known, new], 2), _rows(b, both, stays)


def _put(b: Builder, past: Value, new: Value, start: Value) -> Value:
    """The cache with new rows put in from row `start` [batch, 1, 1, 1] on: a backend may do that in place."""
    batch, groups, length, size = new.shape
    places = binary(b, "Add", start, ranged(b, (1, 1, length, 1), 2))
    places = b.emit("Tile", [places], multiples=(batch // places.shape[0], groups, 1, size))
    return b.emit("ScatterElements", [past, places, new], axis=2)


def _appended(b: Builder, past: Value, new: Value, start: Value, length: int) -> Value:
    """`length` rows: those of the cache before `start` [batch, 1, 1, 1], and the new ones behind them."""
    row = ranged(b, (1, 1, length, 1), 2)
    beyond = binary(b, "Add", binary(b, "Subtract", row, start), past.shape[2])
    return _rows(
        b, concat(b, [past, new], 2), b.emit("ElementWiseSelect", [binary(b, "Less", row, start), row, beyond])
    )


def _rows(b: Builder, x: Value, chosen: Value) -> Value:
    """Rows of [batch, groups, rows, size] by their numbers [batch or 1, 1, rows, 1]; no number is past the last."""
    batch, groups = x.shape[:2]
    chosen = binary(b, "Minimum", chosen, x.shape[2] - 1)
    places = b.emit("Tile", [chosen], multiples=(batch // chosen.shape[0], groups, 1, 1))
    return b.emit("GatherNd", [x, places], batch_dims=2)


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
