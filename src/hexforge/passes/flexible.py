"""Flexible nodes: ops that compute the same whatever order their axes are in, once their parameters follow suit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hexforge.ir import Node, ParamValue
from hexforge.passes.permutation import Permutation

Params = dict[str, ParamValue]


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
    lost: tuple[int, ...] | None = None
    """Axes the output lacks; None where the output has the node's layout."""

    def out_layout(self, layout: Permutation) -> Permutation:
        """The layout of the output of a node that loses axes."""
        assert self.lost is not None
        kept = [a for a in range(self.rank) if a not in self.lost]
        return tuple(kept.index(a) for a in layout if a not in self.lost)


_ELEMENTWISE = frozenset(
    "Relu Relu1 Relu6 ReluMinMax Sigmoid Tanh Elu Gelu HardSwish Prelu "
    "Quantize Dequantize Convert Cast IsInf IsNan".split()
)
_ALONG_AXIS = frozenset("Split Softmax LogSoftmax CumulativeSum ChannelShuffle GatherElements".split())


def flexible(node: Node) -> Flexible | None:
    """How the node's layout may change, None where it is fixed."""
    name, params = node.op.name, node.params
    lost: tuple[int, ...] | None
    out = node.outputs[0]
    if name.startswith("ElementWise") or name in _ELEMENTWISE:
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
        lost = None if params["keep_dims"] else (axis,)
        return Flexible(rank, (0,), (), lambda p: {**params, "axis": p.index(axis)}, lost)
    if name.startswith("Reduce") or name == "L2Norm":
        axes = tuple(a % rank for a in params["axes"])
        lost = None if params.get("keep_dims", True) else axes
        return Flexible(rank, (0,), (), lambda p: {**params, "axes": tuple(sorted(map(p.index, axes)))}, lost)
    if name in ("Pad", "Tile"):
        key = "pad_amount" if name == "Pad" else "multiples"
        return Flexible(rank, (0,), (), lambda p: {**params, key: tuple(params[key][a] for a in p)})
    if name == "StridedSlice" and not params["new_axes_mask"]:
        lost = tuple(a for a in range(rank) if params["shrink_axes"] >> a & 1) or None
        return Flexible(rank, (0,), (), lambda p: _sliced(params, p), lost)
    return None


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
