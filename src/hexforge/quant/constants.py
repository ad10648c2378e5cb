# SPDX-License-Identifier: Apache-2.0
"""Constants: how a node is given other weights."""

from __future__ import annotations

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.model.tensors import unrepeated


def set_constant(node: onnx_ir.Node, index: int, array: Array, name: str) -> None:
    """Make input `index` of a node the constant `array`, of the old one's name if only this node reads that."""
    graph = node.graph
    assert isinstance(graph, onnx_ir.Graph)
    old = node.inputs[index] if index < len(node.inputs) else None
    repeats = unrepeated(array).size < array.size
    array = array.astype(np.float32, copy=False) if repeats else np.ascontiguousarray(array, np.float32)
    if old is not None and old.const_value is not None and len(old.uses()) == 1 and not old.is_graph_output():
        assert old.name is not None
        old.const_value = onnx_ir.Tensor(array, name=old.name)
        old.shape = onnx_ir.Shape(array.shape)
        return
    taken = set(graph.initializers) | {o.name for n in graph for o in n.outputs} | {v.name for v in graph.inputs}
    fresh = next(n for n in (name, *(f"{name}_{i}" for i in range(1, len(taken) + 2))) if n not in taken)
    value = onnx_ir.Value(
        name=fresh,
        shape=onnx_ir.Shape(array.shape),
        type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        const_value=onnx_ir.Tensor(array, name=fresh),
    )
    graph.register_initializer(value)
    if index >= len(node.inputs):
        node.resize_inputs(index + 1)
    node.replace_input_with(index, value)
