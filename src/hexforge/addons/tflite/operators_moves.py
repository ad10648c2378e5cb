# SPDX-License-Identifier: Apache-2.0
"""Moves: operators that put elements elsewhere and compute none."""

from __future__ import annotations

from functools import partial

import numpy as np

from hexforge.addons.tflite.operator_call import OperatorCall, Translation

_FAR = np.iinfo(np.int64).max


def _by_integers(call: OperatorCall, op_type: str) -> None:
    """An op of ONNX whose second input is a list of sizes or indices."""
    call.write(call.node(op_type, call.read(0), call.wide(1)))


def _reshape(call: OperatorCall) -> None:
    """To the shape of input 1, of the options or, where both are silent, of the output."""
    if call.has(1) and call.constant(1) is None:
        _by_integers(call, "Reshape")
        return
    shape = call.constant(1) if call.has(1) else None
    sizes = (call.options["new_shape"] or call.result_shape()) if shape is None else shape.reshape(-1)
    call.write(call.node("Reshape", call.read(0), call.array(sizes, np.int64), allowzero=int(0 in list(sizes)) or None))


def _transpose(call: OperatorCall) -> None:
    order = call.sizes(1, "order")
    if sorted(order) != list(range(call.rank())):
        raise call.refuse(f"its order {order} is none of {call.rank()} dimensions; the file is damaged")
    call.write(call.transpose(call.read(0), order))


def _concatenation(call: OperatorCall) -> None:
    rank = len(call.result().shape) or call.rank()
    axis, first = call.axis(call.options["axis"]), call.prefers_first()
    value = call.node(
        "Concat", *(call.read(place, first) for place in range(len(call.inputs))), axis=call.place_of(axis, first, rank)
    )
    call.write(call.activated(value), first=first)


def _pack(call: OperatorCall) -> None:
    rank = call.rank() + 1
    axis = call.options["axis"] % rank
    places = range(len(call.inputs))
    parts = [call.as_input(call.node("Unsqueeze", call.read(i), call.array([axis], np.int64)), i) for i in places]
    call.write(call.node("Concat", *parts, axis=axis))


def _unpack(call: OperatorCall) -> None:
    axis, count = call.axis(call.options["axis"]), len(call.outputs)
    parts = call.nodes("Split", count, call.read(0), axis=axis, num_outputs=count)
    for place, part in enumerate(parts):
        call.write(call.node("Squeeze", part, call.array([axis], np.int64)), place)


