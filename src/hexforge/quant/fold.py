# SPDX-License-Identifier: Apache-2.0
"""Folding: a float32 model with fewer values to quantize. Normalizations and constant factors go into the layers beside
them; activations and normalizations written out in elementwise nodes become one node each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.model.opset_conversion import to_opset
from hexforge.model.tensors import repeated, unrepeated
from hexforge.patterns.activations import SINCE, Activation, gelu, hard_swish, tanh_gelu
from hexforge.patterns.affine import NORMALIZATION, Affine, affine
from hexforge.patterns.language import anything, computed, constant, find_at, find_ending, one_of, op
from hexforge.patterns.layers import Layer, layer
from hexforge.patterns.nodes import ONNX, dims, float_constant, is_op, only_reader
from hexforge.patterns.normalizations import layer_norm
from hexforge.patterns.written_out import WrittenOut
from hexforge.quant.constants import set_constant
from hexforge.quant.widen import in_float32

_OPSETS = (21, 17, 13)
"""21 is what QDQ models of 16 bits are written in; LayerNormalization is there from 17; 13 has a scale
for each channel."""

_TOLERANCE = 5e-4
"""How far off a sixth or a root may be, relatively: float16 rounds by that, far less than quantizing changes."""


def fold(model: onnx_ir.Model) -> onnx_ir.Model:
    """A folded copy of the model that computes the same function; the model given is left as it is."""
    model = _in_newest_opset(in_float32(model))
    changed = True
    while changed:
        changed = False
        for node in list(model.graph):
            changed |= node.graph is not None and any(rule(node) for rule in _RULES)
    for node in model.graph:
        product = layer(node)
        if product is not None and product.bias is None and node.op_type != "MatMul":
            set_constant(node, 2, np.zeros(product.outputs, np.float32), f"{node.name}.bias")  # a place for corrections
    used = {v for n in model.graph.all_nodes() for v in n.inputs if v is not None} | set(model.graph.outputs)
    for name, value in list(model.graph.initializers.items()):
        if value not in used:
            del model.graph.initializers[name]
    return model


def _in_newest_opset(model: onnx_ir.Model) -> onnx_ir.Model:
    """A copy in the newest opset that it converts to, or a plain copy where it cannot be converted."""
    if model.opset_imports.get("", _OPSETS[0]) >= _OPSETS[0]:
        return model.clone()
    for opset in _OPSETS:
        if opset > model.opset_imports.get("", 0):
            try:
                return to_opset(model, opset)
            except ModelError:
                continue  # an op without an adapter: an older opset, or its own, can still be quantized
    return model.clone()


# -- into the layer before --------------------------------------------------------------------------------------


def _folding(node: onnx_ir.Node, source: onnx_ir.Value, axis: int) -> Affine | None:
    """What a node computes of `source`, where its constants can go into a layer; `c - x` stays as it is."""
    found = affine(node, axis)
    if found is None or found.x is not source or (is_op(node, "Sub") and node.inputs[0] is not source):
        return None
    return found if all(v is source or float_constant(v) is not None for v in node.inputs) else None


def _fold_into_layer_before(node: onnx_ir.Node) -> bool:
    """Fold a BatchNormalization, or an arithmetic op with a constant per channel, into the layer before it."""
    before = layer(node)
    after = only_reader(node.outputs[0]) if before is not None else None
    found = None if before is None or after is None else _folding(after, before.out, before.channel_axis)
    if before is None or after is None or found is None:
        return False
    if before.node.op_type == "MatMul" and found.shift.any():
        return False  # it has no bias: the Add stays, and becomes one with the product later
    weight, bias = before.numbers
    matrix = before.matrix(weight)
    scaled, moved = found.after(unrepeated(matrix), bias)
    _set_weight_and_bias(before, repeated(scaled, matrix.shape), moved)
    name = after.outputs[0].name
    _remove_node(after, node.outputs[0])
    node.outputs[0].name = name  # what it holds now: comparing with the float model goes by name
    return True


def _set_weight_and_bias(of: Layer, matrix: Array, bias: Array) -> None:
    name = of.node.name or of.out.name or "layer"
    narrow = repeated(unrepeated(matrix).astype(np.float32), matrix.shape)
    set_constant(of.node, 1, of.stored(narrow), f"{name}.weight")
    if of.node.op_type != "MatMul" and (of.bias is not None or bias.any()):
        set_constant(of.node, 2, bias.astype(np.float32), f"{name}.bias")


def _read_instead(new: onnx_ir.Value, old: onnx_ir.Value) -> None:
    """Let what reads one value read another one, which takes its name: comparing with the float model goes by name."""
    name, old.name = old.name, f"{old.name}.before"
    new.name = name
    onnx_ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)


def _remove_node(node: onnx_ir.Node, value: onnx_ir.Value) -> None:
    """Remove a node: its readers read `value`, which takes the node's output name where that is a graph output."""
    graph, out = node.graph, node.outputs[0]
    assert isinstance(graph, onnx_ir.Graph)
    if out.is_graph_output():
        _read_instead(value, out)
    else:
        onnx_ir.convenience.replace_all_uses_with(out, value)
    graph.remove(node, safe=True)


