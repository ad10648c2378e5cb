# SPDX-License-Identifier: Apache-2.0
"""Reductions, running sums and arg-reductions along any axes; softmax, normalisations, Batchnorm."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower import reductions_windows
from hexforge.backends.htp.numbers.lower.adapt import (
    INTEGERS,
    along_last,
    exponentials,
    half_table,
    kind_of,
    real,
    transpose,
)
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, lowers
from hexforge.backends.htp.numbers.storage import Storage
from hexforge.ir import Array, Node, Value

_FOLD = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceSumSquare": "sum_square",
}  # fmt: skip


def _fixed(own: Storage, out: Storage, scale: float) -> dict[str, Any]:
    """How totals of a fixed-point tensor become the output's integers; nothing for other tensors."""
    return {"zero_a": own.zero_point, "scale": scale, **out.output()} if own.fixed else {}


@lowers(*_FOLD)
def reduce(lowering: Lowering, node: Node) -> bool:
    """Sum, mean, maximum, minimum and sum of squares."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    kind = kind_of(own)
    if kind is None or kind_of(out) != kind or not node.params["axes"]:
        return False
    rank = len(x.shape)
    axes = sorted(int(a) % rank for a in node.params["axes"])
    # over space, with channels behind it, one window is faster
    windowed = axes[-1] < rank - 1 and node.op.name in ("ReduceMean", "ReduceMax")
    if windowed and reductions_windows.reduce_space(lowering, node):
        return True
    source: Value | str = x
    shape = x.shape
    if any(shape[a] != 1 for a in range(axes[0], axes[-1]) if a not in axes):
        perm = [*(i for i in range(rank) if i not in axes), *axes]
        shape = tuple(shape[p] for p in perm)
        source = lowering.temp(replace(own, shape=shape), x.name)
        transpose(lowering, x, source, x.shape, perm)
        axes = list(range(rank - len(axes), rank))
    n = math.prod(shape[axes[0] : axes[-1] + 1])
    scale = own.scale / out.scale if own.fixed else 1.0
    scale = {"ReduceMean": scale / n, "ReduceSumSquare": scale * own.scale}.get(node.op.name, scale)
    lowering.emit(
        f"reduce_{_FOLD[node.op.name]}_{kind}", [source], [y], outer=math.prod(shape[: axes[0]]), n=n,
        inner=math.prod(shape[axes[-1] + 1 :]), **_fixed(own, out, scale),
    )  # fmt: skip
    return True


@lowers("L2Pool2d")
def length(lowering: Lowering, node: Node) -> bool:
    """The root of the sum of squares of fixed point, over one window that is all of space."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    whole = tuple(node.params["filter_size"]) == x.shape[1:3] and not np.any(node.params["pad_amount"])
    if not own.fixed or own.kind != out.kind or not whole or int(node.params["p"]) != 2:
        return False
    lowering.emit(
        f"reduce_length_{own.kind}", [x], [y], outer=x.shape[0], n=math.prod(x.shape[1:3]), inner=x.shape[3],
        **_fixed(own, out, own.scale / out.scale),
    )  # fmt: skip
    return True


def _axis_view(shape: tuple[int, ...], axis: int) -> dict[str, int]:
    return {"outer": math.prod(shape[:axis]), "n": shape[axis], "inner": math.prod(shape[axis + 1 :])}