def _split(call: OperatorCall) -> None:
    axis, first = call.axis(call.sizes(0, "axis")[0], 1), call.prefers_first()
    count = len(call.outputs)
    sizes = call.array([call.size(1, axis) // count] * count, np.int64)
    _write_split(call, 1, axis, sizes, first)


def _write_split(call: OperatorCall, place: int, axis: int, sizes: str, first: bool) -> None:
    where = call.place_of(axis, first, call.rank(place))
    parts = call.nodes("Split", len(call.outputs), call.read(place, first), sizes, axis=where)
    for number, part in enumerate(parts):
        call.write(part, number, first)


def _split_v(call: OperatorCall) -> None:
    axis, sizes = call.axis(call.sizes(2, "axis")[0]), call.sizes(1, "sizes")
    if -1 in sizes:
        sizes[sizes.index(-1)] = call.size(0, axis) - sum(size for size in sizes if size >= 0)
    _write_split(call, 0, axis, call.array(sizes, np.int64), False)


def _slice(call: OperatorCall) -> None:
    rank = call.rank()
    begin, size = call.constant(1), call.constant(2)
    if begin is not None and size is not None:
        stops = [_FAR if s < 0 else int(b) + int(s) for b, s in zip(begin.reshape(-1), size.reshape(-1), strict=False)]
        starts, ends = call.array(begin.reshape(-1), np.int64), call.array(stops, np.int64)
    else:
        starts, sizes = call.wide(1), call.wide(2)
        rest = call.node("Less", sizes, call.array(0, np.int64))
        ends = call.node("Where", rest, call.array(_FAR, np.int64), call.node("Add", starts, sizes))
    call.write(call.node("Slice", call.read(0), starts, ends, call.array(range(rank), np.int64)))


def _strided_slice(call: OperatorCall) -> None:
    """Python's slices, of which bits of masks say where nothing is given, an axis is made or one goes."""
    if call.constant(1) is None or call.constant(2) is None:
        _computed_slice(call)
        return
    begin, end, step = (call.sizes(place, what) for place, what in ((1, "begin"), (2, "end"), (3, "strides")))
    masks = {name: call.options[name] for name in ("begin_mask", "end_mask", "ellipsis", "new_axis", "shrink")}
    if call.options["offset"]:
        end = [b + e for b, e in zip(begin, end, strict=True)]
    rank = call.rank()
    named = sum(not masks["new_axis"] >> i & 1 and not masks["ellipsis"] >> i & 1 for i in range(len(begin)))
    starts, ends, steps, axes = [], [], [], []
    new, gone, axis, at = [], [], 0, 0
    for i in range(len(begin)):
        if masks["ellipsis"] >> i & 1:
            skipped = rank - named
            axis, at = axis + skipped, at + skipped
            continue
        if masks["new_axis"] >> i & 1:
            new.append(at)
            at += 1
            continue
        if axis >= rank or not step[i]:
            raise call.refuse("it slices more dimensions than its input has; the file is damaged")
        shrinks = masks["shrink"] >> i & 1
        low = None if masks["begin_mask"] >> i & 1 and not shrinks else begin[i]
        high = None if masks["end_mask"] >> i & 1 else end[i]
        if shrinks:
            low = low or 0
            high = _FAR if low == -1 else low + 1
            gone.append(at)
        back = step[i] < 0 and not shrinks
        starts.append((_FAR if back else 0) if low is None else low)
        ends.append((-_FAR if back else _FAR) if high is None else high)
        steps.append(1 if shrinks else step[i])
        axes.append(axis)
        axis, at = axis + 1, at + 1
    value = call.node("Slice", call.read(0), *(call.array(each, np.int64) for each in (starts, ends, axes, steps)))
    if new:
        value = call.node("Unsqueeze", value, call.array(new, np.int64))
    if gone:
        value = call.node("Squeeze", value, call.array(gone, np.int64))
    call.write(value)


def _computed_slice(call: OperatorCall) -> None:
    """Slices whose beginnings and ends are computed while the model runs."""
    steps, masks = call.sizes(3, "strides"), call.options
    count = range(len(steps))
    if min(steps, default=1) <= 0 or masks["ellipsis"] or masks["new_axis"] or masks["offset"]:
        raise call.refuse("it goes back or makes axes from places that are computed; convert it with fixed sizes")

    def where(mask: str, value: str, other: str) -> str:
        bits = [bool(masks[mask] >> i & 1) for i in count]
        return call.node("Where", call.array(bits), value, other) if any(bits) else other

    begin, far = call.wide(1), call.array(_FAR, np.int64)
    starts = where("begin_mask", call.array(0, np.int64), begin)
    is_last = call.node("Equal", begin, call.array(-1, np.int64))
    next_one = call.node("Where", is_last, far, call.node("Add", begin, call.array(1, np.int64)))
    ends = where("shrink", next_one, where("end_mask", far, call.wide(2)))
    value = call.node("Slice", call.read(0), starts, ends, *(call.array(each, np.int64) for each in (count, steps)))
    if gone := [i for i in count if masks["shrink"] >> i & 1]:
        value = call.node("Squeeze", value, call.array(gone, np.int64))
    call.write(value)


def _pad(call: OperatorCall) -> None:
    first, rank = call.prefers_first() and not call.has(2), call.rank()
    pads = call.constant(1)
    value = call.read(2) if call.has(2) else ""
    if pads is None:
        amounts = call.reshape(call.transpose(call.wide(1), (1, 0)), [-1])
    else:
        if pads.shape != (rank, 2):
            raise call.refuse(f"its paddings have shape {list(pads.shape)} instead of [{rank}, 2]; the file is damaged")
        order = [call.place_of(axis, first, rank) for axis in range(rank)]
        moved = np.zeros_like(pads)
        moved[order] = pads
        amounts = call.array(moved.T.reshape(-1), np.int64)
    if call.has(2):
        value = call.reshape(value, [])
    call.write(call.node("Pad", call.read(0, first), amounts, *([value] if value else [])), first=first)


def _mirror_pad(call: OperatorCall) -> None:
    pads = call.fixed(1, "padding")
    if call.options["mode"] == 0:
        call.write(call.node("Pad", call.read(0), call.array(pads.T.reshape(-1), np.int64), mode="reflect"))
        return
    value = call.read(0)  # with the edge itself repeated, which ONNX has not: indices say where each comes from
    for axis, ((before, behind), size) in enumerate(zip(pads.tolist(), call.shape(0), strict=True)):
        if (before or behind) and before + behind + size < 1 << 31:
            source = np.pad(np.arange(size), (before, behind), mode="symmetric")
            value = call.node("Gather", value, call.array(source, np.int64), axis=axis)
    call.write(value)


def _gather(call: OperatorCall) -> None:
    axis, batch = call.axis(call.options["axis"]), call.options["batch"]
    if not batch:
        call.write(call.node("Gather", call.read(0), call.wide(1), axis=axis))
        return
    shape, places = call.shape(0), call.shape(1)
    batch %= len(places) + 1
    if axis != batch or batch != len(places) - 1:
        raise call.refuse("batch_dims with an axis behind the batch is not translated; gather each batch by itself")
    indices = call.wide(1)
    tail = len(shape) - axis - 1
    if tail:
        indices = call.reshape(indices, [*places, *[1] * tail])
        indices = call.node("Expand", indices, call.array([*places, *shape[axis + 1 :]], np.int64))
    call.write(call.node("GatherElements", call.read(0), indices, axis=axis))


def _scatter_nd(call: OperatorCall) -> None:
    start = call.node("Expand", call.like(0, 1), call.wide(2))
    call.write(call.node("ScatterND", start, call.wide(0), call.read(1), reduction="add"))


def _dynamic_update_slice(call: OperatorCall) -> None:
    """A block written over a part of the input, at a start that is moved so that the block fits."""
    shape, block = call.shape(0), call.shape(1)
    grid = np.stack(np.meshgrid(*map(np.arange, block), indexing="ij"), axis=-1)
    room = np.subtract(shape, block)
    start = call.node("Max", call.node("Min", call.wide(2), call.array(room, np.int64)), call.array(0, np.int64))
    call.write(call.node("ScatterND", call.read(0), call.node("Add", call.array(grid, np.int64), start), call.read(1)))


def _sparse_to_dense(call: OperatorCall) -> None:
    shape = call.sizes(1, "shape")
    indices = call.reshape(call.wide(0), [-1, len(shape)])
    count = call.size(0, 0) if call.rank(0) else 1
    start = call.node("Expand", call.reshape(call.read(3), []), call.array(shape, np.int64))
    values = call.node("Expand", call.read(2), call.array([count], np.int64))
    call.write(call.node("ScatterND", start, indices, values))


def _squeeze(call: OperatorCall) -> None:
    axes = [call.axis(axis) for axis in call.options["axes"]] or [
        i for i, size in enumerate(call.shape(0)) if size == 1
    ]
    call.write(call.node("Squeeze", call.read(0), call.array(axes, np.int64)))


def _expand_dims(call: OperatorCall) -> None:
    axis = call.sizes(1, "axis")[0]
    call.write(call.node("Unsqueeze", call.read(0), call.array([axis], np.int64)))


def _broadcast_args(call: OperatorCall) -> None:
    shapes = [call.fixed(place, "shape").reshape(-1) for place in (0, 1)]
    call.make_known(np.broadcast_shapes(*shapes))


def _shape(call: OperatorCall) -> None:
    if not call.is_open(0):
        call.make_known(call.shape(0))
        return
    call.write(call.cast(call.node("Shape", call.read(0)), call.result_dtype()))


def _rank(call: OperatorCall) -> None:
    call.make_known(call.rank())


def _range(call: OperatorCall) -> None:
    call.write(call.node("Range", *(call.reshape(call.read(place), []) for place in range(3))))


def _one_hot(call: OperatorCall) -> None:
    """Each index compared with all there are, as onnxruntime has OneHot for few types."""
    rank, depth = call.rank(), call.sizes(1, "depth")[0]
    axis = call.options["axis"] % (rank + 1)
    numbers = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(rank + 1)])
    index = call.node("Unsqueeze", call.wide(0), call.array([axis], np.int64))
    call.write(call.node("Where", call.node("Equal", index, call.array(numbers)), call.read(2), call.read(3)))


