# SPDX-License-Identifier: Apache-2.0
"""Sensitivity: a QDQ model with only one layer quantized, or all but one, to see what each layer costs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir
from onnx_ir import convenience

from hexforge.ir import Array
from hexforge.quant.compare import DEQUANTIZE, QUANTIZE, LinearQuantizer, float_name, quantized_weights

_QDQ = (QUANTIZE, DEQUANTIZE)
_MOVES = frozenset(
    "Reshape Transpose Squeeze Unsqueeze Flatten Identity Slice Split Gather Expand Tile Pad MaxPool Resize "
    "DepthToSpace SpaceToDepth".split()
)
"""Ops that move numbers: with the encoding of what they read they cost nothing and belong to the layer before."""
_SAME = 0.99
"""The part of a weight's elements that must be within a step of the float model's for both to be one weight."""


@dataclass(frozen=True, slots=True)
class QuantizedLayer:
    """A node with the quantization that is its own: of its constants and of what it makes."""

    name: str
    op_type: str
    """Empty for an input of the model."""
    quantizers: frozenset[str]
    """Names of QuantizeLinear nodes of activations and DequantizeLinear nodes of constants."""


def layers(model: onnx_ir.Model) -> list[QuantizedLayer]:
    """The layers of a QDQ model in its order; every QuantizeLinear is one layer's."""
    quantizers: dict[str, tuple[str, set[str]]] = {}
    for node in model.graph:
        if node.op_type not in _QDQ or LinearQuantizer.of(node) is None or (owner := _owner(node)) is None:
            continue
        name, op_type = owner
        quantizers.setdefault(name, (op_type, set()))[1].add(node.name or "")
    order = {node.name: i for i, node in enumerate(model.graph)}  # inputs are no nodes: they come first
    names = sorted(quantizers, key=lambda name: order.get(name, -1))
    return [QuantizedLayer(name, quantizers[name][0], frozenset(quantizers[name][1])) for name in names]


def _owner(node: onnx_ir.Node) -> tuple[str, str] | None:
    """(name, op type) of the layer whose quantization this node is; None for the DequantizeLinear of an activation."""
    value = node.inputs[0]
    if value is None:
        return None
    if node.op_type == DEQUANTIZE:
        if value.const_value is None:
            return None
        reader = _reader(node)
        return None if reader is None else (reader.name or "", reader.op_type)
    producer = value.producer()
    if producer is None:
        return f"input {value.name}", ""
    return _layer_of(producer)


def _reader(node: onnx_ir.Node) -> onnx_ir.Node | None:
    """The first node that does more with a constant than to move it."""
    for after in node.outputs[0].consumers():
        if all(v is None or v.const_value is not None or v.producer() is node for v in after.inputs):
            return _reader(after)
        return after
    return None


def _layer_of(node: onnx_ir.Node) -> tuple[str, str]:
    """The layer a node belongs to: activations in float behind a node, converts and moved numbers are that node's."""
    while True:
        value = node.inputs[0] if node.inputs else None
        before = value.producer() if value is not None else None
        if node.op_type == DEQUANTIZE and before is not None and before.op_type == QUANTIZE:
            value = before.inputs[0]
            producer = value.producer() if value is not None else None
            if producer is None:
                return f"input {value.name if value is not None else ''}", ""
            node = producer
        elif before is not None and (
            _continues_in_float(node, before) or (node.op_type in _MOVES and _keeps_encoding(node, before))
        ):
            node = before
        else:
            return node.name or "", node.op_type


def _continues_in_float(node: onnx_ir.Node, before: onnx_ir.Node) -> bool:
    """True where a node continues in float with a result that the node before made only for it."""
    makers = (v.producer() for v in node.inputs if v is not None)
    reads_integers = any(maker is not None and maker.op_type == DEQUANTIZE for maker in makers)
    alone = len(before.outputs) == 1 and len(before.outputs[0].consumers()) == 1
    return before.op_type not in _QDQ and alone and not reads_integers


def _keeps_encoding(node: onnx_ir.Node, before: onnx_ir.Node) -> bool:
    """True where a node's output has the encoding of the DequantizeLinear that it reads."""
    if before.op_type != DEQUANTIZE or before.inputs[0] is None or before.inputs[0].const_value is not None:
        return False
    mine = next((u for u in node.outputs[0].consumers() if u.op_type == QUANTIZE), None)
    read, written = LinearQuantizer.of(before), None if mine is None else LinearQuantizer.of(mine)
    if read is None or written is None:
        return read is not None and mine is None
    return (
        read.dtype == written.dtype
        and np.array_equal(read.scale, written.scale)
        and np.array_equal(read.zero_point, written.zero_point)
    )


