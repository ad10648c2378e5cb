# SPDX-License-Identifier: Apache-2.0
"""Widening: a float16 model in float32, which is what gets encodings. Its inputs and outputs keep their types."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir
from onnx_ir import DataType, Node, Value

from hexforge.model.edit import Editor


def in_float32(model: onnx_ir.Model) -> onnx_ir.Model:
    """A copy without float16 inside: a Cast stands behind each input and before each output of that type.

    A model without float16 comes back as it is.
    """
    if not any(value.dtype == DataType.FLOAT16 for value in _values(model)):
        return model
    widened = model.clone()
    nodes = list(widened.graph)
    if not nodes:
        return widened
    editor = Editor(widened)
    inputs = {value: list(value.uses()) for value in widened.graph.inputs if value.dtype == DataType.FLOAT16}
    outputs = [i for i, v in enumerate(widened.graph.outputs) if v.dtype == DataType.FLOAT16 and v not in inputs]
    for value in _values(widened):
        if value.dtype == DataType.FLOAT16 and value not in inputs:
            _widen(value)
    for node in widened.graph.all_nodes():
        _widen_attributes(node)
    for value, uses in inputs.items():
        (wide,) = editor.add("Cast", [value], nodes[0], to=int(DataType.FLOAT))
        for use in uses:
            use.node.replace_input_with(use.idx, wide)
    for index in outputs:
        value = widened.graph.outputs[index]
        name, value.name = value.name, editor.name(f"{value.name}.float32")
        (narrow,) = editor.add("Cast", [value], nodes[-1], to=int(DataType.FLOAT16))
        narrow.name, widened.graph.outputs[index] = name, narrow
    for node in editor.nodes():
        if node.op_type == "Cast" and node.domain == "":
            types = {None if value is None else value.dtype for value in (*node.inputs, *node.outputs)}
            if types == {DataType.FLOAT}:  # it changes nothing
                _bypass(node)
    editor.tidy()
    return widened


def _values(model: onnx_ir.Model) -> Iterator[Value]:
    """Everything that has a type: inputs, constants and what nodes write, in all graphs."""
    for graph in (model.graph, *model.graph.subgraphs()):
        yield from graph.inputs
        if isinstance(graph, onnx_ir.Graph):
            yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def _widen(value: Value) -> None:
    value.type = onnx_ir.TensorType(DataType.FLOAT)  # a new one: clones share theirs
    if value.const_value is not None:
        value.const_value = onnx_ir.Tensor(value.const_value.numpy().astype(np.float32), name=value.name)


def _widen_attributes(node: Node) -> None:
    """Types and constants that a node carries itself: Cast's `to`, ConstantOfShape's `value`."""
    for key, attribute in list(node.attributes.items()):
        kind = attribute.type
        if kind == onnx_ir.AttributeType.TENSOR and attribute.as_tensor().dtype == DataType.FLOAT16:
            wide = onnx_ir.tensor(attribute.as_tensor().numpy().astype(np.float32))
            node.attributes[key] = onnx_ir.AttrTensor(key, wide)
        elif key in ("to", "dtype") and kind == onnx_ir.AttributeType.INT and attribute.value == DataType.FLOAT16:
            node.attributes[key] = onnx_ir.AttrInt64(key, int(DataType.FLOAT))


def _bypass(node: Node) -> None:
    """Take a Cast out that changes nothing; one between an input and an output of the graph stays."""
    value, out = node.inputs[0], node.outputs[0]
    assert value is not None
    assert node.graph is not None
    if out.is_graph_output():
        if value.producer() is None or value.is_graph_output():
            return
        name, out.name = out.name, f"{out.name}.before"
        value.name = name
    onnx_ir.convenience.replace_all_uses_with(out, value, replace_graph_outputs=True)
    node.graph.remove(node, safe=True)
