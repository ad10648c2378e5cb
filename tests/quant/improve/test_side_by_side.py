# SPDX-License-Identifier: Apache-2.0
"""The walk: what onnxruntime gives for the whole model, in float and quantized, with few values alive."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hexforge.ir import AxisScaleOffset, DType, ScaleOffset
from hexforge.model.reader import read
from hexforge.patterns.nodes import captured
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.improve import side_by_side as walking
from hexforge.quant.improve.side_by_side import NodeRunner, Walk, peak_bytes, rounded, session
from hexforge.quant.write import write
from tests.quant.networks import Network, plain, run


def _net() -> Network:
    net = Network((1, 3, 8, 8))
    x = net.node("Relu", net.conv("x", 3, 8, spread=True))
    y = net.node("Sigmoid", net.conv(x, 8, 8))
    x = net.node("MaxPool", net.node("Add", net.node("Mul", x, y), x), kernel_shape=[2, 2])
    net.node("Gemm", net.node("Flatten", x), net.constant(net.normal(8 * 49, 4)), net.constant(net.normal(4)))
    return net


def test_both_worlds_are_what_the_whole_model_gives() -> None:
    net = _net()
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(3)
    plan = plain(model, samples)
    walk = Walk(model, plan, samples)
    most = max(len(walk.exact) for _ in walk)
    (name,) = walk.exact
    assert most <= 3  # a value and what it is added to, not all of them
    quantized = session(write(model, plan))
    step = plan.tensors[name].encoding
    assert isinstance(step, ScaleOffset)
    for i, feeds in enumerate(samples):
        np.testing.assert_allclose(walk.exact[name][i], run(model, feeds)[0], rtol=1e-4, atol=1e-4)
        (found,) = quantized.run(None, dict(feeds))
        assert np.abs(found - walk.coarse[name][i]).max() <= 2.01 * step.scale  # rounding ties fall either way


def test_conversions_are_made_for_the_node_that_asks() -> None:
    net = Network((1, 4))
    net.node("Add", net.node("Neg", "x"), net.node("Abs", "x"))
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(1)
    coarse = Fixed(DType.UINT8, ScaleOffset(0.5, -128))
    plan = EncodingPlan(converts={("x", "n0"): coarse})
    steps = {step.node.name: step.outputs(False)[0][0] for step in Walk(model, plan, samples)}
    x = np.asarray(samples[0]["x"])
    np.testing.assert_array_equal(steps["n0"], -rounded(x, coarse))
    np.testing.assert_array_equal(steps["n1"], np.abs(x))


def test_constants_are_read_as_the_plan_has_them() -> None:
    net = Network((1, 4))
    net.node("Add", "x", net.constant(np.array([1, 2, 3, 4], np.float32)))
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(1)
    fixed, x = Fixed(DType.INT8, ScaleOffset(0.5)), np.asarray(samples[0]["x"])
    for plan, expected in (
        (EncodingPlan(constants={"c0": np.array([0, 0, 0, 9], np.float32)}), [0, 0, 0, 9]),
        (EncodingPlan(tensors={"c0": fixed}, constants={"c0": np.array([0.6, 0, 0, 9], np.float32)}), [0.5, 0, 0, 9]),
        (EncodingPlan(tensors={"c0": fixed}, integers={"c0": np.array([1, 2, 3, 4], np.int8)}), [0.5, 1, 1.5, 2]),
    ):
        (step,) = Walk(model, plan, samples)
        np.testing.assert_allclose(step.outputs(False)[0][0] - x, [expected], atol=1e-6)
        np.testing.assert_allclose(step.outputs(True)[0][0] - x, [[1, 2, 3, 4]], atol=1e-6)


def test_memory_is_bounded_by_taking_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    net = _net()
    model = net.model(net.nodes[-1].output[0])
    assert peak_bytes(model) >= 3 * 8 * 64 * 4
    monkeypatch.setattr(walking, "MEMORY_BYTES", 4 * peak_bytes(model))
    assert len(Walk(model, EncodingPlan(), net.samples(5)).samples) == 2
    monkeypatch.setattr(walking, "MEMORY_BYTES", 1)
    assert len(Walk(model, EncodingPlan(), net.samples(5)).samples) == 1


def test_a_node_reads_what_its_graphs_read_from_outside() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])
        return helper.make_graph([helper.make_node(op, ["a"], [name], name=f"in_{name}")], name, [], [out])

    graph = helper.make_graph(
        [
            helper.make_node("Abs", ["x"], ["a"], name="abs"),
            helper.make_node("If", ["c"], ["y"], "if", then_branch=branch("t", "Neg"), else_branch=branch("e", "Exp")),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).ir
    node = next(n for n in model.graph if n.op_type == "If")
    assert [v.name for v in captured(node)] == ["a"]
    x = np.array([[1, -2, 3, -4]], np.float32)
    walk = Walk(model, None, [{"x": x, "c": np.array(True)}])
    for _ in walk:
        pass
    np.testing.assert_array_equal(walk.exact["y"][0], -np.abs(x))


def test_one_session_runs_a_node_with_any_constants() -> None:
    net = Network((1, 3, 8, 8))
    model = net.model(net.conv("x", 3, 4))
    (node,) = model.graph
    runner = NodeRunner(node, model)
    assert [v.name for v in runner.fed] == ["x", "c0", "c1"]
    x = np.asarray(net.samples(1)[0]["x"])
    (found,) = runner([x, np.zeros((4, 3, 3, 3), np.float32), np.array([1, 2, 3, 4], np.float32)])
    np.testing.assert_array_equal(found[0, :, 0, 0], [1, 2, 3, 4])


def test_rounded_saturates_and_takes_other_encodings_and_types() -> None:
    fixed = Fixed(DType.UINT8, ScaleOffset(0.1, -10))
    np.testing.assert_allclose(
        rounded(np.array([-5, -0.04, 0.26, 99], np.float32), fixed), [-1, 0, 0.3, 24.5], rtol=1e-6
    )
    rows = Fixed(DType.INT8, AxisScaleOffset(0, (0.5, 2.0), (0, 0)))
    np.testing.assert_allclose(rounded(np.array([[0.6, 0.2], [0.6, 3.1]], np.float32), rows), [[0.5, 0], [0, 4]])  # type: ignore[arg-type]
    whole = np.array([1, 2], np.int64)
    assert rounded(whole, fixed) is whole
