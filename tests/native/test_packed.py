# SPDX-License-Identifier: Apache-2.0
"""packed_*: weights of few bits against sums of the numbers that they are, and against the kernels of wider weights."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.graph import lower
from hexforge.backends.htp.numbers.lower.native_steps import NativeStep
from hexforge.backends.htp.numbers.lower.products import packed_weights
from hexforge.ir import AxisScaleOffset, Block, BlockwiseExpansion, DType, Graph, Role, ScaleOffset, TensorType
from tests.native.kernels import assert_bits, fma, run

OUTPUTS = (1, 16, 40, 64, 130)


def _graph(x_type: TensorType, weight: np.ndarray, type: TensorType, y_type: TensorType, bias: bool) -> Graph:
    """A FullyConnected."""
    graph, rng = Graph("packed"), np.random.default_rng(0)
    inputs = [graph.value("x", x_type, Role.APP_WRITE), graph.value("w", type, Role.STATIC, weight)]
    if bias:
        inputs.append(graph.static(rng.uniform(-1, 1, type.shape[0]).astype(np.float32), name="b"))
    y = graph.value("y", y_type, Role.APP_READ)
    graph.node("FullyConnected", inputs, [y], keep_dims=False)
    return graph


def _step(graph: Graph) -> NativeStep:
    (step,) = (s for s in lower(graph).steps if isinstance(s, NativeStep) and s.kind.startswith("packed"))
    return step


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([2, 4, 8]), st.sampled_from([16, 32, 128]), st.integers(1, 3), st.sampled_from(OUTPUTS),
    st.sampled_from([1, 2, 5, 13]), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_floats(
    bits: int, block: int, blocks: int, outputs: int, rows: int, zeros: bool, halves: bool, bias: bool, seed: int
) -> None:
    """Each block's sum in order, times its scale, in order."""
    rng = np.random.default_rng(seed)
    inputs, top = block * blocks, 1 << bits
    scales = rng.uniform(0.01, 1, (outputs, blocks)).astype(np.float16 if halves else np.float32).astype(np.float64)
    codes = rng.integers(0, top, (outputs, inputs))
    zero = rng.integers(0, top, (outputs, blocks)) if zeros else np.full((outputs, blocks), rng.integers(0, top))
    dtype = DType.UINT4 if bits == 4 else DType.UINT8
    width = 0 if bits == dtype.bits else bits
    encoding = Block((1, block), tuple(scales.ravel()), tuple(map(int, -zero.ravel())), width)
    x = matrix_half(rng.standard_normal((rows, inputs)).astype(np.float32))
    graph = _graph(
        TensorType(DType.FLOAT32, x.shape), codes.astype(dtype.numpy), TensorType(dtype, codes.shape, encoding),
        TensorType(DType.FLOAT32, (rows, outputs)), bias,
    )  # fmt: skip
    step = _step(graph)
    assert step.attributes.get("half_scales", 0) == halves
    got = run("packed_f32", [x], np.zeros((rows, outputs), np.float32), step.attributes)
    total = np.zeros((rows, outputs), np.float32)
    for b in range(blocks):
        part = np.zeros_like(total)
        for k in range(b * block, (b + 1) * block):
            part = fma(x[:, k : k + 1], (codes[:, k] - zero[:, b]).astype(np.float32)[None], part)
        total = fma(part, scales[:, b].astype(np.float32)[None], total)
    if bias:
        total = total + matrix_half(np.asarray(graph.nodes[0].inputs[2].data))
    assert_bits(got, matrix_half(total))


