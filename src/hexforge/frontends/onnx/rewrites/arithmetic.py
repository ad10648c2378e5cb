# SPDX-License-Identifier: Apache-2.0
"""Arithmetic: divisions, constants that meet, and normalisation at the input."""

from __future__ import annotations

import math

import numpy as np
from onnx_ir import Node, Value

from hexforge.frontends.onnx.rewrites.rule import PREDICTED, Rewrite, RewriteRule, rewrite_of
from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.model.op_table import ACTIVATIONS, PRODUCTS
from hexforge.patterns.nodes import (
    data,
    dequantizes,
    is_float,
    is_op,
    number,
    operand,
    reader,
    shape,
    source,
    split_constant,
)

SHOWCASE = "QNN HTP linting profiling, showcase model 2: Div 5.3 M cycles, Mul in its place 0.74 M"


def _reciprocal(array: Array) -> Array | None:
    if not array.size or not np.all(array):
        return None
    with np.errstate(over="ignore", divide="ignore"):
        inverse = np.reciprocal(array.astype(np.float64)).astype(array.dtype)
    return inverse if np.all(np.isfinite(inverse)) and np.all(inverse) else None


def _div_by_constant(editor: Editor, node: Node) -> Rewrite | None:
    split = split_constant(node) if is_op(node, "Div") and is_float(node.outputs[0]) else None
    if split is None or split[2] != 0:
        return None
    x, divisor, _ = split
    array = data(divisor)
    inverse = None if array is None else _reciprocal(array)
    if inverse is None:
        return None

    def make() -> None:
        factor = editor.constant(inverse, f"{divisor.name}_reciprocal")
        editor.replace(node.outputs[0], editor.add("Mul", [x, factor], node)[0])

    return rewrite_of(f"divides {_size(node)} by a constant", [node], make)


def _div_by_quantized(editor: Editor, node: Node) -> Rewrite | None:
    """A division by a quantized number in a QDQ model: its reciprocal has its own scale, so nothing is rounded."""
    dequantize = source(node, 1) if is_op(node, "Div") else None
    if dequantize is None or not dequantizes(dequantize):
        return None
    codes, scale, zero = (data(operand(dequantize, i)) for i in range(3))
    if codes is None or codes.size != 1 or scale is None or scale.size != 1 or data(node.inputs[0]) is not None:
        return None
    divisor = (float(codes.reshape(())) - (0.0 if zero is None else float(zero.reshape(())))) * float(scale.reshape(()))
    if divisor <= 0 or not math.isfinite(1 / divisor):
        return None

    def make() -> None:
        top = np.iinfo(codes.dtype).max
        inputs: list[Value | None] = [
            editor.constant(np.full(codes.shape, top, codes.dtype), f"{node.name}_reciprocal"),
            editor.constant(np.array(1 / divisor / top, scale.dtype), f"{node.name}_reciprocal_scale"),
            editor.constant(np.array(0, codes.dtype), f"{node.name}_reciprocal_zero_point"),
        ]
        factor = editor.like(dequantize, inputs)
        editor.replace(node.outputs[0], editor.add("Mul", [node.inputs[0], factor], node)[0])

    return rewrite_of(f"divides {_size(node)} by a quantized constant", [node], make)


def _size(node: Node) -> str:
    return "x".join(map(str, shape(node.outputs[0]))) or "a number"


def _is_run_time_division(node: Node) -> bool:
    if not is_op(node, "Div") or not is_float(node.outputs[0]):
        return False
    return all(v is not None and v.const_value is None and shape(v) != (-1,) for v in node.inputs)


def _div_by_smaller(editor: Editor, node: Node) -> Rewrite | None:
    if not _is_run_time_division(node):
        return None
    divided, divisor = node.inputs
    if math.prod(shape(divisor)) >= math.prod(shape(divided)):
        return None
    if _is_normalization(node):
        return None

    def make() -> None:
        (inverse,) = editor.add("Reciprocal", [divisor], node)
        editor.replace(node.outputs[0], editor.add("Mul", [divided, inverse], node)[0])

    return rewrite_of(f"divides {_size(node)} by {'x'.join(map(str, shape(divisor)))}", [node], make)


