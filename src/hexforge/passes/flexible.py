# SPDX-License-Identifier: Apache-2.0
"""Flexible nodes: ops that compute the same whatever order their axes are in, once their parameters follow suit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from hexforge.ir import Node, ParamValue
from hexforge.patterns.permutation import Permutation

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
        remaining = [a for axis in out_layout for a in self.groups[axis]]
        return (*(a for a in range(self.rank) if a not in remaining), *remaining)


def flexible(node: Node) -> Flexible | None:
    """How the node's layout may change, None where it is fixed."""
    layout, params = node.op.layout, node.params
    if not layout.free or (layout.adds and params[layout.adds]):
        return None
    first = node.inputs[0] if node.inputs else None
    if layout.pointwise or node.op.variadic:  # no input is more than the others: any of them may be constant
        rank = len(node.outputs[0].shape)
    elif first is None or first.is_static or not _is_flat(node, layout.flat):
        return None
    else:
        rank = len(first.shape)
    groups: Groups | None = None
    if layout.merges:
        groups = _merged(node.call.input(0).shape, node.outputs[0].shape)
        if groups is None:
            return None
    elif lost := layout.lost(params, rank):
        groups = tuple((a,) for a in range(rank) if a not in lost)
    linked, loose = _split_inputs(node, rank) if layout.together else ((0,), ())
    return Flexible(rank, linked, loose, lambda perm: layout.permuted(params, perm), groups)


def _is_flat(node: Node, index: int | None) -> bool:
    """True where the input that must have one axis, if any, has one."""
    value = None if index is None else node.inputs[index]
    return index is None or (value is not None and len(value.shape) == 1)


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
