# SPDX-License-Identifier: Apache-2.0
"""Fusions of arithmetic: activations and normalizations that a model writes out, and a Q right behind a DQ.

The patterns of `hexforge.patterns` are fused only where no value between their nodes is quantized, so that
nothing but float rounding changes. A DQ before and a Q after them are taken in.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir

from hexforge.frontends.onnx.fusions.net import Fusion, Net
from hexforge.frontends.onnx.translate.builder import Builder, Translator
from hexforge.frontends.onnx.translate.products_matmul import write_softmax
from hexforge.frontends.onnx.unit import Operand, Unit, UnitKind, detail_of
from hexforge.ir import ScaleOffset
from hexforge.patterns.activations import SINCE, Activation, ScaledSoftmax, gelu, hard_swish, scaled_softmax
from hexforge.patterns.language import find_at, op
from hexforge.patterns.normalizations import GroupNormalization, Normalization, group_norm, l2_norm, layer_norm
from hexforge.patterns.written_out import WrittenOut

_DQ = ("DequantizeLinear", "com.microsoft:DequantizeLinear")
_Q = ("QuantizeLinear", "com.microsoft:QuantizeLinear")
_WHOLE = {getattr(onnx_ir.DataType, name) for name in ("INT8", "UINT8", "INT16", "UINT16")}
"""Data types of fixed-point tensors, whose numbers can be read as they are."""


def _is_node(unit: Unit) -> bool:
    return unit.kind is UnitKind.NODE and unit.refusal is None


DEQUANTIZED, CAST = op(" ".join(_DQ), where=_is_node), op("Cast", where=_is_node)
CONVERT = op(" ".join(_Q), DEQUANTIZED, where=_is_node)
CAST_CONVERT = op(" ".join(_Q), CAST, where=_is_node)


def _convert(net: Net, dq: Unit) -> Unit | None:
    match = find_at(CONVERT, (DEQUANTIZED,), net, dq)
    source, target = dq.inputs[0], None if match is None else match.last.outputs[0]
    if match is None or source is None or target is None:
        return None
    if not isinstance(source.encoding, ScaleOffset) or not isinstance(target.encoding, ScaleOffset):
        return None
    return net.join(UnitKind.CONVERT, match.nodes, [source], [target])


def _cast_convert(net: Net, cast: Unit) -> Unit | None:
    """A Q of what a Cast made of whole numbers: these are fixed point in steps of 1."""
    match = find_at(CAST_CONVERT, (CAST,), net, cast)
    source, target = cast.inputs[0], None if match is None else match.last.outputs[0]
    if match is None or source is None or target is None or source.encoding is not None:
        return None
    if source.value.dtype not in _WHOLE or match[CAST].dtype is not onnx_ir.DataType.FLOAT:
        return None
    if not isinstance(target.encoding, ScaleOffset) or net.readers_anywhere(source.value) != [cast]:
        return None
    return net.join(UnitKind.CAST_CONVERT, match.nodes, [Operand(source.value, ScaleOffset(1.0))], [target])


def _pattern(
    kind: UnitKind, start: str, match: Callable[[onnx_ir.Node], WrittenOut | None], write: Translator, *ops: str
) -> Fusion:
    """The fusion into one QNN op of a pattern that is recognized by a node of one of the ops of `start`."""
    return Fusion(kind, tuple(start.split()), lambda net, unit: net.fuse(kind, match(unit.target)), write, ops)


def _write_convert(b: Builder, u: Unit) -> None:
    b.emit("Convert", [b.input(u, 0)], b.output(u))


def _activation(node: onnx_ir.Node) -> Activation | None:
    return hard_swish(node) or gelu(node)


def _write_activation(b: Builder, u: Unit) -> None:
    b.emit(detail_of(u, Activation).op, [b.input(u, 0)], b.output(u))


def _write_scaled_softmax(b: Builder, u: Unit) -> None:
    write_softmax(b, u, detail_of(u, ScaledSoftmax).beta)


def _write_layer_norm(b: Builder, u: Unit) -> None:
    norm = detail_of(u, Normalization)
    x, weight, bias = b.input(u, 0), b.optional(u, 1), b.optional(u, 2)
    if bias is not None and weight is None:
        weight = b.static(np.ones(bias.shape, np.float32))
    b.emit("LayerNorm", [x, weight, bias], b.output(u), axes=norm.axes, epsilon=norm.epsilon)


def _write_l2_norm(b: Builder, u: Unit) -> None:
    norm = detail_of(u, Normalization)
    b.emit("L2Norm", [b.input(u, 0)], b.output(u), axes=norm.axes, epsilon=norm.epsilon)


def _write_group_norm(b: Builder, u: Unit) -> None:
    norm, out = detail_of(u, GroupNormalization), b.output(u)
    inputs = [b.to_channel_last(b.input(u, 0)), b.static(norm.weight), b.static(norm.bias)]
    channel_last = out.type.with_shape(inputs[0].shape)
    normalized = b.emit("GroupNorm", inputs, channel_last, group=norm.groups, epsilon=norm.epsilon)
    b.to_channel_first(normalized, out)


FUSIONS: tuple[Fusion, ...] = (
    Fusion(UnitKind.CONVERT, _DQ, _convert, _write_convert, ("Convert",)),
    Fusion(UnitKind.CAST_CONVERT, ("Cast",), _cast_convert, _write_convert, ("Convert",)),
    _pattern(UnitKind.ACTIVATION, "HardSigmoid Erf", _activation, _write_activation, *SINCE),
    _pattern(UnitKind.SCALED_SOFTMAX, "Mul Div", scaled_softmax, _write_scaled_softmax, "Softmax"),
    _pattern(UnitKind.LAYER_NORM, "ReduceMean", layer_norm, _write_layer_norm, "LayerNorm"),
    _pattern(UnitKind.GROUP_NORM, "InstanceNormalization", group_norm, _write_group_norm, "GroupNorm"),
    _pattern(UnitKind.L2_NORM, "ReduceL2", l2_norm, _write_l2_norm, "L2Norm"),
)
