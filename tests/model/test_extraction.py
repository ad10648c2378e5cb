# SPDX-License-Identifier: Apache-2.0
"""extract(): some nodes as a stand-alone model that onnxruntime runs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from hexforge.errors import CallError, CapacityError
from hexforge.model.extraction import extract, extract_parts
from hexforge.model.reader import read
from tests.model.test_reader import text


def run(proto: onnx.ModelProto, **feeds: np.ndarray) -> list[np.ndarray]:
    onnx.checker.check_model(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def test_a_middle_part_with_its_constants():
    proto = text("agraph (float[2, 3] x) => (float[2, 4] y) { a = Relu(x) b = MatMul(a, w) c = Neg(b) y = Abs(c) }")
    weights = np.arange(12, dtype=np.float32).reshape(3, 4)
    proto.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    model = read(proto)
    nodes = list(model.ir.graph)[1:3]
    part = extract(model, list(reversed(nodes)), ["a"], ["c"])
    a = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(part, a=a)[0], -(a @ weights))
    assert [d.dim_value for d in part.graph.input[0].type.tensor_type.shape.dim] == [2, 3]


def test_bodies_take_captured_values_and_constants_along():
    proto = text(
        """agraph (float[2] x, bool c) => (float[2] y) {
            h = Neg(x)
            y = If(c) <
                then_branch = t () => (float[2] a) { a = Add(h, w) },
                else_branch = e () => (float[2] b) {
                    k = Constant<value_floats: floats = [7.0, 8.0]>()
                    b = Mul(h, k)
                }
            >
        }"""
    )
    proto.graph.initializer.append(numpy_helper.from_array(np.array([10, 20], np.float32), "w"))
    model = read(proto)
    branch = next(n for n in model.ir.graph if n.op_type == "If")
    part = extract(model, [branch], ["c", "h"], ["y"])
    h = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(run(part, c=np.array(True), h=h)[0], [11, 22])
    np.testing.assert_array_equal(run(part, c=np.array(False), h=h)[0], [7, 16])
    with pytest.raises(CallError, match="'h' is read"):
        extract(model, [branch], ["c"], ["y"])
    with pytest.raises(CallError, match="writes 'h'"):
        extract(model, [branch], ["c", "h"], ["h"])
    with pytest.raises(CallError, match="'q' is not read"):
        extract(model, [branch], ["c", "h", "q"], ["y"])


def test_loop_with_captures():
    model = read(
        text(
            """agraph (float[2] x, int64 n) => (float[2] y) {
                t = Constant<value_int: int = 3>()
                c = Cast<to = 9>(n)
                y = Loop(t, c, x) <
                    body = b (int64 i, bool go, float[2] v) => (bool more, float[2] w) {
                        w = Add(v, x)
                        more = Identity(go)
                    }
                >
            }"""
        )
    )
    loop = next(n for n in model.ir.graph if n.op_type == "Loop")
    part = extract(model, [loop], ["x", "c"], ["y"])
    np.testing.assert_array_equal(run(part, x=np.ones(2, np.float32), c=np.array(True))[0], [4, 4])


def test_spread_constants_stay_small():
    model = read(
        text(
            """agraph (float[1] x) => (float y) {
                s = Constant<value_ints: ints = [4000, 1000]>()
                c = ConstantOfShape<value: tensor = float[1] {2.0}>(s)
                d = Add(c, x)
                y = ReduceMax<keepdims = 0>(d)
            }"""
        )
    )
    part = extract(model, list(model.ir.graph), ["x"], ["y"])
    assert part.ByteSize() < 2000
    assert run(part, x=np.ones(1, np.float32))[0] == 3


def test_newest_opset_is_lowered_where_no_op_changed():
    body = "agraph (float[2] x) => (float[2] y) { y = Relu(x) }"
    model = read(text(body, onnx.defs.onnx_opset_version()))
    part = extract(model, list(model.ir.graph), ["x"], ["y"])
    np.testing.assert_array_equal(run(part, x=np.array([-1, 2], np.float32))[0], [0, 2])


def test_contrib_domain_is_imported():
    body = "agraph (float[2] x) => (float[2] y) { y = com.microsoft.QuickGelu(x) }"
    model = read(text(body, 17, ', "com.microsoft": 1'))
    part = extract(model, list(model.ir.graph), ["x"], ["y"])
    session = onnxruntime.InferenceSession(part.SerializeToString(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros(2, np.float32)})[0].shape == (2,)


def test_constants_too_large_for_a_protobuf_are_given_beside(monkeypatch: pytest.MonkeyPatch):
    import importlib

    module = importlib.import_module("hexforge.model.extraction")
    monkeypatch.setattr(module, "MOST_BYTES", 1000)
    weights = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", 1, [2, 200])],
        [helper.make_tensor_value_info("y", 1, [2, 300])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    nodes = list(model.ir.graph)
    with pytest.raises(CapacityError, match="protobuf"):
        extract(model, nodes, ["x"], ["y"])
    part = extract_parts(model, nodes, ["x"], ["y"])
    options = onnxruntime.SessionOptions()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(a) for a in part.constants.values()]
    options.add_external_initializers(list(part.constants), values)
    session = onnxruntime.InferenceSession(part.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    x = np.ones((2, 200), np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ weights, rtol=1e-4, atol=1e-4)
