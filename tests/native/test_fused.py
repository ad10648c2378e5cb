# SPDX-License-Identifier: Apache-2.0
"""A convolution that adds a residual and looks up a table as it stores: the bits of the steps one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.native.halves import half
from tests.native.kernels import FIXED, KIND, RANGE, assert_bits, packed_conv, packed_depthwise, run, spread

ADD = 0


def convolution(bits: int, pixels: int, inputs: int, outputs: int, rng: np.random.Generator) -> dict[str, Any]:
    """Attributes of a 1 x 1 convolution; at 16 bits now and then one that empties its sums."""
    weights = rng.integers(-128, 128, (1, 1, 1, inputs, outputs))
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, 1, pixels), "out": (1, 1, pixels), "kernel": (1, 1, 1), "stride": (1, 1, 1),
        "pad": (0, 0, 0), "dilation": (1, 1, 1), "channels": inputs, "out_channels": outputs, "x_stride": inputs,
        "y_stride": outputs,
    }  # fmt: skip
    if bits == 32:
        real = half(rng.normal(size=weights.shape).astype(np.float32))
        attributes |= {"weights": packed_conv(real, 32, 1, False), "pad_row": np.zeros(inputs + 4, np.float32)}
        attributes |= {"bias_f32": spread(half(rng.normal(size=outputs).astype(np.float32)), 1, np.float32)}
        return attributes | {"low": -np.inf, "high": np.inf, "half": 1}
    low, high = RANGE[bits]
    scale = rng.uniform(0.5, 1, outputs) / inputs / (40 if bits == 8 else 100)
    attributes |= {"weights": packed_conv(weights, bits, 1, False), "pad_row": np.zeros(inputs + 8, FIXED[bits])}
    attributes |= {"zero_point": int(rng.integers(low, high + 1)), "low": low, "high": high}
    bias = rng.integers(-3000, 3000, outputs)
    if bits == 8:
        return attributes | {
            "bias32": spread(bias, 1, np.int32),
            "multiplier32": spread(scale.astype(np.float32), 1, np.float32),
        }
    flush = int(rng.choice([0, 1, 7])) if inputs < 200 else 7
    return attributes | {"bias": spread(bias, 1, np.int64), "multiplier": spread(scale, 1, np.float64), "flush": flush}


@pytest.mark.parametrize("bits", [8, 16, 32])
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1), pixels=st.integers(1, 40), inputs=st.integers(1, 40), outputs=st.integers(1, 150),
    adds=st.booleans(), looks_up=st.booleans(), bounded=st.booleans(),
)  # fmt: skip
def test_one_step_is_the_sequence_of_its_parts(
    bits: int, seed: int, pixels: int, inputs: int, outputs: int, adds: bool, looks_up: bool, bounded: bool
) -> None:
    rng = np.random.default_rng(seed)
    kind, count = KIND[bits], pixels * outputs
    attributes = convolution(bits, pixels, inputs, outputs, rng)
    fused = dict(attributes)
    if bits == 32:
        x = half(rng.normal(size=(pixels, inputs)).astype(np.float32))
        other = half(rng.normal(size=(pixels, outputs)).astype(np.float32))
        table = half(rng.normal(size=65536).astype(np.float32))
        sum_of: dict[str, Any] = {"half": 2}
        if adds:
            fused |= {"residual": 1}
            if bounded:
                bounds = {"low": -0.5, "high": 1.25}
                fused, sum_of = fused | bounds, sum_of | bounds
    else:
        low, high = RANGE[bits]
        x, other = (rng.integers(low, high + 1, (pixels, n)).astype(FIXED[bits]) for n in (inputs, outputs))
        table = rng.integers(low, high + 1, high - low + 1).astype(FIXED[bits])
        scales = rng.uniform(0.2, 1.2, 2)
        zero, side = (int(v) for v in rng.integers(low, high + 1, 2))
        least, most = sorted(int(v) for v in rng.integers(low, high + 1, 2)) if bounded else (low, high)
        sum_of = {
            "scale_a": scales[0], "scale_b": scales[1], "zero_a": attributes["zero_point"], "zero_b": side,
            "zero_point": zero, "low": least, "high": most,
        }  # fmt: skip
        if adds:
            fused |= {
                "own_scale": scales[0], "residual_scale": scales[1], "residual_zero": side, "sum_zero": zero,
                "sum_low": least, "sum_high": most,
            }  # fmt: skip
    out = np.zeros((pixels, outputs), x.dtype)
    want = run(f"conv_{kind}", [x], out, attributes)
    if adds:
        nest = {"operation": ADD, "dims": (count,), "strides_a": (1,), "strides_b": (1,)}
        want = run(f"binary_{kind}", [want, other], out, {**sum_of, **nest})
    if looks_up:
        want = run(f"table_{kind}", [want], out, {"count": count, "table": table})
        fused["table"] = np.append(table, table[-1:]) if bits == 16 else table
    got = run(f"conv_{kind}", [x, other] if adds else [x], out, fused)
    assert_bits(got, want, f"conv_{kind} adds={adds} looks_up={looks_up}")


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("channels", [3, 16, 24, 40, 64, 144])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_depthwise_convolution_looks_up(bits: int, channels: int, stride: int) -> None:
    rng = np.random.default_rng(channels + stride)
    size = 13
    outs = (1, (size + 2 - 3) // stride + 1, (size + 2 - 3) // stride + 1)
    lanes = -(-channels // 64) * 64
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, size, size), "out": outs, "kernel": (1, 3, 3), "stride": (1, stride, stride),
        "pad": (0, 1, 1), "dilation": (1, 1, 1), "channels": channels, "out_channels": channels, "x_stride": channels,
        "y_stride": channels, "pad_row": np.zeros(lanes, FIXED.get(bits, np.dtype(np.float32))),
    }  # fmt: skip
    if bits == 32:
        x = half(rng.normal(size=(size, size, channels)).astype(np.float32))
        weights: np.ndarray = half(rng.normal(size=(1, 3, 3, channels)).astype(np.float32))
        attributes |= {"bias_f32": np.zeros(lanes, np.float32), "low": -np.inf, "high": np.inf, "half": 1}
        table = half(rng.normal(size=65536).astype(np.float32))
    else:
        low, high = RANGE[bits]
        x = rng.integers(low, high + 1, (size, size, channels)).astype(FIXED[bits])
        # beyond 8 bits, too: uint8 weights less their zero point
        weights = (
            rng.integers(-255, 256, (1, 3, 3, channels))
            if channels % 3
            else rng.integers(-128, 128, (1, 3, 3, channels))
        )
        table = rng.integers(low, high + 1, high - low + 1).astype(FIXED[bits])
        scale = np.full(lanes, 0.001 if bits == 8 else 0.002)
        attributes |= {"zero_point": 7, "low": low, "high": high}
        bias = np.zeros(lanes, np.int64)
        attributes |= (
            {"bias32": bias.astype(np.int32), "multiplier32": scale.astype(np.float32)}
            if bits == 8
            else {"bias": bias, "multiplier": scale}
        )
    attributes["weights"] = packed_depthwise(weights, bits)
    out = np.zeros((outs[1] * outs[2], channels), x.dtype)
    plain = run(f"depthwise_{KIND[bits]}", [x], out, attributes)
    want = run(f"table_{KIND[bits]}", [plain], out, {"count": out.size, "table": table})
    fused = {**attributes, "table": np.append(table, table[-1:]) if bits == 16 else table}
    assert_bits(run(f"depthwise_{KIND[bits]}", [x], out, fused), want)
