# SPDX-License-Identifier: Apache-2.0
"""Dynamic quantization: products of codes that are made at run time, and the float nodes that they came from.

onnxruntime's quantize_dynamic writes DynamicQuantizeLinear, ConvInteger or MatMulInteger, Cast and Mul for a product,
older versions with the bias as codes between them; DynamicQuantizeLSTM; and DequantizeLinear behind a Gather of codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir
from onnx_ir import Node, Value

from hexforge.ir import Array
from hexforge.model.edit import Editor
from hexforge.patterns.nodes import data, dequantizes, integer, is_op, operand, other, reader, shape, source

DYNAMIC = frozenset("DynamicQuantizeLinear DynamicQuantizeLSTM DynamicQuantizeMatMul".split())
"""Ops that quantize at run time."""
_MICROSOFT = "com.microsoft"


@dataclass(frozen=True, slots=True, eq=False)
class FloatForm:
    """Nodes of a dynamic quantization, and how they become the float nodes that they came from."""

    nodes: tuple[Node, ...]
    what: str
    make: Callable[[], object]


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """A tensor that is quantized at run time."""

    real: Value
    codes: Value
    scale: Value
    zero: Value | None


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


def _codes(node: Node, index: int) -> _Codes | None:
    """What a node reads of a DynamicQuantizeLinear at a position."""
    value, maker = operand(node, index), source(node, index)
    if maker is None or not is_op(maker, "DynamicQuantizeLinear") or value is not maker.outputs[0]:
        return None
    real = operand(maker, 0)
    if real is None or value is None:
        return None
    return _Codes(real, value, maker.outputs[1], maker.outputs[2] if len(maker.outputs) > 2 else None)


@dataclass(frozen=True, slots=True, eq=False)
class DynamicProduct:
    """A product of a tensor that is quantized at run time by a weight that is not, as a product of real numbers."""

    node: Node
    """The ConvInteger or MatMulInteger."""
    nodes: tuple[Node, ...]
    """All nodes of it but the DynamicQuantizeLinear of its input; the last writes the result."""
    x: Value
    weight: Array
    bias: Array | None


def dynamic_product(node: Node) -> DynamicProduct | None:
    """ConvInteger or MatMulInteger, [the Add of a bias in codes,] Cast, Mul by both scales; None for anything else."""
    codes, weights = _codes(node, 0), _weights(node)
    if codes is None or weights is None or operand(node, 2) is not codes.zero:
        return None
    nodes = [node]
    first = reader(node.outputs[0])
    added = other(first, node.outputs[0]) if first is not None and is_op(first, "Add") else None
    if added is not None and first is not None:
        nodes.append(first)
    cast = first if added is None or first is None else reader(first.outputs[0])
    if cast is None or not is_op(cast, "Cast") or cast.outputs[0].dtype != onnx_ir.DataType.FLOAT:
        return None
    last = reader(cast.outputs[0])
    factor = other(last, cast.outputs[0]) if last is not None and is_op(last, "Mul") else None
    step = weights.step(factor, codes.scale)
    if last is None or step is None or shape(last.outputs[0]) != shape(node.outputs[0]):
        return None
    real, bias = weights.real(step), None
    if added is not None:
        chain = _bias_chain(added)
        divided = chain[-1] if chain else None
        bias = None if divided is None else data(operand(divided, 0))
        steps = None if divided is None else weights.step(operand(divided, 1), codes.scale)
        if bias is None or steps is None or not np.array_equal(steps, step) or node.op_type != "ConvInteger":
            return None
        nodes += chain
        nodes += [n for n in (source(chain[-1], 1),) if n is not None and is_op(n, "Mul")]
        bias = np.broadcast_to(bias.ravel(), weights.codes_shape[:1])
    nodes += [n for n in (None if factor is None else factor.producer(),) if n is not None and is_op(n, "Mul")]
    nodes += [weights.maker] if weights.maker is not None else []
    nodes += [cast, last]
    if real is None:
        return None
    return DynamicProduct(node, tuple(dict.fromkeys(nodes)), codes.real, real, bias)


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
        attributes = {a.name: a.value for a in node.attributes.values()}
        editor.replace(last.outputs[0], editor.add(op, inputs, last, **attributes)[0])

    what = f"{node.op_type} by {'x'.join(map(str, product.weight.shape))}"
    return FloatForm((node, *product.nodes[-2:]), what, make)


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """The second operand of a product of codes."""

    node: Node
    codes: Array | None
    """Constant codes; None where a constant is quantized at run time, as onnxruntime does with Constant nodes."""
    offset: Array
    maker: Node | None = None
    """The DynamicQuantizeLinear of a constant."""

    @property
    def codes_shape(self) -> tuple[int, ...]:
        """Its shape."""
        return shape(operand(self.node, 1))

    def step(self, factor: Value | None, scale: Value) -> Array | None:
        """What the scale of the data is multiplied by in a factor: the scale of the weights, or 1; None otherwise."""
        if factor is scale and self.maker is None:
            return np.ones((), np.float32)
        maker = None if factor is None else factor.producer()
        by = other(maker, scale) if maker is not None and is_op(maker, "Mul") else None
        if self.maker is not None:
            return np.ones((), np.float32) if by is self.maker.outputs[1] else None
        return data(by)

    def real(self, step: Array) -> Array | None:
        """Weights as real numbers; None where a scale or zero point is for something else than an output channel."""
        if self.codes is None:
            return None if self.maker is None else data(operand(self.maker, 0))
        return _real_weight(self.codes, self.offset, step, columns=self.node.op_type == "MatMulInteger")


def _weights(node: Node) -> _Weights | None:
    dynamic = _codes(node, 1)
    if dynamic is not None:
        whole = data(dynamic.real) is not None and operand(node, 3) is dynamic.zero
        return _Weights(node, None, np.zeros((), np.int32), source(node, 1)) if whole else None
    codes = data(operand(node, 1))
    offset = np.zeros((), np.int32) if operand(node, 3) is None else data(operand(node, 3))
    return None if codes is None or offset is None else _Weights(node, codes, offset)


def _bias_chain(value: Value) -> list[Node]:
    """The nodes of a bias in codes, Reshape(Cast(Floor(bias / (scale * step)))), the Div last; none otherwise."""
    node, chain = value.producer(), []
    while node is not None and is_op(node, "Reshape", "Unsqueeze"):
        chain.append(node)
        node = source(node)
    for ops in (("Cast",), ("Floor", "Round"), ("Div",)):
        if node is None or not is_op(node, *ops):
            return []
        chain.append(node)
        node = source(node)
    return chain


def _real_weight(weight: Array, offset: Array, step: Array, *, columns: bool) -> Array | None:
    """Weights as real numbers; None where a scale or a zero point is for something else than an output channel."""
    count = weight.shape[-1] if columns else weight.shape[0]
    rest = (1,) * (0 if columns else weight.ndim - 1)
    if offset.size not in (1, count) or (offset.size > 1 and offset.ndim > 1):
        return None
    if step.size > 1:  # broadcast against the result, whose channels are last, or second
        lead = step.shape if columns else step.shape[: len(step.shape) - (weight.ndim - 2)]
        if step.size != count or lead[-1:] != (count,):
            return None
    shaped = [array.reshape((count, *rest) if array.size > 1 else ()).astype(np.float32) for array in (offset, step)]
    real: Array = (weight.astype(np.float32) - shaped[0]) * shaped[1]
    return real


def _joined_product(editor: Editor, node: Node) -> FloatForm | None:
    """DynamicQuantizeMatMul, or MatMulIntegerToFloat of what a DynamicQuantizeLinear made."""
    dynamic = node.op_type == "DynamicQuantizeMatMul"
    codes = None if dynamic else _codes(node, 0)
    if not dynamic and (codes is None or operand(node, 2) is not codes.scale or operand(node, 4) is not codes.zero):
        return None
    x = operand(node, 0) if codes is None else codes.real
    places = (2, 3, 4) if dynamic else (3, 5, 6)
    scale, zero, bias = (operand(node, place) for place in places)
    weight, step = data(operand(node, 1)), data(scale)
    offset = np.zeros((), np.int32) if zero is None else data(zero)
    if x is None or weight is None or step is None or offset is None:
        return None
    real = _real_weight(weight, offset, step, columns=True)
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
        attributes = {a.name: a.value for a in node.attributes.values()}
        made = editor.add("LSTM", inputs, node, len(node.outputs), **attributes)
        for old, new in zip(list(node.outputs), made, strict=True):
            if old.uses() or old.is_graph_output():
                editor.replace(old, new)

    hidden = integer(node, "hidden_size", reals[1].shape[-1])
    return FloatForm((node,), f"DynamicQuantizeLSTM with {hidden} hidden", make)


def _dequantized(editor: Editor, node: Node) -> FloatForm | None:
    """DequantizeLinear of what a DynamicQuantizeLinear made, of constant codes, or of a Gather of constant codes."""
    codes = _codes(node, 0)
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
            attributes = {a.name: a.value for a in gather.attributes.values()}
            (value,) = editor.add("Gather", [value, operand(gather, 1)], node, **attributes)
        editor.replace(node.outputs[0], value)

    return FloatForm((node,), f"constant codes {'x'.join(map(str, table.shape))}", make)
