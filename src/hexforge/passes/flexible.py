"""Flexible nodes: ops that compute the same whatever order their axes are in, once their parameters follow suit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hexforge.ir import Node, ParamValue
from hexforge.ops.pointwise import is_pointwise
from hexforge.passes.permutation import Permutation

Params = dict[str, ParamValue]
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Flexible:
    """How a node's layout may change. A layout is the permutation a tensor is stored by."""

    rank: int
    linked: tuple[int, ...]
    """Inputs that take the node's layout."""
    loose: tuple[int, ...]
    """Inputs that broadcast: constants, or of lower rank; each is brought to the layout by itself."""
    params: Callable[[Permutation], Params]
    """The parameters in a layout."""
    groups: Groups | None = None
    """Input axes that each output axis is made of; None where the output has the input's axes, and so its layout."""

    def allows(self, layout: Permutation) -> bool:
        """True where axes that are merged lie together, in order."""
        places = [[layout.index(a) for a in group] for group in self.groups or ()]
        taken = sorted(place for group in places for place in group)
        rank = {place: i for i, place in enumerate(taken)}  # lost axes do not separate
        return all(rank[b] == rank[a] + 1 for group in places for a, b in pairwise(group))

    def out_layout(self, layout: Permutation) -> Permutation:
        """The layout of the output of a node whose axes are not its input's."""
        assert self.groups is not None
        keys: list[int] = []
        for group in self.groups:  # an axis that comes from none stays behind the one before it
            keys.append(layout.index(group[0]) if group else keys[-1] if keys else -1)
        return tuple(sorted(range(len(keys)), key=keys.__getitem__))

    def in_layout(self, out_layout: Permutation) -> Permutation:
        """An input layout that gives `out_layout`: lost axes first, the others as the output has them."""
        assert self.groups is not None
        kept = [a for axis in out_layout for a in self.groups[axis]]
        return (*(a for a in range(self.rank) if a not in kept), *kept)


_ALONG_AXIS = frozenset("Split Softmax LogSoftmax CumulativeSum ChannelShuffle GatherElements".split())


def flexible(node: Node) -> Flexible | None:
    """How the node's layout may change, None where it is fixed."""
    name, params = node.op.name, node.params
    out = node.outputs[0]
    if is_pointwise(name) or name == "Cast":
        rank = len(out.shape)
        return Flexible(rank, *_split_inputs(node, rank), params=lambda layout: dict(params))
    if name == "Concat":
        rank = len(out.shape)
        axis = params["axis"] % rank
        return Flexible(rank, *_split_inputs(node, rank), params=lambda p: {"axis": p.index(axis)})
    first = node.inputs[0] if node.inputs else None
    if first is None or first.is_static:
        return None
    rank = len(first.shape)
    if name in _ALONG_AXIS:
        axis = params["axis"] % rank
        return Flexible(rank, *_split_inputs(node, rank), params=lambda p: {**params, "axis": p.index(axis)})
    if name == "Gather" and node.inputs[1] is not None and len(node.inputs[1].shape) == 1:
        axis = params["axis"] % rank
        return Flexible(rank, (0,), (), lambda p: {**params, "axis": p.index(axis)})
    if name in ("Argmax", "Argmin"):
        axis = params["axis"] % rank
        groups = None if params["keep_dims"] else _without(rank, (axis,))
        return Flexible(rank, (0,), (), lambda p: {**params, "axis": p.index(axis)}, groups)
    if name.startswith("Reduce") or name == "L2Norm":
        axes = tuple(a % rank for a in params["axes"])
        groups = None if params.get("keep_dims", True) else _without(rank, axes)
        return Flexible(rank, (0,), (), lambda p: {**params, "axes": tuple(sorted(map(p.index, axes)))}, groups)
    if name in ("Pad", "Tile"):
        key = "pad_amount" if name == "Pad" else "multiples"
        return Flexible(rank, (0,), (), lambda p: {**params, key: tuple(params[key][a] for a in p)})
    if name == "StridedSlice" and not params["new_axes_mask"]:
        shrunk = tuple(a for a in range(rank) if params["shrink_axes"] >> a & 1)
        return Flexible(rank, (0,), (), lambda p: _sliced(params, p), _without(rank, shrunk) if shrunk else None)
    if name in ("Reshape", "Squeeze"):
        groups = _merged(first.shape, out.shape)
        return None if groups is None else Flexible(rank, (0,), (), lambda p: {}, groups)
    return None


def _without(rank: int, axes: tuple[int, ...]) -> Groups:
    return tuple((a,) for a in range(rank) if a not in axes)


def _merged(before: tuple[int, ...], after: tuple[int, ...]) -> Groups | None:
    """The axes of `before` that each axis of `after` merges (axes of size 1 come and go), None if an axis is cut."""
    if 0 in before:
        return None
    axes = [a for a, n in enumerate(before) if n != 1]
    groups: list[tuple[int, ...]] = []
    for size in after:
        group: list[int] = []
        while size > 1 and math.prod(before[a] for a in group) < size and axes:
            group.append(axes.pop(0))
        if math.prod(before[a] for a in group) != size:
            return None
        groups.append(tuple(group))
    return tuple(groups)


def _split_inputs(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    linked: list[int] = []
    loose: list[int] = []
    for i, value in enumerate(node.inputs):
        if value is not None:
            (loose if value.is_static or len(value.shape) != rank else linked).append(i)
    return tuple(linked), tuple(loose)


def _sliced(params: Params, layout: Permutation) -> Params:
    masks = ("begin_mask", "end_mask", "shrink_axes")
    moved: Params = {m: sum((params[m] >> a & 1) << i for i, a in enumerate(layout)) for m in masks}
    return {**params, **moved, "ranges": tuple(params["ranges"][a] for a in layout)}
