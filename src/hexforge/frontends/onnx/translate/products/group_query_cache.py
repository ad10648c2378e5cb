# SPDX-License-Identifier: Apache-2.0
"""The caches of GroupQueryAttention: rows of keys and values before the new ones, and what the next run finds there."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.frontends.onnx.translate.builder import Builder
from hexforge.frontends.onnx.translate.compose import binary, cast, concat, part, ranged, scalar, unary
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
