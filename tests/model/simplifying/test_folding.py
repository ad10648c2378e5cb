# SPDX-License-Identifier: Apache-2.0
"""Folding: what layers compute of constants is computed once, and each has its own result."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.model.reader import Model, read
from hexforge.model.simplifying import folding, node_keys, shapes

LAYERS = 6


def _layers() -> onnx.ModelProto:
    """Layers that each compute the same table out of constants, and one that has another axis."""
    nodes, value = [], "x"
    for i in range(LAYERS):
        axis = 0 if i else 1
        nodes += [
            helper.make_node("Unsqueeze", ["row", f"axis{axis}"], [f"u{i}"], f"unsqueeze{i}"),
            helper.make_node("Expand", [f"u{i}", "sizes"], [f"e{i}"], f"expand{i}"),
            helper.make_node("Mul", [f"e{i}", "zero"], [f"m{i}"], f"mul{i}"),
            helper.make_node("Softmax", [value], [f"s{i}"], f"softmax{i}", axis=axis),
            helper.make_node("Add", [f"s{i}", f"m{i}"], [f"a{i}"], f"add{i}"),
        ]
        value = f"a{i}"
    constants = {
        "row": np.arange(4, dtype=np.float32), "sizes": np.array([4, 4]), "axis0": np.array([0]),
        "axis1": np.array([1]), "zero": np.array(-0.0, np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _read(monkeypatch: pytest.MonkeyPatch) -> tuple[Model, int, int]:
    """The model read, and how often onnx's definitions and its inference were asked."""
    asked: list[str] = []
    evaluated, inferred = folding._evaluated, shapes._inferred_by_schema

    def evaluate(*given: Any) -> Any:
        asked.append("value")
        return evaluated(*given)

    def infer(*given: Any) -> Any:
        asked.append("type")
        return inferred(*given)

    with monkeypatch.context() as patched:
        patched.setattr(folding, "_evaluated", evaluate)
        patched.setattr(shapes, "_inferred_by_schema", infer)
        model = read(_layers().SerializeToString())
    return model, asked.count("value"), asked.count("type")


def test_layers_compute_what_they_have_in_common_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, values, types = _read(monkeypatch)
    monkeypatch.setattr(folding, "computation_key", lambda *given: None)
    monkeypatch.setattr(shapes, "inference_key", lambda *given: None)
    plain, more_values, more_types = _read(monkeypatch)
    assert values * 2 <= more_values
    assert types * 2 <= more_types
    shown = [
        [(n.op_type, [str(v.shape) for v in n.outputs], [str(v.dtype) for v in n.outputs]) for n in one.ir.graph]
        for one in (model, plain)
    ]
    assert shown[0] == shown[1]
    tables = [
        {name: v.const_value.numpy() for name, v in one.ir.graph.initializers.items() if v.const_value is not None}
        for one in (model, plain)
    ]
    assert tables[0].keys() == tables[1].keys()
    for name, array in tables[0].items():
        np.testing.assert_array_equal(array, tables[1][name])
        np.testing.assert_array_equal(np.signbit(array), np.signbit(tables[1][name]))
    assert len({id(array) for array in tables[0].values()}) == len(tables[0])  # nobody changes another's numbers


def test_keys_tell_apart_what_computes_otherwise() -> None:
    zeros = [np.array(0.0, np.float32), np.array(-0.0, np.float32), np.array(0, np.int32), np.zeros(1, np.float32)]
    assert len({node_keys.array_key(array) for array in zeros}) == len(zeros)
    assert node_keys.array_key(np.zeros(node_keys.MOST_BYTES + 1, np.uint8)) is None
    assert node_keys.array_key(np.array(["a"], object)) is None


def test_tables_filled_alike_are_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor among the attributes is part of the key; another one makes another table."""
    fills = [0.5, 0.5, 0.5, -0.5]
    nodes = [
        helper.make_node(
            "ConstantOfShape", ["sizes"], [f"t{i}"], value=numpy_helper.from_array(np.array([fill], np.float32))
        )
        for i, fill in enumerate(fills)
    ]
    nodes.append(helper.make_node("Sum", ["x", *(f"t{i}" for i in range(len(fills)))], ["y"]))
    graph = helper.make_graph(
        nodes,
        "tables",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.array([2, 3]), "sizes")],
    )
    asked: list[str] = []
    infer_node = shapes.infer_node

    def infer(node: Any, *given: Any) -> None:
        asked.append(node.op_type)
        infer_node(node, *given)

    monkeypatch.setattr(folding, "infer_node", infer)
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))
    assert asked.count("ConstantOfShape") == 2
    tables = [model.ir.graph.initializers[f"t{i}"].const_value for i in range(len(fills))]
    assert [float(table.numpy()[1, 2]) for table in tables if table is not None] == fills
