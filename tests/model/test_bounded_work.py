# SPDX-License-Identifier: Apache-2.0
"""Work that a small file asks for is bounded: functions that nest, tensors that no device holds, odd numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import HexforgeError, ModelError
from hexforge.model.reader import read
from hexforge.model.simplifying import inlining


def nested(depth: int) -> bytes:
    """A model of 2**depth Relus: each function calls the one below it twice."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    body = [helper.make_node("Relu", ["x"], ["y"], "r")]
    functions = [helper.make_function("f", "F0", ["x"], ["y"], body, opsets)]
    for level in range(1, depth + 1):
        inner = f"F{level - 1}"
        calls = [helper.make_node(inner, ["x"], ["t"], domain="f"), helper.make_node(inner, ["t"], ["y"], domain="f")]
        functions.append(helper.make_function("f", f"F{level}", ["x"], ["y"], calls, opsets))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "xy")
    graph = helper.make_graph([helper.make_node(f"F{depth}", ["x"], ["y"], domain="f")], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions, ir_version=9)
    return bytes(model.SerializeToString())


def test_names_of_inlined_functions_are_found_in_a_few_tries_each(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 0

    class Counted(inlining._UsedNames):
        def __contains__(self, name: object) -> bool:
            nonlocal tries
            tries += 1
            return super().__contains__(name)

    monkeypatch.setattr(inlining, "_UsedNames", Counted)
    nodes = [node.name for node in read(nested(8), fold=False).ir.graph]
    assert len(set(nodes)) == len(nodes) == 256
    assert {"r", "r_2", "r_256"} <= set(nodes)  # the names that onnx_ir gives
    assert tries < 6 * (256 + 255 * 3)


def one_node(op: str, constants: dict[str, Any], x: list[int], inputs: list[str], **attributes: Any) -> bytes:
    """A node whose result, reduced to one number, is added to an input."""
    nodes = [
        helper.make_node(op, inputs, ["t"], **attributes),
        helper.make_node("ReduceMean", ["t"], ["m"], keepdims=0),
        helper.make_node("Add", ["x", "m"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    ends = [helper.make_tensor_value_info("x", 1, x), helper.make_tensor_value_info("y", 1, None)]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    )


LARGE = 1 << 20
HUGE = {
    "constant": one_node("ConstantOfShape", {"s": [LARGE, LARGE]}, [1], ["s"]),
    "expand": one_node("Expand", {"o": np.ones(1, np.float32), "s": [LARGE, LARGE]}, [1], ["o", "s"]),
    "range": one_node(
        "Range", {"a": np.float32(0), "b": np.float32(2.0**40), "d": np.float32(1)}, [1], ["a", "b", "d"]
    ),
    "pads": one_node("Pad", {"p": [1 << 40, 1 << 40]}, [1], ["x", "p"]),
    "all pads": one_node("Pad", {"p": [1 << 62, 1 << 62]}, [1], ["x", "p"]),
    "pool": one_node("MaxPool", {}, [1, 1, 1], ["x"], kernel_shape=[1 << 40], pads=[(1 << 40) - 1] * 2),
}


@pytest.mark.parametrize("backend", ["cpu", "htp"])
@pytest.mark.parametrize("name", HUGE)
def test_a_tensor_of_a_million_million_elements_is_refused_at_once(name: str, backend: str) -> None:
    """None of it is computed while a session is made; where it runs, onnxruntime says that it cannot be."""
    provider = ("QNNExecutionProvider", {"backend_type": backend})
    quiet = hexforge.SessionOptions()
    quiet.log_severity_level = 4
    shape = (1, 1, 1) if name == "pool" else (1,)
    with pytest.raises(HexforgeError, match="onnxruntime failed"):
        hexforge.InferenceSession(HUGE[name], quiet, providers=[provider]).run(None, {"x": np.ones(shape, np.float32)})


@pytest.mark.parametrize("backend", ["cpu", "htp"])
def test_a_product_over_nothing_is_zeros(backend: str) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    weight = numpy_helper.from_array(np.zeros((0, 3), np.float32), "w")
    ends = [helper.make_tensor_value_info("x", 1, [2, 0]), helper.make_tensor_value_info("y", 1, [2, 3])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", {"backend_type": backend})])
    np.testing.assert_array_equal(session.run(None, {"x": np.zeros((2, 0), np.float32)})[0], np.zeros((2, 3)))


@pytest.mark.parametrize("backend", ["cpu", "htp"])
def test_an_output_may_be_named_twice(backend: str) -> None:
    ends = [helper.make_tensor_value_info(name, 1, [2]) for name in ("x", "y", "z")]
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    graph = helper.make_graph(nodes, "g", ends[:1], [ends[1], ends[2], ends[1]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", {"backend_type": backend})])
    assert [output.name for output in session.get_outputs()] == ["y", "z", "y"]
    got = session.run(None, {"x": np.array([-1, 2], np.float32)})
    np.testing.assert_array_equal(got, [[0, 2], [1, -2], [0, 2]])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_bounds_of_a_clip_are_one_number_each(shape: tuple[int, ...]) -> None:
    bounds = [numpy_helper.from_array(np.full(shape, value, np.float32), name) for name, value in (("l", 0), ("h", 6))]
    weight = numpy_helper.from_array(np.full((1, 1, 1, 1), 10, np.float32), "w")
    scale, zero = (
        numpy_helper.from_array(np.array(0.1, np.float32), "s"),
        numpy_helper.from_array(np.array(128, np.uint8), "z"),
    )
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["c"]),
        helper.make_node("Clip", ["c", "l", "h"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [1, 1, 1, 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [*bounds, weight, scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    np.testing.assert_array_equal(session.run(None, {"x": np.array([[[[-1, 1]]]], np.float32)})[0].ravel(), [0, 6])


def test_functions_that_cannot_be_inlined_are_a_fault_of_the_model() -> None:
    """A body of another opset than the model's."""
    body = [helper.make_node("Relu", ["x"], ["y"])]
    function = helper.make_function("f", "F", ["x"], ["y"], body, [helper.make_opsetid("", 16)])
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("F", ["x"], ["y"], domain="f")], "g", [x], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=9)
    with pytest.raises(ModelError, match="functions cannot be inlined"):
        read(model.SerializeToString())
