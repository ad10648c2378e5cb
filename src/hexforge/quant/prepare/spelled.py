"""Spelled out: activations and normalizations made of elementwise nodes, as the one node that ONNX has for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir

from hexforge.quant.prepare.layers import attribute, constant, dims, number, numbers, only_reader


def _scalar(value: onnx_ir.Value | None) -> float | None:
    found = constant(value)
    return float(found.reshape(-1)[0]) if found is not None and found.size == 1 else None


def _operand(node: onnx_ir.Node, source: onnx_ir.Value) -> onnx_ir.Value | None:
    """The other input of a node of two."""
    if len(node.inputs) != 2:
        return None
    return node.inputs[1] if node.inputs[0] is source else node.inputs[0]


def _by_six(node: onnx_ir.Node | None, source: onnx_ir.Value) -> bool:
    if node is None or node.op_type not in ("Div", "Mul"):
        return False
    factor = _scalar(_operand(node, source))
    return factor is not None and bool(np.isclose(factor, 6.0 if node.op_type == "Div" else 1 / 6, rtol=1e-4))


def _hard_swish(node: onnx_ir.Node) -> bool:
    """x clip(x + 3, 0, 6) / 6, or x hard_sigmoid(x): HardSwish."""
    if node.graph is None or node.graph.opset_imports.get("", 0) < 14:
        return False
    if node.op_type == "HardSigmoid":
        if not np.isclose(number(node, "alpha", 0.2), 1 / 6, rtol=1e-4) or number(node, "beta", 0.5) != 0.5:
            return False
        x, gate, parts = node.inputs[0], node.outputs[0], [node]
    elif node.op_type == "Add":
        x = next((v for v in node.inputs if v is not None and v.const_value is None), None)
        clip = only_reader(node.outputs[0])
        if x is None or clip is None or _scalar(_operand(node, x)) != 3.0 or clip.op_type != "Clip":
            return False
        if len(clip.inputs) != 3 or (_scalar(clip.inputs[1]), _scalar(clip.inputs[2])) != (0.0, 6.0):
            return False
        gate, parts = clip.outputs[0], [node, clip]
    else:
        return False
    scaled = node.op_type == "HardSigmoid"
    divide = only_reader(gate)
    if not scaled and divide is not None and _by_six(divide, gate):
        gate, scaled = divide.outputs[0], True
        parts.append(divide)
    product = only_reader(gate)
    if x is None or product is None or product.op_type != "Mul" or _operand(product, gate) is not x:
        return False
    parts.append(product)
    if not scaled:
        divide = only_reader(product.outputs[0])
        if divide is None or not _by_six(divide, product.outputs[0]):
            return False
        parts.append(divide)
    return _one("HardSwish", [x], parts, {})


def _gelu(node: onnx_ir.Node) -> bool:
    """x (1 + erf(x / sqrt 2)) / 2, multiplied in any order: Gelu."""
    if node.op_type != "Erf" or node.graph is None or node.graph.opset_imports.get("", 0) < 20:
        return False
    scaled = node.inputs[0].producer() if node.inputs[0] is not None else None
    plus = only_reader(node.outputs[0])
    if scaled is None or only_reader(scaled.outputs[0]) is not node or plus is None or plus.op_type != "Add":
        return False
    x = next((v for v in scaled.inputs if v is not None and v.const_value is None), None)
    factor = None if x is None else _scalar(_operand(scaled, x))
    root = {"Div": 2**0.5, "Mul": 0.5**0.5}.get(scaled.op_type)
    if x is None or factor is None or root is None or not np.isclose(factor, root, rtol=1e-4):
        return False
    if (scaled.op_type == "Div" and scaled.inputs[0] is not x) or _scalar(_operand(plus, node.outputs[0])) != 1.0:
        return False
    parts, left = [scaled, node, plus], {"x", "half"}
    while left:  # two factors are still to come: x and one half, or x / 2 at once
        value = parts[-1].outputs[0]
        product = only_reader(value)
        other = _operand(product, value) if product is not None and product.op_type == "Mul" else None
        if product is None or other is None:
            return False
        before = other.producer()
        if other is x and "x" in left:
            left.discard("x")
        elif _scalar(other) == 0.5 and "half" in left:
            left.discard("half")
        elif len(left) == 2 and before is not None and before.op_type == "Mul" and only_reader(other) is product:
            if _operand(before, x) is None or x not in before.inputs or _scalar(_operand(before, x)) != 0.5:
                return False
            left.clear()
            parts.insert(0, before)
        else:
            return False
        parts.append(product)
    return _one("Gelu", [x], parts, {})


def _layer_norm(node: onnx_ir.Node) -> bool:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) weight + bias over the last axis: LayerNormalization."""
    if node.op_type != "ReduceMean" or node.graph is None or node.graph.opset_imports.get("", 0) < 17:
        return False
    x = node.inputs[0]
    shape = dims(x)
    center = only_reader(node.outputs[0])
    if x is None or shape is None or not _over_last(node, len(shape)) or center is None or center.op_type != "Sub":
        return False
    uses = [u.node for u in center.outputs[0].uses()]
    square = next((n for n in uses if n.op_type == "Pow" and _scalar(n.inputs[1]) == 2.0), None)
    if center.inputs[0] is not x or len(uses) != 2 or square is None:
        return False
    parts = [node, center, square]
    for op in ("ReduceMean", "Add", "Sqrt", "Div"):
        following = only_reader(parts[-1].outputs[0])
        if following is None or following.op_type != op:
            return False
        parts.append(following)
    _, _, _, mean, plus, _, divide = parts
    epsilon = _scalar(_operand(plus, mean.outputs[0]))
    if epsilon is None or divide.inputs[0] is not center.outputs[0] or not _over_last(mean, len(shape)):
        return False
    parameters: list[onnx_ir.Value] = []
    for op in ("Mul", "Add"):
        following = only_reader(parts[-1].outputs[0])
        if following is None or following.op_type != op:
            return False
        operand = _operand(following, parts[-1].outputs[0])
        given = constant(operand)
        if operand is None or given is None or given.shape != shape[-1:]:
            return False
        parameters.append(operand)
        parts.append(following)
    return _one("LayerNormalization", [x, *parameters], parts, {"axis": -1, "epsilon": epsilon})


def _over_last(node: onnx_ir.Node, rank: int) -> bool:
    axes = numbers(node, "axes", ())
    if len(node.inputs) > 1 and node.inputs[1] is not None and node.inputs[1].const_value is not None:
        axes = tuple(int(a) for a in node.inputs[1].const_value.numpy().reshape(-1))
    return [a % rank for a in axes] == [rank - 1] and attribute(node, "keepdims", 1) == 1


def _one(op: str, inputs: list[onnx_ir.Value], parts: list[onnx_ir.Node], attributes: dict[str, float]) -> bool:
    """One node in place of `parts`, under the last one's names."""
    graph, last = parts[-1].graph, parts[-1]
    assert isinstance(graph, onnx_ir.Graph)
    old = last.outputs[0]
    new = onnx_ir.node(op, inputs, attributes or None, name=last.name)
    made = new.outputs[0]
    made.shape, made.type = old.shape, old.type
    name, old.name = old.name, f"{old.name}.before"
    made.name = name
    graph.insert_after(last, new)
    onnx_ir.convenience.replace_all_uses_with(old, made, replace_graph_outputs=True)
    graph.remove(list(reversed(parts)), safe=True)
    return True


SPELLED: tuple[Callable[[onnx_ir.Node], bool], ...] = (_hard_swish, _gelu, _layer_norm)
"""Each makes one node of several around the node given, or says that it cannot."""
