# SPDX-License-Identifier: Apache-2.0
"""Opset: a model in another version of ONNX's operators. The converter sees the shapes of weights, not weights."""

from __future__ import annotations

import onnx
import onnx_ir
from onnx_ir import serde
from onnx_ir.passes import common

from hexforge.errors import CallError, ModelError
from hexforge.model.simplifying.simplify import name_nodes, simplify
from hexforge.model.simplifying.tidying import is_flat

OLDEST, NEWEST = 7, 25
"""From the first opset whose operators broadcast as today's do, to the last that onnx's converter was tried with."""

_SMALL = 64
"""Elements up to which a constant goes along: adapters read axes, sizes and scales, never weights."""


def to_opset(model: onnx_ir.Model, opset: int, name: str = "model") -> onnx_ir.Model:
    """A copy of a model that was read at an opset; ModelError with the converter's words where that cannot be."""
    if not OLDEST <= opset <= NEWEST:
        raise CallError(f"opset {opset}: a model is converted to an opset from {OLDEST} to {NEWEST}")
    copy = model.clone()
    if copy.opset_imports.get("", opset) == opset:
        return copy
    apart = _take_weights(copy)
    try:
        proto = onnx.version_converter.convert_version(serde.serialize_model(copy), opset)
    except (RuntimeError, ValueError, onnx.version_converter.ConvertError) as error:
        words = " ".join(str(error).split())
        raise ModelError(
            f"{name}: cannot be converted from opset {model.opset_imports.get('', 0)} to {opset}: {words}"
        ) from None
    result = serde.deserialize_model(proto)
    _put_weights(result, apart)
    # the converter writes axes as Constant nodes
    common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(result)
    name_nodes(result, is_flat(result))
    if any(value.type is None or value.shape is None for node in result.graph for value in node.outputs):
        simplify(result, name)  # an adapter wrote nodes, and said nothing of what they give
    for node in result.graph.all_nodes():
        node.version = result.opset_imports.get(node.domain)
    return result


def _take_weights(model: onnx_ir.Model) -> dict[str, onnx_ir.TensorProtocol]:
    """Make inputs of the large constants; what they held, by name."""
    apart: dict[str, onnx_ir.TensorProtocol] = {}
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.size <= _SMALL or value.is_graph_input() or value.is_graph_output():
            continue
        apart[name] = tensor
        value.const_value = None
        value.type, value.shape = onnx_ir.TensorType(tensor.dtype), onnx_ir.Shape(tensor.shape.numpy())
        del model.graph.initializers[name]
        model.graph.inputs.append(value)
    return apart


def _put_weights(model: onnx_ir.Model, apart: dict[str, onnx_ir.TensorProtocol]) -> None:
    for value in list(model.graph.inputs):
        tensor = apart.get(value.name or "")
        if tensor is not None:
            model.graph.inputs.remove(value)
            value.const_value = tensor
            model.graph.register_initializer(value)
