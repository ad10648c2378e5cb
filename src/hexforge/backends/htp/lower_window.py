"""Pooling, reductions over space, softmax and normalisations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.adapt import requantize
from hexforge.backends.htp.lowering import Lowering, lowers
from hexforge.backends.htp.storage import half
from hexforge.ir import Array, Node, Value
from hexforge.ir.fixed_point import dequantize


def _three(values: Any, fill: int) -> tuple[int, ...]:
    given = [int(v) for v in values]
    return (*[fill] * (3 - len(given)), *given)


@lowers("PoolMax2d", "PoolMax3d", "PoolAvg2d", "PoolAvg3d")
def pool(lowering: Lowering, node: Node) -> bool:
    """Maximum and average over windows."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    own, out = lowering.storage(x), lowering.storage(y)
    maximum = node.op.name.startswith("PoolMax")
    if own.kind == "raw" or own.kind != out.kind:
        return False
    kernel = _three(node.params["filter_size"], 1)
    if own.kind == "s16" and int(np.prod(kernel)) > 32767:
        return False
    pads = node.params["pad_amount"]
    sizes, spatial = _three(y.shape[1:-1], 1), _three(x.shape[1:-1], 1)
    _window(
        lowering, node, maximum, x, y, batch=x.shape[0], channels=x.shape[-1], kernel=kernel, out=sizes,
        stride=_three(node.params["stride"], 1), pad=_three((p[0] for p in pads), 0),
        pad_after=_three((p[1] for p in pads), 0), dilation=_three(node.params.get("dilation", (1, 1, 1)), 1),
        count_pad=0 if maximum else int(bool(node.params["count_pad_for_edges"])), **{"in": spatial},
    )  # fmt: skip
    return True


def _window(lowering: Lowering, node: Node, maximum: bool, x: Value, y: Value, **attributes: Any) -> None:
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


@lowers("ReduceMean", "ReduceMax")
def reduce_space(lowering: Lowering, node: Node) -> bool:
    """Reductions over the axes between the first and the last: one window over all of them."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
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
        lowering, node, maximum, x, y, batch=outer, channels=inner, kernel=(1, 1, window), out=one, stride=one,
        pad=(0, 0, 0), pad_after=(0, 0, 0), dilation=one, count_pad=0, **{"in": (1, 1, window)},
    )  # fmt: skip
    return True


@lowers("Softmax")
def softmax(lowering: Lowering, node: Node) -> bool:
    """Softmax along the last axis, exponentials from a table of distances to the maximum."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind or int(node.params["axis"]) % len(x.shape) != len(x.shape) - 1:
        return False
    n = x.shape[-1]
    beta = float(node.params["beta"])
    if not x.type.size or beta <= 0:
        return False
    if own.kind == "f32":
        with np.errstate(over="ignore", invalid="ignore"):
            halves = np.arange(65536, dtype=np.uint32).astype(np.uint16).view(np.float16).astype(np.float64)
            table = np.exp(beta * halves).astype(np.float32)
        lowering.emit("softmax_f32", [x], [y], rows=x.type.size // n, n=n, table=table)
        return True
    lowering.emit(
        f"softmax_{own.kind}", [x], [y], rows=x.type.size // n, n=n, scale=1.0 / out.scale,
        table=exponentials(own.scale * beta, 256 if own.kind == "u8" else 65536), **out.output(),
    )  # fmt: skip
    return True


def exponentials(step: float, count: int) -> Array:
    """exp(-distance * step) as integers of 2^-31, for every distance between two stored values."""
    return np.rint(np.exp(-np.arange(count, dtype=np.float64) * step) * 2.0**31).astype(np.uint32)


def _real(value: Value | None, count: int, fill: float) -> Array | None:
    """A constant per-channel operand as real numbers; None where it is computed at run time."""
    if value is None:
        return np.full(count, fill)
    if value.data is None or value.type.size != count:
        return None
    return (value.data if value.encoding is None else dequantize(value.data, value.type)).astype(np.float64).ravel()


@lowers("LayerNorm", "RmsNorm", "InstanceNorm", "GroupNorm", "L2Norm")
def normalize(lowering: Lowering, node: Node) -> bool:
    """Normalisations: exact sums, one scale and shift per channel."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind or len(node.outputs) != 1 or not x.type.size:
        return False
    view = _view(node, x.shape)
    if view is None:
        return False
    outer, spatial, groups, channels, kind = view
    width = groups * channels
    operands = [*node.inputs[1:3], None, None][:2] if node.op.name != "L2Norm" else [None, None]
    gamma, beta = _real(operands[0], width, 1.0), _real(operands[1], width, 0.0)
    if gamma is None or beta is None:
        return False
    epsilon = float(node.params["epsilon"])
    if own.kind == "f32":
        if spatial != 1 or groups != 1:
            return False
        lowering.emit(
            "normalize_f32", [x], [y], rows=outer, n=width, kind=kind, epsilon=epsilon,
            gamma=half(gamma), beta=half(beta),
        )  # fmt: skip
        return True
    lowering.emit(
        f"normalize_{own.kind}", [x], [y], outer=outer, spatial=spatial, groups=groups, channels=channels, kind=kind,
        zero_a=own.zero_point, scale_x=own.scale, epsilon=epsilon, gamma=gamma / out.scale, beta=beta / out.scale,
        **out.output(),
    )  # fmt: skip
    return True


def _view(node: Node, shape: tuple[int, ...]) -> tuple[int, int, int, int, int] | None:
    """[outer][spatial][groups][channels] and the kind of a normalisation, None where it is another pattern."""
    rank, channels = len(shape), shape[-1]
    spatial = int(np.prod(shape[1:-1], dtype=np.int64))
    match node.op.name:
        case "InstanceNorm":
            if node.params["mode"] != 0 or node.params["region"] != 0 or not node.params["normalize_variance"]:
                return None
            return shape[0], spatial, channels, 1, 0
        case "GroupNorm":
            groups = int(node.params["group"])
            return shape[0], spatial, groups, channels // groups, 0
        case name:
            axes = sorted(int(a) % rank for a in node.params["axes"])
            if axes != list(range(axes[0], rank)):
                return None
            width = int(np.prod(shape[axes[0] :], dtype=np.int64))
            outer = int(np.prod(shape[: axes[0]], dtype=np.int64))
            return outer, 1, 1, width, {"LayerNorm": 0, "RmsNorm": 1, "L2Norm": 2}[name]
