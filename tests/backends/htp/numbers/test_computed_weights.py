# SPDX-License-Identifier: Apache-2.0
"""Convolutions whose weights are computed at run time: native, and the exact integers of the op's definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.lower.graph import lower
from hexforge.ir import Array, Call, DType, Graph, Role, ScaleOffset, TensorType, lookup
from hexforge.ir.fixed_point import centered, quantize
from tests.backends.htp.numbers.test_detection import SEEDS, computed, defined, real
from tests.native.halves import half
from tests.native.kernels import assert_bits


@dataclass(frozen=True)
class Case:
    """A convolution: its op, shapes of input, weights and output, and parameters."""

    op: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    params: dict[str, Any]

    @property
    def products(self) -> int:
        return int(np.prod(self.w[:-1]))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Dense, grouped, depthwise (with one or more outputs a channel) and transposed ones of two and three axes."""
    op = draw(st.sampled_from(["Conv2d", "Conv3d", "DepthWiseConv2d", "TransposeConv2d", "TransposeConv3d"]))
    axes = 3 if op.endswith("3d") else 2
    several = lambda least, most: tuple(draw(st.integers(least, most)) for _ in range(axes))  # noqa: E731
    kernel, stride = several(1, 4), several(1, 3)
    channels = draw(st.sampled_from([1, 2, 3, 5, 16, 18, 70]))
    batch = draw(st.integers(1, 2))
    if op.startswith("Transpose"):
        stride = tuple(min(s, k) for s, k in zip(stride, kernel, strict=True))
        outputs = draw(st.sampled_from([1, 3, 17, 66]))
        pads = tuple((draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) for k in kernel)
        ins = tuple(n + 2 for n in several(1, 5))
        outs = tuple((n - 1) * s + k - a - b for n, s, k, (a, b) in zip(ins, stride, kernel, pads, strict=True))
        if min(outs) < 1:
            pads, outs = ((0, 0),) * axes, tuple((n - 1) * s + k for n, s, k in zip(ins, stride, kernel, strict=True))
        return Case(op, (batch, *ins, channels), (*kernel, channels, outputs), (batch, *outs, outputs),
                    {"stride": stride, "pad_amount": pads, "group": 1})  # fmt: skip
    dilation = several(1, 2)
    pads = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    ins = tuple(max(n, r - a - b) for n, r, (a, b) in zip(several(1, 9), reach, pads, strict=True))
    outs = tuple((n + a + b - r) // s + 1 for n, r, s, (a, b) in zip(ins, reach, stride, pads, strict=True))
    params: dict[str, Any] = {"stride": stride, "pad_amount": pads, "dilation": dilation}
    if op == "DepthWiseConv2d":
        outputs, inner = channels * draw(st.integers(1, 2)), 1
    else:
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0]))
        outputs, inner = groups * draw(st.sampled_from([1, 3, 17, 66])), channels // groups
        params["group"] = groups
    return Case(op, (batch, *ins, channels), (*kernel, inner, outputs), (batch, *outs, outputs), params)


@settings(max_examples=60, deadline=None)
@given(SEEDS, cases(), st.booleans())
def test_floats(seed: int, case: Case, biased: bool) -> None:
    rng = np.random.default_rng(seed)
    inputs = {"x": real(rng.standard_normal(case.x)), "w": real(rng.standard_normal(case.w))}
    if biased:
        inputs["constant"] = real(rng.standard_normal(case.y[-1]))
    one = (case.op, inputs, [TensorType(DType.FLOAT32, case.y)], case.params)
    np.testing.assert_allclose(computed(*one)[0], half(defined(*one)[0]), rtol=2e-3, atol=4e-3)


TYPES = [(DType.UINT8, DType.UINT8), (DType.INT8, DType.UINT8), (DType.UINT8, DType.INT8), (DType.UINT16, DType.UINT16),
         (DType.INT16, DType.INT16), (DType.UINT16, DType.UINT8), (DType.UINT16, DType.INT8)]  # fmt: skip