def _reverse(call: OperatorCall) -> None:
    axes = [call.axis(axis) for axis in call.sizes(1, "axes")]
    ones = [-1] * len(axes)
    parts = (call.array(each, np.int64) for each in (ones, [-_FAR] * len(axes), axes, ones))
    call.write(call.node("Slice", call.read(0), *parts))


def _reverse_sequence(call: OperatorCall) -> None:
    time, batch = call.options["time"], call.options["batch"]
    order = [batch, time, *(axis for axis in range(call.rank()) if axis not in (time, batch))]
    if sorted(order) != list(range(call.rank())):
        raise call.refuse("its axes are none of its input; the file is damaged")
    moved = call.node("ReverseSequence", call.transpose(call.read(0), order), call.wide(1), batch_axis=0, time_axis=1)
    call.write(call.transpose(moved, np.argsort(order).tolist()))


def _space_to_batch(call: OperatorCall) -> None:
    """Blocks of the padded image become batches."""
    block, pads = call.sizes(1, "block"), call.fixed(2, "padding")
    shape, count = list(call.shape(0)), len(block)
    if len(shape) < count + 1 or pads.shape != (count, 2) or min(block) <= 0:
        raise call.refuse("its block does not fit its input; the file is damaged")
    whole = np.zeros((len(shape), 2), np.int64)
    whole[1 : count + 1] = pads
    value = call.read(0)
    if whole.any():
        value = call.as_input(call.node("Pad", value, call.array(whole.T.reshape(-1), np.int64)), 0)
    sizes = [size + int(amounts.sum()) for size, amounts in zip(shape, whole, strict=True)]
    if any(size % each for size, each in zip(sizes[1 : count + 1], block, strict=True)):
        raise call.refuse(f"its padded image {sizes} is no multiple of the block {block}; the file is damaged")
    parts = [n for size, each in zip(sizes[1 : count + 1], block, strict=True) for n in (size // each, each)]
    rest = sizes[count + 1 :]
    value = call.as_input(call.reshape(value, [sizes[0], *parts, *rest]), 0)
    order = [2 + 2 * i for i in range(count)] + [0] + [1 + 2 * i for i in range(count)]
    value = call.as_input(call.transpose(value, order + list(range(1 + 2 * count, 1 + 2 * count + len(rest)))), 0)
    call.write(call.reshape(value, [-1, *(s // b for s, b in zip(sizes[1 : count + 1], block, strict=True)), *rest]))


def _batch_to_space(call: OperatorCall) -> None:
    """Batches become blocks of an image, whose edges are cut off."""
    block, crops = call.sizes(1, "block"), call.fixed(2, "crops")
    shape, count = list(call.shape(0)), len(block)
    if len(shape) < count + 1 or crops.shape != (count, 2) or min(block) <= 0 or shape[0] % int(np.prod(block)):
        raise call.refuse("its block does not fit its input; the file is damaged")
    rest = shape[count + 1 :]
    value = call.as_input(call.reshape(call.read(0), [*block, -1, *shape[1:]]), 0)
    order = [count] + [n for i in range(count) for n in (count + 1 + i, i)]
    value = call.as_input(call.transpose(value, order + list(range(2 * count + 1, 2 * count + 1 + len(rest)))), 0)
    sizes = [size * each for size, each in zip(shape[1 : count + 1], block, strict=True)]
    value = call.reshape(value, [-1, *sizes, *rest])
    if crops.any():
        ends = [size - int(after) for size, (_, after) in zip(sizes, crops, strict=True)]
        each = (crops[:, 0], ends, range(1, count + 1))
        value = call.node("Slice", call.as_input(value, 0), *(call.array(list(part), np.int64) for part in each))
    call.write(value)


def _where(call: OperatorCall) -> None:
    """Places of what is not zero, one a row."""
    value = call.read(0)
    call.write(call.cast(call.transpose(call.node("NonZero", value), (1, 0)), call.result_dtype()))


def _unique(call: OperatorCall) -> None:
    value, is_integer = call.read(0), call.dtype().kind in "iu"
    values, _, places, _ = call.nodes("Unique", 4, call.cast(value, np.int64) if is_integer else value, sorted=0)
    call.write(call.cast(values, call.result_dtype()) if is_integer else values)
    call.write(call.cast(places, call.result_dtype(1)), 1)


def _matrix_diag(call: OperatorCall) -> None:
    """A row along the diagonal of a matrix of zeros."""
    size = call.size(0, -1)
    row = call.node("Unsqueeze", call.read(0), call.array([-1], np.int64))
    call.write(call.node("Where", call.array(np.eye(size, dtype=np.bool_)), row, call.like(0)))


def _matrix_set_diag(call: OperatorCall) -> None:
    height, width = call.shape(0)[-2:]
    row = call.read(1)
    if width > height:
        edge = [0] * (2 * call.rank(1) - 1) + [width - height]
        row = call.node("Pad", row, call.array(edge, np.int64))
    row = call.node("Unsqueeze", row, call.array([-2], np.int64))
    if height > width:
        row = call.node("Expand", row, call.array([*call.shape(0)[:-2], height, width], np.int64))
    mask = np.eye(height, width, dtype=np.bool_)
    call.write(call.node("Where", call.array(mask), row, call.read(0)))


MOVES = {
    "BATCH_TO_SPACE_ND": Translation(_batch_to_space),
    "BROADCAST_ARGS": Translation(_broadcast_args),
    "BROADCAST_TO": Translation(partial(_by_integers, op_type="Expand")),
    "CONCATENATION": Translation(_concatenation, "axis:i activation:b"),
    "DYNAMIC_UPDATE_SLICE": Translation(_dynamic_update_slice),
    "EXPAND_DIMS": Translation(_expand_dims),
    "GATHER": Translation(_gather, "axis:i batch:i"),
    "GATHER_ND": Translation(partial(_by_integers, op_type="GatherND")),
    "MATRIX_DIAG": Translation(_matrix_diag),
    "MATRIX_SET_DIAG": Translation(_matrix_set_diag),
    "MIRROR_PAD": Translation(_mirror_pad, "mode:b"),
    "ONE_HOT": Translation(_one_hot, "axis:i"),
    "PACK": Translation(_pack, "count:i axis:i"),
    "PAD": Translation(_pad),
    "PADV2": Translation(_pad),
    "RANGE": Translation(_range),
    "RANK": Translation(_rank),
    "RESHAPE": Translation(_reshape, "new_shape:i[]"),
    "REVERSE_SEQUENCE": Translation(_reverse_sequence, "time:i batch:i"),
    "REVERSE_V2": Translation(_reverse),
    "SCATTER_ND": Translation(_scatter_nd),
    "SHAPE": Translation(_shape, "output_type:b"),
    "SLICE": Translation(_slice),
    "SPACE_TO_BATCH_ND": Translation(_space_to_batch),
    "SPARSE_TO_DENSE": Translation(_sparse_to_dense),
    "SPLIT": Translation(_split, "count:i"),
    "SPLIT_V": Translation(_split_v, "count:i"),
    "SQUEEZE": Translation(_squeeze, "axes:i[]"),
    "STRIDED_SLICE": Translation(_strided_slice, "begin_mask:i end_mask:i ellipsis:i new_axis:i shrink:i offset:?"),
    "TILE": Translation(partial(_by_integers, op_type="Tile")),
    "TRANSPOSE": Translation(_transpose),
    "UNIQUE": Translation(_unique, "index_type:b"),
    "UNPACK": Translation(_unpack, "count:i axis:i"),
    "WHERE": Translation(_where),
}
