# SPDX-License-Identifier: Apache-2.0
"""Constants with a scale of 0, as onnxruntime's quantizer writes for a bias without range: they are zeros."""

from __future__ import annotations

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.model.edit import Editor


def write_zeros(model: onnx_ir.Model) -> None:
    """Give constants under DequantizeLinear whose scale is 0 another scale, and zeros: the same numbers."""
    for node in list(model.graph):
        if node.op_type != "DequantizeLinear":
            continue
        data, scale, zero = (*node.inputs, None, None)[:3]
        if data is None or scale is None or data.const_value is None or scale.const_value is None:
            continue
        if zero is not None and zero.const_value is None:
            continue
        scales = np.asarray(scale.const_value.numpy())
        if scales.size == 1 and scales.item() != 0:
            continue
        if not np.any(scales == 0):
            continue
        integers = np.array(data.const_value.numpy())
        nothing = np.zeros((), integers.dtype)
        if zero is not None and zero.const_value is not None:
            nothing = np.asarray(zero.const_value.numpy())
        where, zeros = _spread(scales == 0, integers.shape, node), _spread(nothing, integers.shape, node)
        if where is None or zeros is None:
            continue  # it does not fit its data, and is refused with that reason
        editor = Editor(model)
        known = np.where(where, zeros, integers).astype(integers.dtype)
        nonzero = np.where(scales == 0, scales.dtype.type(1), scales)
        node.replace_input_with(0, editor.constant(known, f"{data.name}_zeros"))
        node.replace_input_with(1, editor.constant(nonzero, f"{scale.name}_ones"))


def _spread(values: Array, shape: tuple[int, ...], node: onnx_ir.Node) -> Array | None:
    """One value per tensor, per index of an axis or per block, as an array that broadcasts over the data."""
    if values.size == 1:
        return values.reshape(())
    axis, block = (
        node.attributes[k].as_int() if k in node.attributes else d for k, d in (("axis", 1), ("block_size", 0))
    )
    axis = axis % len(shape) if shape else 0
    if block and values.ndim == len(shape):
        values = np.repeat(values, block, axis)[tuple(slice(n) for n in shape)]
        return values if values.shape == shape else None
    if values.ndim != 1 or not shape or values.size != shape[axis]:
        return None
    return values.reshape([values.size if i == axis else 1 for i in range(len(shape))])
