# SPDX-License-Identifier: Apache-2.0
"""Bias correction: quantizing shifts the mean of a layer's outputs; the shift is measured and taken out of its bias."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir

from hexforge.ir import Array
from hexforge.patterns.affine import affine
from hexforge.patterns.layers import Layer, layer
from hexforge.patterns.nodes import float_constant, is_op, only_reader, other
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.encoding_plan import EncodingPlan
from hexforge.quant.improve.side_by_side import NodeStep, Walk


def correct_biases(
    model: onnx_ir.Model,
    plan: EncodingPlan,
    samples: Sequence[Feeds],
    progress: Callable[[int, int], None] | None = None,
    means: dict[str, Array] | None = None,
) -> EncodingPlan:
    """A plan whose layers have the float model's means, layer after layer, each behind the corrected ones.

    `means` are the float model's on these samples: empty to be filled, filled to be used the next time.
    """
    corrected = plan.copied()
    means = {} if means is None else means
    walk, count = Walk(model, corrected, samples, coarse_only=bool(means)), len(model.graph)
    for index, step in enumerate(walk):
        here = layer(step.node)
        if here is not None:
            correct(step, here, means)
        if progress is not None:
            progress(index + 1, count)
    return corrected


def bias_of(of: Layer) -> onnx_ir.Value | None:
    """The constant added to each output channel: the layer's bias, or the constant of an Add that alone reads it."""
    if of.bias is not None:
        return of.bias
    add = only_reader(of.out)
    added = affine(add, -1) if of.node.op_type == "MatMul" and is_op(add, "Add") and add is not None else None
    if add is None or added is None or added.x is not of.out or added.shift.size != of.outputs:
        return None
    value = other(add, of.out)
    return value if float_constant(value) is not None else None


def correct(step: NodeStep, here: Layer, means: dict[str, Array] | None = None) -> bool:
    """Shift one layer's bias by the mean error of its outputs; False where the layer has no bias.

    `means` gets the float model's mean of the layer, or has it.
    """
    bias = bias_of(here)
    if bias is None or len(bias.uses()) > 1 or bias.name is None or bias.const_value is None:
        return False
    name = str(here.out.name)
    exact_mean = None if means is None else means.get(name)
    exact_mean = _mean(step, here, exact=True) if exact_mean is None else exact_mean
    if means is not None:
        means[name] = exact_mean
    lack = exact_mean - _mean(step, here, exact=False)
    before = step.plan.constants.get(bias.name)
    before = bias.const_value.numpy() if before is None else before
    step.plan.constants[bias.name] = (before + lack.reshape(before.shape)).astype(np.float32)
    step.plan.integers.pop(bias.name, None)
    if bias is here.bias:
        fixed = step.plan.tensors.get(bias.name)
        if fixed is None or fixed.dtype.bits >= 32:  # in steps too small to see
            rank = step.outputs(False)[0][0].ndim
            step.add(lack.astype(np.float32).reshape([-1 if i == here.channel_axis % rank else 1 for i in range(rank)]))
        else:
            step.forget()
    return True


def _mean(step: NodeStep, here: Layer, *, exact: bool) -> Array:
    """The mean of each channel that a layer writes, over all samples."""
    arrays = [outputs[0] for outputs in step.outputs(exact)]
    axes = tuple(i for i in range(arrays[0].ndim) if i != here.channel_axis)
    return np.asarray(np.mean([array.mean(axes, dtype=np.float64) for array in arrays], axis=0))
