# SPDX-License-Identifier: Apache-2.0
"""matmul_u8, matmul_s16, matmul_s16_u8 and matmul_f32: both operands given at run time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.formats.hmx_layout import to_hmx
from tests.native.halves import matrix_half
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, fma, round_and_clamp, run

SIZES: dict[str, Any] = {
    "seed": st.integers(0, 2**32 - 1), "batch": st.integers(1, 3), "m": st.integers(1, 40), "n": st.integers(1, 150),
    "k": st.integers(1, 70), "swap": st.booleans(), "shared": st.sampled_from(["", "a", "b"]),
}  # fmt: skip


def layout(batch: int, m: int, n: int, k: int, swap: bool, shared: str) -> dict[str, Any]:
    """a is [batch, m, k]; b is [batch, k, n], or [batch, n, k] where swapped; a shared operand has one matrix."""
    return {
        "batch": batch, "m": m, "n": n, "k": k, "stride_a": 0 if shared == "a" else m * k,
        "stride_b": 0 if shared == "b" else k * n, "row_a": k, "row_b": 1 if swap else n, "column_b": k if swap else 1,
    }  # fmt: skip


def stored(a: np.ndarray, b: np.ndarray, swap: bool, shared: str) -> tuple[np.ndarray, np.ndarray]:
    b = b.swapaxes(1, 2) if swap else b
    return (a[:1] if shared == "a" else a), (b[:1] if shared == "b" else b)


def check_integer(
    bits: int, rng: np.random.Generator, batch: int, m: int, n: int, k: int, swap: bool, shared: str, how: str,
    bits_b: int = 0,
) -> None:  # fmt: skip
    """A product, beside exact arithmetic; the second operand has the bits of the first unless others are given."""
    low, high = RANGE[bits]
    low_b, high_b = RANGE[bits_b or bits]
    a, b = fill(rng, (batch, m, k), low, high, how), fill(rng, (batch, k, n), low_b, high_b, how)
    if shared == "a":
        a[:] = a[0]
    if shared == "b":
        b[:] = b[0]
    zero_a, zero_b = int(fill(rng, (), low, high, "random")), int(fill(rng, (), low_b, high_b, rng.choice(HOW)))
    acc = (a - zero_a) @ (b - zero_b)
    zero = int(rng.integers(low, high + 1))
    scale = float(rng.uniform(0.3, 1.5)) * (high - low) / max(1, int(np.abs(acc).max()))
    if rng.integers(0, 4) == 0:
        scale = 0.5
    if bits == 8:
        want = round_and_clamp(acc.astype(np.float32) * np.float32(scale), zero, low, high, bits)
    else:
        want = round_and_clamp(acc.astype(np.float64) * scale, zero, low, high, bits)
    attributes = layout(batch, m, n, k, swap, shared) | {
        "zero_a": zero_a, "zero_b": zero_b, "scale": scale, "zero_point": zero, "low": low, "high": high,
    }  # fmt: skip
    first, second = stored(a, b, swap, shared)
    ins = [first.astype(FIXED[bits]), second.astype(FIXED[bits_b or bits])]
    kind = f"matmul_{KIND[bits]}_{KIND[bits_b]}" if bits_b else f"matmul_{KIND[bits]}"
    assert_bits(run(kind, ins, np.zeros(want.shape, FIXED[bits]), attributes), want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=30, deadline=None)
@given(**SIZES, how=st.sampled_from(HOW))
def test_integer(bits: int, seed: int, batch: int, m: int, n: int, k: int, swap: bool, shared: str, how: str) -> None:
    check_integer(bits, np.random.default_rng(seed), batch, m, n, k, swap, shared, how)


@settings(max_examples=30, deadline=None)
@given(**SIZES, how=st.sampled_from(HOW))
def test_bytes_beside_16_bits(seed: int, batch: int, m: int, n: int, k: int, swap: bool, shared: str, how: str) -> None:
    check_integer(16, np.random.default_rng(seed), batch, m, n, k, swap, shared, how, bits_b=8)


@pytest.mark.parametrize("how", ["low", "high", "ends", "random"])
@pytest.mark.parametrize("rows", [1, 3, 5])
def test_long_products_of_bytes_beside_16_bits(how: str, rows: int) -> None:
    """Sums of a few rows leave 32 bits after 128 products."""
    rng = np.random.default_rng(5)
    for n in (1, 255, 257, 600):
        check_integer(16, rng, 2, rows, n, 515, False, "", how, bits_b=8)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), batch=st.integers(1, 3), m=st.integers(1, 9), pieces=st.integers(1, 3),
    blocks=st.integers(1, 5), tile=st.sampled_from([64, 256]), how=st.sampled_from(HOW),
)  # fmt: skip
def test_bytes_in_the_hmx_layout(
    bits: int, seed: int, batch: int, m: int, pieces: int, blocks: int, tile: int, how: str
) -> None:
    rng = np.random.default_rng(seed)
    n, k = pieces * tile, blocks * 32
    low, high = RANGE[bits]
    a, b = fill(rng, (batch, m, k), low, high, how), fill(rng, (batch, k, n), 0, 255, how)
    zero_a, zero = (int(rng.integers(low, high + 1)) for _ in range(2))
    acc = (a - zero_a) @ (b - 128)
    scale = float(rng.uniform(0.3, 1.5)) * (high - low) / max(1, int(np.abs(acc).max()))
    real = np.float32 if bits == 8 else np.float64
    want = round_and_clamp(acc.astype(real) * real(scale), zero, low, high, bits)
    attributes = layout(batch, m, n, k, False, "") | {
        "zero_a": zero_a, "zero_b": 128, "scale": scale, "zero_point": zero, "low": low, "high": high, "tile": tile,
    }  # fmt: skip
    ins = [a.astype(FIXED[bits]), to_hmx(b.astype(np.uint8), tile)]
    assert_bits(run(f"matmul_hmx_{KIND[bits]}", ins, np.zeros(want.shape, FIXED[bits]), attributes), want)


@pytest.mark.parametrize("how", ["low", "high", "ends"])
def test_the_longest_8_bit_products(how: str) -> None:
    """255 * 255 * 33,025 is the last sum below 2^31."""
    rng = np.random.default_rng(3)
    for _ in range(3):
        check_integer(8, rng, 1, 2, 3, 33025, True, "", how)


def test_products_too_long_for_32_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="33025"):
        check_integer(8, np.random.default_rng(3), 1, 1, 1, 33026, True, "", "high")


def test_many_rows_are_shared_by_the_threads() -> None:
    rng = np.random.default_rng(4)
    check_integer(8, rng, 1, 400, 130, 9, False, "", "random")
    check_integer(16, rng, 1, 400, 30, 9, False, "", "random")


@settings(max_examples=20, deadline=None)
@given(**SIZES, rounded=st.booleans())
def test_float(seed: int, batch: int, m: int, n: int, k: int, swap: bool, shared: str, rounded: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype(np.float32) for s in ((batch, m, k), (batch, k, n)))
    if rounded:
        a, b = matrix_half(a), matrix_half(b)
    if shared == "a":
        a[:] = a[0]
    if shared == "b":
        b[:] = b[0]
    want = np.zeros((batch, m, n), np.float32)
    for i in range(k):
        x, y = np.broadcast_arrays(a[:, :, i, None], b[:, None, i])
        want = fma(x, y, want)
    want = matrix_half(want) if rounded else want
    attributes = layout(batch, m, n, k, swap, shared) | {"half": rounded}
    got = run("matmul_f32", list(stored(a, b, swap, shared)), np.zeros(want.shape, np.float32), attributes)
    assert_bits(got, want)
