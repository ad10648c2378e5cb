# SPDX-License-Identifier: Apache-2.0
"""The language of patterns: what a declared shape is found in, in ONNX graphs and in QNN graphs."""

from __future__ import annotations

import functools

import onnx
import onnx_ir
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import Role
from hexforge.ir.text import loads
from hexforge.model.reader import read
from hexforge.patterns.language import (
    QNN,
    Match,
    Term,
    any_node,
    anything,
    computed,
    constant,
    find_at,
    find_ending,
    number,
    one_of,
    op,
    times,
)
from hexforge.patterns.nodes import ONNX

X = anything()
SWISH = op("Mul", X, op("Sigmoid", X))
TWICE = op("Neg", op("Neg", X))


def _nodes(body: str, outputs: str = "y") -> dict[str, onnx_ir.Node]:
    """The nodes of a model that reads x and z, by what they write."""
    written = ", ".join(f"float[2, 3] {name}" for name in outputs.split())
    constants = "half = Constant<value = float {0.5}>() three = Constant<value = float {3.0}>()"
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 20]> '
        f"g (float[2, 3] x, float[2, 3] z) => ({written}) {{ {constants} {body} }}"
    )
    return {str(node.outputs[0].name): node for node in read(model).ir.graph}


@pytest.mark.parametrize("order", ["x, s", "s, x"])
def test_operands_of_a_product_come_in_either_order(order: str) -> None:
    nodes = _nodes(f"s = Sigmoid(x) y = Mul({order})")
    match = find_ending(SWISH, ONNX, nodes["y"])
    assert match is not None
    assert [node.op_type for node in match.nodes] == ["Sigmoid", "Mul"]
    assert match[X].name == "x"
    assert match.last is nodes["y"]


@pytest.mark.parametrize(
    ("shape", "body", "outputs"),
    [
        (SWISH, "s = Sigmoid(z) y = Mul(x, s)", "y"),  # two values, where the shape has one
        (SWISH, "s = Sigmoid(x) y = Mul(x, s)", "y s"),  # what is inside is an output
        (TWICE, "n = Neg(x) m = Relu(n) w = Neg(n) y = Add(m, w)", "y"),  # what is inside is read elsewhere
        (op("Sub", X, op("Neg", X)), "n = Neg(x) y = Sub(n, x)", "y"),  # a difference has an order
        (op("Add", X, number(0.5)), "y = Add(x, three)", "y"),
        (op("Add", X, constant(lambda array: array.size > 1)), "y = Add(x, three)", "y"),
        (op("Add", computed(), computed()), "y = Add(x, three)", "y"),
        (op("Clip", X, X), "y = Clip(x)", "y"),  # fewer operands than the shape names
    ],
)
def test_what_is_not_of_a_shape(shape: Term, body: str, outputs: str) -> None:
    assert not [name for name, node in _nodes(body, outputs).items() if find_ending(shape, ONNX, node)]


def test_a_node_that_stays_may_be_read_elsewhere() -> None:
    nodes = _nodes("n = Neg(x) y = Neg(n) w = Relu(n)", "y w")
    first = op("Neg", X, stays=True)
    match = find_ending(op("Neg", first), ONNX, nodes["y"])
    assert match is not None
    assert match.nodes == (nodes["y"],)
    assert match.node(first) is nodes["n"]


def test_a_shape_is_found_at_any_node_of_it_and_the_largest_is_taken() -> None:
    nodes = _nodes("n = Neg(x) t = Tanh(n) y = Mul(t, three)")
    start = op("Neg", X)
    inner = op("Tanh", start)
    for shape, last in ((inner, "t"), (one_of(op("Mul", inner, constant()), inner), "y")):
        match = find_at(shape, (start,), ONNX, nodes["n"])
        assert match is not None
        assert match.last is nodes[last]
    assert find_at(inner, (start,), ONNX, nodes["t"]) is None


def test_a_number_is_near_within_the_tolerance_of_the_match() -> None:
    nodes = _nodes("y = Div(x, three)")
    assert find_ending(times(X, 1 / 3), ONNX, nodes["y"]) is not None
    assert find_ending(times(X, 0.3334), ONNX, nodes["y"]) is None
    assert find_ending(times(X, 0.3334), ONNX, nodes["y"], tolerance=1e-3) is not None


def _names(term: Term, name: str, match: Match[onnx_ir.Value, onnx_ir.Node]) -> bool:
    return match[term].name == name


def test_a_condition_chooses_among_the_ways_a_shape_fits() -> None:
    nodes = _nodes("a = Neg(x) b = Relu(z) y = Add(a, b)")
    first = computed()
    for name in ("a", "b"):
        wanted = functools.partial(_names, first, name)
        match = find_ending(op("Add", first, computed()), ONNX, nodes["y"], wanted)
        assert match is not None
        assert match[first].name == name


def test_any_node_is_a_shape() -> None:
    nodes = _nodes("n = Neg(x) y = Relu(n)")
    assert all(find_ending(any_node(), ONNX, node) is not None for node in nodes.values())


def test_shapes_are_found_in_qnn_graphs() -> None:
    graph = loads(
        'graph "g" { %x: float32[2] = APP_WRITE n: %n = ElementWiseNeg(%x) : float32[2] '
        "y: %y = ElementWiseNeg(%n) : float32[2] return %y }"
    )
    first, second = graph.nodes
    twice = op("ElementWiseNeg", op("ElementWiseNeg", X))
    match = find_ending(twice, QNN, second)
    assert match is not None
    assert match.nodes == (first, second)
    assert match[X] is graph.values["x"]
    assert find_ending(twice, QNN, first) is None
    graph.values["n"].role = Role.APP_READ
    assert find_ending(twice, QNN, second) is None
