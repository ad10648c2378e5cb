# SPDX-License-Identifier: Apache-2.0
"""Nodes that stay with the CPU: they get no Q and DQ nodes, and nobody says that they compute in float16."""

from __future__ import annotations

import onnx
import pytest

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.model.save import to_bytes
from tests.quant.networks import Network

CONVERTS = {"QuantizeLinear", "DequantizeLinear"}


def _model() -> bytes:
    """Products along axes, which HTP does not have, of the input and of a convolution's result; and a Det."""
    net = Network((1, 4, 8, 8))
    rows = net.node("ReduceProd", "x", axes=[3], keepdims=1)
    both = net.node("ReduceProd", rows, axes=[2], keepdims=1)
    y = net.node("Relu", net.conv("x", 4, 8))
    return to_bytes(
        net.model(net.node("Det", both), net.conv(y, 8, 4), net.node("ReduceProd", y, axes=[1], keepdims=0))
    )


@pytest.fixture(scope="module")
def built() -> hexforge.Quantization:
    return hexforge.quantize(_model(), "random:3")


def test_no_codes_around_them(built: hexforge.Quantization) -> None:
    assert built.model is not None
    graph = onnx.load_from_string(built.model).graph
    made_by = {name: node.op_type for node in graph.node for name in node.output}
    chain = {"n0": "x", "n1": "ReduceProd", "n4": "ReduceProd", "n6": "DequantizeLinear"}  # the last reads the NPU's
    for node in graph.node:
        if node.name in chain:
            assert made_by.get(node.input[0], node.input[0]) == chain.pop(node.name)
            assert not {n.op_type for n in graph.node if node.output[0] in n.input} & CONVERTS
    assert not chain
    assert [made_by[value.name] for value in graph.output] == ["Det", "DequantizeLinear", "ReduceProd"]


def test_it_is_said_that_they_stay_with_the_cpu(built: hexforge.Quantization) -> None:
    refused = dict(built.refused)
    assert len(refused) == 4
    for name in refused:
        assert built.plan.floats[name].startswith("it stays with the CPU: ")
        assert "float16" not in built.plan.floats[name]


def test_promised_is_built(built: hexforge.Quantization) -> None:
    assert built.model is not None
    promised = hexforge.estimate(_model(), Deployment(precision="w8a8"), built=True)
    timed = hexforge.estimate(built.model)
    assert timed.latency_ms == pytest.approx(promised.latency_ms, rel=0.02)
    assert {row.node for row in timed.left_on_cpu} == {row.node for row in promised.left_on_cpu}
