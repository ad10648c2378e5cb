# SPDX-License-Identifier: Apache-2.0
"""reduce_*, cumulative_*, arg_*: exact totals, one rounding."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import half
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 300), st.sampled_from([1, 1, 2, 7, 64, 65, 300]))
FOLDS = ("sum", "mean", "max", "min", "sum_square")
EXAMPLES = settings(max_examples=40, deadline=None)


def _view(shape: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("outer", "n", "inner"), shape, strict=True))


@EXAMPLES
@given(
    SHAPES,
    st.sampled_from([8, 16]),
    st.sampled_from([*FOLDS, "length"]),
    st.sampled_from(HOW),
    st.integers(0, 2**32 - 1),
)
def test_reduce_fixed(shape: tuple[int, int, int], bits: int, fold: str, how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    x = fill(rng, shape, low, high, how)
    zero_a, zero = (int(v) for v in rng.integers(low, high + 1, 2))
    scale = float(rng.uniform(1e-4, 2.0))
    centered = x - zero_a
    total = {
        "sum": centered.sum(1), "mean": centered.sum(1), "max": centered.max(1), "min": centered.min(1),
        "sum_square": (centered**2).sum(1), "length": np.sqrt((centered**2).sum(1).astype(np.float64)),
    }[fold]  # fmt: skip
    attributes = {**_view(shape), "zero_a": zero_a, "scale": scale, "zero_point": zero, "low": low, "high": high}
    out = np.zeros(total.shape, FIXED[bits])
    got = run(f"reduce_{fold}_{KIND[bits]}", [x.astype(FIXED[bits])], out, attributes)
    assert_bits(got, round_and_clamp(total.astype(np.float64) * scale, zero, low, high, bits))


@EXAMPLES
@given(SHAPES, st.sampled_from(FOLDS), st.booleans(), st.integers(0, 2**32 - 1))
def test_reduce_float(shape: tuple[int, int, int], fold: str, special: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # few bits: sums and squares are exact in float64, so their order does not matter
    x = (rng.integers(-64, 65, shape) / 16).astype(np.float32)
    if special:
        x[rng.random(shape) < 0.01] = rng.choice([np.nan, np.inf, -np.inf])
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = {
            "sum": wide.sum(1), "mean": wide.sum(1) / shape[1], "max": wide.max(1), "min": wide.min(1),
            "sum_square": np.square(wide).sum(1),
        }[fold]  # fmt: skip
    got = run(f"reduce_{fold}_f32", [x], np.zeros(total.shape, np.float32), _view(shape))
    assert np.array_equal(got, half(total.astype(np.float32)))


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100, 1000])
def test_order_of_float_sums(n: int) -> None:
    rng = np.random.default_rng(n)
    x = (rng.standard_normal((3, n)) * 10.0 ** rng.integers(-4, 4, (3, n))).astype(np.float16).astype(np.float32)
    lanes = np.zeros((3, 8))
    for i in range(n):
        lanes[:, i % 8] += np.square(x[:, i].astype(np.float64))
    four = lanes[:, :4] + lanes[:, 4:]
    two = four[:, :2] + four[:, 2:]
    expected = half((two[:, 0] + two[:, 1]).astype(np.float32))
    got = run("reduce_sum_square_f32", [x], np.zeros(3, np.float32), _view((3, n, 1)))
    assert_bits(got, expected)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("fold", FOLDS)
def test_reduce_integers(dtype: type, fold: str) -> None:
    rng = np.random.default_rng(1)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, (4, 33, 5), dtype=dtype, endpoint=True)
    if fold == "mean":
        x >>= 8
    with np.errstate(over="ignore"):
        total = {
            "sum": x.sum(1, dtype=dtype), "max": x.max(1), "min": x.min(1),
            "mean": np.trunc(x.sum(1, dtype=np.int64) / 33).astype(dtype),
            "sum_square": (x * x).sum(1, dtype=dtype),
        }[fold]  # fmt: skip
    if fold == "mean" and dtype is np.int64:
        total = np.array([[int(a) // 33 if a >= 0 else -(-int(a) // 33) for a in row] for row in x.sum(1)], dtype)
    got = run(f"reduce_{fold}_{np.dtype(dtype).name}", [x], np.zeros(total.shape, dtype), _view(x.shape))
    assert_bits(got, total)


@EXAMPLES
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 40), st.integers(1, 9)), st.sampled_from([8, 16, 32]), st.booleans(),
    st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_cumulative(shape: tuple[int, int, int], bits: int, exclusive: bool, reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    attributes = {**_view(shape), "exclusive": int(exclusive), "reverse": int(reverse)}
    if bits == 32:
        x = (rng.integers(-64, 65, shape) / 16).astype(np.float32)
        values, zero_a = x.astype(np.float64), 0
    else:
        low, high = RANGE[bits]
        x = rng.integers(low, high + 1, shape).astype(FIXED[bits])
        zero_a, zero, scale = int(rng.integers(low, high + 1)), int(rng.integers(low, high + 1)), 0.037
        values = x.astype(np.float64) - zero_a
        attributes |= {"zero_a": zero_a, "scale": scale, "zero_point": zero, "low": low, "high": high}  # type: ignore[dict-item]
    ordered = values[:, ::-1] if reverse else values
    total = np.cumsum(ordered, 1) - (ordered if exclusive else 0)
    total = total[:, ::-1] if reverse else total
    got = run(f"cumulative_{KIND[bits]}", [x], np.zeros(shape, x.dtype), attributes)
    want = half(total.astype(np.float32)) if bits == 32 else round_and_clamp(total * scale, zero, low, high, bits)
    assert np.array_equal(got, want)


@EXAMPLES
@given(
    SHAPES, st.sampled_from(["u8", "s16", "f32", "int32", "int64"]), st.booleans(), st.booleans(), st.booleans(),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_arg(shape: tuple[int, int, int], kind: str, largest: bool, wide: bool, nan: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = {"u8": np.uint8, "s16": np.int16, "f32": np.float32}.get(kind, np.dtype(kind) if "int" in kind else None)
    x = rng.integers(0, 5, shape).astype(dtype)  # many equals: the first one counts
    if kind == "f32" and nan:
        x[rng.random(shape) < 0.02] = np.nan
    want = (np.argmax if largest else np.argmin)(x, 1).astype(np.int64 if wide else np.int32)
    attributes = {**_view(shape), "largest": int(largest), "index_bytes": 8 if wide else 4}
    assert_bits(run(f"arg_{kind}", [x], np.zeros(want.shape, want.dtype), attributes), want)


def test_faults() -> None:
    x = np.zeros((2, 3, 4), np.float32)
    for attributes in ({"outer": 2, "n": 0, "inner": 4}, {"outer": 2, "n": 30, "inner": 4}, {"outer": 2, "n": 3}):
        with pytest.raises(ValueError, match=r"reduce|step lacks"):
            run("reduce_sum_f32", [x], np.zeros((2, 4), np.float32), attributes)
