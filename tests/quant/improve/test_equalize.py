# SPDX-License-Identifier: Apache-2.0
"""Equalization keeps the function of a model, evens out its channels, and leaves alone what does not scale."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.patterns.layers import layer
from hexforge.patterns.nodes import float_constant
from hexforge.quant.improve.equalize import equalize, groups
from tests.quant.networks import Network, plain, run, sqnr


def _same(net: Network, *outputs: str) -> int:
    model = net.model(*outputs)
    equalized = model.clone()
    count = equalize(equalized)
    for feeds in net.samples(2):
        for before, after in zip(run(model, feeds), run(equalized, feeds), strict=True):
            np.testing.assert_allclose(after, before, rtol=2e-4, atol=2e-5 * np.abs(before).max())
    return count


def _prelu(net: Network, x: str) -> str:
    return net.node("PRelu", x, net.constant(np.abs(net.normal(8, 1, 1))))


BETWEEN: dict[str, Callable[[Network, str], str]] = {
    "nothing": lambda net, x: x,
    "Relu": lambda net, x: net.node("Relu", x),
    "LeakyRelu": lambda net, x: net.node("LeakyRelu", x, alpha=0.2),
    "PRelu": _prelu,
    "MaxPool": lambda net, x: net.node("MaxPool", x, kernel_shape=[2, 2]),
    "AveragePool": lambda net, x: net.node("AveragePool", x, kernel_shape=[2, 2]),
    "Clip from zero": lambda net, x: net.node("Clip", x, net.constant(np.float32(0))),
    "depthwise": lambda net, x: net.conv(x, 8, 8, 3, 8),
    "Add of a constant": lambda net, x: net.node("Add", x, net.constant(net.normal(1, 8, 1, 1))),
    "Add of one number": lambda net, x: net.node("Add", x, net.constant(np.float32(0.7))),
}


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("reader", ["Conv", "grouped", "ConvTranspose", "Gemm", "flattened"])
def test_the_function_stays(between: str, reader: str) -> None:
    net = Network((1, 3, 8, 8))
    x = BETWEEN[between](net, net.conv("x", 3, 8, spread=True))
    if reader == "Conv":
        x = net.conv(x, 8, 5)
    elif reader == "grouped":
        x = net.conv(x, 8, 6, group=2)
    elif reader == "ConvTranspose":
        x = net.node("ConvTranspose", x, net.constant(net.normal(8, 3, 2, 2)), group=2)
    else:
        size = {"MaxPool": 7, "AveragePool": 7}.get(between, 8)
        if reader == "Gemm":
            x = net.node("GlobalAveragePool", x)
            size = 1
        x = net.node("Flatten", x)
        x = net.node("Gemm", x, net.constant(net.normal(4, 8 * size * size)), transB=1)
    assert _same(net, x) >= 1


def test_products_scale_along_the_last_axis() -> None:
    net = Network((1, 5, 6))
    x = net.node("MatMul", "x", net.constant(net.normal(6, 8) * np.geomspace(0.01, 10, 8, dtype=np.float32)))
    x = net.node("Relu", net.node("Add", x, net.constant(net.normal(8))))
    assert _same(net, net.node("MatMul", x, net.constant(net.normal(8, 3)))) == 1


def test_a_residual_sum_scales_with_all_that_write_and_read_it() -> None:
    net = Network((1, 3, 8, 8))
    trunk = net.conv("x", 3, 8, spread=True)
    for _ in range(2):
        branch = net.conv(net.node("Relu", net.conv(trunk, 8, 8, spread=True)), 8, 8, spread=True)
        trunk = net.node("Add", trunk, branch)
    model = net.model(net.conv(trunk, 8, 4))
    assert sorted(len(g.writers) for g in groups(model)) == [1, 1, 3]
    assert _same(net, net.nodes[-1].output[0]) == 3


def test_a_gate_is_not_scaled_and_what_it_multiplies_is() -> None:
    net = Network((1, 3, 8, 8))
    x = net.conv("x", 3, 8, spread=True)
    gate = net.node("Sigmoid", net.conv(net.node("GlobalAveragePool", x), 8, 8, 1))
    assert _same(net, net.conv(net.node("Mul", x, gate), 8, 4)) == 1


@pytest.mark.parametrize("op", ["Sigmoid", "Tanh", "relu6", "output", "softmax", "branch"])
def test_what_does_not_scale_is_left(op: str) -> None:
    net = Network((1, 3, 8, 8))
    x = first = net.conv("x", 3, 8, spread=True)
    outputs = []
    if op == "relu6":
        x = net.node("Clip", x, net.constant(np.float32(0)), net.constant(np.float32(6)))
    elif op == "output":
        outputs = [first]
    elif op == "softmax":
        x = net.node("Softmax", x, axis=1)
    elif op == "branch":  # one of two readers does not scale
        outputs = [net.node("Exp", x)]
    else:
        x = net.node(op, x)
    assert _same(net, net.conv(x, 8, 4), *outputs) == 0


def test_a_weight_of_two_layers_is_left() -> None:
    net = Network((1, 8, 8, 8))
    weight = net.constant(net.normal(8, 8, 1, 1))
    x = net.node("Conv", net.node("Conv", "x", weight), weight)
    assert _same(net, x) == 0


def test_channels_of_different_sizes_come_out_alike_and_quantize_better() -> None:
    net = Network((1, 3, 8, 8))
    uneven = np.geomspace(0.05, 20, 16, dtype=np.float32)
    x = net.node("Conv", "x", net.constant(net.normal(16, 3, 3, 3) * uneven.reshape(-1, 1, 1, 1)))
    x = net.node("Conv", net.node("Relu", x), net.constant(net.normal(8, 16, 3, 3) / uneven.reshape(1, -1, 1, 1)))
    model = net.model(x)
    equalized = model.clone()
    equalize(equalized)

    def unevenness(of: object) -> float:
        first = layer(next(iter(of.graph)))  # type: ignore[attr-defined]
        assert first is not None
        weight = float_constant(first.weight)
        assert weight is not None
        width = np.abs(weight).max((1, 2, 3))
        return float(width.max() / width.min())

    assert unevenness(equalized) < unevenness(model) ** 0.75
    samples = net.samples(4)
    gain = sqnr(equalized, plain(equalized, samples, 4), samples) - sqnr(model, plain(model, samples, 4), samples)
    assert gain > 6  # of 4-bit weights, where uneven channels cost most


def test_a_dead_channel_does_not_blow_up() -> None:
    net = Network((1, 3, 4, 4))
    weight, behind = net.normal(4, 3, 1, 1), net.normal(2, 4, 1, 1)
    weight[0], behind[:, 1], weight[2] = 0, 0, 1e-30
    x = net.node("Relu", net.node("Conv", "x", net.constant(weight), net.constant(net.normal(4))))
    assert _same(net, net.node("Conv", x, net.constant(behind))) == 1


@settings(max_examples=25)
@given(st.integers(0, 2**31), st.lists(st.sampled_from(sorted(BETWEEN)), min_size=1, max_size=4))
def test_any_chain_keeps_its_function(seed: int, chain: list[str]) -> None:
    net = Network((1, 3, 16, 16), seed)
    x = net.conv("x", 3, 8, spread=True)
    for name in chain:
        x = net.conv(BETWEEN[name](net, x), 8, 8, 1, spread=True)
    _same(net, net.conv(x, 8, 4))
