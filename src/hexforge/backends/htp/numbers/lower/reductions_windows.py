# SPDX-License-Identifier: Apache-2.0
"""Windows: pooling, and reductions over space as one window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.lower.adapt import requantize, three
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.ir import Node, Value


@lowers("PoolMax2d", "PoolMax3d", "PoolAvg2d", "PoolAvg3d")
def pool(lowering: Lowering, node: Node) -> bool:
    """Maximum and average over windows."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    maximum = node.op.name.startswith("PoolMax")
    if own.kind == "raw" or own.kind != out.kind:
        return False
    kernel = three(node.params["filter_size"], 1)
    if own.kind == "s16" and int(np.prod(kernel)) > 32767:
        return False
    pads = node.params["pad_amount"]
    sizes, spatial = three(y.shape[1:-1], 1), three(x.shape[1:-1], 1)
    _window(
        lowering, maximum, x, y, batch=x.shape[0], channels=x.shape[-1], kernel=kernel, out=sizes,
        stride=three(node.params["stride"], 1), pad=three((p[0] for p in pads), 0),
        pad_after=three((p[1] for p in pads), 0), dilation=three(node.params.get("dilation", (1, 1, 1)), 1),
        count_pad=0 if maximum else int(bool(node.params["count_pad_for_edges"])), **{"in": spatial},
    )  # fmt: skip
    return True


def _window(lowering: Lowering, maximum: bool, x: Value, y: Value, **attributes: Any) -> None:
    own, out = lowering.storage(x), lowering.storage(y)
    if maximum:
        same = (own.scale, own.zero_point) == (out.scale, out.zero_point)
        like = replace(own, shape=y.shape)
        target = lowering.name(y) if same else lowering.temp(like, y.name)
        lowering.emit(f"pool_max_{own.kind}", [x], [target], lowest=own.low, **attributes)
        if not same:
            requantize(lowering, target, like, y, out)
    elif own.kind == "f32":
        lowering.emit("pool_mean_f32", [x], [y], **attributes)
    else:
        lowering.emit(
            f"pool_mean_{own.kind}", [x], [y], scale=own.scale / out.scale, zero_a=own.zero_point, **out.output(),
            **attributes,
        )  # fmt: skip


def reduce_space(lowering: Lowering, node: Node) -> bool:
    """Reductions over the axes between the first and the last: one window over all of them."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    maximum = node.op.name == "ReduceMax"
    rank = len(x.shape)
    axes = sorted(int(a) % rank for a in node.params["axes"])
    if own.kind == "raw" or own.kind != out.kind or not axes or not x.type.size:
        return False
    if axes != list(range(axes[0], axes[-1] + 1)):
        return False
    outer = int(np.prod(x.shape[: axes[0]], dtype=np.int64))
    window = int(np.prod(x.shape[axes[0] : axes[-1] + 1], dtype=np.int64))
    inner = int(np.prod(x.shape[axes[-1] + 1 :], dtype=np.int64))
    if window > 32767:
        return False
    one = (1, 1, 1)
    _window(
        lowering, maximum, x, y, batch=outer, channels=inner, kernel=(1, 1, window), out=one, stride=one,
        pad=(0, 0, 0), pad_after=(0, 0, 0), dilation=one, count_pad=0, **{"in": (1, 1, window)},
    )  # fmt: skip
    return True