def restore_clips(model: onnx_ir.Model, exact: onnx_ir.Model) -> None:
    """Put back the Relu and Clip nodes that a quantizer left to the saturation of a QuantizeLinear.

    The QDQ model's numbers stay the same; without the QuantizeLinear they would not.
    """
    clips = {str(n.outputs[0].name): n for n in exact.graph if n.op_type in ("Relu", "Clip")}
    graph = model.graph
    for node in [node for node in graph if node.op_type == QUANTIZE]:
        clip, value = clips.get(float_name(node, clips) or ""), node.inputs[0]
        producer = value.producer() if value is not None else None
        if clip is None or producer is None or producer.op_type in (*_QDQ, "Relu", "Clip"):
            continue
        bounds: list[onnx_ir.Value | None] = []
        for bound in clip.inputs[1:]:
            if bound is None or bound.const_value is None:
                bounds.append(None)
                continue
            constant = onnx_ir.Value(
                name=f"{node.name}/{bound.name}", shape=bound.shape, type=bound.type, const_value=bound.const_value
            )
            graph.register_initializer(constant)
            bounds.append(constant)
        put = onnx_ir.Node("", clip.op_type, [value, *bounds], clip.attributes, name=f"{node.name}/clip")
        put.outputs[0].name, put.outputs[0].shape = f"{node.name}/clipped", value.shape  # type: ignore[union-attr]
        put.outputs[0].dtype = onnx_ir.DataType.FLOAT
        graph.insert_before(node, put)
        node.replace_input_with(0, put.outputs[0])


def float_weights(model: onnx_ir.Model, floats: Mapping[str, Array]) -> dict[str, Array]:
    """For the DequantizeLinear of each constant the numbers of the float model, where that has the same constant.

    Constants that were changed before quantizing (equalized) are not the same; they are left out.
    """
    exact_by_node = {}
    for _, node, exact, coarse in quantized_weights(model, floats):
        linear = LinearQuantizer.of(node)
        assert linear is not None
        step = np.broadcast_to(linear._spread(linear.scale, exact.shape), exact.shape)
        if np.mean(np.abs(exact - coarse) <= 1.01 * step) >= _SAME:
            exact_by_node[node.name or ""] = exact
    return exact_by_node


def quantized_only(
    model: onnx_ir.Model, quantizers: Collection[str], numbers: Mapping[str, Array] | None = None
) -> onnx_ir.Model:
    """A copy of a QDQ model with only these quantizers; everything else is float.

    `numbers` says what constants are in float (float_weights); without it they are what their integers stand for.
    """
    copied = model.clone()
    graph = copied.graph
    for node in list(graph):
        if node.op_type not in _QDQ or node.name in quantizers or (linear := LinearQuantizer.of(node)) is None:
            continue
        source = node.inputs[0]
        if source is None:
            continue
        if node.op_type == DEQUANTIZE and source.const_value is not None:
            real = (numbers or {}).get(node.name or "")
            real = linear.dequantize(source.const_value.numpy()) if real is None else real
            constant = onnx_ir.Value(name=f"{node.outputs[0].name}/float", const_value=onnx_ir.tensor(real))
            constant.shape, constant.dtype = onnx_ir.Shape(real.shape), onnx_ir.DataType.FLOAT
            graph.register_initializer(constant)
            _replace(graph, node, constant)
        elif node.op_type == QUANTIZE and source.const_value is None:
            for after in [u for u in node.outputs[0].consumers() if u.op_type == DEQUANTIZE]:
                _replace(graph, after, source)
            if not node.outputs[0].consumers() and not node.outputs[0].is_graph_output():
                graph.remove(node, safe=True)
    return copied


def _replace(graph: onnx_ir.Graph, node: onnx_ir.Node, value: onnx_ir.Value) -> None:
    """Take a node with one output out; what read it reads `value`. Outputs of the model keep their names."""
    old = node.outputs[0]
    if old.is_graph_output():
        output_value = onnx_ir.Value(name=old.name, shape=old.shape, type=old.type)
        old.name = f"{old.name}/before"
        graph.insert_after(
            node, onnx_ir.Node("", "Identity", [value], outputs=[output_value], name=f"{node.name}/float")
        )
        for index, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[index] = output_value
    convenience.replace_all_uses_with(old, value)
    graph.remove(node, safe=True)
