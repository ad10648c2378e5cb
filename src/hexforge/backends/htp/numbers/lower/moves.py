# SPDX-License-Identifier: Apache-2.0
"""Data movement: boxes copied with strides, or views of the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.lower.native_steps import Lowering, NativeStep, lowers
from hexforge.ir import Node, Role, Value


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Element strides of a dense tensor."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def alike(lowering: Lowering, *values: Value) -> bool:
    """True where the values are stored alike: moving bytes is all there is to do."""
    first = lowering.storage(values[0])
    return first.dtype.itemsize in (1, 2, 4, 8) and all(
        (s := lowering.storage(v)).kind == first.kind
        and s.dtype == first.dtype
        and (s.scale, s.zero_point, v.encoding is None) == (first.scale, first.zero_point, values[0].encoding is None)
        for v in values
    )


def copy(
    lowering: Lowering, x: Value | str, y: Value | str, dims: Sequence[int], from_strides: Sequence[int],
    to_strides: Sequence[int], offset_x: int = 0, offset_y: int = 0,
) -> None:  # fmt: skip
    """A box of `dims` elements from strided places of `x` to strided places of `y`."""
    own = lowering.tensors[x] if isinstance(x, str) else lowering.storage(x)
    lowering.emit(
        "copy", [x], [y], element_bytes=own.dtype.itemsize, dims=tuple(dims),
        strides_x=tuple(from_strides), strides_y=tuple(to_strides), offset_x=offset_x, offset_y=offset_y,
    )  # fmt: skip


def _flat(lowering: Lowering, x: Value, y: Value) -> None:
    copy(lowering, x, y, (x.type.size,), (1,), (1,))


@lowers("Reshape", "ExpandDims", "Squeeze")
def reshape(lowering: Lowering, node: Node) -> bool:
    """The same bytes under another shape."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y):
        return False
    if not lowering.view(x, y):
        _flat(lowering, x, y)
    return True


@lowers("Transpose")
def transpose(lowering: Lowering, node: Node) -> bool:
    """Axes permuted by a strided copy."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y):
        return False
    source = strides(x.shape)
    copy(lowering, x, y, *merged(y.shape, [source[p] for p in node.params["perm"]], strides(y.shape)))
    return True


def merged(
    dims: Sequence[int], x: Sequence[int], y: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """A box with axes of size 1 dropped and axes that run on merged."""
    rows: list[tuple[int, int, int]] = []
    for size, a, b in zip(dims, x, y, strict=True):
        if size == 1:
            continue
        if rows and rows[-1][1] == a * size and rows[-1][2] == b * size:
            rows[-1] = (rows[-1][0] * size, a, b)
        else:
            rows.append((size, a, b))
    if not rows:
        rows = [(1, 1, 1)]
    sizes, from_strides, to_strides = zip(*rows, strict=True)
    return sizes, from_strides, to_strides


@lowers("Concat")
def concat(lowering: Lowering, node: Node) -> bool:
    """Each input copied to its place."""
    y = node.outputs[0]
    inputs = [v for v in node.inputs if v is not None]
    if not alike(lowering, y, *inputs):
        return False
    axis = int(node.params["axis"]) % len(y.shape)
    target, at = strides(y.shape), 0
    for x in inputs:
        if x.type.size and not (axis == len(y.shape) - 1 and _written_in_place(lowering, node, x, y, at)):
            copy(lowering, x, y, *merged(x.shape, strides(x.shape), target), offset_y=at * target[axis])
        at += x.shape[axis]
    return True


_STRIDED = ("conv_", "depthwise_")


def _written_in_place(lowering: Lowering, node: Node, x: Value, y: Value, channel: int) -> bool:
    """Let the convolution that makes `x`, which only this Concat reads, write it straight into `y`."""
    if x.data is not None or x.role is not Role.NATIVE or set(x.users) != {node} or x.users[node] != 1:
        return False
    name = lowering.name(x)
    for i in range(len(lowering.steps) - 1, -1, -1):
        step = lowering.steps[i]
        names = (*step.ins, *step.outs) if isinstance(step, NativeStep) else ()
        if isinstance(step, NativeStep) and step.outs == (name,):
            whole = step.attributes.get("y_stride") == x.shape[-1] and not step.attributes.get("y_offset", 0)
            if not step.kind.startswith(_STRIDED) or not whole:
                return False
            attributes = {**step.attributes, "y_stride": y.shape[-1], "y_offset": channel}
            lowering.steps[i] = replace(step, outs=(lowering.name(y),), attributes=attributes)
            return True
        if name in names:
            return False
    return False


@lowers("Split")
def split(lowering: Lowering, node: Node) -> bool:
    """Each output copied from its place."""
    x = node.operand(0)
    if not alike(lowering, x, *node.outputs):
        return False
    axis = int(node.params["axis"]) % len(x.shape)
    source, at = strides(x.shape), 0
    for y in node.outputs:
        if y.type.size:
            copy(lowering, x, y, *merged(y.shape, source, strides(y.shape)), offset_x=at * source[axis])
        at += y.shape[axis]
    return True


@lowers("StridedSlice")
def strided_slice(lowering: Lowering, node: Node) -> bool:
    """A strided box of the input."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y) or not y.type.size:
        return False
    # the op's own reference on no memory at all says where its elements lie
    box = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), x.shape, strides(x.shape))
    part = np.asarray(node.op.reference(node.call, box))
    offset = part.__array_interface__["data"][0] - box.__array_interface__["data"][0]
    copy(lowering, x, y, *merged(part.shape, part.strides, strides(y.shape)), offset_x=offset)
    return True


