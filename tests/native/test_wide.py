# SPDX-License-Identifier: Apache-2.0
"""conv_wide_*: exact sums of 16-bit weights, per block where scales vary, by Python's integers; and its lowerings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.lower.products.wide import packed
from hexforge.ir import (
    AxisScaleOffset,
    Block,
    BlockwiseExpansion,
    Call,
    DType,
    Graph,
    Role,
    ScaleOffset,
    TensorType,
    lookup,
)
from hexforge.ops.evaluate import evaluate
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run


def exact(x: np.ndarray, w: np.ndarray, at: dict[str, Any]) -> np.ndarray:
    """[pixels, groups, outputs, blocks] sums of (x - zero) * w, with w [groups, outputs, blocks, taps, channels]."""
    groups, outputs, blocks, _, channels = w.shape
    plane = np.indices(at["out"]).reshape(3, -1).T
    found = np.zeros((at["batch"], len(plane), groups, outputs, blocks), np.int64)
    centered = x - at["zero_a"]
    for t, tap in enumerate(np.indices(at["kernel"]).reshape(3, -1).T):
        places = plane * at["stride"] - np.array(at["pad"]) + tap * np.array(at["dilation"])
        inside = ((places >= 0) & (places < at["in"])).all(1)
        d, h, c = places[inside].T
        part = centered[:, d, h, c].reshape(at["batch"], -1, groups, blocks, channels)
        found[:, inside] += np.einsum("npgbc,gobc->npgob", part, w[:, :, :, t])
    return found.reshape(-1, groups, outputs, blocks)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([8, 16]), st.sampled_from([(1, 1, 1), (1, 3, 2), (2, 1, 3)]), st.integers(1, 3),
    st.sampled_from([1, 3, 4, 6]), st.integers(1, 3), st.sampled_from([1, 5, 40, 200]), st.booleans(),
    st.sampled_from(HOW), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_conv_wide(
    bits: int, kernel: Any, groups: int, outputs: int, blocks: int, channels: int, sixteen: bool, how: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    at: dict[str, Any] = {
        "batch": int(rng.integers(1, 3)), "in": tuple(map(int, rng.integers(2, 6, 3))), "kernel": kernel,
        "stride": tuple(map(int, rng.integers(1, 3, 3))), "pad": tuple(map(int, rng.integers(0, 2, 3))),
        "dilation": tuple(map(int, rng.integers(1, 3, 3))), "zero_a": int(rng.integers(low, high + 1)),
    }  # fmt: skip
    at["out"] = tuple(
        max(1, (n + 2 * p - d * (k - 1) - 1) // s + 1)
        for n, p, d, k, s in zip(at["in"], at["pad"], at["dilation"], kernel, at["stride"], strict=True)
    )
    x = fill(rng, (at["batch"], *at["in"], groups * blocks * channels), low, high, how)
    limits = (-32768, 0x7F7F) if sixteen else (-128, 127)
    taps = int(np.prod(kernel))
    w = fill(rng, (groups, outputs, blocks, taps, channels), *limits, how)
    width = groups * outputs
    units = rng.integers(-(2**31), 2**31, width)
    scales = rng.uniform(1e-9, 1e-4, (width, blocks))
    bias = rng.uniform(-10, 10, width)
    total = np.zeros((at["batch"] * int(np.prod(at["out"])), width))
    sums = exact(x, w, at).reshape(-1, width, blocks)
    for b in range(blocks):
        total = total + (sums[:, :, b] + (units if b == 0 else 0)).astype(np.float64) * scales[:, b]
    zero = int(rng.integers(low, high + 1))
    rows = w.reshape(width, blocks, taps * channels)
    small = ((rows + 128) & 255) - 128
    attributes = at | {
        "channels": blocks * channels, "out_channels": outputs, "groups": groups, "blocks": blocks, "zero_point": zero,
        "low": low, "high": high, "weights_low": packed(small, groups), "sums": rows.sum(2), "units": units,
        "scales": scales, "bias": bias,
    }  # fmt: skip
    if sixteen:
        attributes["weights_high"] = packed((rows - small) >> 8, groups)
    got = run(f"conv_wide_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(total.shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp(total + bias, zero, low, high, bits))


def _weights(kind: str, rng: np.random.Generator) -> tuple[np.ndarray, TensorType]:
    """[3, 3, 16, 8] weights of a kind of encoding."""
    shape = (3, 3, 16, 8)
    scales = tuple(map(float, rng.uniform(1e-5, 1e-4, 8)))
    if kind == "int16":
        return rng.integers(-32768, 0x7F80, shape).astype(np.int16), TensorType(DType.INT16, shape, ScaleOffset(1e-5))
    if kind == "int16 per channel":
        encoding = AxisScaleOffset(3, scales, (0,) * 8)
        return rng.integers(-32768, 0x7F80, shape).astype(np.int16), TensorType(DType.INT16, shape, encoding)
    data = rng.integers(-8, 8, shape).astype(np.int8)
    if kind == "lpbq":
        factors = tuple(map(int, rng.integers(1, 17, 32)))
        lpbq = BlockwiseExpansion(3, 2, scales, (0,) * 8, factors)
        return data.astype(DType.INT4.numpy), TensorType(DType.INT4, shape, lpbq)
    block = Block((3, 3, 4, 1), tuple(map(float, rng.uniform(1e-3, 1e-2, 32))), (0,) * 32)
    return data, TensorType(DType.INT8, shape, block)


@pytest.mark.parametrize("activation", [DType.UINT8, DType.UINT16])
@pytest.mark.parametrize("kind", ["int16", "int16 per channel", "lpbq", "block"])
def test_lowered(kind: str, activation: DType) -> None:
    rng = np.random.default_rng(3)
    data, type = _weights(kind, rng)
    top = activation.range[1]
    x_type = TensorType(activation, (1, 9, 7, 16), ScaleOffset(1.0 / top, -(top // 3)))
    x = rng.integers(0, top + 1, x_type.shape).astype(activation.numpy)
    graph = Graph("wide")
    weight = graph.value("weight", type, Role.STATIC, data)
    bias = graph.static(rng.uniform(-0.1, 0.1, 8).astype(np.float32), name="bias")
    probe = TensorType(DType.FLOAT32, (1, 7, 5, 8))
    params = {"stride": (1, 1), "pad_amount": ((0, 0), (0, 0)), "dilation": (1, 1), "group": 1}
    real = evaluate(Call(lookup("Conv2d"), (x_type, type, bias.type), (probe,), params), [x, data, bias.data])[0]
    scale = float(np.abs(real).max()) / (top // 2)
    y = graph.value("y", TensorType(activation, probe.shape, ScaleOffset(scale, -(top // 2))), Role.APP_READ)
    graph.node("Conv2d", [graph.value("x", x_type, Role.APP_WRITE), weight, bias], [y], **params)  # type: ignore[arg-type]
    program = HtpBackend().compile(graph)
    assert not program.facts.references
    want = evaluate(graph.nodes[0].call, [x, data, bias.data])[0]
    got = program.run({"x": x})["y"]
    assert np.abs(got.astype(np.int64) - want.astype(np.int64)).max() <= 1
    assert (got == want).mean() > 0.99