@lowers("CumulativeSum")
def cumulative_sum(lowering: Lowering, node: Node) -> bool:
    """Running sums along an axis."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    kind = kind_of(own)
    if kind is None or kind_of(out) != kind or not x.shape:
        return False
    lowering.emit(
        f"cumulative_{kind}", [x], [y], **_axis_view(x.shape, int(node.params["axis"]) % len(x.shape)),
        exclusive=int(bool(node.params["exclusive"])), reverse=int(bool(node.params["reverse"])),
        **_fixed(own, out, own.scale / out.scale if own.fixed else 1.0),
    )  # fmt: skip
    return True


@lowers("Argmax", "Argmin")
def arg(lowering: Lowering, node: Node) -> bool:
    """Where the largest or smallest element is."""
    x, y = node.operand(0), node.outputs[0]
    kind, out = kind_of(lowering.storage(x)), lowering.storage(y)
    if kind is None or out.dtype not in (*INTEGERS, np.dtype(np.uint32)) or not x.shape:
        return False
    lowering.emit(
        f"arg_{kind}", [x], [y], **_axis_view(x.shape, int(node.params["axis"]) % len(x.shape)),
        index_bytes=out.dtype.itemsize, largest=int(node.op.name == "Argmax"),
    )  # fmt: skip
    return True


@lowers("Softmax", "LogSoftmax")
def softmax(lowering: Lowering, node: Node) -> bool:
    """Softmax and its logarithm along any axis."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    beta = float(node.params["beta"])
    if own.kind == "raw" or own.kind != out.kind or beta <= 0 or not x.shape:
        return False
    axis = int(node.params["axis"]) % len(x.shape)
    n = x.shape[axis]
    logarithm = node.op.name == "LogSoftmax"
    attributes: dict[str, Any] = {"rows": own.size // n, "n": n}
    if own.kind == "f32":
        attributes |= {"table": half_table("exp", beta)} | ({"beta": beta} if logarithm else {})
    else:
        table = exponentials(own.scale * beta, 256 if own.kind == "u8" else 65536)
        attributes |= {"table": table, "scale": 1.0 / out.scale, **out.output()}
        attributes |= {"step": own.scale * beta} if logarithm else {}
    step = f"{'log_' if logarithm else ''}softmax_{own.kind}"
    along_last(lowering, x, y, axis, lambda a, b: lowering.emit(step, [a], [b], **attributes))
    return True


@lowers("MaskedSoftmax")
def masked_softmax(lowering: Lowering, node: Node) -> bool:
    """Softmax of what a mask keeps, along the last axis."""
    x, mask, y = node.operand(0), node.operand(1), node.outputs[0]
    own, out, of_mask = (lowering.storage(v) for v in (x, y, mask))
    beta, n = float(node.params["beta"]), x.shape[-1]
    along_last = int(node.params["axis"]) % len(x.shape) == len(x.shape) - 1
    if not own.fixed or own.kind != out.kind or beta <= 0 or not along_last:
        return False
    integers = of_mask.fixed or (of_mask.dtype.kind in "uib" and of_mask.dtype.itemsize <= 2)
    if not integers or not mask.shape or mask.shape[-1] != n:
        return False
    lines = np.arange(of_mask.size // n).reshape(mask.shape[:-1]) * n
    lowering.emit(
        f"masked_softmax_{own.kind}", [x, mask], [y], rows=own.size // n, n=n, scale=1.0 / out.scale, **out.output(),
        table=exponentials(own.scale * beta, 256 if own.kind == "u8" else 65536),
        mask_bytes=of_mask.dtype.itemsize, mask_zero=of_mask.zero_point, keep_zero=int(node.params["keep"] == 0),
        mask_at=np.ascontiguousarray(np.broadcast_to(lines, x.shape[:-1])).ravel(),
    )  # fmt: skip
    return True


def _vector(value: Value | None, count: int, fill: float) -> Array | None:
    """A constant per-channel operand as real numbers; None where it is computed at run time."""
    if value is None:
        return np.full(count, fill)
    return real(value).ravel() if value.data is not None and value.type.size == count else None


@lowers("Batchnorm")
def batchnorm(lowering: Lowering, node: Node) -> bool:
    """One multiply-add per channel."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    n = x.shape[-1]
    weight, bias = (_vector(v, n, 0.0) for v in [*node.inputs[1:3], None][:2])
    if own.kind == "raw" or own.kind != out.kind or weight is None or bias is None:
        return False
    attributes: dict[str, Any] = {"rows": own.size // n, "n": n}
    if own.kind == "f32":
        attributes |= {"gamma": matrix_half(weight), "beta": matrix_half(bias)}
    else:
        attributes |= {"gamma": own.scale * weight / out.scale, "beta": bias / out.scale, "zero_a": own.zero_point}
        attributes |= out.output()
    lowering.emit(f"affine_{own.kind}", [x], [y], **attributes)
    return True


@lowers("LayerNorm", "RmsNorm", "InstanceNorm", "GroupNorm", "L2Norm")
def normalize(lowering: Lowering, node: Node) -> bool:
    """Normalisations: exact sums, one scale and shift per channel."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    view = _groups(node, x.shape)
    if own.kind == "raw" or own.kind != out.kind or len(node.outputs) != 1 or view is None:
        return False
    outer, spatial, groups, channels, kind = view
    width = groups * channels
    operands = [*node.inputs[1:3], None, None][:2] if node.op.name != "L2Norm" else [None, None]
    gamma, beta = _vector(operands[0], width, 1.0), _vector(operands[1], width, 0.0)
    if gamma is None or beta is None or (own.fixed and kind == 3):
        return False
    shape = {"outer": outer, "spatial": spatial, "groups": groups, "channels": channels, "kind": kind}
    epsilon = float(node.params["epsilon"])
    if own.kind == "f32" and spatial == groups == 1 and kind < 3:
        rows = {"rows": outer, "n": width, "kind": kind}
        lowering.emit(
            "normalize_f32", [x], [y], **rows, epsilon=epsilon, gamma=matrix_half(gamma), beta=matrix_half(beta)
        )
        return True
    if own.kind == "f32":
        lowering.emit(
            "normalize_groups_f32", [x], [y], **shape, epsilon=epsilon, gamma=matrix_half(gamma), beta=matrix_half(beta)
        )
        return True
    lowering.emit(
        f"normalize_{own.kind}", [x], [y], **shape, zero_a=own.zero_point, scale_x=own.scale, epsilon=epsilon,
        gamma=gamma / out.scale, beta=beta / out.scale, **out.output(),
    )  # fmt: skip
    return True


def _groups(node: Node, shape: tuple[int, ...]) -> tuple[int, int, int, int, int] | None:
    """[outer][spatial][groups][channels] and the kind of a normalisation; None where it is another pattern."""
    batch, channels, spatial = shape[0], shape[-1], math.prod(shape[1:-1])
    match node.op.name:
        case "InstanceNorm":
            kind = 1 if node.params["mode"] == 1 else 0 if node.params["normalize_variance"] else 3
            if node.params["region"] == 0:
                return batch, spatial, channels, 1, kind
            if node.params["region"] == 1:
                return batch * spatial, 1, 1, channels, kind
            # weight and bias repeat with every pixel: one group of all channels
            return batch, spatial, 1, channels, kind
        case "GroupNorm":
            groups = int(node.params["group"])
            return batch, spatial, groups, channels // groups, 0
        case name:
            axes = sorted(int(a) % len(shape) for a in node.params["axes"])
            if axes != list(range(axes[0], len(shape))):
                return None
            kind = {"LayerNorm": 0, "RmsNorm": 1, "L2Norm": 2}[name]
            return math.prod(shape[: axes[0]]), 1, 1, math.prod(shape[axes[0] :]), kind


@lowers("Lrn")
def lrn(lowering: Lowering, node: Node) -> bool:
    """Local response across channels."""
    x, y = node.operand(0), node.outputs[0]
    own, out = lowering.storage(x), lowering.storage(y)
    if own.kind == "raw" or own.kind != out.kind or node.params["region"] != 0 or not x.shape:
        return False
    n = x.shape[-1]
    fixed = {**_fixed(own, out, 1.0 / out.scale), "scale_x": own.scale} if own.fixed else {}
    lowering.emit(
        f"lrn_{own.kind}", [x], [y], rows=own.size // n, n=n, radius=min(int(node.params["radius"]), n),
        alpha=float(node.params["alpha"]), beta=float(node.params["beta"]), bias=float(node.params["bias"]), **fixed,
    )  # fmt: skip
    return True
