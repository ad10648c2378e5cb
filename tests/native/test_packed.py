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


def _numbers(rng: np.random.Generator, rows: int, inputs: int) -> np.ndarray:
    """Halves of every size: ordinary ones, some much larger or smaller, zeros, and whole blocks of little."""
    x = rng.standard_normal((rows, inputs))
    x *= 2.0 ** rng.choice([0, 0, 0, 0, -24, -12, 8, 16], x.shape)
    x[rng.random(x.shape) < 0.1] = 0
    x[rng.random(rows) < 0.2] *= 2.0**-20
    return np.clip(x, -131008, 131008).astype(np.float32)


def _exact(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The exact sum of a block whose numbers are whole multiples of a power of two, rounded to float32."""
    part = np.zeros((len(x), len(weights)), np.float32)
    for row, numbers in enumerate(x):
        unit = Fraction(2) ** -77
        while Fraction(float(np.abs(numbers).max())) / unit > 32639:
            unit *= 2
        units = [round(Fraction(float(number)) / unit) for number in numbers]  # ties to even
        part[row] = [np.float32(sum(u * int(w) for u, w in zip(units, own, strict=True))) for own in weights]
        part[row] *= np.float32(unit)
    return part


def test_units_change_little() -> None:
    """What docs/numerics.md says of whole units: far less than what rounding the results to halves does."""
    rng, blocks, outputs = np.random.default_rng(0), 64, 64
    x = matrix_half(rng.standard_normal((8, 32 * blocks)).astype(np.float32))
    weights, scales = rng.integers(-8, 8, (outputs, 32 * blocks)), rng.uniform(0.5, 1, (blocks, outputs))
    given = sum(
        _exact(x[:, at : at + 32], weights[:, at : at + 32]) * scales[at // 32] for at in range(0, x.shape[1], 32)
    )
    exact = x.astype(np.float64) @ (weights.T * np.repeat(scales, 32, 0))

    def loss_db(numbers: np.ndarray) -> float:
        return float(10 * np.log10(np.square(numbers - exact).sum() / np.square(exact).sum()))

    assert loss_db(given) < -97
    assert loss_db(matrix_half(exact.astype(np.float32))) > -75
    assert np.mean(matrix_half(given.astype(np.float32)) != matrix_half(exact.astype(np.float32))) < 0.07


def _in_order(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The sum of a block in float32, one product after the other."""
    part = np.zeros((len(x), len(weights)), np.float32)
    for k in range(x.shape[1]):
        part = fma(x[:, k : k + 1], weights[:, k].astype(np.float32)[None], part)
    return part


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([2, 4, 8]), st.sampled_from([16, 32, 128]), st.integers(1, 3), st.sampled_from(OUTPUTS),
    st.sampled_from([1, 2, 5, 13]), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_floats(
    bits: int, block: int, blocks: int, outputs: int, rows: int, zeros: bool, halves: bool, bias: bool, seed: int
) -> None:
    """Each block's sum, times its scale, in order: of 4 bits the exact sum of whole units, of others one in order."""
    rng = np.random.default_rng(seed)
    inputs, top = block * blocks, 1 << bits
    scales = rng.uniform(0.01, 1, (outputs, blocks)).astype(np.float16 if halves else np.float32).astype(np.float64)
    codes = rng.integers(0, top, (outputs, inputs))
    zero = rng.integers(0, top, (outputs, blocks)) if zeros else np.full((outputs, blocks), rng.integers(0, top))
    dtype = DType.UINT4 if bits == 4 else DType.UINT8
    width = 0 if bits == dtype.bits else bits
    encoding = Block((1, block), tuple(scales.ravel()), tuple(map(int, -zero.ravel())), width)
    x = matrix_half(_numbers(rng, rows, inputs))
    graph = _graph(
        TensorType(DType.FLOAT32, x.shape), codes.astype(dtype.numpy), TensorType(dtype, codes.shape, encoding),
        TensorType(DType.FLOAT32, (rows, outputs)), bias,
    )  # fmt: skip
    step = _step(graph)
    assert step.attributes.get("half_scales", 0) == halves
    got = run("packed_f32", [x], np.zeros((rows, outputs), np.float32), step.attributes)
    total = np.zeros((rows, outputs), np.float32)
    for b in range(blocks):
        own, weights = slice(b * block, (b + 1) * block), codes[:, b * block : (b + 1) * block] - zero[:, b : b + 1]
        part = _exact(x[:, own], weights) if bits == 4 else _in_order(x[:, own], weights)
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
