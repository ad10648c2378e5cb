# SPDX-License-Identifier: Apache-2.0
"""Quant units: the ops of the table, which inputs they read, and why a node stays float."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.model.op_table import OPS
from hexforge.model.reader import read
from hexforge.quant.decide.quant_units import QuantUnit, axis_of, quant_units, weight_axis
from tests.quant.graphs import CASES, Case, model, single

NO_BUILDER = {op for op, row in OPS.items() if not row.writable}
"""Grouped by the reader, but no QNN op by itself."""


WRITTEN = [op for op, row in OPS.items() if row.writable]


def test_the_same_ops_as_the_reader_groups() -> None:
    assert set(WRITTEN) == set(OPS) - NO_BUILDER


@pytest.mark.parametrize("op", sorted(WRITTEN))
def test_the_inputs_the_reader_wants(op: str) -> None:
    row = OPS[op]
    if row.rule.bias is not None:
        assert row.rule.bias in row.optional
    assert (row.quantized == "none") == (row.rule.output == "never")


def only(proto: onnx.ModelProto, name: str) -> QuantUnit:
    """The unit that is about a node."""
    return next(u for u in quant_units(read(proto).ir.graph) if u.name == name)


@pytest.mark.parametrize(
    ("op", "case", "said"),
    [
        ("Tan", Case([(3, 8)]), "Tan has no fixed-point form"),
        ("MaxPool", Case([(1, 4, 6, 6)], {"kernel_shape": [2, 2]}, outputs=2), "indices"),
        ("Gemm", Case([(3, 8), np.ones((8, 6), np.float32), np.ones((3, 6), np.float32)]), "a matrix to add"),
        ("Gemm", Case([(3, 8), np.ones((8, 6), np.float32)], {"alpha": 0.5}), "alpha"),
        ("Gemm", Case([(3, 8), np.ones((8, 6), np.float32), (6,)]), "'in2' is made at run time"),
        ("Add", Case([(3, 8), np.full(8, -np.inf, np.float32)]), "'in1' has numbers that no scale spans"),
        ("Mul", Case([(3, 8), np.full(8, -3e38, np.float32)]), "no scale spans"),
        ("LayerNormalization", Case([(3, 8), (8,)]), "weight made at run time"),
        ("Einsum", Case([(3, 8), (3, 8), (3, 8)], {"equation": "ab,ab,ab->a"}), "no matrix product"),
    ],
)
def test_why_a_node_stays_float(op: str, case: Case, said: str) -> None:
    reason = only(single(op, case), op).reason
    assert reason is not None
    assert said in reason


def test_integers_are_left_alone() -> None:
    inputs = [helper.make_tensor_value_info("i", TensorProto.INT64, (3,))]
    nodes = [
        helper.make_node("Add", ["i", "i"], ["j"], name="add"),
        helper.make_node("Cast", ["j"], ["y"], name="c", to=1),
    ]
    found = quant_units(read(model(nodes, inputs, ["y"])).ir.graph)
    assert [u.name for u in found] == ["c"]
    assert found[0].reason is not None


@pytest.mark.parametrize(
    ("op", "attributes", "axis"),
    [
        ("Conv", {}, 0), ("ConvTranspose", {}, 1), ("ConvTranspose", {"group": 2}, None), ("Gemm", {}, 1),
        ("Gemm", {"transB": 1}, 0), ("MatMul", {}, 1),
    ],
)  # fmt: skip
def test_the_axis_of_outputs(op: str, attributes: dict[str, Any], axis: int | None) -> None:
    shape = (4, 4, 1, 1) if op.startswith("Conv") else (4, 4)
    data = (1, 4, 5, 5) if op.startswith("Conv") else (3, 4)
    graph = read(single(op, Case([data, np.ones(shape, np.float32)], attributes))).ir.graph
    assert weight_axis(next(iter(graph))) == axis
    assert axis_of(graph) == ({} if axis is None else {"in1": axis})


def test_a_relu_belongs_to_what_it_alone_reads() -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 8))]

    def names(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> list[tuple[str, ...]]:
        graph = read(model(nodes, inputs, outputs, [numpy_helper.from_array(np.array(6, np.float32), "six")])).ir.graph
        return [tuple(n.name or "" for n in u.nodes) for u in quant_units(graph)]

    add = helper.make_node("Add", ["x", "x"], ["a"], name="add")
    relu = helper.make_node("Relu", ["a"], ["y"], name="relu")
    clip = helper.make_node("Clip", ["a", "", "six"], ["y"], name="clip")
    assert names(add, relu) == [("add", "relu")]
    assert names(add, clip) == [("add", "clip")]
    assert names(add, relu, outputs=("y", "a")) == [("add",), ("relu",)]
    again = helper.make_node("Neg", ["a"], ["z"], name="neg")
    assert names(add, relu, again, outputs=("y", "z")) == [("add",), ("relu",), ("neg",)]


def test_cases_are_units_of_one_node() -> None:
    for op, case in CASES.items():
        (unit,) = quant_units(read(single(op, case)).ir.graph)
        assert unit.reason is None
        assert unit.moves == (OPS[op].rule.output == "input")