def _encoding(kind: str, outputs: int, inputs: int, rng: np.random.Generator) -> tuple[DType, Any, tuple[int, int]]:
    """A kind of encoding of 4-bit weights, and the integers that they may be."""
    scales = tuple(map(float, rng.uniform(1e-3, 1e-2, outputs)))
    if kind == "lpbq":
        factors = rng.integers(1, 17, (outputs, inputs // 16))
        return DType.INT4, BlockwiseExpansion(0, 1, scales, (0,) * outputs, tuple(map(int, factors.ravel()))), (-8, 8)
    if kind == "block":
        block = next(size for size in (64, 32, 16) if inputs % size == 0)
        count = outputs * inputs // block
        steps = tuple(float(np.float32(s)) for s in rng.uniform(1e-3, 1e-2, count))
        return DType.INT4, Block((1, block), steps, (0,) * count), (-8, 8)
    if kind == "channel":
        return DType.INT4, AxisScaleOffset(0, scales, (0,) * outputs), (-8, 8)
    return DType.UINT4, ScaleOffset(scales[0], -5), (0, 16)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([DType.UINT8, DType.INT8, DType.UINT16, DType.INT16]),
    st.sampled_from(["lpbq", "channel", "one", "block"]), st.sampled_from([32, 48, 192, 2064]),
    st.sampled_from(OUTPUTS), st.sampled_from([1, 3, 5, 13]), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_integers(
    activation: DType, kind: str, inputs: int, outputs: int, rows: int, ends: bool, bias: bool, seed: int
) -> None:
    """The same bits as the kernels of the same weights as bytes."""
    rng = np.random.default_rng(seed)
    dtype, encoding, (low, high) = _encoding(kind, outputs, inputs, rng)
    data = rng.choice([low, high - 1], (outputs, inputs)) if ends else rng.integers(low, high, (outputs, inputs))
    least, most = activation.range
    narrow = np.float32 if rng.integers(2) else np.float64  # scales of float32 are divided without a division
    x_scale, y_scale = float(narrow(0.01)), float(narrow(0.05 * inputs**0.5))
    x_type = TensorType(activation, (rows, inputs), ScaleOffset(x_scale, -int(rng.integers(least, most + 1))))
    y_type = TensorType(activation, (rows, outputs), ScaleOffset(y_scale, -(least + most + 1) // 2))
    graph = _graph(x_type, data.astype(dtype.numpy), TensorType(dtype, data.shape, encoding), y_type, bias)
    x = (rng.choice([least, most], x_type.shape) if ends else rng.integers(least, most + 1, x_type.shape)).astype(
        activation.numpy
    )
    step = _step(graph)
    shift = {DType.INT8: 128, DType.UINT16: -32768}.get(activation, 0)
    stored = np.uint8 if step.kind.endswith("u8") else np.int16
    got = run(step.kind, [(x.astype(np.int32) + shift).astype(stored)], np.zeros(y_type.shape, stored), step.attributes)
    with patch.object(packed_weights, "product", lambda *_: False):
        wide = HtpBackend().compile(graph).run({"x": x})["y"]
    assert_bits((got.astype(np.int32) - shift).astype(wide.dtype), wide)


@given(*[st.floats(2.0**-126, 2.0**120, width=32)] * 3)
def test_a_ratio_in_two_parts_divides_as_a_division(scale: float, of_input: float, of_output: float) -> None:
    """What kernels take for in * scale / out of float32's numbers, both operations rounded."""
    ratio = of_input / of_output
    rest = float(Fraction(of_input) - Fraction(ratio) * Fraction(of_output)) / of_output
    fused = float(Fraction(scale) * Fraction(ratio) + Fraction(scale * rest))
    assert fused == of_input * scale / of_output


@pytest.mark.parametrize("kind", ["lpbq", "channel", "block"])
def test_weights_stay_packed(kind: str) -> None:
    """Half a byte for each weight, and little beside."""
    rng = np.random.default_rng(0)
    if kind == "block":
        dtype: DType = DType.UINT4
        encoding: Any = Block((1, 32), (0.5,) * 256 * 8, (-8,) * 256 * 8)
        real = TensorType(DType.FLOAT32, (1, 256))
        graph = _graph(real, rng.integers(0, 16, (256, 256)).astype(dtype.numpy),
                       TensorType(dtype, (256, 256), encoding), real, False)  # fmt: skip
    else:
        dtype, encoding, (low, high) = _encoding(kind, 256, 256, rng)
        fixed = TensorType(DType.UINT16, (1, 256), ScaleOffset(0.1, -32768))
        graph = _graph(fixed, rng.integers(low, high, (256, 256)).astype(dtype.numpy),
                       TensorType(dtype, (256, 256), encoding), fixed, False)  # fmt: skip
    arrays = [v.nbytes for v in _step(graph).attributes.values() if isinstance(v, np.ndarray)]
    assert sum(arrays) <= 256 * 256 * (0.5 + 1 / 16) + 256 * 24
