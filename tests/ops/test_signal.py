# SPDX-License-Identifier: Apache-2.0
"""Stft against sums of complex exponentials."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup
from hexforge.ops.evaluate import evaluate

_OP = lookup("Stft")


def _run(arrays: list[np.ndarray], **params: object) -> np.ndarray:
    types = tuple(TensorType(DType.FLOAT32, a.shape) for a in arrays)
    full = _OP.complete(params)
    return evaluate(Call(_OP, types, _OP.infer(Call(_OP, types, (), full)), full), arrays)[0]


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(1, 9), step=st.integers(1, 4), extra=st.integers(0, 8), windowed=st.booleans(),
    kind=st.sampled_from(["onesided", "real", "complex"]),
)  # fmt: skip
def test_stft(length: int, step: int, extra: int, windowed: bool, kind: str) -> None:
    rng = np.random.default_rng(length + step)
    x = rng.standard_normal((2, length + extra, 2 if kind == "complex" else 1)).astype(np.float32)
    window = rng.standard_normal(length).astype(np.float32)
    signal = x[..., 0] + 1j * x[..., 1] if kind == "complex" else x[..., 0].astype(np.complex128)
    bins = length // 2 + 1 if kind == "onesided" else length
    turn = np.exp(-2j * np.pi * np.outer(np.arange(bins), np.arange(length)) / length)
    want = [turn @ (signal[:, s : s + length] * (window if windowed else 1)).T for s in range(0, extra + 1, step)]
    arrays = [x, window] if windowed else [x]
    got = _run(arrays, frame_length=length, frame_step=step, onesided=kind == "onesided")
    exact = np.stack(want).transpose(2, 0, 1)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], exact, rtol=1e-4, atol=1e-4)


def test_frames_longer_than_the_signal() -> None:
    with pytest.raises(ModelError, match="do not fit 3 samples"):
        _run([np.zeros((1, 3, 1), np.float32)], frame_length=4, frame_step=1)