# -- into the layers behind -------------------------------------------------------------------------------------


def _readers(value: onnx_ir.Value) -> list[Layer]:
    """The layers that read a value, where nothing else does."""
    readers = [layer(use.node) if use.idx == 0 else None for use in value.uses()]
    known = [reader for reader in readers if reader is not None]
    return known if len(known) == len(readers) and not value.is_graph_output() else []


def _fold_into_layers_behind(node: onnx_ir.Node) -> bool:
    """Move a factor per channel, and without padding a shift, into the weights of the layers that read it."""
    if not is_op(node, "Mul", "Div", "Add", "Sub", NORMALIZATION):
        return False
    source = next((v for v in node.inputs[:2] if v is not None and v.const_value is None), None)
    readers = _readers(node.outputs[0])
    if source is None or source.is_graph_input() or len({(r.inputs, _input_axis(r)) for r in readers}) != 1:
        return False
    found = _folding(node, source, _input_axis(readers[0]))
    if found is None or found.factor.size not in (1, readers[0].inputs):
        return False
    if found.shift.any() and any(r.padded or r.node.op_type == "MatMul" for r in readers):
        return False
    for reader in readers:
        weight, bias = reader.numbers
        _set_weight_and_bias(reader, *found.before(reader.matrix(weight), bias.astype(np.float64), reader.group))
    _remove_node(node, source)
    return True


def _input_axis(of: Layer) -> int:
    shape = dims(of.data)
    assert shape is not None
    return len(shape) - 1 if of.multiplies_rows else 1


X, SHIFT = computed(), constant()
FACTOR = constant(lambda array: array.size == 1 and bool(array.all()))
SCALED = op("Mul", X, FACTOR)
SHIFTED = op("Add", SCALED, SHIFT)


def _fold_factor_into_layers_behind(node: onnx_ir.Node) -> bool:
    """Move the factor m of x m + a into the layers that read it, where padding keeps the shift a / m outside."""
    match = find_at(SHIFTED, (SCALED,), ONNX, node)
    readers = [] if match is None else _readers(match.last.outputs[0])
    if match is None or not readers or dims(match[X]) != dims(match[SHIFTED]):
        return False
    if any(float_constant(match[term]) is None for term in (FACTOR, SHIFT)):
        return False
    add, factor = match.last, match.array(FACTOR).reshape(-1)[0]
    for reader in readers:
        weight, bias = reader.numbers
        _set_weight_and_bias(reader, reader.matrix(weight).astype(np.float64) * float(factor), bias)
    set_constant(add, add.inputs.index(match[SHIFT]), match.array(SHIFT) / factor, f"{add.name}.shift")
    add.outputs[0].name = f"{add.outputs[0].name}.divided"  # not what the float model has under that name
    _remove_node(node, match[X])
    return True


