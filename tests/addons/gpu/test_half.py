# SPDX-License-Identifier: Apache-2.0
"""Arithmetic in half (cl_khr_fp16) against numpy's float16, operation by operation, on a device that has it.

`make gpu-half` brings one: Intel's OpenCL for processors.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyopencl")

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.gpu.backend import GpuBackend
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import choose
from hexforge.addons.gpu.program import GpuProgram
from hexforge.ir import Array, Block, DType, Graph, Role, TensorType, Value
from tests.addons.gpu.test_kernels import MAKES, Make, agree
from tests.addons.gpu.test_random_graphs import random_graph

pytestmark = pytest.mark.gpu
FP16 = GpuConfig(gpu_precision="fp16")
RUN = 16
H = np.float16


@pytest.fixture(autouse=True)
def device() -> None:
    if not choose().half_math:
        pytest.skip(f"{choose().name} has no cl_khr_fp16; `make gpu-half` brings a device that has")


@pytest.fixture(params=[True, False], ids=["processor", "gpu"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Kernels as they are written for processors, and for GPUs."""
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.is_processor", property(lambda self: request.param))
    return bool(request.param)


def halves(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    values: Array = (np.random.default_rng(seed).standard_normal(shape) * scale).astype(H).astype(np.float32)
    return values


def compiled(build: Any, *shapes: tuple[int, ...]) -> GpuProgram:
    g = Graph("g")
    values = [g.value(f"x{i}", TensorType(DType.FLOAT32, s), Role.APP_WRITE) for i, s in enumerate(shapes)]
    y = build(g, *values)
    g.node("Reshape", [y], [g.value("y", y.type, Role.APP_READ)])
    return GpuBackend(FP16).compile(g)


def run(program: GpuProgram, *arrays: Array) -> Array:
    return program.run({f"x{i}": a for i, a in enumerate(arrays)})["y"]


def fma(a: Array, b: Array, c: Array) -> Array:
    """Rounded once: a product of halves is exact in double, and so is its sum with a half but for far-apart ones."""
    wide: Array = (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(H)
    return wide


def product(a: Array, b: Array, runs: list[range]) -> Array:
    """a [m, k] times b [k, n]: runs summed up in half, one after the other in float."""
    a, b = a.astype(H), b.astype(H)
    total: Array = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for each in runs:
        part: Array = np.zeros(total.shape, H)
        for k in each:
            part = fma(a[:, k : k + 1], b[k : k + 1], part)
        total += part.astype(np.float32)
    return total


def ulps(got: Array, want: Array) -> Array:
    """How many halves lie between."""

    def ordered(x: Array) -> Array:
        bits = x.astype(H).view(np.int16).astype(np.int32)
        result: Array = np.where(bits < 0, -(bits & 0x7FFF), bits)
        return result

    apart: Array = np.abs(ordered(got) - ordered(want))
    return apart


@pytest.mark.parametrize(("m", "n", "k"), [(6, 32, 16), (37, 24, 75), (70, 40, 192)])
def test_products_sum_up_runs_in_half(m: int, n: int, k: int, form: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.units", 1)  # no depth is cut: the order is the plain one
    a, b, bias = halves(m, k), halves(k, n, seed=1), halves(n, seed=2)
    program = compiled(lambda g, x: g.node("MatMul", [x, g.static(b), g.static(bias)]).outputs[0], (m, k))
    runs = [range(first, min(first + RUN, k)) for first in range(0, k, RUN)]
    np.testing.assert_array_equal(run(program, a), (product(a, b, runs) + bias).astype(H))


@pytest.mark.parametrize(("channels", "stride"), [(8, 1), (24, 2)])
def test_convolutions_sum_up_runs_in_half(
    channels: int, stride: int, form: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On processors a run ends with its tap, on GPUs taps follow each other."""
    monkeypatch.setattr("hexforge.addons.gpu.device.ClDevice.units", 1)
    x, w = halves(1, 9, 11, channels), halves(3, 3, channels, 32, seed=1, scale=0.3)
    pads = ((1, 1), (1, 1))
    program = compiled(
        lambda g, v: g.node(
            "Relu", g.node("Conv2d", [v, g.static(w)], stride=(stride,) * 2, pad_amount=pads).outputs
        ).outputs[0],
        x.shape,
    )
    taps = []
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for i in range(3):
        for j in range(3):
            taps.append(padded[0, i : i + 9 : stride, j : j + 11 : stride].reshape(-1, channels))
    flat, k = np.concatenate(taps, 1), 9 * channels
    steps = [range(f, min(f + RUN, k)) for f in range(0, k, RUN)]
    if form:
        steps = [
            range(t + f, t + min(f + RUN, channels)) for t in range(0, k, channels) for f in range(0, channels, RUN)
        ]
    want = np.maximum(product(flat, w.reshape(k, 32), steps).astype(H), 0)
    np.testing.assert_array_equal(run(program, x).reshape(-1, 32), want)


def test_depthwise_convolutions_sum_up_in_half(form: bool) -> None:
    x, w, bias = halves(2, 8, 9, 16), halves(3, 3, 1, 16, seed=1), halves(16, seed=2)
    program = compiled(
        lambda g, v: g.node(
            "DepthWiseConv2d", [v, g.static(w), g.static(bias)], stride=(1, 1), pad_amount=((1, 1), (1, 1))
        ).outputs[0],
        x.shape,
    )
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))).astype(H)
    total: Array = np.zeros(x.shape, H)
    for i in range(3):
        for j in range(3):
            total = fma(padded[:, i : i + 8, j : j + 9], w[i, j, 0].astype(H), total)
    np.testing.assert_array_equal(run(program, x), (total.astype(np.float32) + bias).astype(H))


def test_weights_of_four_bits_are_rounded(form: bool) -> None:
    """Many rows: unpacked in float, rounded, multiplied like any other weight."""
    rng = np.random.default_rng(5)
    rows, columns, depth = 20, 48, 96
    numbers = rng.integers(0, 16, (columns, depth)).astype(DType.UINT4.numpy)
    scales = (rng.random(columns * depth // 32) / 20 + 0.01).astype(np.float32)
    encoding = Block((1, 32), tuple(scales.tolist()), (-8,) * len(scales))

    def dense(g: Graph, x: Value) -> Value:
        w = g.value("w", TensorType(DType.UINT4, (columns, depth), encoding), Role.STATIC, numbers)
        return g.node("FullyConnected", [x, w]).outputs[0]

    weight = ((numbers.astype(np.float32) - 8) * np.repeat(scales, 32).reshape(columns, depth)).astype(H)
    a, runs = halves(rows, depth), [range(k, k + RUN) for k in range(0, depth, RUN)]
    want = product(a, weight.T, runs).astype(H)
    got = run(compiled(dense, a.shape), a)
    if form:
        np.testing.assert_array_equal(got, want)
    else:  # the depth is shared by work-items: runs are added up in another order
        assert ulps(got, want).max() <= 1


EXACT = {
    "ElementWiseAdd": np.add, "ElementWiseSubtract": np.subtract, "ElementWiseMultiply": np.multiply,
    "ElementWiseDivide": np.divide, "ElementWiseMaximum": np.maximum, "ElementWiseMinimum": np.minimum,
}  # fmt: skip


@pytest.mark.parametrize("op", EXACT)
def test_ops_that_round_once_are_exact(op: str, form: bool) -> None:
    a, b = halves(64, 24), halves(64, 24, seed=3)
    got = run(compiled(lambda g, x, y: g.node(op, [x, y]).outputs[0], a.shape, b.shape), a, b)
    with np.errstate(divide="ignore", over="ignore"):
        np.testing.assert_array_equal(got, EXACT[op](a.astype(H), b.astype(H)))


def test_every_op_of_a_chain_rounds(form: bool) -> None:
    a, b = halves(64, 24), halves(64, 24, seed=3)

    def chain(g: Graph, x: Value, y: Value) -> Value:
        scaled = g.node("ElementWiseMultiply", [x, g.static(np.array(1.1, np.float32))]).outputs[0]
        return g.node("ElementWiseAdd", [g.node("ElementWiseDivide", [scaled, y]).outputs[0], x]).outputs[0]

    with np.errstate(divide="ignore", over="ignore"):
        want = a.astype(H) * H(1.1) / b.astype(H) + a.astype(H)
    np.testing.assert_array_equal(run(compiled(chain, a.shape, b.shape), a, b), want)


CLOSE = {
    "ElementWiseExp": np.exp, "Tanh": np.tanh, "ElementWiseSin": np.sin, "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Gelu": lambda x: x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2)),
    "HardSwish": lambda x: x * np.clip(x / 6 + 0.5, 0, 1), "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "ElementWiseSoftplus": lambda x: np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0),
    "ElementWiseLog": np.log, "ElementWiseSquareRoot": np.sqrt, "ElementWiseRsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


@pytest.mark.parametrize("op", CLOSE)
def test_functions_are_near(op: str, form: bool) -> None:
    """OpenCL lets half functions be off by some units of the last place; formulas of several steps add theirs."""
    a = halves(64, 24, scale=2.0)
    if op in ("ElementWiseLog", "ElementWiseSquareRoot", "ElementWiseRsqrt"):
        a = (np.abs(a) + 0.01).astype(H).astype(np.float32)
    params = {"alpha": 1.0} if op == "Elu" else {}
    got = run(compiled(lambda g, x: g.node(op, [x], **params).outputs[0], a.shape), a)
    want = CLOSE[op](a.astype(np.float64))  # type: ignore[operator]
    assert ((ulps(got, want) <= 4) | (np.abs(got - want) < 1e-4)).all()  # tails of Gelu magnify what x was rounded by


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_kernels_in_half_agree_with_references(make: Make, form: bool) -> None:
    agree(make, FP16, tolerance=1.5e-2)


@pytest.mark.parametrize("seed", range(int(os.environ.get("HEXFORGE_GPU_GRAPHS", "3"))))
def test_random_graphs_in_half(seed: int, form: bool) -> None:
    agree(random_graph, FP16, seed=seed, tolerance=0.1)


def test_it_is_said_what_computes() -> None:
    program = compiled(lambda g, x: g.node("Relu", [x]).outputs[0], (4, 4))
    assert program.arithmetic.startswith("float16, sums of more than 16 products in float32")
    assert "half8 t" in program.launches[0].source or "half4 t" in program.launches[0].source
