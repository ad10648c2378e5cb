# SPDX-License-Identifier: Apache-2.0
"""Weights with a zero point, as HTP's matrix unit has them: rounded to 255 symmetric steps for each output channel.

"Clients that have graphs where weights are not symmetric and have Convolution with short depths should set"
SHORT_DEPTH_CONV_ON_HMX_OFF "to guarantee accurate results" (QNN's HTP guide, graph config options). What is lost is not
said there. It was seen by running 8-bit convolutions of 1 to 32 channels through onnxruntime-qnn 2.7.0 on x86 by its
documented API: with weights rounded so, results are within one step of its own, with exact ones up to three apart
(docs/numerics.md). The fewer products a sum has, the less does that rounding average out.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from hexforge.chips.graph_config import SHORT_DEPTH_OFF
from hexforge.ir import AxisScaleOffset, DType, Graph, Node, ScaleOffset, Value

SHORT_DEPTH = 32
"""Channels below which a convolution can be kept off the matrix unit."""
_MOST = 127


def rounds_weights(node: Node) -> bool:
    """True for a dense 8-bit convolution whose constant weights have a zero point."""
    if node.op.name != "Conv2d" or node.params.get("group", 1) != 1:
        return False
    x, weight = node.inputs[0], node.inputs[1]
    return (
        x is not None
        and weight is not None
        and x.dtype in (DType.UINT8, DType.INT8)
        and weight.data is not None
        and weight.dtype is DType.UINT8
        and isinstance(weight.encoding, ScaleOffset)
        and weight.encoding.offset != -128
    )


def weights_remark(node: Node) -> str | None:
    """What the matrix unit loses of a convolution's weights, and what would work; None where that is nothing."""
    if not rounds_weights(node):
        return None
    x, weight = node.operand(0), node.operand(1)
    assert isinstance(weight.encoding, ScaleOffset)
    off = f", or compile with {SHORT_DEPTH_OFF}" if x.shape[-1] < SHORT_DEPTH else ""
    return (
        f"its weights have the zero point {-weight.encoding.offset}, and HTP's matrix unit 255 symmetric steps for "
        f"each output channel: results differ there (exact_weights=0 shows how); quantize weights symmetrically{off}"
    )


def round_weights(graph: Graph, keep_short: bool = False, only: Collection[str] | None = None) -> int:
    """Give convolutions the weights that the matrix unit has; with `keep_short` not those of short depth."""
    changes = 0
    for node in list(graph):
        if not rounds_weights(node) or (only is not None and node.name not in only):
            continue
        x, weight = node.operand(0), node.operand(1)
        if keep_short and x.shape[-1] < SHORT_DEPTH:
            continue
        graph.set_inputs(node, [x, _rounded(graph, weight), *node.inputs[2:]])
        if not weight.users:
            graph.remove_value(weight)
        changes += 1
    return changes


def _rounded(graph: Graph, weight: Value) -> Value:
    assert isinstance(weight.encoding, ScaleOffset)
    assert weight.data is not None
    centered = np.asarray(weight.data).astype(np.int32) + weight.encoding.offset
    steps = np.abs(centered).max(axis=tuple(range(centered.ndim - 1))) / _MOST
    steps = np.where(steps == 0, 1.0, steps)
    integers = np.rint(centered / steps).astype(np.int8)
    scales = tuple(float(weight.encoding.scale * step) for step in steps)
    encoding = AxisScaleOffset(centered.ndim - 1, scales, (0,) * len(scales))
    return graph.static(integers, encoding, f"{weight.name}_symmetric")
