# SPDX-License-Identifier: Apache-2.0
"""Running one native step: at every instruction set, with 1 to 3 threads, split or not; all must give the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fuzz.guarded_memory import GuardedMemory
from hexforge import _native
from hexforge.backends.htp.numbers.lower.products.weights import BLOCK, pack

LEVELS: tuple[str, ...] = tuple(_native.levels())
GUARD = 128
"""Bytes before and after the output that no kernel may touch."""
FIXED = {8: np.dtype(np.uint8), 16: np.dtype(np.int16)}
RANGE = {8: (0, 255), 16: (-32768, 32767)}
KIND = {8: "u8", 16: "s16", 32: "f32"}


def declared(kind: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Those of the attributes that the step takes."""
    return {name: value for name, value in attributes.items() if name in _native.step_fields()[kind]}


def run(kind: str, ins: Sequence[np.ndarray], out: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """The step's output, which starts as `out`: the same at every level, thread count and repetition."""
    ins = [np.ascontiguousarray(a) for a in ins]
    starts = np.cumsum([0, *(-(-(a.nbytes + 64) // 64) * 64 for a in ins)])
    program = _native.Program(int(starts[-1]))
    tensors = []
    for array, start in zip(ins, starts, strict=False):
        outside, inside = program.input_tensor(array.nbytes), program.arena_tensor(int(start), array.nbytes)
        bytes_ = {"element_bytes": 1, "dims": (array.nbytes,), "strides_x": (1,), "strides_y": (1,)}
        program.step("copy", [outside], [inside], bytes_)
        tensors.append(inside)
    program.step(kind, tensors, [program.output_tensor(out.nbytes)], attributes)
    first: np.ndarray | None = None
    try:
        for level in LEVELS:
            _native.set_level(level)
            for threads, split in ((1, False), (2, False), (2, True), (3, True)):
                _native.split_everything(split)
                memory = np.full(out.nbytes + 2 * GUARD, 0xA5, np.uint8)
                memory[GUARD : GUARD + out.nbytes] = np.ascontiguousarray(out).reshape(-1).view(np.uint8)
                got = memory[GUARD : GUARD + out.nbytes].view(out.dtype)
                program.run(ins, [got], threads)
                assert (memory[:GUARD] == 0xA5).all(), f"{kind} at {level} wrote before its output"
                assert (memory[GUARD + out.nbytes :] == 0xA5).all(), f"{kind} at {level} wrote past its output"
                got = got.reshape(out.shape)
                if first is None:
                    first = got
                else:
                    assert_bits(got, first, f"{kind} at {level} with {threads} threads")
            require_room(kind, ins, out, attributes)
    finally:
        _native.set_level(LEVELS[-1])
        _native.split_everything(False)
    assert first is not None
    return first


def require_room(kind: str, ins: Sequence[np.ndarray], out: np.ndarray, attributes: dict[str, Any]) -> None:
    """Run a step whose inputs have just the room that it declares, and its output and constants none.

    Behind that lies a page that ends the process where a kernel touches it.
    """
    memory, room, exact_from = GuardedMemory(), _native.step_rooms()[kind], _native.step_exact_from()[kind]
    rooms = [room if i < exact_from else 0 for i in range(len(ins))]
    constants = {k: memory.array(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items()}
    program = _native.Program(0)
    tensors = [program.input_tensor(array.nbytes, own) for array, own in zip(ins, rooms, strict=True)]
    program.step(kind, tensors, [program.output_tensor(out.nbytes)], constants)
    given = [memory.with_room(array, own) for array, own in zip(ins, rooms, strict=True)]
    program.run(given, [memory.array(out)], 1)
    del program
    memory.release()


def assert_bits(got: np.ndarray, want: np.ndarray, what: str = "") -> None:
    """Equal bit for bit; a NaN is a NaN whatever its sign and payload."""
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if got.dtype.kind == "f":
        unsigned = f"u{got.itemsize}"
        same = (got.view(unsigned) == want.view(unsigned)) | (np.isnan(got) & np.isnan(want))
    else:
        same = got == want
    if not same.all():
        at = tuple(int(i[0]) for i in np.nonzero(~same))
        raise AssertionError(f"{what}: {(~same).sum()} of {same.size} differ, first at {at}: {got[at]} not {want[at]}")


def fma(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """float32 x * y + z rounded once: the float64 sum rounded to odd, so that rounding it again loses nothing."""
    with np.errstate(all="ignore"):
        product = x.astype(np.float64) * y.astype(np.float64)
        wide = z.astype(np.float64)
        total = product + wide
        back = total - product
        rest = (product - (total - back)) + (wide - back)
        even = (total.view(np.int64) & 1) == 0
        toward = np.nextafter(total, np.where(rest > 0, np.inf, -np.inf))
        return np.where((rest != 0) & even & np.isfinite(total), toward, total).astype(np.float32)


def round_and_clamp(steps: np.ndarray, zero_point: int, low: int, high: int, bits: int) -> np.ndarray:
    """Real steps to the nearest integer (ties to even), zero point added, saturated."""
    with np.errstate(over="ignore"):
        rounded = np.rint(np.asarray(steps)).astype(np.float64) + zero_point
    return np.clip(rounded, low, high).astype(np.int64).astype(FIXED[bits])


def fill(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int, how: str) -> np.ndarray:
    """Integers of a range as int64: random, or all at one of the ends, or only ends."""
    if how == "low":
        return np.full(shape, low, np.int64)
    if how == "high":
        return np.full(shape, high, np.int64)
    if how == "ends":
        return np.where(rng.integers(0, 2, shape) == 1, high, low).astype(np.int64)
    return rng.integers(low, high + 1, shape)


HOW = ("random", "random", "random", "ends", "low", "high")


def packed_conv(weights: np.ndarray, bits: int, groups: int, row_taps: bool) -> np.ndarray:
    """[kd, kh, kw, in per group, out] weights in the layout of conv_u8, conv_s16 and conv_f32."""
    packed = [pack(part, bits, row_taps) for part in np.split(weights, groups, axis=-1)]
    return np.concatenate([*packed, np.zeros(4096, packed[0].dtype)])  # kernels may read a little past the weights


def packed_depthwise(weights: np.ndarray, bits: int) -> np.ndarray:
    """[kd, kh, kw, channels] weights in the layout of depthwise_*: 32-bit lanes, integers in the lower halves."""
    rows = weights.reshape(-1, weights.shape[-1])
    out = np.zeros((len(rows), -(-rows.shape[1] // BLOCK) * BLOCK), np.float32 if bits == 32 else np.int32)
    out[:, : rows.shape[1]] = rows if bits == 32 else rows & 0xFFFF
    return out


def spread(values: np.ndarray, groups: int, dtype: Any) -> np.ndarray:
    """One value per output channel, every group padded to whole blocks."""
    rows = np.asarray(values).reshape(groups, -1)
    out = np.zeros((groups, -(-rows.shape[1] // BLOCK) * BLOCK), dtype)
    out[:, : rows.shape[1]] = rows
    return out.ravel()
