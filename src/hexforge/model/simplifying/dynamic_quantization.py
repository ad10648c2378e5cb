# SPDX-License-Identifier: Apache-2.0
"""Dynamic quantization, and the float nodes that it came from.

Besides the products of `patterns.dynamic_products` there are DynamicQuantizeLSTM, and DequantizeLinear behind a Gather
of codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir
from onnx_ir import Node

from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.dynamic_products import codes_read, dynamic_product, real_weight
from hexforge.patterns.nodes import attributes, data, dequantizes, integer, is_op, operand, source

DYNAMIC = frozenset("DynamicQuantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul".split())
"""Ops that quantize at run time."""
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True, eq=False)
class FloatForm:
    """Nodes of a dynamic quantization, and how they become the float nodes that they came from."""

    nodes: tuple[Node, ...]
    what: str
    make: Callable[[], object]


def is_dynamically_quantized(model: onnx_ir.Model) -> bool:
    """True where a model quantizes some of its tensors at run time."""
    return any(node.op_type in DYNAMIC for node in model.graph)


def to_float(model: onnx_ir.Model) -> int:
    """Turn a model's dynamic quantization back into float nodes, in place; how many places there were."""
    editor, made = Editor(model), 0
    for node in editor.nodes():
        form = float_form(editor, node)
        if form is not None:
            form.make()
            made += 1
    editor.tidy()
    return made


def float_form(editor: Editor, node: Node) -> FloatForm | None:
    """The float form of the dynamic quantization that a node is the middle of; None for any other node."""
    if is_op(node, "ConvInteger", "MatMulInteger"):
        return _product(editor, node)
    if node.domain == _MICROSOFT and node.op_type == "DynamicQuantizeLSTM":
        return _lstm(editor, node)
    if node.domain == _MICROSOFT and node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
        return _joined_product(editor, node)
    if dequantizes(node):
        return _dequantized(editor, node)
    return None


def _product(editor: Editor, node: Node) -> FloatForm | None:
    product = dynamic_product(node)
    if product is None:
        return None
    last = product.nodes[-1]

    def make() -> None:
        inputs = [product.x, editor.constant(product.weight, f"{node.name}_weight")]
        if product.bias is not None:
            inputs.append(editor.constant(product.bias.astype(np.float32), f"{node.name}_bias"))
        op = "Conv" if node.op_type == "ConvInteger" else "MatMul"
        editor.replace(last.outputs[0], editor.add(op, inputs, last, **attributes(node))[0])

    what = f"{node.op_type} by {'x'.join(map(str, product.weight.shape))}"
    return FloatForm((node, *product.nodes[-2:]), what, make)


def _joined_product(editor: Editor, node: Node) -> FloatForm | None:
    """DynamicQuantizeMatMul, or MatMulIntegerToFloat of what a DynamicQuantizeLinear made."""
    dynamic = node.op_type == "DynamicQuantizeMatMul"
    codes = None if dynamic else codes_read(node, 0)
    if not dynamic and (codes is None or operand(node, 2) is not codes.scale or operand(node, 4) is not codes.zero):
        return None
    x = operand(node, 0) if codes is None else codes.real
    places = (2, 3, 4) if dynamic else (3, 5, 6)
    scale, zero, bias = (operand(node, place) for place in places)
    weight, step = data(operand(node, 1)), data(scale)
    offset = np.zeros((), np.int32) if zero is None else data(zero)
    if x is None or weight is None or step is None or offset is None:
        return None
    real = real_weight(weight, offset, step, columns=True)
    if real is None:
        return None

    def make() -> None:
        (value,) = editor.add("MatMul", [x, editor.constant(real, f"{node.name}_weight")], node)
        if bias is not None:
            (value,) = editor.add("Add", [value, bias], node)
        editor.replace(node.outputs[0], value)

    return FloatForm((node,), f"{node.op_type} by {'x'.join(map(str, weight.shape))}", make)


def _lstm(editor: Editor, node: Node) -> FloatForm | None:
    """DynamicQuantizeLSTM, whose weights are transposed: [directions, inputs, 4 * hidden]."""
    reals: list[Array] = []
    for place, parameters in ((1, 8), (2, 10)):
        weight, scale, zero = (data(operand(node, i)) for i in (place, parameters, parameters + 1))
        if weight is None or scale is None or zero is None or weight.ndim != 3:
            return None
        directions, _, gates = weight.shape
        sizes = {directions: (directions, 1, 1), directions * gates: (directions, 1, gates)}
        if scale.size not in sizes or zero.size not in sizes:
            return None
        centered = weight.astype(np.float32) - zero.astype(np.float32).reshape(sizes[zero.size])
        reals.append(np.ascontiguousarray((centered * scale.reshape(sizes[scale.size])).transpose(0, 2, 1)))

    def make() -> None:
        weights = [editor.constant(real, f"{node.name}_{name}") for real, name in zip(reals, "WR", strict=True)]
        inputs = [operand(node, 0), *weights, *(operand(node, i) for i in range(3, 8))]
        while inputs[-1] is None:
            inputs.pop()
        made = editor.add("LSTM", inputs, node, len(node.outputs), **attributes(node))
        for old, new in zip(list(node.outputs), made, strict=True):
            if old.uses() or old.is_graph_output():
                editor.replace(old, new)

    hidden = integer(node, "hidden_size", reals[1].shape[-1])
    return FloatForm((node,), f"DynamicQuantizeLSTM with {hidden} hidden", make)


def _dequantized(editor: Editor, node: Node) -> FloatForm | None:
    """DequantizeLinear of what a DynamicQuantizeLinear made, of constant codes, or of a Gather of constant codes."""
    codes = codes_read(node, 0)
    if codes is not None:
        whole = operand(node, 1) is codes.scale and operand(node, 2) is codes.zero
        return (
            FloatForm((node,), "codes read again", lambda: editor.replace(node.outputs[0], codes.real))
            if whole
            else None
        )
    before = source(node)
    gather = before if before is not None and is_op(before, "Gather") else None
    table = data(operand(node, 0) if gather is None else operand(gather, 0))
    scale, zero = data(operand(node, 1)), data(operand(node, 2))
    if table is None or scale is None or scale.size != 1 or table.dtype.kind not in "iu" or table.dtype.itemsize > 1:
        return None
    offset = np.zeros((), np.float32) if zero is None else zero.astype(np.float32).reshape(())
    real = ((table.astype(np.float32) - offset) * scale.reshape(())).astype(np.float32)

    def make() -> None:
        value = editor.constant(real, f"{node.name}_real")
        if gather is not None:
            (value,) = editor.add("Gather", [value, operand(gather, 1)], node, **attributes(gather))
        editor.replace(node.outputs[0], value)

    return FloatForm((node,), f"constant codes {'x'.join(map(str, table.shape))}", make)
