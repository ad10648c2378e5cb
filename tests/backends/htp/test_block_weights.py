# SPDX-License-Identifier: Apache-2.0
"""LPBQ of 4-bit weights with a scale per block: exact where the scales fit, near where they do not, else left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.backends.htp.block_weights import to_lpbq
from hexforge.ir import Block, BlockwiseExpansion, DType, Graph, Role, TensorType
from hexforge.ir.fixed_point import dequantize

QNN = "QNNExecutionProvider"
X, Y = np.float32(1 / 8192), np.float32(1 / 256)


def model(codes: np.ndarray, scales: np.ndarray, block: int) -> bytes:
    """A matrix of 4-bit codes with scales per block of its rows, between 16-bit activations."""
    rows, columns = codes.shape
    zero = np.uint16(32768)
    constants = [helper.make_tensor("wq", TensorProto.INT4, codes.shape, codes.ravel().tolist())]
    constants += [
        numpy_helper.from_array(np.asarray(v), n) for n, v in (("ws", scales), ("xs", X), ("ys", Y), ("z", zero))
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "xs", "z"], ["xq"]),
        helper.make_node("DequantizeLinear", ["xq", "xs", "z"], ["xd"]),
        helper.make_node("DequantizeLinear", ["wq", "ws"], ["wd"], axis=0, block_size=block),
        helper.make_node("MatMul", ["xd", "wd"], ["m"], "product"),
        helper.make_node("QuantizeLinear", ["m", "ys", "z"], ["mq"]),
        helper.make_node("DequantizeLinear", ["mq", "ys", "z"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, rows]), ("y", [3, columns]))
    ]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return bytes(made.SerializeToString())


def ran(data: bytes, x: np.ndarray, on: str) -> tuple[np.ndarray, Graph]:
    options = {"soc_model": "57", "enable_block_quant_weight_optimization": on}
    session = hexforge.InferenceSession(data, providers=[(QNN, options)])
    assert session.notes == ()
    (graph,) = session.graphs
    return session.run(None, {"x": x})[0], graph


def encoding(graph: Graph) -> Any:
    (node,) = (node for node in graph if node.op.name == "FullyConnected")
    assert node.inputs[1] is not None
    return node.inputs[1].encoding


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(5).uniform(-1, 1, (3, 64)).astype(np.float32)


@pytest.mark.parametrize("block", [8, 16, 32])
def test_scales_that_fit_change_no_number(block: int, x: np.ndarray) -> None:
    random = np.random.default_rng(block)
    codes = random.integers(-8, 8, (64, 12))
    steps = random.integers(1, 17, (64 // block, 12))
    steps[0] = 16  # a channel's scale is a sixteenth of its largest
    scales = (steps * random.uniform(0.001, 0.01, 12).astype(np.float32)).astype(np.float32)
    plain, before = ran(model(codes, scales, block), x, "0")
    made, after = ran(model(codes, scales, block), x, "1")
    assert isinstance(encoding(before), Block)
    assert isinstance(encoding(after), BlockwiseExpansion)
    np.testing.assert_allclose(made, plain, atol=1.01 * float(Y))


def test_scales_that_do_not_fit_are_near(x: np.ndarray) -> None:
    random = np.random.default_rng(0)
    weight = random.standard_normal((64, 12)).astype(np.float32)
    scales = (np.abs(weight).reshape(4, 16, 12).max(1) / 7).astype(np.float32)
    codes = np.clip(np.rint(weight / np.repeat(scales, 16, 0)), -8, 7).astype(np.int64)
    made, after = ran(model(codes, scales, 16), x, "1")
    node = next(node for node in after if node.op.name == "FullyConnected")
    value = node.inputs[1]
    assert value is not None
    assert value.data is not None
    real = dequantize(value.data, value.type, np.float64).T
    given = codes * np.repeat(scales.astype(np.float64), 16, 0)
    assert np.abs(real - given).max() <= 0.5 * np.repeat(scales, 16, 0).max()  # half a step at most
    assert np.sqrt(((real - given) ** 2).mean()) < 0.25 * float(scales.mean())
    exact = np.rint(x.astype(np.float64) / float(X)) * float(X) @ real
    assert np.abs(made - exact).max() <= 0.51 * float(Y)


@pytest.mark.parametrize(
    ("block_shape", "offset", "changed"), [((1, 4), 0, 1), ((1, 4), 3, 0), ((2, 4), 0, 0), ((1, 8), 0, 0)]
)
def test_only_symmetric_blocks_of_a_channel_are_changed(
    block_shape: tuple[int, int], offset: int, changed: int
) -> None:
    """Blocks of several channels, a zero point, or one block for each channel are not those of LPBQ."""
    count = 6 // block_shape[0] * 8 // block_shape[1]
    kind = Block(block_shape, (0.5,) * count, (offset,) * count)
    graph = Graph("g")
    x = graph.value("x", TensorType(DType.FLOAT16, (1, 8)), Role.APP_WRITE)
    y = graph.value("y", TensorType(DType.FLOAT16, (1, 6)), Role.APP_READ)
    data = np.zeros((6, 8), DType.INT4.numpy)
    weight = graph.value("w", TensorType(DType.INT4, (6, 8), kind), Role.STATIC, data)
    graph.node("FullyConnected", [x, weight], [y], name="product")
    assert to_lpbq(graph) == changed
    assert isinstance(weight.encoding, BlockwiseExpansion) == bool(changed)
