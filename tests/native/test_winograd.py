# SPDX-License-Identifier: Apache-2.0
"""conv_f32 by Winograd's tiles: against its definition, against exact sums, and where numbers are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge import _native
from tests.native.halves import matrix_half
from tests.native.kernels import assert_bits, fma, packed_conv, run, spread
from tests.native.windows import Geometry

SEEDS = st.integers(0, 2**32 - 1)
INPUT = np.array([[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]], np.float32)
OUTPUT = np.array([[1, 1, 1, 0], [0, 1, -1, -1]], np.float32)
WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])


def plane(batch: int, height: int, width: int, pad: int) -> Geometry:
    return Geometry(batch, (1, height, width), (1, 3, 3), (1, 1, 1), (0, pad, pad), (0, pad, pad), (1, 1, 1))


def cells(w: np.ndarray) -> np.ndarray:
    """The 4 x 4 cells of [1, 3, 3, in, out] weights, as the kernels read them."""
    inputs, outputs = w.shape[3:]
    made = np.zeros(-(-outputs // 64) * 64 * 16 * inputs + 1024, np.float32)
    _native.winograd_cells(np.ascontiguousarray(w[0], np.float16).view(np.uint16), made)
    return made


def attributes(g: Geometry, w: np.ndarray, bias: np.ndarray, tiles: bool) -> dict[str, Any]:
    inputs, outputs = w.shape[3:]
    return {
        **g.attributes(), "channels": inputs, "out_channels": outputs, "groups": 1, "x_stride": inputs,
        "y_stride": outputs, "row_taps": 0, "low": -np.inf, "high": np.inf, "half": 1,
        "weights": cells(w) if tiles else packed_conv(w, 32, 1, False),
        "bias_f32": spread(bias, 1, np.float32), "pad_row": np.zeros(-(-inputs // 16) * 16, np.float32),
        **({"winograd": 1} if tiles else {}),
    }  # fmt: skip


def added(parts: list[np.ndarray], signs: np.ndarray) -> np.ndarray:
    """Terms that are there, in order, as float32."""
    used = [part if sign > 0 else -part for part, sign in zip(parts, signs, strict=True) if sign]
    total = used[0]
    for part in used[1:]:
        total = total + part
    return total


def defined(g: Geometry, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sums without bias, as docs/numerics.md defines them."""
    _, height, width = g.outs
    made = np.einsum("ik,jl,klco->ijco", WEIGHTS, WEIGHTS, w[0].astype(np.float64)).astype(np.float32)
    out = np.zeros((g.batch, 1, height, width, w.shape[4]), np.float32)
    wide = np.pad(x[:, 0], [(0, 0), (g.pad[1], g.pad[1] + 3), (g.pad[2], g.pad[2] + 3), (0, 0)])
    for top in range(0, height, 2):
        for left in range(0, width, 2):
            d = wide[:, top : top + 4, left : left + 4]
            rows = [added([d[:, k] for k in range(4)], INPUT[i]) for i in range(4)]
            products = np.zeros((4, 4, g.batch, w.shape[4]), np.float32)
            for i, j in np.ndindex(4, 4):
                cell = added([rows[i][:, k] for k in range(4)], INPUT[j])
                for c in range(w.shape[3]):
                    values = np.broadcast_to(cell[:, c : c + 1], products[i, j].shape)
                    products[i, j] = fma(values, np.broadcast_to(made[i, j, c], values.shape), products[i, j])
            for i, j in np.ndindex(2, 2):
                if top + i < height and left + j < width:
                    lines = [added([products[k, column] for k in range(4)], OUTPUT[i]) for column in range(4)]
                    out[:, 0, top + i, left + j] = added(lines, OUTPUT[j])
    return out


