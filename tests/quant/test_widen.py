# SPDX-License-Identifier: Apache-2.0
"""A float16 model is quantized as its float32 twin is, and keeps its inputs and outputs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.model.reader import read
from hexforge.quant.fold import fold
from hexforge.quant.widen import in_float32

HALF, SINGLE = TensorProto.FLOAT16, TensorProto.FLOAT


def _model(inside: int, outside: int) -> bytes:
    """Conv, Gelu written out, a Resize in float32, a mask out of a ConstantOfShape; `outside` at inputs and outputs."""
    kind = helper.tensor_dtype_to_np_dtype(inside)
    rng = np.random.default_rng(5)
    nodes = [
        helper.make_node("Cast", ["x"], ["x_in"], to=inside),
        helper.make_node("Conv", ["x_in", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Div", ["c", "root"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["a"]),
        helper.make_node("Mul", ["c", "a"], ["m"]),
        helper.make_node("Mul", ["m", "half"], ["g"]),
        helper.make_node("Cast", ["g"], ["g32"], to=SINGLE),
        helper.make_node("Resize", ["g32", "", "scales"], ["r32"], mode="nearest"),
        helper.make_node("Cast", ["r32"], ["r"], to=inside),
        helper.make_node(
            "ConstantOfShape", ["size"], ["ones"], value=helper.make_tensor("v", inside, [1], np.ones(1, kind))
        ),
        helper.make_node("Add", ["r", "ones"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=outside),
        helper.make_node("Cast", ["s"], ["z"], to=outside),
    ]
    constants = {
        "w": rng.normal(size=(8, 3, 3, 3)).astype(kind), "b": rng.normal(size=8).astype(kind),
        "root": np.array(np.sqrt(2), kind), "one": np.array(1, kind), "half": np.array(0.5, kind),
        "scales": np.array([1, 1, 2, 2], np.float32), "size": np.array([1, 8, 24, 24]),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", outside, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", outside, [1, 8, 1, 1]), helper.make_tensor_value_info("z", outside, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(onnx.shape_inference.infer_shapes(made).SerializeToString())


@pytest.mark.parametrize("outside", [HALF, SINGLE])
def test_a_float16_model_is_quantized_as_the_float32_one(outside: int) -> None:
    kind = helper.tensor_dtype_to_np_dtype(outside)
    rng = np.random.default_rng(1)
    samples = [{"x": rng.normal(size=(1, 3, 12, 12)).astype(kind)} for _ in range(6)]
    model = _model(HALF, outside)
    found = hexforge.quantize(model, samples, quality=True)
    twin = hexforge.quantize(_model(SINGLE, outside), samples, quality=True)
    assert found.quality is not None
    assert twin.quality is not None
    assert found.placed_whole
    assert (found.nodes, found.quantized) == (twin.nodes, twin.quantized)
    assert found.quality.sqnr_db > 30
    assert abs(found.quality.sqnr_db - twin.quality.sqnr_db) < 3
    assert found.model is not None
    session = hexforge.InferenceSession(found.model, providers=["QNNExecutionProvider"])
    declared = [v.type for v in (*session.get_inputs(), *session.get_outputs())]
    assert declared == ["tensor(float16)" if outside == HALF else "tensor(float)"] * 3
    assert all(array.dtype == kind for array in session.run(None, samples[0]))
    promised = hexforge.estimate(model, hexforge.Deployment("SM8650", "w8a8"), built=True)
    assert promised.latency_ms == pytest.approx(hexforge.estimate(found.model, "SM8650").latency_ms, rel=0.03)


def test_the_model_given_stays_as_it_is() -> None:
    given = read(_model(HALF, HALF)).ir
    before = [(v.name, v.dtype) for node in given.graph for v in node.outputs]
    assert "Gelu" in {node.op_type for node in fold(given).graph}
    assert [(v.name, v.dtype) for node in given.graph for v in node.outputs] == before
    single = read(_model(SINGLE, SINGLE)).ir
    assert in_float32(single) is single
