# SPDX-License-Identifier: Apache-2.0
"""Activations that a model writes out: HardSwish, Gelu and its approximation by tanh, the Softmax of a scaled input."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.patterns.language import TOLERANCE, Match, computed, constant, find_at, near, one_of, op, times
from hexforge.patterns.language import number as is_number
from hexforge.patterns.nodes import ONNX, clamp_bounds, dims, is_op, number, reader, real
from hexforge.patterns.written_out import WrittenOut, keeps_shape

SINCE = {"HardSwish": 14, "Gelu": 20}
"""Activations that are recognized where they are written out, with the opset that has each as one op."""

X = computed()

CLAMPED = op("Clip", op("Add", X, is_number(3.0)), where=lambda node: clamp_bounds(node) == (0.0, 6.0))
HARD_SIGMOID = op("HardSigmoid", X)
CLAMPED_SWISH = one_of(op("Mul", X, times(CLAMPED, 1 / 6)), times(op("Mul", X, CLAMPED), 1 / 6))
HARD_SWISH = one_of(op("Mul", X, HARD_SIGMOID), CLAMPED_SWISH)

ERF = op("Erf", times(X, math.sqrt(0.5)))
HALF, PLUS_ONE = is_number(0.5), op("Add", ERF, is_number(1.0))
GELU = one_of(
    op("Mul", op("Mul", X, HALF), PLUS_ONE),
    op("Mul", X, op("Mul", PLUS_ONE, HALF)),
    op("Mul", op("Mul", X, PLUS_ONE), HALF),
)

FACTOR = constant(lambda array: array.size == 1 and bool(np.isfinite(array).all() and array.all()))
SCALED_UP, SCALED_DOWN = op("Mul", X, FACTOR), op("Div", X, FACTOR)
SCALED_SOFTMAX = op("Softmax", one_of(SCALED_UP, SCALED_DOWN))


@dataclass(frozen=True, slots=True, eq=False)
class Activation(WrittenOut):
    """One of the activations that are written out, by the name of its op."""

    op: str


def hard_swish(gate: Node, tolerance: float = TOLERANCE) -> Activation | None:
    """x * hard_sigmoid(x), at the HardSigmoid; or x * clip(x + 3, 0, 6) / 6, at the Clip, divided before or after."""

    def slope_fits(match: Match[Value, Node]) -> bool:
        exact = HARD_SIGMOID not in match or (
            near(real(gate, "alpha", 0.2), 1 / 6, tolerance) and near(real(gate, "beta", 0.5), 0.5)
        )
        return exact and _keeps_shape(match)

    match = find_at(HARD_SWISH, (HARD_SIGMOID, CLAMPED), ONNX, gate, slope_fits, tolerance)
    return None if match is None else Activation(match.nodes, (match[X],), "HardSwish")


def gelu(erf: Node, tolerance: float = TOLERANCE) -> Activation | None:
    """x (1 + erf(x / sqrt 2)) / 2 at the Erf, with the product in any of its three orders."""
    match = find_at(GELU, (ERF,), ONNX, erf, _keeps_shape, tolerance)
    return None if match is None else Activation(match.nodes, (match[X],), "Gelu")


def _keeps_shape(match: Match[Value, Node]) -> bool:
    return keeps_shape(match[X], match.nodes)


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
    following = reader(tanh.outputs[0])
    while following is not None and is_op(following, "Add", "Mul") and len(ends) < 4:
        ends.append(following)
        following = reader(following.outputs[0])
    for x in _read_twice(tanh):
        for end in ends:
            nodes: list[Node] = []
            made = _evaluate(end.outputs[0], x, nodes)
            if made is None or made.shape != _GRID.shape or tanh not in nodes:
                continue
            if np.abs(made - _GELU).max() <= 2 * TANH_GELU_ERROR and ONNX.closed(nodes) and keeps_shape(x, nodes):
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
class ScaledSoftmax(WrittenOut):
    """Softmax of x times `beta`."""

    beta: float


def scaled_softmax(scale: Node) -> ScaledSoftmax | None:
    """Softmax of x times a constant, at the product; a Div is the product with the reciprocal."""
    match = find_at(SCALED_SOFTMAX, (SCALED_UP, SCALED_DOWN), ONNX, scale)
    if match is None or dims(match[X]) != dims(scale.outputs[0]):
        return None
    factor = float(match.array(FACTOR).item())
    return ScaledSoftmax(match.nodes, (match[X],), factor if SCALED_UP in match else 1 / factor)