@settings(max_examples=15, deadline=None)
@given(
    seed=SEEDS, batch=st.integers(1, 2), height=st.integers(1, 7), width=st.integers(1, 9), pad=st.integers(0, 2),
    inputs=st.integers(1, 40), outputs=st.integers(1, 140),
)  # fmt: skip
def test_tiles(seed: int, batch: int, height: int, width: int, pad: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(seed)
    g = plane(batch, max(height, 3 - 2 * pad), max(width, 3 - 2 * pad), pad)
    x = matrix_half(rng.standard_normal((batch, *g.ins, inputs)).astype(np.float32))
    w = matrix_half(rng.standard_normal((1, 3, 3, inputs, outputs)).astype(np.float32))
    bias = matrix_half(rng.standard_normal(outputs).astype(np.float32))
    sums = defined(g, x, w)
    got = run("conv_f32", [x], np.zeros(sums.shape, np.float32), attributes(g, w, bias, True))
    assert_bits(got, matrix_half(sums + bias))
    later = attributes(g, w, bias, True) | {"weights": w[0].astype(np.float16), "half_weights": 1}
    assert_bits(run("conv_f32", [x], np.zeros(sums.shape, np.float32), later), matrix_half(sums + bias))
    relu = attributes(g, w, bias, True) | {"residual": 1, "low": 0.0}
    other = matrix_half(rng.standard_normal(sums.shape).astype(np.float32))
    got = run("conv_f32", [x, other], np.zeros(sums.shape, np.float32), relu)
    assert_bits(got + np.float32(0), np.maximum(matrix_half(matrix_half(sums + bias) + other), np.float32(0)))


@pytest.mark.parametrize(
    ("height", "width", "inputs", "outputs"), [(29, 31, 40, 70), (9, 64, 130, 33), (7, 7, 530, 64)]
)
def test_tiles_are_as_near_to_exact_sums_as_float16_needs(height: int, width: int, inputs: int, outputs: int) -> None:
    rng = np.random.default_rng(height)
    g = plane(1, height, width, 1)
    x = matrix_half(np.maximum(rng.standard_normal((1, *g.ins, inputs)), 0).astype(np.float32))
    w = matrix_half((rng.standard_normal((1, 3, 3, inputs, outputs)) / np.sqrt(9 * inputs)).astype(np.float32))
    zero = np.zeros(outputs)
    exact, sizes = np.zeros((1, *g.outs, outputs)), np.zeros((1, *g.outs, outputs))
    for k, seen in g.taps(x.astype(np.float64)):
        exact += seen @ w[k].astype(np.float64)
        sizes += np.abs(seen) @ np.abs(w[k].astype(np.float64))
    plain = attributes(g, w, zero, True) | {"half": 0}
    got = run("conv_f32", [x], np.zeros(exact.shape, np.float32), plain)
    assert (np.abs(got - exact) <= 2.0**-20 * sizes.max()).all()
    rounded = run("conv_f32", [x], np.zeros(exact.shape, np.float32), plain | {"half": 1})
    direct = run("conv_f32", [x], np.zeros(exact.shape, np.float32), attributes(g, w, zero, False))
    assert (rounded != direct).mean() < 0.01


def test_what_is_not_finite_stays_in_its_windows() -> None:
    rng = np.random.default_rng(5)
    g = plane(1, 11, 13, 1)
    x = matrix_half(rng.integers(-8, 9, (1, *g.ins, 35)).astype(np.float32))
    w = matrix_half(rng.integers(-4, 5, (1, 3, 3, 35, 66)).astype(np.float32))
    x[0, 0, 2, 3, 7], x[0, 0, 8, 0, 34], x[0, 0, 10, 12, 0] = np.inf, np.nan, -np.inf
    x[0, 0, 5, 9] = 65504
    bias = np.zeros(66)
    want = run("conv_f32", [x], np.zeros((1, *g.outs, 66), np.float32), attributes(g, w, bias, False) | {"half": 0})
    got = run("conv_f32", [x], np.zeros(want.shape, np.float32), attributes(g, w, bias, True) | {"half": 0})
    assert not np.isfinite(want).all()
    assert np.isfinite(want).any()
    assert_bits(got + np.float32(0), want + np.float32(0))


def test_no_pixels() -> None:
    g = Geometry(1, (1, 2, 4), (1, 3, 3), (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1))
    w = np.ones((1, 3, 3, 4, 70), np.float32)
    assert g.outs == (1, 0, 2)
    x = np.ones((1, 1, 2, 4, 4), np.float32)
    got = run("conv_f32", [x], np.zeros((1, *g.outs, 70), np.float32), attributes(g, w, np.zeros(70), True))
    assert got.size == 0


def test_other_geometries_are_refused() -> None:
    g = Geometry(1, (1, 6, 6), (1, 3, 3), (1, 2, 2), (0, 1, 1), (0, 1, 1), (1, 1, 1))
    w = np.ones((1, 3, 3, 4, 4), np.float32)
    with pytest.raises(ValueError, match="only 3x3 kernels of stride 1"):
        run("conv_f32", [np.ones((1, 1, 6, 6, 4), np.float32)], np.zeros((1, *g.outs, 4), np.float32),
            attributes(g, w, np.zeros(4), True))  # fmt: skip


def test_weights_that_are_too_short_are_refused() -> None:
    g = plane(1, 6, 6, 1)
    w = np.ones((1, 3, 3, 4, 4), np.float32)
    short = attributes(g, w, np.zeros(4), True) | {"weights": np.ones(143, np.float16), "half_weights": 1}
    with pytest.raises(ValueError, match="too short"):
        run("conv_f32", [np.ones((1, 1, 6, 6, 4), np.float32)], np.zeros((1, *g.outs, 4), np.float32), short)