def _is_normalization(node: Node) -> bool:
    """True for (x - mean) / sqrt(variance) and x / max(|x|, epsilon), which run as one op as they are."""
    below = source(node, 1)
    return is_op(below, "Sqrt", "ReduceL2") or (is_op(below, "Clip", "Max") and is_op(source(below), "ReduceL2"))  # type: ignore[arg-type]


def _div_of_branches(editor: Editor, node: Node) -> Rewrite | None:
    if not _is_run_time_division(node) or math.prod(shape(node.inputs[1])) != math.prod(shape(node.outputs[0])):
        return None
    below = _without_codes(source(node, 1))
    while below is not None and is_op(below, "Exp", *ACTIVATIONS):
        below = _without_codes(source(below))
    if below is None or not is_op(below, *PRODUCTS):
        return None

    def make() -> None:
        editor.replace(node.outputs[0], editor.add("Mul", list(node.inputs), node)[0])

    return rewrite_of(f"divides {_size(node)} by what {below.name} computes", [node], make)


def _without_codes(node: Node | None) -> Node | None:
    while node is not None and node.op_type in ("QuantizeLinear", "DequantizeLinear"):
        node = source(node)
    return node


def _constants_meet(editor: Editor, node: Node) -> Rewrite | None:
    """(x * a) * b, (x + a) + b and (x + a) - b as one."""
    mul = is_op(node, "Mul")
    if not (mul or is_op(node, "Add", "Sub")) or not is_float(node.outputs[0]):
        return None
    outer = split_constant(node)
    if outer is None or (outer[2] and is_op(node, "Sub")):
        return None
    above = outer[0].producer()
    if above is None or reader(outer[0]) is not node or not is_op(above, *(("Mul",) if mul else ("Add", "Sub"))):
        return None
    inner = split_constant(above)
    if inner is None or (inner[2] and is_op(above, "Sub")):
        return None
    a, b = data(inner[1]), data(outer[1])
    assert a is not None
    assert b is not None
    if max(a.size, b.size) < np.broadcast(a, b).size:  # a row and a column would make a matrix
        return None

    def make() -> None:
        joined = a * b if mul else (-a if is_op(above, "Sub") else a) + (-b if is_op(node, "Sub") else b)
        constant = editor.constant(joined.astype(a.dtype), f"{node.name}_constant")
        editor.replace(node.outputs[0], editor.add("Mul" if mul else "Add", [inner[0], constant], node)[0])

    return rewrite_of(f"{above.op_type} and {node.op_type} of constants, one after the other", [above, node], make)


def affine(node: Node, axis: int = 1) -> tuple[Value, Array, Array] | None:
    """x, scale and shift (float64, per channel or of one element) of a node that computes scale * x + shift."""
    if not is_float(node.outputs[0] if node.outputs else None):
        return None
    if is_op(node, "BatchNormalization"):
        return _batch_norm(node) if axis == 1 else None
    if not is_op(node, "Add", "Sub", "Mul", "Div"):
        return None
    split = split_constant(node)
    if split is None or (split[2] and is_op(node, "Div")):
        return None
    x, c, index = split
    array, rank = data(c), len(shape(x))
    assert array is not None
    if shape(x) != shape(node.outputs[0]) or rank < 2:
        return None
    sizes = (1,) * (rank - array.ndim) + array.shape
    at = axis % rank
    if any(d != 1 for i, d in enumerate(sizes) if i != at):
        return None
    values = array.astype(np.float64).reshape(-1)
    ones, zeros = np.ones(1), np.zeros(1)
    if is_op(node, "Mul"):
        return x, values, zeros
    if is_op(node, "Div"):
        return (x, 1 / values, zeros) if np.all(values) else None
    if is_op(node, "Add"):
        return x, ones, values
    return (x, ones, -values) if index == 0 else (x, -ones, values)


def _batch_norm(node: Node) -> tuple[Value, Array, Array] | None:
    values = [data(operand(node, i)) for i in range(1, 5)]
    mode = node.attributes.get("training_mode")
    if (
        any(v is None for v in values)
        or (mode is not None and mode.as_int())
        or any(v.uses() for v in node.outputs[1:])
    ):
        return None
    scale, bias, mean, variance = (np.asarray(v, np.float64) for v in values)
    epsilon = node.attributes.get("epsilon")
    factor = scale / np.sqrt(variance + (1e-5 if epsilon is None else epsilon.as_float()))
    x = node.inputs[0]
    assert x is not None
    return x, factor, bias - mean * factor


