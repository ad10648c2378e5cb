# SPDX-License-Identifier: Apache-2.0
"""Activations that a model writes out: HardSwish, Gelu, and the Softmax of a scaled input."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onnx_ir import Node, Value

from hexforge.model.nodes import dims, is_op, number, operand, other, real, source, split_constant
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
