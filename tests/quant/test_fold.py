# SPDX-License-Identifier: Apache-2.0
"""Folding keeps the function of a model and leaves fewer values in it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.ir import DType
from hexforge.model.tensors import repeat_constant, stored_bytes
from hexforge.quant.decide.ranges import weight_encoding
from hexforge.quant.fold import fold
from tests.quant.networks import Network, run


def _folded(net: Network, *outputs: str) -> Counter[str]:
    model = net.model(*outputs)
    before = [n.op_type for n in model.graph]
    found = fold(model)
    assert [n.op_type for n in model.graph] == before  # the model given is left as it is
    assert [v.name for v in found.graph.outputs] == [v.name for v in model.graph.outputs]
    for feeds in net.samples(2):
        for left, right in zip(run(model, feeds), run(found, feeds), strict=True):
            np.testing.assert_allclose(right, left, rtol=1e-4, atol=1e-5 * max(np.abs(left).max(), 1))
    return Counter(n.op_type for n in found.graph)


def _norm(net: Network, x: str, channels: int) -> str:
    shifts = [net.constant(net.normal(channels)) for _ in range(2)]
    scale, variance = (net.constant(np.abs(net.normal(channels)) + 0.1) for _ in range(2))
    return net.node("BatchNormalization", x, scale, shifts[0], shifts[1], variance)


@pytest.mark.parametrize("op", ["Conv", "depthwise", "ConvTranspose", "Gemm"])
def test_a_normalization_goes_into_the_layer_before(op: str) -> None:
    net = Network((2, 6) if op == "Gemm" else (1, 6, 5, 5))
    if op == "Gemm":
        x = net.node("Gemm", "x", net.constant(net.normal(6, 4)), net.constant(net.normal(4)))
    elif op == "ConvTranspose":
        x = net.node("ConvTranspose", "x", net.constant(net.normal(6, 2, 3, 3)), group=2)
    else:
        x = net.conv("x", 6, 4 if op == "Conv" else 6, group=1 if op == "Conv" else 6)
    channels = {"depthwise": 6}.get(op, 4)
    assert sum(_folded(net, _norm(net, x, channels)).values()) == 1


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "Gemm"])
def test_a_weight_that_repeats_one_number_is_folded_without_holding_it_all(op: str) -> None:
    net = Network((2, 64) if op == "Gemm" else (1, 6, 5, 5))
    shape = {"Conv": (4, 6, 3, 3), "ConvTranspose": (6, 4, 3, 3), "Gemm": (64, 4)}[op]
    weight = net.constant(np.full(shape, 0.3, np.float32))
    model = net.model(_norm(net, net.node(op, "x", weight), 4))
    held = [v for v in fold(model).graph.initializers.values() if v.shape == shape]
    model.graph.initializers[weight].const_value = repeat_constant(np.array(0.3, np.float32), shape, weight)
    viewed = [v for v in fold(model).graph.initializers.values() if v.shape == shape]
    (one,), (other,) = ([v.const_value for v in values] for values in (held, viewed))
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    if op != "ConvTranspose":
        assert stored_bytes(other) == 4 * 4 < stored_bytes(one)
    for axis in (None, 0, 1):
        encodings = [weight_encoding(tensor.numpy(), DType.INT8, axis=axis) for tensor in (one, other)]
        assert encodings[0] == encodings[1]


def test_factors_and_shifts_go_into_layers_before_and_behind() -> None:
    net = Network((1, 3, 6, 6))
    x = net.node("Mul", net.constant(np.array([1.5], np.float32)), net.conv("x", 3, 4))
    x = net.node("Add", x, net.constant(net.normal(1, 4, 1, 1)))
    x = net.node("Sub", net.node("Div", x, net.constant(net.normal(4, 1, 1) + 2)), net.constant(np.float32(0.25)))
    x = net.node("Sigmoid", x)
    x = net.node(
        "Add", net.node("Mul", x, net.constant(np.array([0.3], np.float32))), net.constant(np.array([0.1], np.float32))
    )
    assert _folded(net, net.conv(x, 4, 2, 1)) == {"Conv": 2, "Sigmoid": 1}


def test_a_shift_before_padding_stays_and_its_factor_goes() -> None:
    net = Network((1, 3, 6, 6))
    x = net.node("Sigmoid", "x")
    x = net.node(
        "Add", net.node("Mul", x, net.constant(np.array([0.3], np.float32))), net.constant(np.array([0.1], np.float32))
    )
    assert _folded(net, net.conv(x, 3, 2, 3)) == {"Sigmoid": 1, "Add": 1, "Conv": 1}


def test_what_others_read_is_not_folded() -> None:
    net = Network((1, 3, 6, 6))
    x = net.conv("x", 3, 4)
    y = net.node("Mul", x, net.constant(np.float32(2)))
    assert _folded(net, x, y)["Mul"] == 1
    net = Network((1, 3, 6, 6))
    x = net.node("Sub", net.constant(np.float32(1)), net.conv("x", 3, 4))  # 1 - x
    assert _folded(net, x)["Sub"] == 1


@pytest.mark.parametrize("form", ["divided last", "divided first", "times a sixth", "gate"])
@pytest.mark.parametrize("opset", [11, 17])
def test_hard_swish_is_one_node(form: str, opset: int) -> None:
    net = Network((1, 3, 6, 6), opset=opset)
    x = net.node("Tanh", "x")
    bounds = [net.constant(np.float32(v)) for v in (0, 6)]
    if form == "gate":
        x = net.node("Mul", x, net.node("HardSigmoid", x, alpha=1 / 6, beta=0.5))
    else:
        gate = net.node("Clip", net.node("Add", x, net.constant(np.array([3], np.float32))), *bounds)
        six, sixth = net.constant(np.array([6], np.float32)), net.constant(np.array([1 / 6], np.float32))
        if form == "divided first":
            x = net.node("Mul", x, net.node("Div", gate, six))
        else:
            x = net.node("Mul", x, gate)
            x = net.node("Div", x, six) if form == "divided last" else net.node("Mul", x, sixth)
    assert _folded(net, net.node("Neg", x)) == {"Tanh": 1, "HardSwish": 1, "Neg": 1}


@pytest.mark.parametrize("add", [2.5, 3.0])
@pytest.mark.parametrize("high", [5.0, 6.0])
def test_what_is_almost_hard_swish_stays(add: float, high: float) -> None:
    net = Network((1, 3, 6, 6))
    gate = net.node("Add", "x", net.constant(np.array([add], np.float32)))
    gate = net.node("Clip", gate, net.constant(np.float32(0)), net.constant(np.float32(high)))
    x = net.node("Div", net.node("Mul", "x", gate), net.constant(np.array([6], np.float32)))
    assert _folded(net, net.node("Neg", x))["HardSwish"] == (add == 3.0 and high == 6.0)


@pytest.mark.parametrize("opset", [12, 17])
def test_layer_normalization_is_one_node(opset: int) -> None:
    net = Network((1, 4, 16), opset=opset)
    x = net.node("Sub", "x", net.node("ReduceMean", "x", axes=[-1]))
    power = net.node("ReduceMean", net.node("Pow", x, net.constant(np.float32(2))), axes=[2])
    x = net.node("Div", x, net.node("Sqrt", net.node("Add", power, net.constant(np.float32(1e-5)))))
    x = net.node("Add", net.node("Mul", x, net.constant(net.normal(16))), net.constant(net.normal(16)))
    assert _folded(net, x) == {"LayerNormalization": 1}


@settings(max_examples=30)
@given(st.integers(0, 2**31), st.lists(st.sampled_from("norm mul add sub div relu conv one".split()), max_size=7))
def test_any_chain_keeps_its_function(seed: int, chain: list[str]) -> None:
    net = Network((1, 4, 5, 5), seed)
    x = net.conv("x", 4, 4)
    for what in chain:
        row = net.constant(net.normal(*((1,) if net.random.random() < 0.5 else (1, 4, 1, 1))) + np.float32(1.5))
        if what == "norm":
            x = _norm(net, x, 4)
        elif what == "relu":
            x = net.node("Relu", x)
        elif what == "conv":
            x = net.conv(x, 4, 4, int(net.random.choice([1, 3])))
        elif what == "one":
            x = net.node("Mul", x, net.constant(np.array([1], np.float32)))
        else:
            x = net.node(what.capitalize(), x, row)
    _folded(net, x)


def test_gelu_by_tanh_becomes_gelu() -> None:
    net = Network((1, 3, 6, 6), opset=20)
    x = net.conv("x", 3, 4)
    cube = net.node("Mul", net.node("Pow", x, net.constant(np.float32(3))), net.constant(np.float32(0.044715)))
    inner = net.node("Mul", net.node("Add", x, cube), net.constant(np.float32(0.7978846)))
    outer = net.node("Add", net.node("Tanh", inner), net.constant(np.float32(1)))
    model = net.model(net.node("Mul", net.node("Mul", x, net.constant(np.float32(0.5))), outer))
    folded = fold(model)
    assert [n.op_type for n in folded.graph] == ["Conv", "Gelu"]
    for feeds in net.samples(2):  # nearer than 8 bits tell apart
        np.testing.assert_allclose(run(folded, feeds)[0], run(model, feeds)[0], atol=5e-4)


def test_a_reciprocal_becomes_a_division_with_a_one_of_its_own() -> None:
    net = Network((1, 6))
    assert _folded(net, net.node("Reciprocal", net.node("Exp", "x"))) == {"Exp": 1, "Div": 1}
