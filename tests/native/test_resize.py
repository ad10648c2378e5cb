# SPDX-License-Identifier: Apache-2.0
"""resize_*: rows blended in order, then columns; one rounding. resize_nearest: elements as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import half
from tests.native.kernels import FIXED, KIND, RANGE, assert_bits, round_and_clamp, run
from tests.native.several import halves

SIZES = st.tuples(*[st.tuples(st.integers(1, 6), st.integers(1, 9))] * 3)


def _axes(rng: np.random.Generator, sizes: Any, taps: tuple[int, ...], working: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"in": tuple(a for a, _ in sizes), "out": tuple(b for _, b in sizes), "taps": taps}
    for i, ((size, out), count) in enumerate(zip(sizes, taps, strict=True)):
        found[f"index{i}"] = rng.integers(0, size, (out, count)).astype(np.int32)
        found[f"weight{i}"] = rng.uniform(-0.5, 1.0, (out, count)).astype(working)
    return found


def _blended(x: np.ndarray, at: dict[str, Any], working: Any) -> np.ndarray:
    """The definition, one output row at a time."""
    out = np.empty((x.shape[0], *at["out"], x.shape[4]), working)
    for d in range(at["out"][0]):
        for h in range(at["out"][1]):
            line = None
            for i in range(at["taps"][0]):
                for j in range(at["taps"][1]):
                    weight = at["weight0"][d, i] * at["weight1"][h, j]
                    part = x[:, at["index0"][d, i], at["index1"][h, j]] * weight
                    line = part if line is None else line + part
            assert line is not None
            row = None
            for k in range(at["taps"][2]):
                part = line[:, at["index2"][:, k]] * at["weight2"][:, k][None, :, None]
                row = part if row is None else row + part
            out[:, d, h] = row
    return out


@settings(max_examples=30, deadline=None)
@given(
    SIZES, st.tuples(*[st.integers(1, 4)] * 3), st.integers(1, 2), st.sampled_from([1, 3, 16, 33]),
    st.sampled_from([8, 16, 32]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_linear(sizes: Any, taps: tuple[int, ...], batch: int, channels: int, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    working = np.float64 if bits == 16 else np.float32
    attributes = {"batch": batch, "channels": channels, **_axes(rng, sizes, taps, working)}
    shape = (batch, *attributes["in"], channels)
    out_shape = (batch, *attributes["out"], channels)
    if bits == 32:
        x = halves(rng, shape)
        want = half(_blended(x, attributes, working))
        assert_bits(run("resize_f32", [x], np.zeros(out_shape, np.float32), attributes), want)
        return
    low, high = RANGE[bits]
    x = rng.integers(low, high + 1, shape).astype(FIXED[bits])
    zero_a, zero = (int(v) for v in rng.integers(low, high + 1, 2))
    scale = float(rng.uniform(0.3, 2.0))
    attributes |= {"zero_a": zero_a, "scale": scale, "zero_point": zero, "low": low, "high": high}
    blended = _blended(x.astype(working) - working(zero_a), attributes, working) * working(scale)
    got = run(f"resize_{KIND[bits]}", [x], np.zeros(out_shape, x.dtype), attributes)
    assert_bits(got, round_and_clamp(blended, zero, low, high, bits))


@settings(max_examples=30, deadline=None)
@given(
    SIZES, st.integers(1, 2), st.sampled_from([1, 2, 3, 5]), st.sampled_from([np.uint8, np.int16, np.float32]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_nearest(sizes: Any, batch: int, channels: int, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = [np.sort(rng.integers(0, size, out)).astype(np.int32) for size, out in sizes]
    x = rng.integers(0, 200, (batch, *(a for a, _ in sizes), channels)).astype(dtype)
    want = x[:, index[0]][:, :, index[1]][:, :, :, index[2]]
    attributes = {
        "batch": batch, "channels": channels * x.itemsize, "in": tuple(a for a, _ in sizes),
        "out": tuple(b for _, b in sizes), **{f"index{i}": v for i, v in enumerate(index)},
    }  # fmt: skip
    assert_bits(run("resize_nearest", [x], np.zeros(want.shape, dtype), attributes), np.ascontiguousarray(want))


def test_an_index_outside_is_refused() -> None:
    attributes = {
        "batch": 1, "channels": 1, "in": (1, 1, 4), "out": (1, 1, 2), "index0": np.zeros(1, np.int32),
        "index1": np.zeros(1, np.int32), "index2": np.array([0, 4], np.int32),
    }  # fmt: skip
    with pytest.raises(ValueError, match="outside"):
        run("resize_nearest", [np.zeros(4, np.uint8)], np.zeros(2, np.uint8), attributes)
