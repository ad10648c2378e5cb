# SPDX-License-Identifier: Apache-2.0
"""Grouped transposed convolutions with a scale per channel, as one group whose filter is zero between the groups.

QNN's filter is [kernel, Cin, Cout / group], so its scales run over the channels of one group. ExecuTorch repeats them:
output channel c of Cout / group has scale c of the filter, and its bias was quantized with scale c // group.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor

_PER_CHANNEL = ("QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET", "QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET")
_OPS = ("TransposeConv2d", "TransposeConv3d")


def merge_groups(op: QnnOp) -> QnnOp:
    """The op with one group, where it is a transposed convolution of several with a scale per channel; else itself."""
    group = int(op.params.get("group", 1))
    if op.type not in _OPS or group == 1 or len(op.inputs) < 2:
        return op
    filter, q = op.inputs[1], op.inputs[1].quantization
    if q is None or q.encoding not in _PER_CHANNEL or any(q.offsets) or op.inputs[0].quantization is None:
        return op
    inputs = [op.inputs[0], _spread(filter, group)]
    if len(op.inputs) > 2:
        inputs.append(_bias(op.inputs[2], op.inputs[0], inputs[1], group))
    return replace(op, inputs=tuple(inputs), params={**op.params, "group": 1})


def _spread(filter: QnnTensor, group: int) -> QnnTensor:
    """The filter over all output channels: each group's inputs reach only its own."""
    assert filter.quantization is not None
    *kernel, channels, per_group = filter.dimensions
    shape = (*kernel, channels, per_group * group)
    data = filter.data
    if data is not None and data.size:
        wide = np.zeros(shape, data.dtype)
        for index in range(group):
            inputs = slice(index * channels // group, (index + 1) * channels // group)
            wide[..., inputs, index * per_group : (index + 1) * per_group] = data[..., inputs, :]
        data = wide
    scales, offsets = list(filter.quantization.scales) * group, list(filter.quantization.offsets) * group
    return replace(
        filter, dimensions=shape, data=data, quantization=replace(filter.quantization, scales=scales, offsets=offsets)
    )


def _bias(bias: QnnTensor, x: QnnTensor, filter: QnnTensor, group: int) -> QnnTensor:
    """The bias in the scales of the accumulators, which are the input's scale times the filter's."""
    own = bias.quantization
    if own is None or own.encoding not in _PER_CHANNEL or x.quantization is None or filter.quantization is None:
        return bias
    wanted = np.asarray(filter.quantization.scales, np.float64) * float(x.quantization.scales[0])
    data = bias.data
    if data is not None and data.size:
        scales = np.repeat(np.asarray(own.scales, np.float64), group)[: data.size]
        scales = scales if len(own.scales) != data.size else np.asarray(own.scales, np.float64)
        data = np.rint(data.ravel() * scales / wanted).astype(np.int32)
    return replace(bias, data=data, quantization=replace(own, scales=list(wanted), offsets=[0] * len(wanted)))