def pad(lowering: Lowering, node: Node) -> bool:
    """Constant padding: filled, then the input copied in."""
    x, y = node.operand(0), node.outputs[0]
    own = lowering.storage(y)
    if node.params["scheme"] != 0 or not alike(lowering, x, y) or own.kind == "raw":
        return False
    constant = float(node.params["pad_constant_value"])
    if own.kind == "f32":
        value = matrix_half(np.asarray([constant]))
    else:
        value = np.clip(np.rint(constant / own.scale) + own.zero_point, own.low, own.high).astype(own.dtype).reshape(1)
    lowering.emit("fill", [], [y], element_bytes=own.dtype.itemsize, count=y.type.size, value=value)
    target = strides(y.shape)
    offset = sum(p[0] * s for p, s in zip(node.params["pad_amount"], target, strict=True))
    if x.type.size:
        copy(lowering, x, y, *merged(x.shape, strides(x.shape), target), offset_y=offset)
    return True


@lowers("Tile")
def tile(lowering: Lowering, node: Node) -> bool:
    """Repetition: an axis of stride 0 for every repeated one."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y) or not y.type.size:
        return False
    dims, source, target = [], [], []
    for size, times, s, t in zip(x.shape, node.params["multiples"], strides(x.shape), strides(y.shape), strict=True):
        dims += [times, size]
        source += [0, s]
        target += [t * size, t]
    copy(lowering, x, y, *merged(dims, source, target))
    return True


@lowers("DepthToSpace", "SpaceToDepth")
def depth_space(lowering: Lowering, node: Node) -> bool:
    """Blocks of pixels to channels and back: one permuted copy."""
    x, y = node.operand(0), node.outputs[0]
    if not alike(lowering, x, y):
        return False
    bh, bw = node.params["block_size"]
    deep, wide = (x, y) if node.op.name == "DepthToSpace" else (y, x)
    n, h, w, _ = deep.shape
    c = wide.shape[3]
    wide_strides, deep_strides = strides(wide.shape), strides(deep.shape)
    dims = (n, h, bh, w, bw, c)
    in_wide = (wide_strides[0], wide_strides[1] * bh, wide_strides[1], wide_strides[2] * bw, wide_strides[2], 1)
    block = (c * bw, c, 1) if node.params["mode"] == 0 else (bw, 1, bh * bw)
    in_deep = (deep_strides[0], deep_strides[1], block[0], deep_strides[2], block[1], block[2])
    source, target = (in_deep, in_wide) if deep is x else (in_wide, in_deep)
    copy(lowering, x, y, *merged(dims, source, target))
    return True


def nearest(lowering: Lowering, node: Node) -> bool:
    """Nearest-neighbour enlargement by whole factors where each pixel becomes a block."""
    x, y = node.operand(0), node.outputs[0]
    if len(x.shape) != 4 or not alike(lowering, x, y) or not _repeats(node):
        return False
    n, h, w, c = x.shape
    if y.shape[1] % h or y.shape[2] % w or y.shape[0] != n or y.shape[3] != c:
        return False
    fh, fw = y.shape[1] // h, y.shape[2] // w
    source, target = strides(x.shape), strides(y.shape)
    dims = (n, h, fh, w, fw, c)
    from_strides = (source[0], source[1], 0, source[2], 0, 1)
    to_strides = (target[0], target[1] * fh, target[1], target[2] * fw, target[2], 1)
    copy(lowering, x, y, *merged(dims, from_strides, to_strides))
    return True


def _repeats(node: Node) -> bool:
    """True where output pixel i reads input pixel i // factor, whatever the factor."""
    if node.op.name == "ResizeNearestNeighbor":
        return not node.params["align_corners"]
    if node.params["interpolation_mode"] != 0:
        return False
    mode, rounding = node.params["transformation_mode"], node.params["nearest_mode"]
    # half_pixel and pytorch_half_pixel round to the middle; asymmetric needs floor
    return (mode in (0, 1) and rounding in (0, 1)) or (mode == 3 and rounding == 2)