def _normalized_input(editor: Editor, node: Node) -> Rewrite | None:
    """The last of the nodes that shift and scale an input by constants."""
    chain: list[Node] = []
    at: Node | None = node
    while at is not None and (scaled := affine(at)) is not None and not is_op(at, "BatchNormalization"):
        chain.append(at)
        x = scaled[0]
        if x.is_graph_input():
            break
        at = x.producer()
        if at is None or reader(x) is not chain[-1]:
            return None
    else:
        return None
    after = reader(node.outputs[0])
    if after is None or (affine(after) is not None and not is_op(after, "BatchNormalization")):
        return None
    if len(shape(node.outputs[0])) != 4:
        return None
    nodes = chain[::-1]
    description = f"{' and '.join(n.op_type for n in nodes)} by constants on the input, {_size(node)}"
    return rewrite_of(description, nodes, lambda: editor.replace(node.outputs[0], x))


def _scalar_power(editor: Editor, node: Node) -> Rewrite | None:
    """x ** 2 as x * x, x ** 0.5 as Sqrt: powers are looked up or computed by logarithm, these are one instruction."""
    exponent = number(operand(node, 1)) if is_op(node, "Pow") and is_float(node.outputs[0]) else None
    if exponent not in (1.0, 2.0, 0.5) or operand(node, 0) is None or data(node.inputs[0]) is not None:
        return None
    x = node.inputs[0]
    assert x is not None

    def make() -> None:
        if exponent == 1.0:
            editor.replace(node.outputs[0], x)
        else:
            written = editor.add("Mul", [x, x], node) if exponent == 2.0 else editor.add("Sqrt", [x], node)
            editor.replace(node.outputs[0], written[0])

    return rewrite_of(f"x to the power of {exponent:g}", [node], make, exponent)


RULES = (
    RewriteRule(
        "div-by-constant", "Div by a constant becomes Mul by its reciprocal",
        "A division is computed element by element and keeps the vector units from overlapping with the matrix unit; a "
        "product is one instruction.",
        SHOWCASE, "Multiply by 1 / c instead of dividing by c.", True, _div_by_constant,
    ),
    RewriteRule(
        "div-by-quantized", "Div by a quantized constant becomes Mul by its reciprocal",
        "A division is computed element by element; a product is one instruction.",
        SHOWCASE, "Multiply by 1 / c, quantized with a scale of its own.", True, _div_by_quantized,
        quantized=True,
    ),
    RewriteRule(
        "div-by-smaller", "Div by a broadcast tensor becomes Mul by its reciprocal",
        "The reciprocal is taken once for each element of the smaller tensor, and the large one is only multiplied.",
        SHOWCASE, "x * Reciprocal(d) instead of x / d.", True, _div_by_smaller,
    ),
    RewriteRule(
        "div-to-mul", "Div of two branches becomes Mul",
        "The divisor is learned, so it can be trained to be the factor: a product costs a seventh of a division.",
        SHOWCASE, "Replace Div by Mul and train the branch again, which then gives the reciprocal.", False,
        _div_of_branches, quantized=True,
    ),
    RewriteRule(
        "constants-meet", "Constants of neighbouring Mul or Add become one",
        "Each element-wise op passes over the tensor once more.",
        PREDICTED, "Compute the product or sum of the constants beforehand.", True,
        _constants_meet,
    ),
    RewriteRule(
        "input-normalisation", "Normalisation of the input moves to pre-processing",
        "Shifting and scaling an input of three channels fills three of 32 lanes, at the largest image of the network: "
        "about 0.12 ms at 224x224 on a Galaxy S24.",
        "measured latencies (qai-hub-models): models with and without it",
        "Feed the normalised image; for quantized inputs choose scale and zero point so that codes are the raw bytes.",
        False, _normalized_input,
    ),
    RewriteRule(
        "power", "Pow with exponent 2, 1/2 or 1 becomes Mul, Sqrt or nothing",
        "A power is a look-up or goes through a logarithm; a product is one instruction.",
        PREDICTED, "Write x * x or Sqrt(x).", True, _scalar_power,
    ),
)  # fmt: skip
