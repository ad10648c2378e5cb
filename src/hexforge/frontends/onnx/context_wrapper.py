# SPDX-License-Identifier: Apache-2.0
"""Context wrapper: a graph of a context as an ONNX model by itself: one EPContext node, and Q and DQ around it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from hexforge.errors import CapacityError
from hexforge.formats.context import GraphInfo
from hexforge.frontends.onnx.context_node import DOMAIN, EpContext
from hexforge.ir import DType, ScaleOffset, TensorType
from hexforge.model.load_check import MOST_BYTES, RUNTIME_IR

_OPSET = 21  # the first whose QuantizeLinear has 16 bits
_QUANTIZED = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)


def is_quantized(type: TensorType) -> bool:
    """True where a Quantize or DequantizeLinear can stand before or after a tensor."""
    return isinstance(type.encoding, ScaleOffset) and type.dtype in _QUANTIZED


def wrapper(
    graph: GraphInfo, node: EpContext, properties: Mapping[str, str], *, real_io: bool = True, wide: bool = False
) -> bytes:
    """The model; with `real_io` quantized inputs and outputs are float32 outside, under their names with `_dq`.

    `wide`: the graph computes in bfloat16 behind float32 inputs and outputs.
    """
    nodes, after, constants = [], [], []
    infos: dict[str, list[onnx.ValueInfoProto]] = {"inputs": [], "outputs": []}
    between = []
    for side, tensors in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        for name, type in tensors:
            kind = onnx.helper.np_dtype_to_tensor_dtype(type.dtype.numpy)
            if wide and type.dtype is DType.BFLOAT16:
                kind = onnx.TensorProto.FLOAT
            info = onnx.helper.make_tensor_value_info(name, kind, type.shape)
            if not real_io or not is_quantized(type):
                infos[side].append(info)
                continue
            assert isinstance(type.encoding, ScaleOffset)
            outer, scale, zero = f"{name}_dq", f"{name}_scale", f"{name}_zp"
            constants.append(onnx.helper.make_tensor(scale, onnx.TensorProto.FLOAT, [], [type.encoding.scale]))
            constants.append(onnx.helper.make_tensor(zero, kind, [], [-type.encoding.offset]))
            infos[side].append(onnx.helper.make_tensor_value_info(outer, onnx.TensorProto.FLOAT, type.shape))
            between.append(info)
            if side == "inputs":
                nodes.append(onnx.helper.make_node("QuantizeLinear", [outer, scale, zero], [name], name=f"{name}_q"))
            else:
                after.append(onnx.helper.make_node("DequantizeLinear", [name, scale, zero], [outer], name=outer))
    body = onnx.helper.make_graph(
        [*nodes, node.to_node(), *after], graph.name, infos["inputs"], infos["outputs"], constants, value_info=between
    )
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(DOMAIN, 1)]
    model = onnx.helper.make_model(body, opset_imports=opsets, producer_name="hexforge", ir_version=min(10, RUNTIME_IR))
    for key, value in properties.items():
        model.metadata_props.add(key=key, value=value)
    if node.embedded is not None and model.ByteSize() > MOST_BYTES:
        raise CapacityError(
            f"graph {graph.name!r}: the context has {len(node.embedded) >> 20} MB, too many to embed; "
            "leave it in its file"
        )
    return bytes(model.SerializeToString())
