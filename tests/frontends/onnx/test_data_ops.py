# SPDX-License-Identifier: Apache-2.0
"""Translators of elementwise, layout, gather, reduce and convert ops, against onnxruntime's CPU kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from hexforge.frontends.onnx.placing import place
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.single_node import compare, f32, i64, model, placed

_RNG = np.random.default_rng(4)

X = {"x": f32(2, 3, 4)}


@pytest.mark.parametrize(
    ("op", "constants", "attributes", "opset"),
    [
        ("Slice", {}, {"starts": [1, 0], "ends": [9, -1], "axes": [0, 2]}, 9),
        ("Slice", {"s": i64(-1, 5), "e": i64(-99, -99), "a": i64(1, -1), "p": i64(-1, -2)}, {}, 13),
        ("Slice", {"s": i64(2), "e": i64(2), "a": i64(1)}, {}, 13),
        ("Split", {}, {"axis": 2, "split": [1, 3]}, 11),
        ("Split", {"s": i64(0, 4)}, {"axis": 2}, 13),
        ("Split", {}, {"axis": 1, "num_outputs": 2}, 18),
        ("Pad", {}, {"pads": [0, 1, 0, 0, 0, 2], "value": 2.5}, 10),
        ("Pad", {"p": i64(0, -1, 2, 0, 1, -1), "v": np.float32(3)}, {}, 13),
        ("Pad", {"p": i64(2, 2)}, {"mode": "reflect"}, 13),
        ("Pad", {"p": i64(1, 0, 2, 0, 1, 3)}, {"mode": "wrap"}, 19),
        ("Expand", {"s": i64(5, 1, 1, 4)}, {}, 13),
        ("Unsqueeze", {}, {"axes": [0, 4]}, 11),
        ("Squeeze", {}, {}, 13),
        ("Reshape", {"s": i64(0, -1, 2)}, {}, 14),
        ("Flatten", {}, {"axis": 3}, 13),
        ("Tile", {"r": i64(2, 1, 0)}, {}, 13),
        ("Gather", {"i": np.array([[0, -1]])}, {"axis": -1}, 13),
        ("ReduceL2", {}, {"axes": [0, 2], "keepdims": 0}, 13),
        ("ReduceLogSumExp", {}, {"axes": [1]}, 13),
        ("ReduceMean", {"a": i64(-1)}, {"keepdims": 0}, 18),
        ("ReduceSum", {}, {"noop_with_empty_axes": 1}, 13),
        ("CumSum", {"a": np.array(-1)}, {"exclusive": 1, "reverse": 1}, 14),
        ("Tan", {}, {}, 13),
        ("Reciprocal", {}, {}, 13),
        ("Mean", {"a": f32(4), "b": f32(3, 1)}, {}, 13),
        ("Max", {}, {}, 13),
        ("Dropout", {}, {}, 13),
    ],
)
def test_float(op: str, constants: dict[str, np.ndarray], attributes: dict[str, Any], opset: int) -> None:
    inputs = X
    if op == "Squeeze":
        inputs = {"x": f32(1, 3, 1)}
    elif op == "Pad" and constants and next(iter(constants.values())).size == 2:
        inputs = {"x": f32(3)}
    compare(op, inputs, constants, opset=opset, outputs=2 if op == "Split" else 1, **attributes)


def test_integers() -> None:
    a, b = np.array([-7, 7, -128, 5], np.int32), np.array([2, -2, 3, -3], np.int32)
    compare("Div", {"a": a, "b": b}, {}, np.int32)
    compare("Mod", {"a": a, "b": b}, {}, np.int32)
    compare("Mod", {"a": a, "b": b}, {}, np.int32, fmod=1)
    compare("Pow", {"a": a}, {"p": np.array(2, np.float32)}, np.int32)
    compare("Add", {"a": np.array([250], np.uint8), "b": np.array([10], np.uint8)}, {}, np.uint8, opset=14)
    compare("ReduceMax", {"x": np.array([[1, -9]], np.int8)}, {"a": i64(1)}, np.int8, opset=20)
    compare("TopK", {"x": i64(3, 1, 3, 2).reshape(2, 2)}, {"k": i64(1)}, [np.int64] * 2, outputs=2, axis=0, largest=0)
    compare("ArgMax", {"x": f32(3, 4).round()}, {}, np.int64, axis=0, select_last_index=1, keepdims=0)
    compare("Range", {}, {"a": np.array(9), "b": np.array(0), "c": np.array(-4)}, np.int64)
    compare("OneHot", {"i": i64(3, -1, 9)}, {"d": i64(4), "v": f32(2)}, axis=0)


def test_run_time_indices_may_be_negative() -> None:
    x, i = f32(4, 3), np.array([[-1, 2]])
    compare("Gather", {"x": x, "i": i}, {})
    compare("GatherElements", {"x": x, "i": i}, {}, axis=0)
    compare("GatherND", {"x": x, "i": i}, {})
    compare("ScatterElements", {"x": x, "i": i, "u": f32(1, 2)}, {}, opset=18, axis=1, reduction="max")
    compare("ScatterND", {"x": x, "i": i, "u": f32(1)}, {}, opset=18, reduction="mul")


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
def test_gather_block_quantized(bits: int, zeros: bool) -> None:
    width = 32 * bits // 8
    data = _RNG.integers(0, 256, (6, width)).astype(np.uint8)
    constants = {"d": data, "i": np.array([[5, 0], [2, 2]]), "s": f32(6, 2)}
    if zeros:
        constants["z"] = _RNG.integers(0, 256, (6, 2 * bits // 8)).astype(np.uint8)
    inputs = {"i": constants.pop("i")}
    node = helper.make_node(
        "GatherBlockQuantized", ["d", "i", "s", *(["z"] if zeros else [])], ["y"], "node", domain="com.microsoft",
        bits=bits, block_size=16, gather_axis=0, quantize_axis=1,
    )  # fmt: skip
    proto = model([node], inputs, constants, {"y": (np.float32, (2, 2, 32))})
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(placed(proto, inputs)[0][0], session.run(None, inputs)[0], rtol=1e-6)


def _qdq(op: str, count: int, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Q-DQ inputs of different encodings, an op, Q-DQ."""
    nodes, constants, inputs = [], {}, {}
    for i in range(count + 1):
        constants |= {f"s{i}": np.float32(0.02 + 0.01 * i), f"z{i}": np.uint8(120 + i)}
    for i in range(count):
        inputs[f"x{i}"] = f32(2, 4)
        nodes += [
            helper.make_node("QuantizeLinear", [f"x{i}", f"s{i}", f"z{i}"], [f"q{i}"]),
            helper.make_node("DequantizeLinear", [f"q{i}", f"s{i}", f"z{i}"], [f"d{i}"]),
        ]
    nodes += [
        helper.make_node(op, [f"d{i}" for i in range(count)], ["r"], **attributes),
        helper.make_node("QuantizeLinear", ["r", f"s{count}", f"z{count}"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", f"s{count}", f"z{count}"], ["y"]),
    ]
    return model(nodes, inputs, constants, {"y": np.float32}), inputs


@pytest.mark.parametrize(
    ("op", "count", "attributes", "becomes"),
    [
        ("Concat", 2, {"axis": 1}, "Concat"),
        ("Add", 2, {}, "ElementWiseAdd"),
        ("Max", 2, {}, "ElementWiseMaximum"),
        ("Max", 3, {}, "ElementWiseMaximum"),
        ("ReduceMean", 1, {}, "ReduceMean"),
        ("Abs", 1, {}, "ElementWiseAbs"),
    ],
)
def test_quantized(op: str, count: int, attributes: dict[str, Any], becomes: str) -> None:
    proto, inputs = _qdq(op, count, **attributes)
    (got,), ops = placed(proto, inputs)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    step = 0.02 + 0.01 * count
    assert np.abs(got - session.run(None, inputs)[0]).max() <= 1.01 * step  # one step, where float rounding ties
    assert becomes in ops
    assert ops.count("Dequantize") == 1


def test_standalone_quantize_and_dequantize() -> None:
    x = f32(2, 3)
    scale, zero = np.array([0.1, 0.2, 0.3], np.float32), np.array([1, 2, 3], np.int8)
    assert compare("QuantizeLinear", {"x": x}, {"s": scale, "z": zero}, np.int8, axis=1) == ["Quantize"]
    q = np.array([[-9, 3, 100]], np.int8)
    assert compare("DequantizeLinear", {"q": q}, {"s": scale, "z": zero}) == ["Dequantize"]
    q32 = np.array([-(2**20), 5], np.int32)
    compare("DequantizeLinear", {"q": q32}, {"s": np.float32(0.25)})
    blocks = {"s": np.array([[0.5, 2.0]], np.float32), "z": np.array([[1, 2]], np.uint8)}
    compare("DequantizeLinear", {"q": np.arange(4, dtype=np.uint8).reshape(1, 4)}, blocks, axis=1, block_size=2)


def test_dynamic_quantize_linear() -> None:
    for x in (f32(3, 4), np.abs(f32(5)), np.zeros(3, np.float32)):
        compare("DynamicQuantizeLinear", {"x": x}, {}, [np.uint8, np.float32, np.uint8], outputs=3)


@pytest.mark.parametrize("to", [TensorProto.INT32, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.UINT8])
def test_cast(to: int) -> None:
    compare("Cast", {"x": np.array([0, 0.5, 200.9, 7], np.float32)}, {}, to, to=to)


def _reason(node: onnx.NodeProto, inputs: dict[str, np.ndarray], constants: dict[str, np.ndarray]) -> str:
    shape = (2, 3)
    dtype = np.uint8 if node.op_type == "QuantizeLinear" else np.float32
    ir = read(model([node], inputs, constants, {"y": (dtype, shape)})).ir
    (found,) = place(units(ir), lambda node: None)
    assert found.reason is not None
    return found.reason


def test_refusals_say_why() -> None:
    x = {"x": f32(2, 3)}
    shape = {"s": i64(3, 2)}
    assert "run time" in _reason(helper.make_node("Reshape", ["x", "s"], ["y"]), {**x, **shape}, {})
    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    assert "not a positive" in _reason(quantize, x, {"s": np.array(0, np.float32), "z": np.array(0, np.uint8)})
    assert "not a positive" in _reason(quantize, x, {"s": np.array(np.nan, np.float32), "z": np.array(0, np.uint8)})
    assert "run time" in _reason(quantize, {**x, "s": f32(), "z": np.array(3, np.uint8)}, {})
    gather = helper.make_node("Gather", ["x", "i"], ["y"])
    assert "outside" in _reason(gather, x, {"i": i64(0, 7)})
