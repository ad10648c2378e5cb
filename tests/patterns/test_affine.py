# SPDX-License-Identifier: Apache-2.0
"""Affine nodes: what they compute, and layers with one of them folded in."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from hexforge.model.reader import read
from hexforge.patterns.affine import affine, is_taken_into_conv
from hexforge.patterns.layers import layer

RANDOM = np.random.default_rng(5)
ROW, POSITIVE = (RANDOM.standard_normal((4, 1, 1)).astype(np.float32) for _ in range(2))
CONSTANTS = {
    "row": ROW, "flat": ROW.ravel(), "positive": np.abs(POSITIVE).ravel(), "one": np.float32(1.5),
    "last": RANDOM.standard_normal(5).astype(np.float32), "w": RANDOM.standard_normal((6, 2, 1, 1)).astype(np.float32),
    "b": RANDOM.standard_normal(6).astype(np.float32),
}  # fmt: skip


def _model(body: str) -> onnx.ModelProto:
    """A model of these nodes, which reads x and writes y."""
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 17]> g (float[1, 4, 5, 5] x) => (float[N, C, H, W] y) {{ {body} }}'
    )
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), name) for name, a in CONSTANTS.items())
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _computed(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What onnx's reference computes."""
    (result,) = ReferenceEvaluator(model).run(None, {"x": x})
    return np.asarray(result)


def _node(body: str, op: str) -> onnx_ir.Node:
    return next(node for node in read(_model(body)).ir.graph if node.op_type == op)


@pytest.mark.parametrize(
    "body",
    [
        "y = Mul(x, row)", "y = Mul(row, x)", "y = Div(x, row)", "y = Add(row, x)", "y = Sub(x, row)",
        "y = Sub(row, x)", "y = Mul(x, one)", "y = BatchNormalization(x, flat, flat, flat, positive)",
    ],
)  # fmt: skip
def test_factor_and_shift_are_what_the_node_computes(body: str) -> None:
    node = read(_model(body)).ir.graph[0]
    found = affine(node)
    assert found is not None
    assert found.x.name == "x"
    x = RANDOM.standard_normal((1, 4, 5, 5)).astype(np.float32)
    factor, shift = (row.reshape(4, 1, 1) for row in found.rows(4))
    np.testing.assert_allclose(factor * x + shift, _computed(_model(body), x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", ["y = Div(row, x)", "y = Mul(x, last)", "y = Mul(x, x)", "y = Max(x, row)"])
def test_what_is_not_affine_along_channels(body: str) -> None:
    assert affine(read(_model(body)).ir.graph[0]) is None


def test_an_axis_may_be_another() -> None:
    node = read(_model("y = Mul(x, last)")).ir.graph[0]
    found = affine(node, -1)
    assert found is not None
    np.testing.assert_array_equal(found.factor, CONSTANTS["last"])


@pytest.mark.parametrize("before", [True, False])
def test_a_layer_has_the_node_in_it(before: bool) -> None:
    conv = "Conv<group = 2>"
    body = f"m = Add(x, row) y = {conv}(m, w, b)" if before else f"m = {conv}(x, w, b) y = Mul(m, one)"
    product = layer(_node(body, "Conv"))
    found = affine(_node(body, "Add" if before else "Mul"))
    assert product is not None
    assert found is not None
    weight, bias = product.numbers
    folded = found.before(weight, bias, product.group) if before else found.after(weight, bias)
    plain = _model(f"y = {conv}(x, w, b)")
    for constant in plain.graph.initializer:
        if constant.name in ("w", "b"):
            array = folded["wb".index(constant.name)].astype(np.float32)
            constant.CopyFrom(numpy_helper.from_array(array, constant.name))
    x = RANDOM.standard_normal((1, 4, 5, 5)).astype(np.float32)
    np.testing.assert_allclose(_computed(plain, x), _computed(_model(body), x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("body", "taken"),
    [("y = Mul(x, row)", True), ("y = Mul(x, one)", True), ("y = Add(x, one)", False), ("y = Sub(x, row)", False)],
)
def test_what_onnxruntime_takes_into_a_convolution(body: str, taken: bool) -> None:
    assert is_taken_into_conv(read(_model(body)).ir.graph[0]) is taken
