# SPDX-License-Identifier: Apache-2.0
"""Ops as the op table has them: what the QNN execution provider leaves out or says by tensors is said by parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams

_SIGMOID = 6
"""ElementWiseNeuron's number of it."""
_FIXED_BITS = {"QNN_DATATYPE_UFIXED_POINT_8": 8, "QNN_DATATYPE_UFIXED_POINT_16": 16}


def table_form(op: QnnOp) -> QnnOp:
    """The op in the form of the table; itself where it has that."""
    form = _FORMS.get(op.type)
    return op if form is None else form(op)


def _align_prelu(op: QnnOp) -> QnnOp:
    """A Prelu whose coefficients are one for each channel of NCHW data, with them along that axis.

    QNN broadcasts from the last axis; ExecuTorch leaves a Prelu without neighbours that fix a layout in torch's.
    """
    if len(op.inputs) != 2:
        return op
    shape, given = op.inputs[0].dimensions, op.inputs[1].dimensions
    if len(given) != 1 or len(shape) < 3 or given[0] in (1, shape[-1]) or given[0] != shape[1]:
        return op
    coefficients = replace(op.inputs[1], dimensions=(given[0], *(1,) * (len(shape) - 2)))
    return replace(op, inputs=(op.inputs[0], coefficients))


def _seed(op: QnnOp) -> QnnOp:
    """Random numbers whose seed is a second, constant input."""
    if len(op.inputs) != 2:
        return op
    data = op.inputs[1].data
    seed = 0.0 if data is None or not data.size else float(np.ravel(data)[0])
    return replace(op, inputs=op.inputs[:1], params={**op.params, "seed": seed})


def _frame_length(op: QnnOp) -> QnnOp:
    """A Fourier transform whose frames are as long as its window."""
    if "frame_length" in op.params or len(op.inputs) != 2 or not op.inputs[1].dimensions:
        return op
    return replace(op, params={**op.params, "frame_length": op.inputs[1].dimensions[0]})


def _output_padding(op: QnnOp) -> QnnOp:
    """A transposed convolution whose output has rows that no input reaches: ONNX's output_shape asks for them."""
    if len(op.inputs) < 2 or len(op.outputs) != 1:
        return op
    image, kernel, made = (list(t.dimensions) for t in (op.inputs[0], op.inputs[1], op.outputs[0]))
    spatial = len(image) - 2
    if spatial < 1 or len(kernel) != spatial + 2 or len(made) != spatial + 2 or "stride" not in op.params:
        return op
    stride = np.ravel(np.asarray(op.params["stride"])).tolist()
    pads = np.asarray(op.params.get("pad_amount", np.zeros((spatial, 2)))).reshape(-1, 2).sum(axis=1).tolist()
    if len(stride) != spatial or len(pads) != spatial:
        return op
    extra = [int(made[1 + i] - ((image[1 + i] - 1) * stride[i] + kernel[i] - pads[i])) for i in range(spatial)]
    given = np.ravel(np.asarray(op.params.get("output_padding", (0,) * spatial))).tolist()
    if any(given) or not all(0 <= more < step for more, step in zip(extra, stride, strict=True)):
        return op
    return replace(op, params={**op.params, "output_padding": extra})


def _sigmoid(op: QnnOp) -> QnnOp:
    """A sigmoid in fixed point without an encoding, in the one that its range of 0 to 1 asks for."""
    if op.type == "ElementWiseNeuron" and int(op.params.get("operation", -1)) != _SIGMOID:
        return op
    return replace(op, outputs=tuple(from_0_to_1(tensor) for tensor in op.outputs))


def from_0_to_1(tensor: QnnTensor) -> QnnTensor:
    """A tensor in fixed point without an encoding, as one of 0 to 1."""
    bits = _FIXED_BITS.get(tensor.data_type)
    if bits is None or tensor.quantization is not None:
        return tensor
    encoding = QuantizeParams("QNN_QUANTIZATION_ENCODING_SCALE_OFFSET", (1 / (1 << bits),), (0,))
    return replace(tensor, quantization=encoding)


_FORMS: dict[str, Callable[[QnnOp], QnnOp]] = {
    "ElementWiseNeuron": _sigmoid,
    "Prelu": _align_prelu,
    "RandomNormalLike": _seed,
    "RandomUniformLike": _seed,
    "Sigmoid": _sigmoid,
    "Stft": _frame_length,
    "TransposeConv2d": _output_padding,
    "TransposeConv3d": _output_padding,
}
