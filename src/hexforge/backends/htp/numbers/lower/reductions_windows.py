# SPDX-License-Identifier: Apache-2.0
"""Windows: pooling, and reductions over space as one window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.lower.adapt import requantize, three
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.storage import Storage
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
        source: Value | str = x
        if min(attributes["kernel"][1:]) > _LARGE:  # the greatest of a column's greatest, far fewer comparisons
            source, attributes = _columns_first(lowering, own, x, attributes)
        lowering.emit(f"pool_max_{own.kind}", [source], [target], lowest=own.low, **attributes)
        if not same:
            requantize(lowering, target, like, y, out)
    elif own.kind == "f32":
        lowering.emit("pool_mean_f32", [x], [y], **attributes)
    else:
        lowering.emit(
            f"pool_mean_{own.kind}", [x], [y], scale=own.scale / out.scale, zero_a=own.zero_point, **out.output(),
            **attributes,
        )  # fmt: skip


_LARGE = 3
"""A maximum over windows that are wider and higher is one over columns, then one over rows."""


def _columns_first(
    lowering: Lowering, own: Storage, x: Value, attributes: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Write the maximum over the depth and height of each window; what is left is over its width."""
    upright, flat = dict(attributes), dict(attributes)
    for name, none in {"kernel": 1, "stride": 1, "pad": 0, "pad_after": 0, "dilation": 1}.items():
        upright[name] = (*attributes[name][:2], none)
        flat[name] = (none, none, attributes[name][2])
    between = (*attributes["out"][:2], attributes["in"][2])
    upright["out"] = flat["in"] = between
    made = lowering.temp(replace(own, shape=(attributes["batch"], *between, attributes["channels"])), x.name)
    lowering.emit(f"pool_max_{own.kind}", [x], [made], lowest=own.low, **upright)
    return made, flat


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
