# SPDX-License-Identifier: Apache-2.0
"""Pieces: a picture taken apart into every second pixel (or every r-th), one piece behind the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic

from onnx_ir import Node

from hexforge.patterns.language import N, Questions, V
from hexforge.patterns.nodes import operand, shape, sliced_ranges

SPACE = (2, 3)
"""Rows and columns of a picture in ONNX's order of axes."""
Cuts = Mapping[int, tuple[int, int]]
"""Start and step of a Slice by axis."""


@dataclass(frozen=True, slots=True)
class Pieces(Generic[V, N]):
    """Parts of a picture: each is every `step`-th pixel from its offsets on, and they are one after the other."""

    picture: V
    step: tuple[int, int]
    offsets: tuple[tuple[int, int], ...]
    nodes: tuple[N, ...]
    """What takes the picture apart, and what puts the pieces together."""


@dataclass(frozen=True, slots=True)
class _Piece(Generic[V, N]):
    picture: V
    offset: tuple[int, int]
    step: tuple[int, int]
    nodes: tuple[N, ...]


def cuts_to_the_end(node: Node) -> Cuts | None:
    """Start and step of a Slice by axis, where it goes to the end of each; None for another."""
    cuts, sizes = sliced_ranges(node) or {}, shape(operand(node, 0))
    for axis, (first, last, by) in cuts.items():
        if by < 1 or len(range(first, last, by)) != len(range(first, sizes[axis], by)):
            return None
    return {axis: (first, by) for axis, (first, _, by) in cuts.items()} or None


def sliced_pieces(graph: Questions[V, N], concat: N, cuts_of: Callable[[N], Cuts | None]) -> Pieces[V, N] | None:
    """The pieces that a Concat of channels puts together, which slices took out of one picture."""
    values = [value for value in graph.inputs(concat) if value is not None]
    pieces = [piece for value in values if (piece := _piece(graph, value, cuts_of)) is not None]
    if not pieces or len(pieces) != len(graph.inputs(concat)):
        return None
    first, offsets = pieces[0], tuple(piece.offset for piece in pieces)
    if any(piece.picture is not first.picture or piece.step != first.step for piece in pieces):
        return None
    if len(set(offsets)) != len(offsets):
        return None
    if any(not 0 <= at < by for offset in offsets for at, by in zip(offset, first.step, strict=True)):
        return None
    nodes = dict.fromkeys(node for piece in pieces for node in reversed(piece.nodes))
    return Pieces(first.picture, first.step, offsets, (*nodes, concat))


def _piece(graph: Questions[V, N], value: V, cuts_of: Callable[[N], Cuts | None]) -> _Piece[V, N] | None:
    """What slices one after the other take of a picture."""
    offset, step, nodes = [0, 0], [1, 1], list[N]()
    node = graph.writer(value)
    while node is not None and graph.op(node) == "Slice" and (cuts := cuts_of(node)) is not None:
        if not cuts.keys() <= set(SPACE):
            return None
        for axis, (first, by) in cuts.items():  # of what is sliced already every `by`-th, so outer times inner
            at = SPACE.index(axis)
            offset[at], step[at] = first + by * offset[at], by * step[at]
        nodes.append(node)
        above = graph.inputs(node)[0]
        assert above is not None
        value, node = above, graph.writer(above)
    return _Piece(value, (offset[0], offset[1]), (step[0], step[1]), tuple(nodes)) if nodes else None