def any_encoding(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> TensorType:
    """A type whose zero point lies anywhere, at the ends too."""
    low = -(2 ** (dtype.bits - 1)) if dtype in (DType.INT8, DType.INT16) else 0
    zero = low + int(rng.choice([0, 2**dtype.bits - 1, rng.integers(0, 2**dtype.bits)]))
    return TensorType(dtype, shape, ScaleOffset(float(rng.uniform(0.001, 0.1)), -zero))


def any_integers(rng: np.random.Generator, type: TensorType) -> Array:
    """Integers of that type: at random, or at its ends alone, where sums are largest."""
    limits = np.iinfo(type.dtype.numpy)
    if rng.integers(0, 2):
        return rng.choice(np.array([limits.min, limits.max]), type.shape).astype(type.dtype.numpy)
    return rng.integers(limits.min, limits.max + 1, type.shape).astype(type.dtype.numpy)


@settings(max_examples=150, deadline=None)
@given(SEEDS, cases(), st.booleans(), st.sampled_from(TYPES))
def test_fixed_point(seed: int, case: Case, biased: bool, types: tuple[DType, DType]) -> None:
    """The sum is exact; what is made of it is one product and one rounding, in float32 at 8 bits, else in float64."""
    rng = np.random.default_rng(seed)
    tx, tw = (any_encoding(rng, t, s) for t, s in zip(types, (case.x, case.w), strict=True))
    x, w = any_integers(rng, tx), any_integers(rng, tw)
    scale = tx.encoding.scale * tw.encoding.scale
    inputs, terms = {"x": (x, tx), "w": (w, tw)}, [centered(x, tx), centered(w, tw)]
    if biased:
        bias = rng.integers(-99999, 99999, case.y[-1]).astype(np.int32)
        inputs["constant"] = bias, TensorType(DType.INT32, (case.y[-1],), ScaleOffset(scale, 0))
        terms.append(bias)
    op = lookup(case.op)
    call = Call(op, tuple(t for _, t in inputs.values()), (TensorType(DType.INT64, case.y),), op.complete(case.params))
    sums = np.asarray(op.reference(call, *(t.astype(np.float64) for t in terms)))  # integers below 2^53: exact
    assert np.array_equal(sums, np.rint(sums))
    ty = any_encoding(rng, types[0], case.y)
    reach = max(1.0, float(np.abs(sums).max())) * scale / 2 ** types[0].bits
    ty = TensorType(ty.dtype, ty.shape, ScaleOffset(reach * float(rng.uniform(0.5, 2)), ty.encoding.offset))
    assert isinstance(ty.encoding, ScaleOffset)
    multiplier = scale / ty.encoding.scale
    steps = sums.astype(np.float32) * np.float32(multiplier) if types[0].bits == 8 else sums * multiplier
    limits = np.iinfo(ty.dtype.numpy)
    want = np.clip(np.rint(steps) - ty.encoding.offset, limits.min, limits.max).astype(ty.dtype.numpy)
    got = computed(case.op, inputs, [ty], case.params)[0]
    assert_bits(got, want)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.UINT16])
def test_an_activation_joins_its_convolution(dtype: DType) -> None:
    """A table behind it is looked up as it stores: nothing of that depends on where weights come from."""
    rng = np.random.default_rng(3)
    middle = 2 ** (dtype.bits - 1)
    shapes = {"x": (1, 8, 10, 20), "w": (3, 3, 20, 24), "t": (1, 6, 8, 24), "y": (1, 6, 8, 24)}
    types = {n: TensorType(dtype, s, ScaleOffset(0.01, 0 if n == "y" else -middle)) for n, s in shapes.items()}
    feeds = {n: quantize(rng.standard_normal(types[n].shape), types[n]) for n in "xw"}

    def results(activated: bool) -> Array:
        graph = Graph("one")
        x, w = (graph.value(n, types[n], Role.APP_WRITE) for n in "xw")
        t = graph.value("t", types["t"], Role.NATIVE if activated else Role.APP_READ)
        graph.node("Conv2d", [x, w], [t], stride=(1, 1), pad_amount=((0, 0), (0, 0)), dilation=(1, 1), group=1)
        if activated:
            graph.node("Relu", [t], [graph.value("y", types["y"], Role.APP_READ)])
        assert len(lower(graph).steps) == 1
        return next(iter(HtpBackend().compile(graph).run(feeds).values()))

    plain = results(False)
    assert_bits(results(True), np.maximum(plain, middle) - plain.dtype.type(middle))
