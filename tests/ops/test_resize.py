# SPDX-License-Identifier: Apache-2.0
"""Resize against a naive interpolation of one position at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup


def _position(i: int, size: int, out: int, mode: str) -> float:
    match mode:
        case "HALF_PIXEL":
            return (i + 0.5) * size / out - 0.5
        case "PYTORCH_HALF_PIXEL":
            return (i + 0.5) * size / out - 0.5 if out > 1 else 0.0
        case "ALIGN_CORNERS":
            return i * (size - 1) / (out - 1) if out > 1 else 0.0
        case _:
            return i * size / out


def _kernel(d: float, a: float) -> float:
    d = abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def _sample(row: np.ndarray, at: float, mode: str, rounding: str, a: float, exclude: bool) -> float:
    last = len(row) - 1
    if mode == "NEAREST":
        low, high = math.floor(at), math.ceil(at)
        tie = {"ROUND_PREFER_FLOOR": low, "ROUND_PREFER_CEIL": high, "FLOOR": low, "CEIL": high}[rounding]
        pick = tie if rounding in ("FLOOR", "CEIL") or at - low == 0.5 else low if at - low < 0.5 else high
        return float(row[min(max(pick, 0), last)])
    reach = range(-2, 4) if mode == "CUBIC" else range(2)
    total = weights = 0.0
    for i in (math.floor(at) + r for r in reach):
        weight = _kernel(i - at, a) if mode == "CUBIC" else max(0.0, 1 - abs(i - at))
        if exclude and not 0 <= i <= last:
            continue
        weights += weight
        total += weight * float(row[min(max(i, 0), last)])
    return total / weights


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6), st.integers(1, 9), st.integers(1, 4), st.integers(1, 5),
    st.sampled_from(["HALF_PIXEL", "PYTORCH_HALF_PIXEL", "ALIGN_CORNERS", "ASYMMETRIC"]),
    st.sampled_from(["NEAREST", "LINEAR", "CUBIC"]),
    st.sampled_from(["ROUND_PREFER_FLOOR", "ROUND_PREFER_CEIL", "FLOOR", "CEIL"]),
    st.booleans(), st.sampled_from([-0.75, -0.5]),
)  # fmt: skip
def test_resize_samples_every_position(
    h: int, out_h: int, w: int, out_w: int, transformation: str, mode: str, rounding: str, exclude: bool, a: float
) -> None:
    op = lookup("Resize")
    choices = {p.name: p.choices for p in op.params}
    params = op.complete({
        "transformation_mode": choices["transformation_mode"][transformation],
        "interpolation_mode": choices["interpolation_mode"][mode],
        "nearest_mode": choices["nearest_mode"][rounding],
        "exclude_outside": exclude, "cubic_coeff": a,
    })  # fmt: skip
    x = np.random.default_rng(h * 100 + w).normal(size=(2, h, w, 3))
    call = Call(op, (TensorType(DType.FLOAT32, x.shape),), (TensorType(DType.FLOAT32, (2, out_h, out_w, 3)),), params)
    assert op.infer(call)[0].shape == (2, out_h, out_w, 3)
    rows = np.array([
        [[[_sample(x[n, :, j, c], _position(i, h, out_h, transformation), mode, rounding, a, exclude)
           for c in range(3)] for j in range(w)] for i in range(out_h)] for n in range(2)
    ])  # fmt: skip
    want = np.array([
        [[[_sample(rows[n, i, :, c], _position(j, w, out_w, transformation), mode, rounding, a, exclude)
           for c in range(3)] for j in range(out_w)] for i in range(out_h)] for n in range(2)
    ])  # fmt: skip
    np.testing.assert_allclose(op.reference(call, x), want, rtol=1e-9, atol=1e-9)
    assert op.reference(call, x.astype(np.float32)).dtype == np.float32


def test_misfits_are_named() -> None:
    op = lookup("Resize")
    for shape, out, message in [
        ((1, 2, 2, 3), (1, 4, 4, 6), "only spatial axes"),
        ((2, 3), (2, 3), "dimensions"),
        ((1, 0, 2, 3), (1, 4, 4, 3), "nothing to resize"),
    ]:
        types = (TensorType(DType.FLOAT32, shape),), (TensorType(DType.FLOAT32, out),)
        with pytest.raises(ModelError, match=message):
            op.infer(Call(op, *types, op.complete({})))
