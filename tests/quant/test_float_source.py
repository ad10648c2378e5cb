# SPDX-License-Identifier: Apache-2.0
"""Models quantized dynamically, by hand and by onnxruntime: the float models that get encodings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

import hexforge
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError
from hexforge.model.reader import read
from hexforge.model.save import save, to_bytes
from hexforge.quant.float_source import as_float, float_source
from tests.quant.networks import Network

Array = np.ndarray[Any, Any]
HTP = [("QNNExecutionProvider", {"backend_type": "htp"})]


def _run(model: bytes, feeds: Any) -> Array:
    result: Array = onnxruntime.InferenceSession(model).run(None, feeds)[0]
    return result


def _bias_in_codes(*, between: str = "") -> bytes:
    """A convolution as onnxruntime 1.5 quantized it: its bias is added in codes, before the Cast."""
    random = np.random.default_rng(0)
    constants = {
        "w": random.integers(0, 256, (8, 16, 3, 3)).astype(np.uint8), "wz": np.uint8(120), "ws": np.float32(0.01),
        "bias": random.standard_normal(8).astype(np.float32) * 20, "sizes": np.array([1, 8, 1, 1]),
    }  # fmt: skip
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"], "quantize"),
        helper.make_node("Mul", ["s", "ws"], ["step"], "step"),
        helper.make_node("Div", ["bias", "step"], ["d"], "divide"),
        helper.make_node("Floor", ["d"], ["r"], "round"),
        helper.make_node("Cast", ["r"], ["c"], "codes", to=TensorProto.INT32),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Reshape", ["c", "sizes"], ["row"], "row"),
        helper.make_node("Add", ["i", "row"], ["sum"], "add"),
        helper.make_node("Cast", ["sum"], ["real"], "cast", to=TensorProto.FLOAT),
        *([helper.make_node(between, ["real"], ["kept"], "between")] if between else []),
        helper.make_node("Mul", ["s", "ws"], ["steps"], "steps"),
        helper.make_node("Mul", ["kept" if between else "real", "steps"], ["y"], "scale"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 8, 8, 8))],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def test_a_bias_in_codes_is_the_bias_of_a_float_convolution() -> None:
    model = _bias_in_codes()
    feeds = {"x": np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype(np.float32)}
    near = _run(model, feeds)
    unwrapped = as_float(read(model))
    assert [node.op_type for node in unwrapped.ir.graph] == ["Conv"]
    width = float(np.ptp(near))
    assert np.abs(_run(to_bytes(unwrapped.ir), feeds) - near).max() < 0.02 * width
    session = hexforge.InferenceSession(model, providers=HTP)  # sums of codes would be up to 4 million
    assert {op for row in session.placements for op in row.qnn_ops} <= {"Conv2d", "Transpose"}
    assert not any(row.unsafe for row in session.placements)
    assert np.abs(session.run(None, feeds)[0] - near).max() < 0.02 * width


def test_sums_of_codes_that_float16_cannot_hold_are_told() -> None:
    session = hexforge.InferenceSession(_bias_in_codes(between="Relu"), providers=HTP)
    (unsafe,) = (row.unsafe for row in session.placements if row.op_type == "ConvInteger")
    assert "pass 65504" in unsafe[0]
    assert "hexforge advise --apply" in unsafe[0]


def test_what_is_not_understood_is_not_quantized() -> None:
    with pytest.raises(CallError, match="is quantized dynamically, and 1 of its nodes, as 'quantize'"):
        float_source(read(_bias_in_codes(between="Relu")))


def _recurrent(folder: Path) -> tuple[bytes, Path]:
    """An embedding, an LSTM in both directions and a product, in float and as quantize_dynamic writes them."""
    net = Network((6, 1, 16))
    weights = [net.constant(net.normal(2, *size)) for size in ((32, 16), (32, 8), (64,))]
    y = net.node("LSTM", "x", *weights, hidden_size=8, direction="bidirectional", outputs=1)
    flat = net.node("Reshape", net.node("Transpose", y, perm=[0, 2, 1, 3]), net.constant(np.array([6, 1, 16])))
    model = net.model(net.node("MatMul", flat, net.constant(net.normal(16, 4))))
    source, target = folder / "float.onnx", folder / "dynamic.onnx"
    save(model, source)
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)
    return source.read_bytes(), target


def test_an_lstm_quantized_dynamically(tmp_path: Path) -> None:
    exact, path = _recurrent(tmp_path)
    ops = {node.op_type for node in onnx.load(path).graph.node}
    assert {"DynamicQuantizeLSTM", "MatMulInteger"} <= ops
    unwrapped = float_source(read(path))
    assert {"LSTM", "MatMul"} <= {node.op_type for node in unwrapped.ir.graph}
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 1, 16)).astype(np.float32)}
    wanted, near = _run(exact, feeds), _run(path.read_bytes(), feeds)
    assert np.abs(_run(to_bytes(unwrapped.ir), feeds) - wanted).max() <= np.abs(near - wanted).max()


def test_optimize_begins_with_the_float_model(tmp_path: Path) -> None:
    net = Network((1, 8, 16, 16))
    x = net.node("Relu", net.conv("x", 8, 16))
    source, target = tmp_path / "float.onnx", tmp_path / "model.onnx"
    save(net.model(net.conv(x, 16, 8)), source)
    quantize_dynamic(source, target, weight_type=QuantType.QUInt8)
    request = OptimizeRequest(data="random:4", groups=1, budget=2, samples=2)
    made = optimize(target, tmp_path / "out", request)
    assert not {n.op_type for n in onnx.load(made.folder.float_model).graph.node} & {"ConvInteger"}
    exact = hexforge.estimate(source, Deployment(precision="w8a8"))
    unwrapped = hexforge.estimate(target, Deployment(precision="w8a8"))  # its biases stay sums of their own
    assert unwrapped.latency_ms == pytest.approx(exact.latency_ms, rel=0.01)
