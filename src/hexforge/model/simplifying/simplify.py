# SPDX-License-Identifier: Apache-2.0
"""Simplify: constants folded, shapes inferred, identities and dead nodes gone, until nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import onnx_ir
from onnx_ir import passes
from onnx_ir.passes import common

from hexforge.errors import ModelError
from hexforge.model.simplifying.folding import Fold
from hexforge.model.simplifying.known_values import read_constant
from hexforge.model.simplifying.shapes import CORRECTED, better_shape, infer_node
from hexforge.model.simplifying.tidying import (
    OF_A_BRANCH,
    all_nodes,
    fix_names,
    is_flat,
    lift_constants,
    remove_unused,
    sort_nodes,
)
from hexforge.model.source import schema_of

MOST_ROUNDS = 8
LateShapes = Mapping[onnx_ir.Value, Callable[[], onnx_ir.Shape | None]]
Declared = Mapping[onnx_ir.Value, onnx_ir.Shape | Callable[[], onnx_ir.Shape | None]]


def simplify(
    model: onnx_ir.Model, where: str, fold: bool = True, late_shapes: LateShapes = MappingProxyType({})
) -> None:
    """Bring a model to its simplest form in place; its inputs and outputs keep names and order.

    `late_shapes` are declared, and read only where inference does not say them.
    """
    names = [value.name or "" for value in model.graph.outputs]
    flat = is_flat(model)
    for node in all_nodes(model, flat):
        if node.op_type == "STFT":  # onnx's shape inference takes the default for 0; it is 1
            node.attributes.setdefault("onesided", onnx_ir.AttrInt64("onesided", 1))
    missing = {v for node in all_nodes(model, flat) for v in node.outputs if not v.name}
    try:
        _tidy(model, flat)
        if not flat:
            _mark_constants_of_branches(model)
            common.LiftSubgraphInitializersToMainGraphPass()(model)
        sort_nodes(model, flat)
        declared: Declared = {**late_shapes, **_take_shapes(model, flat)}
        corrected = True
        for _ in range(MOST_ROUNDS):
            with np.errstate(all="ignore"):  # what constants a model computes with is its own affair
                changed = Fold(model, flat).run() if fold else _infer_only(model)
            changed |= _tidy(model, flat)
            if not flat:
                _infer_branches(model)
            if all(v.shape is not None and v.shape.is_static() for n in model.graph for v in n.outputs):
                break
            shapes = common.ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)
            changed |= shapes(model).modified
            corrected = False
            if not changed:
                if not declared:
                    break
                _give_shapes(declared)
                declared = {}
        _give_shapes(declared)
        if not corrected and any(node.op_type in CORRECTED for node in all_nodes(model, flat)):
            _infer_only(model)  # onnx's own inference over the whole model does not correct them
        _remove_identities(model, flat)
        _remove_unused(model, flat)
        _write_outputs(model, names)
        sort_nodes(model, flat)
    except (passes.PassError, passes.PreconditionError, ValueError, RuntimeError, KeyError, AssertionError) as error:
        raise ModelError(f"{where}: cannot be simplified: {_root(error)}") from error
    _name(model, missing, flat)
    for node in all_nodes(model, flat):
        node.version = model.opset_imports.get(node.domain)


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _mark_constants_of_branches(model: onnx_ir.Model) -> None:
    """Note of what bodies have as constants that it is theirs, as the EP knows, and not of the graph around them."""
    for graph in model.graphs():
        if graph is not model.graph:
            for value in graph.initializers.values():
                value.meta[OF_A_BRANCH] = True


def _tidy(model: onnx_ir.Model, flat: bool) -> bool:
    changed = lift_constants(model, flat)
    changed |= _remove_identities(model, flat)
    if model.opset_imports.get("", 0) < 18:
        for node in all_nodes(model, flat):
            if node.op_type == "Split" and node.domain == "":
                node.attributes.pop("num_outputs", None)  # folding writes it whatever the opset
    return _remove_unused(model, flat) or changed


def _remove_unused(model: onnx_ir.Model, flat: bool) -> bool:
    changed = remove_unused(model, flat)
    if flat:
        return changed
    for node in all_nodes(model, flat):
        if node.op_type == "Loop" and len(node.inputs) < 2:
            node.resize_inputs(2)  # the pass cuts off absent inputs, which Loop must name
    return changed


# -- shapes -----------------------------------------------------------------------------------------------------


def _take_shapes(model: onnx_ir.Model, flat: bool) -> dict[onnx_ir.Value, onnx_ir.Shape]:
    """Take away the declared shapes of what known ops write: they may be stale, and inference comes first."""
    declared: dict[onnx_ir.Value, onnx_ir.Shape] = {}
    for node in all_nodes(model, flat):
        if schema_of(node.domain, node.op_type, model.opset_imports.get(node.domain, 1)) is None:
            continue
        for value in node.outputs:
            if value.shape is not None:
                declared[value] = value.shape
                value.shape = None
    return declared


def _give_shapes(declared: Declared) -> None:
    for value, given in declared.items():
        if value.shape is not None and value.shape.is_static():
            continue
        shape = given if isinstance(given, onnx_ir.Shape) else given()
        value.shape = shape if value.shape is None else better_shape(value.shape, shape)


def _infer_only(model: onnx_ir.Model) -> bool:
    before = [v.shape for n in model.graph for v in n.outputs]
    for node in model.graph:
        infer_node(node, model.opset_imports, model.ir_version)
    return before != [v.shape for n in model.graph for v in n.outputs]


def _infer_branches(model: onnx_ir.Model) -> None:
    """An If writes what its branches write, where both agree."""
    for node in all_nodes(model, flat=False):
        if node.op_type == "If" and not node.domain and {"then_branch", "else_branch"} <= node.attributes.keys():
            branches = [node.attributes[name].as_graph().outputs for name in ("then_branch", "else_branch")]
            for value, then, otherwise in zip(node.outputs, *branches, strict=False):
                if then.shape is not None and then.shape.is_static() and then.shape == otherwise.shape:
                    value.shape = then.shape


# -- identities, outputs, names ---------------------------------------------------------------------------------


def _is_identity(node: onnx_ir.Node, opset: int) -> bool:
    if node.domain or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Dropout" and opset < 12:  # always inference; newer ones are folded by their training_mode
        return not any(v.uses() or v.is_graph_output() for v in node.outputs[1:])
    return node.op_type == "Identity"


def _remove_identities(model: onnx_ir.Model, flat: bool) -> bool:
    opset, changed = model.opset_imports.get("", 1), False
    for node in list(all_nodes(model, flat)):
        if not _is_identity(node, opset):
            continue
        source, result, graph = node.inputs[0], node.outputs[0], node.graph
        assert source is not None
        assert graph is not None
        if result.is_graph_output():
            producer = source.producer()
            if producer is None or producer.graph is not graph or source.is_graph_output():
                continue  # an output must be written in its own graph, and under its own name
        if source.shape is None or (result.shape is not None and not source.shape.is_static()):
            source.shape = result.shape if source.shape is None else better_shape(source.shape, result.shape)
        if source.type is None:
            source.type = result.type
        name = result.name if result.is_graph_output() else None
        onnx_ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        if name is not None:
            result.name = None
            source.name = name
        changed = True
    return changed


def _write_outputs(model: onnx_ir.Model, names: list[str]) -> None:
    """Every output of the model is written by a node under its own name: constants go through an Identity.

    An output that is an input of the same name stays what it is: it is not written by anybody.
    """
    graph = model.graph
    for node in graph:
        if node.op_type == "Constant" and not node.domain:
            read_constant(node)
    seen: set[onnx_ir.Value] = set()
    for index, name in enumerate(names):
        value = graph.outputs[index]
        producer = value.producer()
        if producer is not None and producer.op_type == "Constant" and value.const_value is not None:
            tensor = value.const_value
            lifted = onnx_ir.Value(name=f"{name}_constant", type=value.type, shape=value.shape, const_value=tensor)
            graph.register_initializer(lifted)
            onnx_ir.convenience.replace_all_uses_with(value, lifted, replace_graph_outputs=True)
            graph.remove(producer, safe=True)
            value = lifted
        if value.is_graph_input() and value.name == name:
            continue
        if value.producer() is None or value in seen:
            result = onnx_ir.Value(name=name, type=value.type, shape=value.shape)
            graph.append(onnx_ir.Node("", "Identity", [value], outputs=[result]))
            graph.outputs[index] = result
            if value.name == name:
                value.name = f"{name}_constant"
        elif value.name != name:
            value.name = name
        seen.add(graph.outputs[index])


def _name(model: onnx_ir.Model, missing: set[onnx_ir.Value], flat: bool) -> None:
    """Unique names for nodes and values; outputs a node leaves out keep the empty one."""
    name_nodes(model, flat)
    unused = {v for n in all_nodes(model, flat) for v in n.outputs if not v.name or (v in missing and not v.uses())}
    fix_names(model, flat)
    for value in unused:
        value.name = ""


def name_nodes(model: onnx_ir.Model, flat: bool) -> None:
    """Name unnamed nodes `<OpType>_<n>` and make every name the only one, over all graphs."""
    nodes = list(all_nodes(model, flat))
    used = {n.name for n in nodes if n.name}
    seen: set[str] = set()
    for index, node in enumerate(nodes):
        if not node.name or node.name in seen:
            stem, number = (node.name, 1) if node.name else (node.op_type, index)
            while f"{stem}_{number}" in used:
                number += 1
            node.name = f"{stem}_{number}"
            used.add(node.name)
        seen.add(node.name)