def _split_sum(node: onnx_ir.Node) -> bool:
    """Replace Sum, which has no fixed-point form, by a chain of Add nodes."""
    graph = node.graph
    terms = [v for v in node.inputs if v is not None]
    if node.op_type != "Sum" or node.domain not in ("", "ai.onnx") or graph is None or len(terms) != len(node.inputs):
        return False
    if len(terms) == 1 and not (node.outputs[0].is_graph_output() and terms[0].producer() is None):
        _remove_node(node, terms[0])
        return True
    total, out = terms[0], node.outputs[0]
    for i, term in enumerate(terms[1:], 1):
        last = i == len(terms) - 1
        name = node.name if last else f"{node.name}.{i}"
        add = onnx_ir.node("Add", [total, term], name=name, version=node.version)
        partial = add.outputs[0]
        partial.name = f"{out.name}.{i}"
        sizes = dims(out) if last else _broadcast(dims(total), dims(term))
        partial.shape, partial.type = None if sizes is None else onnx_ir.Shape(sizes), out.type
        graph.insert_before(node, add)
        total = partial
    if total is terms[0]:
        return False
    _read_instead(total, out)
    graph.remove(node, safe=True)
    return True


def _broadcast(first: tuple[int, ...] | None, second: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if first is None or second is None else np.broadcast_shapes(first, second)


ANY, ZEROS = anything(), constant(lambda array: bool((array == 0).all()))
ONES = constant(lambda array: bool((array == 1).all()))
NEUTRAL = one_of(op("Mul Div", ANY, ONES), op("Add Sub", ANY, ZEROS))


def _remove_identity(node: onnx_ir.Node) -> bool:
    """Remove x * 1, x / 1, x + 0 and x - 0."""
    match = find_ending(NEUTRAL, ONNX, node, lambda match: dims(match[ANY]) == dims(node.outputs[0]))
    if match is None or node.outputs[0].is_graph_output():
        return False
    if all(float_constant(match.get(term)) is None for term in (ONES, ZEROS)):
        return False
    _remove_node(node, match[ANY])
    return True


# -- one node for several ---------------------------------------------------------------------------------------


def _fuse_elementwise(node: onnx_ir.Node) -> bool:
    """Replace an activation or normalization that is written out in elementwise nodes by one node."""
    opset = 0 if node.graph is None else node.graph.opset_imports.get("", 0)
    matches: tuple[Activation | None, ...] = hard_swish(node, _TOLERANCE), gelu(node, _TOLERANCE), tanh_gelu(node)
    for whole in matches:
        if whole is not None and opset >= SINCE[whole.op] and _is_float32(whole):
            return _replace(whole, whole.op, {})
    norm = layer_norm(node) if opset >= 17 else None
    if norm is None or not _is_float32(norm) or norm.axes != (len(dims(norm.inputs[0]) or ()) - 1,):
        return False
    if any(float_constant(parameter) is None for parameter in norm.inputs[1:]):
        return False  # the node needs a weight; without a bias its QDQ group is another
    return _replace(norm, "LayerNormalization", {"axis": -1, "epsilon": norm.epsilon})


def _is_float32(match: WrittenOut) -> bool:
    x = match.inputs[0]
    return x is not None and x.dtype == onnx_ir.DataType.FLOAT


def _replace(match: WrittenOut, op_type: str, attributes: dict[str, float]) -> bool:
    """One node in place of the matched ones, under the names of the last."""
    last = match.last
    graph, old = last.graph, last.outputs[0]
    assert isinstance(graph, onnx_ir.Graph)
    new = onnx_ir.node(op_type, match.inputs, attributes or None, name=last.name)
    written = new.outputs[0]
    written.shape, written.type = old.shape, old.type
    graph.insert_after(last, new)
    _read_instead(written, old)
    graph.remove(list(reversed(match.nodes)), safe=True)
    return True


def _divide_one(node: onnx_ir.Node) -> bool:
    """Write 1 / x as a division: the EP gives the one of a Reciprocal the input's encoding, which may end below 1."""
    if node.op_type != "Reciprocal" or node.domain not in ("", "ai.onnx"):
        return False
    node.op_type = "Div"
    x = node.inputs[0]
    node.resize_inputs(2)
    node.replace_input_with(1, x)
    set_constant(node, 0, np.ones((), np.float32), f"{node.name}.one")
    return True


_RULES: tuple[Callable[[onnx_ir.Node], bool], ...] = (
    _divide_one,
    _fuse_elementwise,
    _split_sum,
    _remove_identity,
    _fold_into_layer_before,
    _fold_into_layers_behind,
    _fold_factor_into_layers_behind,
)
