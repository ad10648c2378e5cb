# SPDX-License-Identifier: Apache-2.0
"""Weights that lie in memory as float16: the same bits as the same numbers in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.native.halves import half
from tests.native.kernels import assert_bits, packed_conv, run, spread


@pytest.mark.parametrize(
    ("pixels", "kernel", "channels", "outputs", "groups"),
    [
        ((1, 1), 1, 70, 200, 1), ((1, 3), 1, 500, 64, 1), ((9, 9), 3, 5, 70, 1), ((7, 7), 3, 64, 130, 1),
        ((20, 30), 1, 33, 150, 1), ((8, 8), 3, 4, 20, 3), ((5, 5), 5, 300, 17, 1),
    ],
)  # fmt: skip
def test_a_convolution(pixels: tuple[int, int], kernel: int, channels: int, outputs: int, groups: int) -> None:
    rng = np.random.default_rng(3)
    weights = half(rng.standard_normal((1, kernel, kernel, channels, outputs * groups)).astype(np.float32))
    weights[..., 0, 0], weights[..., 1, 0] = 6e-8, np.float32(np.float16(65504))  # the least and the largest there are
    x = half(rng.standard_normal((1, *pixels, channels * groups)).astype(np.float32))
    row_taps = groups == 1 and channels < 64
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, *pixels), "out": (1, *pixels), "kernel": (1, kernel, kernel), "stride": (1, 1, 1),
        "pad": (0, kernel // 2, kernel // 2), "dilation": (1, 1, 1), "channels": channels, "out_channels": outputs,
        "groups": groups, "x_stride": channels * groups, "y_stride": outputs * groups, "row_taps": row_taps,
        "low": -np.inf, "high": np.inf, "half": 1, "bias_f32": spread(np.ones(outputs * groups), groups, np.float32),
        "pad_row": np.zeros(kernel * channels, np.float32),
    }  # fmt: skip
    packed = packed_conv(weights, 32, groups, row_taps)
    out = np.zeros((1, *pixels, outputs * groups), np.float32)
    want = run("conv_f32", [x], out, attributes | {"weights": packed})
    got = run("conv_f32", [x], out, attributes | {"weights": packed.astype(np.float16), "half_weights": 1})
    assert_bits(got, want)
    with pytest.raises(ValueError, match="too short"):
        run("conv_f32", [x], out, attributes | {"weights": packed[:1024].astype(np.float16), "half_weights": 1})


@pytest.mark.parametrize(
    ("pixels", "kernel", "channels", "outputs", "groups"),
    [
        ((1, 1), 1, 71, 200, 1), ((1, 3), 1, 500, 64, 1), ((9, 9), 3, 5, 70, 1), ((7, 7), 3, 64, 130, 1),
        ((20, 30), 1, 33, 150, 1), ((8, 8), 3, 4, 20, 3), ((5, 5), 5, 300, 17, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("planes", [1, 2])
def test_bytes_beside_16_bits(
    pixels: tuple[int, int], kernel: int, channels: int, outputs: int, groups: int, planes: int
) -> None:
    rng = np.random.default_rng(3)
    weights = rng.integers(-128, 128, (planes, kernel, kernel, channels, outputs * groups)).astype(np.int16)
    x = rng.integers(-32768, 32768, (1, *pixels, channels * groups)).astype(np.int16)
    row_taps = groups == 1 and channels < 64
    whole = 64 * -(-outputs // 64) * groups
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, *pixels), "out": (1, *pixels), "kernel": (1, kernel, kernel), "stride": (1, 1, 1),
        "pad": (0, kernel // 2, kernel // 2), "dilation": (1, 1, 1), "channels": channels, "out_channels": outputs,
        "groups": groups, "x_stride": channels * groups, "y_stride": outputs * groups, "row_taps": row_taps,
        "zero_point": 3, "low": -32768, "high": 32767, "planes": planes, "flush": 100,
        "bias": rng.integers(-9999, 9999, whole), "multiplier": np.full(whole, 2.0**-20),
        "pad_row": np.zeros(kernel * channels + 1, np.int16),
    }  # fmt: skip
    packed = packed_conv(weights, 16, groups, row_taps)
    out = np.zeros((1, *pixels, outputs * groups), np.int16)
    want = run("conv_s16", [x], out, attributes | {"weights": packed})
    got = run("conv_s16", [x], out, attributes | {"weights": packed.astype(np.int8), "half_weights": 1})
    assert len(np.unique(want)) > 20
    assert_bits(got, want)
    with pytest.raises(ValueError, match="too short"):
        run("conv_s16", [x], out, attributes | {"weights": packed[:1024].astype(np.int8), "half_weights": 1})
    if channels * (kernel if row_taps else 1) % 2:
        loud = np.ones_like(packed, np.int8)
        with pytest.raises(ValueError, match="not 0"):
            run("conv_s16", [x], out, attributes | {"weights": loud, "half_weights": 1})
