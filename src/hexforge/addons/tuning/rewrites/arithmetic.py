# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: divisions, constants that meet, and normalisation at the input."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node, Value

from hexforge.addons.tuning.rewrites.rule import PREDICTED, Place, Rewrite, RewriteRule
from hexforge.ir import Array
from hexforge.model.op_table import ACTIVATIONS, PRODUCTS
from hexforge.patterns.affine import affine
from hexforge.patterns.language import computed, constant, one_of, op
from hexforge.patterns.nodes import data, is_float, is_op, number, operand, reader, shape, source

SHOWCASE = "QNN HTP linting profiling, showcase model 2: Div 5.3 M cycles, Mul in its place 0.74 M"
X, Y, C = computed(), computed(), constant()


def _is_float(node: Node) -> bool:
    return is_float(node.outputs[0])


def _reciprocal(array: Array) -> Array | None:
    if not array.size or not np.all(array):
        return None
    with np.errstate(over="ignore", divide="ignore"):
        inverse = np.reciprocal(array.astype(np.float64)).astype(array.dtype)
    return inverse if np.all(np.isfinite(inverse)) and np.all(inverse) else None


def _div_by_constant(place: Place) -> Rewrite | None:
    inverse = _reciprocal(place.array(C))
    if inverse is None:
        return None

    def write() -> Value:
        return place.add("Mul", place[X], place.editor.constant(inverse, f"{place[C].name}_reciprocal"))

    return place.instead(f"divides {_size(place.node)} by a constant", write)


QUANTIZED = op("DequantizeLinear com.microsoft:DequantizeLinear", stays=True)


def _div_by_quantized(place: Place) -> Rewrite | None:
    """A division by a quantized number in a QDQ model: its reciprocal has its own scale, so nothing is rounded."""
    dequantize = place.match.node(QUANTIZED)
    codes, scale, zero = (data(operand(dequantize, i)) for i in range(3))
    if codes is None or codes.size != 1 or scale is None or scale.size != 1:
        return None
    divisor = (float(codes.reshape(())) - (0.0 if zero is None else float(zero.reshape(())))) * float(scale.reshape(()))
    if divisor <= 0 or not math.isfinite(1 / divisor):
        return None

    def write() -> Value:
        top = np.iinfo(codes.dtype).max
        inputs: list[Value | None] = [
            place.constant(np.full(codes.shape, top, codes.dtype), "reciprocal"),
            place.constant(np.array(1 / divisor / top, scale.dtype), "reciprocal_scale"),
            place.constant(np.array(0, codes.dtype), "reciprocal_zero_point"),
        ]
        return place.add("Mul", place[X], place.editor.like(dequantize, inputs))

    return place.instead(f"divides {_size(place.node)} by a quantized constant", write)


def _size(node: Node) -> str:
    return "x".join(map(str, shape(node.outputs[0]))) or "a number"


def _sizes(place: Place) -> tuple[int, int] | None:
    """Elements of the dividend and of the divisor of a division of results; None where they are not known."""
    sizes = shape(place[X]), shape(place[Y])
    return None if (-1,) in sizes else (math.prod(sizes[0]), math.prod(sizes[1]))


def _div_by_smaller(place: Place) -> Rewrite | None:
    sizes = _sizes(place)
    if sizes is None or sizes[1] >= sizes[0] or _is_normalization(place.node):
        return None
    what = f"divides {_size(place.node)} by {'x'.join(map(str, shape(place[Y])))}"
    return place.instead(what, lambda: place.add("Mul", place[X], place.add("Reciprocal", place[Y])))


def _is_normalization(node: Node) -> bool:
    """True for (x - mean) / sqrt(variance) and x / max(|x|, epsilon), which run as one op as they are."""
    below = source(node, 1)
    return is_op(below, "Sqrt", "ReduceL2") or (is_op(below, "Clip", "Max") and is_op(source(below), "ReduceL2"))  # type: ignore[arg-type]


def _div_of_branches(place: Place) -> Rewrite | None:
    sizes = _sizes(place)
    if sizes is None or sizes[1] != math.prod(shape(place.out)):
        return None
    below = _without_codes(source(place.node, 1))
    while below is not None and is_op(below, "Exp", *ACTIVATIONS):
        below = _without_codes(source(below))
    if below is None or not is_op(below, *PRODUCTS):
        return None
    what = f"divides {_size(place.node)} by what {below.name} computes"
    return place.instead(what, lambda: place.add("Mul", place[X], place[Y]))


def _without_codes(node: Node | None) -> Node | None:
    while node is not None and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        node = source(node)
    return node


A, B = constant(), constant()
FACTORS = op("Mul", op("Mul", X, A), B, where=_is_float)
SUM = one_of(op("Add", X, A), op("Sub", X, A))
SUMMANDS = one_of(op("Add", SUM, B, where=_is_float), op("Sub", SUM, B, where=_is_float))


