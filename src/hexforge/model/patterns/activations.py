# SPDX-License-Identifier: Apache-2.0
"""Activations that a model writes out: HardSwish, Gelu and its approximation by tanh, the Softmax of a scaled input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.model.patterns.match import (
    TOLERANCE,
    Match,
    clamp_bounds,
    factor_of,
    is_closed,
    keeps_shape,
    near,
    reader_of,
)
from hexforge.patterns.nodes import dims, is_op, number, operand, other, real, source, split_constant

SINCE = {"HardSwish": 14, "Gelu": 20}
"""Activations that are recognized where they are written out, with the opset that has each as one op."""


@dataclass(frozen=True, slots=True, eq=False)
class Activation(Match):
    """One of the activations that are written out, by the name of its op."""

    op: str


def hard_swish(gate: Node, tolerance: float = TOLERANCE) -> Activation | None:
    """x * hard_sigmoid(x), at the HardSigmoid; or x * clip(x + 3, 0, 6) / 6, at the Clip, divided before or after."""
    x: Value | None
    if is_op(gate, "HardSigmoid"):
        if not near(real(gate, "alpha", 0.2), 1 / 6, tolerance) or not near(real(gate, "beta", 0.5), 0.5):
            return None
        x, nodes, divided = operand(gate, 0), [gate], True
    elif clamp_bounds(gate) == (0.0, 6.0):
        plus = source(gate)
        split = split_constant(plus) if plus is not None and is_op(plus, "Add") else None
        if plus is None or split is None or number(split[1]) != 3.0:
            return None
        x, nodes, divided = split[0], [plus, gate], False
    else:
        return None
    multiplied = False
    while not (divided and multiplied):
        value, following = nodes[-1].outputs[0], reader_of(nodes[-1], "Mul", "Div")
        if following is None:
            return None
        if not divided and near(factor_of(following, value), 1 / 6, tolerance):
            divided = True
        elif not multiplied and is_op(following, "Mul") and x is not None and other(following, value) is x:
            multiplied = True
        else:
            return None
        nodes.append(following)
    return Activation(tuple(nodes), (x,), "HardSwish") if is_closed(nodes) and keeps_shape(x, nodes) else None


def gelu(erf: Node, tolerance: float = TOLERANCE) -> Activation | None:
    """x (1 + erf(x / sqrt 2)) / 2 at the Erf, with the product in any of its three orders."""
    scaled = source(erf) if is_op(erf, "Erf") else None
    plus = reader_of(erf, "Add")
    x = None if scaled is None else next((v for v in scaled.inputs if v is not None and v.const_value is None), None)
    if scaled is None or x is None or not near(factor_of(scaled, x), math.sqrt(0.5), tolerance):
        return None
    if plus is None or not near(number(other(plus, erf.outputs[0])), 1.0):
        return None
    nodes, missing = [scaled, erf, plus], {"x", "half"}
    while missing:
        value, product = nodes[-1].outputs[0], reader_of(nodes[-1], "Mul")
        factor = None if product is None else other(product, value)
        if product is None or factor is None:
            return None
        halved = factor.producer()
        if factor is x and "x" in missing:
            missing.remove("x")
        elif near(number(factor), 0.5) and "half" in missing:
            missing.remove("half")
        elif len(missing) == 2 and halved is not None and is_op(halved, "Mul") and near(factor_of(halved, x), 0.5):
            missing.clear()
            nodes.insert(0, halved)
        else:
            return None
        nodes.append(product)
    return Activation(tuple(nodes), (x,), "Gelu") if is_closed(nodes) and keeps_shape(x, nodes) else None


TANH_GELU_ERROR = 5e-4
"""How far the approximation of Gelu by tanh is from Gelu at most."""
_GRID = np.linspace(-6.0, 6.0, 193)
_GELU = np.array([x * (1 + math.erf(x * math.sqrt(0.5))) / 2 for x in _GRID.tolist()])
_STEPS = 8
_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power, "Tanh": np.tanh,
}  # fmt: skip


def tanh_gelu(tanh: Node) -> Activation | None:
    """x (1 + tanh(0.798 (x + 0.0447 x^3))) / 2 at the Tanh, in whatever order it is written.

    What the nodes compute is evaluated: the order and the form of the cube differ between exporters.
    """
    if not is_op(tanh, "Tanh"):
        return None
    ends: list[Node] = []
    following = reader_of(tanh, "Add", "Mul")
    while following is not None and len(ends) < 4:
        ends.append(following)
        following = reader_of(following, "Add", "Mul")
    for x in _read_twice(tanh):
        for end in ends:
            nodes: list[Node] = []
            made = _evaluate(end.outputs[0], x, nodes)
            if made is None or made.shape != _GRID.shape or tanh not in nodes:
                continue
            if np.abs(made - _GELU).max() <= 2 * TANH_GELU_ERROR and is_closed(nodes) and keeps_shape(x, nodes):
                return Activation(tuple(nodes), (x,), "Gelu")
    return None


def _read_twice(node: Node) -> list[Value]:
    """What the input of a node is made of and several nodes read, nearest first."""
    values, seen = list(node.inputs), list[Value]()
    while values and len(seen) < _STEPS:
        value = values.pop(0)
        if value is None or value.const_value is not None or value in seen:
            continue
        seen.append(value)
        maker = value.producer()
        values += [] if maker is None or maker.op_type not in _ARITHMETIC else list(maker.inputs)
    return [value for value in seen if len(list(value.uses())) > 1]


def _evaluate(value: Value | None, x: Value, nodes: list[Node]) -> Array | None:
    """What a value is where x runs over a grid, and the nodes that make it in their order; None where it needs more."""
    if value is x:
        return _GRID
    constant = None if value is None else number(value)
    if constant is not None:
        return np.asarray(constant)
    node = None if value is None else value.producer()
    if node is None or node.op_type not in _ARITHMETIC or len(nodes) > 2 * _STEPS:
        return None
    read = [_evaluate(operand, x, nodes) for operand in node.inputs]
    if any(array is None for array in read):
        return None
    if node not in nodes:
        nodes.append(node)
    with np.errstate(all="ignore"):
        return _ARITHMETIC[node.op_type](*read)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledSoftmax(Match):
    """Softmax of x times `beta`."""

    beta: float


def scaled_softmax(scale: Node) -> ScaledSoftmax | None:
    """Softmax of x times a constant, at the product; a Div is the product with the reciprocal."""
    softmax = reader_of(scale, "Softmax") if is_op(scale, "Mul", "Div") else None
    if softmax is None or len(scale.inputs) != 2:
        return None
    index = 1 if scale.op_type == "Div" or number(scale.inputs[1]) is not None else 0
    factor, x = number(scale.inputs[index]), scale.inputs[1 - index]
    if factor is None or not math.isfinite(factor) or factor == 0 or dims(x) != dims(scale.outputs[0]):
        return None
    nodes = (scale, softmax)
    return ScaledSoftmax(nodes, (x,), 1 / factor if scale.op_type == "Div" else factor) if is_closed(nodes) else None
