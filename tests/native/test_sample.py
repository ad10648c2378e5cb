# SPDX-License-Identifier: Apache-2.0
"""grid_sample_*: coordinates and sums in float64, one rounding."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import half
from tests.native.kernels import FIXED, KIND, RANGE, assert_bits, round_and_clamp, run
from tests.native.several import halves


def _position(normal: float, size: int, corners: bool, padding: int) -> float:
    at = (normal + 1) / 2 * (size - 1) if corners else ((normal + 1) * size - 1) / 2
    if padding == 2:
        low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
        span = high - low
        at = low if span <= 0 else low + span - abs((at - low) % (2 * span) - span)
    if padding:
        at = min(max(at, 0.0), size - 1.0)
    return -2.0 if at != at else min(max(at, -2.0), size + 1.0)


def _taps(at: float, size: int, nearest: bool) -> list[tuple[int, float]]:
    if nearest:
        index = round(at)  # ties to even
        return [(index, 1.0)] if 0 <= index < size else []
    floor = int(np.floor(at))
    return [(i, w) for i, w in ((floor, 1 - (at - floor)), (floor + 1, at - floor)) if 0 <= i < size]


def sampled(x: np.ndarray, grid: np.ndarray, corners: bool, nearest: bool, padding: int) -> np.ndarray:
    """float64 sums over the taps, layer by layer and row by row; the grid counts x first."""
    sizes = x.shape[1:-1]
    out = np.zeros((*grid.shape[:-1], x.shape[-1]))
    for at in np.ndindex(grid.shape[:-1]):
        places = [_position(float(v), size, corners, padding) for v, size in zip(grid[at][::-1], sizes, strict=True)]
        taps = [_taps(place, size, nearest) for place, size in zip(places, sizes, strict=True)]
        for chosen in itertools.product(*taps):
            weight = chosen[-2][1] * chosen[-1][1]
            weight = chosen[0][1] * weight if len(sizes) == 3 else weight
            out[at] += x[(at[0], *(i for i, _ in chosen))] * weight if weight else 0.0
    return out


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 3]), st.tuples(*[st.integers(1, 6)] * 6), st.integers(1, 2), st.sampled_from([1, 3, 17]),
    st.booleans(), st.booleans(), st.integers(0, 2),
    st.sampled_from([(8, 8), (8, 16), (8, 32), (16, 8), (16, 16), (16, 32), (32, 32)]), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_grid_sample(
    axes: int, sizes: Any, batch: int, channels: int, corners: bool, nearest: bool, padding: int, kinds: Any, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    image, places_of = sizes[:axes], sizes[3 : 3 + axes]
    bits, grid_bits = kinds
    attributes: dict[str, Any] = {
        "batch": batch, "in": image, "out": places_of, "channels": channels, "align_corners": int(corners),
        "nearest": int(nearest), "padding": padding,
    }  # fmt: skip
    if grid_bits == 32:
        grid = halves(rng, (batch, *places_of, axes), 1.0)
        grid[rng.random(grid.shape) < 0.02] = rng.choice([np.nan, np.inf, -np.inf])
        places = grid.astype(np.float64)
    else:
        low, high = RANGE[grid_bits]
        grid = rng.integers(low, high + 1, (batch, *places_of, axes)).astype(FIXED[grid_bits])
        attributes |= {"grid_scale": 3.0 / (high - low), "grid_zero": (low + high) // 2}
        places = (grid.astype(np.float64) - (low + high) // 2) * (3.0 / (high - low))
    shape = (batch, *places_of, channels)
    if bits == 32:
        x = halves(rng, (batch, *image, channels))
        want = half(sampled(x.astype(np.float64), places, corners, nearest, padding).astype(np.float32))
        got = run(f"grid_sample_f32_{KIND[grid_bits]}", [x, grid], np.zeros(shape, np.float32), attributes)
        assert np.array_equal(got, want)
        return
    low, high = RANGE[bits]
    x = rng.integers(low, high + 1, (batch, *image, channels))
    zero_a, zero = (int(v) for v in rng.integers(low, high + 1, 2))
    attributes |= {"zero_a": zero_a, "scale": 0.9, "zero_point": zero, "low": low, "high": high}
    total = sampled((x - zero_a).astype(np.float64), places, corners, nearest, padding)
    kind = f"grid_sample_{KIND[bits]}_{KIND[grid_bits]}"
    got = run(kind, [x.astype(FIXED[bits]), grid], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp(total * 0.9, zero, low, high, bits))
