# SPDX-License-Identifier: Apache-2.0
"""Input ranges: whether samples reach a model in the range it was trained on, as its first layers tell.

A BatchNormalization remembers how its input was distributed in training: what it gives has mean `shift` and deviation
`scale` in each channel. Constants that an input is shifted and scaled by bring it near -3 to 3.
"""

from __future__ import annotations

import numpy as np
import onnx_ir

from hexforge.patterns.nodes import float_constant, only_reader
from hexforge.quant.data.observe import Statistics

DEVIATIONS = 4.0
"""Beyond the mean, within which nearly all of what a normalization gave in training lies."""
NARROW, WIDE = 0.45, 8.0
"""Parts of that range which samples fill at least, and at most."""
NORMALIZED = (0.3, 30.0)
"""Between these the largest number lies that is left of a picture after its mean is taken away and it is scaled."""
_WAY = frozenset(("Transpose", "Pad", "Identity", "Reshape", "Cast"))
_ADVICE = "were they scaled, and normalized by mean and std, as in training?"


def range_warnings(model: onnx_ir.Model, statistics: Statistics) -> list[str]:
    """What is odd about the samples of each input, by the unfolded model's first layers and the folded one's ranges."""
    warnings: list[str] = []
    for value in model.graph.inputs:
        seen = statistics.get(value.name or "")
        if seen is None or not seen.count:
            continue
        oddity = _by_constants(value, seen.minimum, seen.maximum) or _by_normalization(value, statistics)
        if oddity is not None:
            warnings.append(
                f"input {value.name!r} is fed {seen.minimum:.4g} to {seen.maximum:.4g}: {oddity}; {_ADVICE}"
            )
    return warnings


def _by_constants(value: onnx_ir.Value, low: float, high: float) -> str | None:
    """What is odd about an input that the model itself shifts and scales."""
    ends, shifted = np.array([low, high], np.float64), False
    at = only_reader(value)
    while at is not None and at.op_type in ("Sub", "Add", "Mul", "Div") and at.inputs[0] is value:
        constant = float_constant(at.inputs[1])
        if constant is None or not constant.size:
            break
        number = float(np.mean(constant))
        shifted |= at.op_type in ("Sub", "Add") and number != 0
        if at.op_type == "Div" and number == 0:
            break
        ends = {"Sub": ends - number, "Add": ends + number, "Mul": ends * number, "Div": ends / (number or 1.0)}[
            at.op_type
        ]
        value = at.outputs[0]
        at = only_reader(value)
    largest = float(np.abs(ends).max())
    if not shifted or (NORMALIZED[0] <= float(ends.max() - ends.min()) and largest <= NORMALIZED[1]):
        return None
    return f"after the constants it is shifted and scaled by, it spans only {ends.min():.3g} to {ends.max():.3g}"


def _by_normalization(value: onnx_ir.Value, statistics: Statistics) -> str | None:
    """What is odd about an input whose first layer has a BatchNormalization behind it."""
    for use in value.uses():
        node: onnx_ir.Node | None = use.node
        while node is not None and node.op_type in _WAY:
            node = only_reader(node.outputs[0])
        norm = only_reader(node.outputs[0]) if node is not None and node.op_type in ("Conv", "Gemm") else None
        if norm is None or norm.op_type != "BatchNormalization":
            continue
        scale, shift = (float_constant(v) for v in norm.inputs[1:3])
        seen = statistics.get(norm.outputs[0].name or "")
        if scale is None or shift is None or seen is None or not seen.count or not scale.size:
            continue
        reach = DEVIATIONS * np.abs(scale)
        low, high = float((shift - reach).min()), float((shift + reach).max())
        filled = (seen.maximum - seen.minimum) / (high - low) if high > low else 1.0
        if not NARROW <= filled <= WIDE:
            trained = f"{low:.3g} to {high:.3g} in training"
            return f"the first layer then gives {seen.minimum:.3g} to {seen.maximum:.3g}, it gave about {trained}"
    return None
