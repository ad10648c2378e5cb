# SPDX-License-Identifier: Apache-2.0
"""Tidying: what onnx_ir's passes over a whole model do, without the work they repeat for every node.

Each function first looks whether there is anything to do. A model whose nodes have bodies (If, Loop) or that has
functions goes through onnx_ir's own passes; the results are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import onnx
import onnx_ir
from onnx_ir.passes import common

from hexforge.model.source import schema_of

BODIES = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)
OF_A_BRANCH = "constant of a branch"
"""Among the notes (`meta`) of a constant that a body had before it was moved to the graph around it."""


def has_body(node: onnx_ir.Node) -> bool:
    """True where a graph is among the attributes of a node."""
    return any(attribute.type in BODIES for attribute in node.attributes.data.values())


def is_flat(model: onnx_ir.Model) -> bool:
    """True for a model that is one graph: no node has a body, and there are no functions."""
    return not model.functions and not any(map(has_body, model.graph))


def all_nodes(model: onnx_ir.Model, flat: bool) -> Iterator[onnx_ir.Node]:
    """Every node of a model, those of bodies included."""
    return iter(tuple(model.graph) if flat else onnx_ir.traversal.RecursiveGraphIterator(model.graph))


def lift_constants(model: onnx_ir.Model, flat: bool) -> bool:
    """Make initializers of what Constant nodes write; True where there was one."""
    constants = [node for node in model.graph if node.op_type == "Constant" and not node.domain] if flat else []
    if not flat or not all(map(_holds_tensor, constants)):
        return bool(common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model).modified)
    lifted = [node for node in constants if not node.outputs[0].is_graph_output()]
    for node in lifted:
        value, tensor = node.outputs[0], node.attributes["value"].value  # as_tensor checks a protocol, slowly
        type = onnx_ir.TensorType(tensor.dtype)
        held = onnx_ir.Value(name=value.name, shape=tensor.shape, type=type, const_value=tensor)
        held.metadata_props.update(value.metadata_props)
        held.meta.update(value.meta)
        model.graph.register_initializer(held)
        value.replace_all_uses_with(held)
        model.graph.remove(node, safe=True)
    return bool(lifted)


def _holds_tensor(constant: onnx_ir.Node) -> bool:
    held = constant.attributes.get("value")
    return held is not None and len(constant.attributes) == 1 and held.type is onnx_ir.AttributeType.TENSOR


def sort_nodes(model: onnx_ir.Model, flat: bool) -> None:
    """Bring nodes into an order in which they can run; one that is good already stays."""
    if not (flat and is_sorted(model.graph)):
        common.TopologicalSortPass()(model)


def sort_graph(graph: onnx_ir.Graph) -> None:
    """The same for one graph; ValueError where its nodes form a cycle."""
    if any(map(has_body, graph)) or not is_sorted(graph):
        graph.sort()


def is_sorted(graph: onnx_ir.Graph) -> bool:
    """True where no node of a graph without bodies comes before one whose result it reads."""
    seen: set[onnx_ir.Node] = set()
    for node in graph:
        for value in node.inputs:
            if value is not None and (producer := value.producer()) is not None and producer not in seen:
                return False
        seen.add(node)
    return True


def fix_names(model: onnx_ir.Model, flat: bool) -> None:
    """Give every value and every node a name of its own."""
    if not (flat and _names_differ(model.graph)):
        common.NameFixPass()(model)


def _names_differ(graph: onnx_ir.Graph) -> bool:
    named: dict[str | None, onnx_ir.Value] = {}
    nodes: set[str | None] = {None, ""}
    count = len(nodes)
    values = [*graph.inputs, *graph.outputs, *graph.initializers.values()]
    for node in graph:
        nodes.add(node.name)
        count += 1
        values.extend(value for value in node.inputs if value is not None)
        values.extend(node.outputs)
    return len(nodes) == count and all(v.name and named.setdefault(v.name, v) is v for v in values)


# -- what nobody reads -------------------------------------------------------------------------------------------


def remove_unused(model: onnx_ir.Model, flat: bool) -> bool:
    """Remove nodes, initializers and optional outputs that nothing reads; True where nodes or initializers went."""
    if not flat:
        return bool(common.RemoveUnusedNodesPass()(model).modified)
    graph, opset, removed = model.graph, model.graph.opset_imports.get(""), False
    outputs = frozenset(graph.outputs)
    for node in reversed(graph):
        if not any(value in outputs or value.uses() for value in node.outputs):
            graph.remove(node, safe=True)
            removed = True
            continue
        inputs = node.inputs
        if inputs and inputs[-1] is None:
            node.resize_inputs(max((i for i, value in enumerate(inputs, 1) if value is not None), default=0))
        if opset is not None and not node.domain:
            _remove_optional_outputs(node, outputs, opset)
    kept = outputs.union(graph.inputs)
    for value in list(graph.initializers.values()):
        if value not in kept and not value.uses():
            assert value.name is not None
            del graph.initializers[value.name]
            removed = True
    return removed


def _remove_optional_outputs(node: onnx_ir.Node, outputs: frozenset[onnx_ir.Value], opset: int) -> None:
    optional = _optional_outputs(node.op_type, opset)
    if node.op_type == "BatchNormalization":
        schema = schema_of("", "BatchNormalization", opset)
        if schema is None or "training_mode" not in schema.attributes:
            return  # in older opsets the number of outputs says whether it trains
        mode = node.attributes.get("training_mode")
        if mode is not None and (mode.is_ref() or mode.type != onnx_ir.AttributeType.INT or mode.as_int() != 0):
            return
        node.attributes.pop("training_mode", None)
    if not any(optional):
        return
    for value, may_go in zip(node.outputs, optional, strict=False):
        if may_go and value not in outputs and not value.uses():
            value.name = ""
    node.resize_outputs(max((i for i, value in enumerate(node.outputs, 1) if value.name), default=0))


@functools.cache
def _optional_outputs(op_type: str, opset: int) -> tuple[bool, ...]:
    """Which outputs of an op of ai.onnx may be left out; none where their number is open or the op is not known."""
    schema = schema_of("", op_type, opset)
    options = [] if schema is None else [output.option for output in schema.outputs]
    kinds = onnx.defs.OpSchema.FormalParameterOption
    return () if kinds.Variadic in options else tuple(option == kinds.Optional for option in options)