def _constants_meet(place: Place) -> Rewrite | None:
    """(x * a) * b, (x + a) + b and (x + a) - b as one."""
    (above, node), (a, b) = place.match.nodes, (place.array(A), place.array(B))
    if max(a.size, b.size) < np.broadcast(a, b).size:  # a row and a column would make a matrix
        return None
    op_type = "Mul" if is_op(node, "Mul") else "Add"

    def write() -> Value:
        first, second = (-array if is_op(at, "Sub") else array for array, at in ((a, above), (b, node)))
        joined = a * b if op_type == "Mul" else first + second
        return place.add(op_type, place[X], place.constant(joined.astype(a.dtype), "constant"))

    return place.instead(f"{above.op_type} and {node.op_type} of constants, one after the other", write)


def _normalized_input(place: Place) -> Rewrite | None:
    """The last of the nodes that shift and scale an input by constants."""
    chain: list[Node] = []
    at: Node | None = place.node
    while at is not None and (scaled := affine(at)) is not None and not is_op(at, "BatchNormalization"):
        chain.append(at)
        x = scaled.x
        if x.is_graph_input():
            break
        at = x.producer()
        if at is None or reader(x) is not chain[-1]:
            return None
    else:
        return None
    after = reader(place.out)
    if after is None or (affine(after) is not None and not is_op(after, "BatchNormalization")):
        return None
    if len(shape(place.out)) != 4:
        return None
    nodes = chain[::-1]
    what = f"{' and '.join(n.op_type for n in nodes)} by constants on the input, {_size(place.node)}"
    return place.instead(what, lambda: x, nodes=nodes)


def _scalar_power(place: Place) -> Rewrite | None:
    """x ** 2 as x * x, x ** 0.5 as Sqrt: powers are looked up or computed by logarithm, these are one instruction."""
    exponent, x = number(place[C]), place[X]
    if exponent not in (1.0, 2.0, 0.5):
        return None

    def write() -> Value:
        if exponent == 1.0:
            return x
        return place.add("Mul", x, x) if exponent == 2.0 else place.add("Sqrt", x)

    return place.instead(f"x to the power of {exponent:g}", write, exponent)


RULES = (
    RewriteRule(
        "div-by-constant", "Div by a constant becomes Mul by its reciprocal",
        "A division is computed element by element and keeps the vector units from overlapping with the matrix unit; a "
        "product is one instruction.",
        SHOWCASE, "Multiply by 1 / c instead of dividing by c.", True,
        op("Div", X, C, where=_is_float), _div_by_constant,
    ),
    RewriteRule(
        "div-by-quantized", "Div by a quantized constant becomes Mul by its reciprocal",
        "A division is computed element by element; a product is one instruction.",
        SHOWCASE, "Multiply by 1 / c, quantized with a scale of its own.", True,
        op("Div", X, QUANTIZED), _div_by_quantized, quantized=True,
    ),
    RewriteRule(
        "div-by-smaller", "Div by a broadcast tensor becomes Mul by its reciprocal",
        "The reciprocal is taken once for each element of the smaller tensor, and the large one is only multiplied.",
        SHOWCASE, "x * Reciprocal(d) instead of x / d.", True,
        op("Div", X, Y, where=_is_float), _div_by_smaller,
    ),
    RewriteRule(
        "div-to-mul", "Div of two branches becomes Mul",
        "The divisor is learned, so it can be trained to be the factor: a product costs a seventh of a division.",
        SHOWCASE, "Replace Div by Mul and train the branch again, which then gives the reciprocal.", False,
        op("Div", X, Y, where=_is_float), _div_of_branches, quantized=True,
    ),
    RewriteRule(
        "constants-meet", "Constants of neighbouring Mul or Add become one",
        "Each element-wise op passes over the tensor once more.",
        PREDICTED, "Compute the product or sum of the constants beforehand.", True,
        one_of(FACTORS, SUMMANDS), _constants_meet,
    ),
    RewriteRule(
        "input-normalisation", "Normalisation of the input moves to pre-processing",
        "Shifting and scaling an input of three channels fills three of 32 lanes, at the largest image of the network: "
        "about 0.12 ms at 224x224 on a Galaxy S24.",
        "measured latencies (qai-hub-models): models with and without it",
        "Feed the normalised image; for quantized inputs choose scale and zero point so that codes are the raw bytes.",
        False, op("Add Sub Mul Div"), _normalized_input,
    ),
    RewriteRule(
        "power", "Pow with exponent 2, 1/2 or 1 becomes Mul, Sqrt or nothing",
        "A power is a look-up or goes through a logarithm; a product is one instruction.",
        PREDICTED, "Write x * x or Sqrt(x).", True, op("Pow", X, C, where=_is_float), _scalar_power,
    ),
)  # fmt: skip
