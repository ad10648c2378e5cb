# SPDX-License-Identifier: Apache-2.0
"""MaskedSoftmax: an attention's Softmax of scores that a mask chooses, as one op.

HTP's guide has it for uint8 and uint16 scores in three structures, which differ in the mask alone:

    scores ─┬─ ReduceMin ─ Add(B), B <= -20 ─┐
            └──────────────────────────── Where ─ Softmax
    A: uint16 mask, Equal(mask, 0): kept where it is zero    B: uint16 mask, NotEqual(mask, 0)    C: uint8 mask itself

What the mask keeps is a Softmax of its own, read before Where's encoding loses anything; all else is exactly 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.ir import DType, Graph, Node, Role, ScaleOffset, Value
from hexforge.ir.fixed_point import dequantize

LARGEST_B = -20.0
ROUNDING = 1e-6
"""How far a constant may be from -20 because its scale is a float32."""
SCORES = (DType.UINT8, DType.UINT16)
_STRUCTURE = "Where(condition, scores, Add(ReduceMin(scores), B)) with B <= -20"


class _NoMatchError(Exception):
    """Why a Softmax is not of one of the three structures, and what would work."""


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """What a Softmax of one of the three structures reads."""

    scores: Value
    mask: Value
    keeps_zeros: bool
    nodes: tuple[Node, ...]
    """The nodes that the one op stands for, in reverse order, the Softmax first."""


def fuse_masked_softmax(graph: Graph) -> int:
    """Write each Softmax of one of the three structures as MaskedSoftmax."""
    changes = 0
    for node in list(graph):
        if node.op.name != "Softmax":
            continue
        try:
            attention = match(node)
        except _NoMatchError:
            continue
        if attention is None:
            continue
        source = tuple(dict.fromkeys(name for n in reversed(attention.nodes) for name in n.source))
        params = {"axis": node.params["axis"], "beta": node.params["beta"], "keep": int(not attention.keeps_zeros)}
        name, outputs = node.name, list(node.outputs)
        graph.remove(node)
        graph.node("MaskedSoftmax", [attention.scores, attention.mask], outputs, name=name, source=source, **params)
        _remove_unread(graph, attention.nodes[1:])
        changes += 1
    if changes:
        graph.sort()
    return changes


def why_not_fused(node: Node) -> str | None:
    """Why an attention's Softmax is not fused with its mask, and what would work; None where it is, or has no mask."""
    if node.op.name != "Softmax":
        return None
    try:
        match(node)
    except _NoMatchError as reason:
        return f"is not fused into MaskedSoftmax: {reason}"
    return None


def match(node: Node) -> MaskedScores | None:
    """The scores and the mask of a Softmax; None where it has no mask, _NoMatchError where its structure is another."""
    reads = node.inputs[0]
    chooses = reads.producer if reads is not None else None
    if reads is None or chooses is None:
        return None
    if chooses.op.name == "ElementWiseAdd":
        _refuse_added_mask(chooses)
        return None
    if chooses.op.name != "ElementWiseSelect":
        return None
    condition, scores, far = chooses.inputs
    assert condition is not None
    assert scores is not None
    assert far is not None
    if scores.is_static:
        raise _NoMatchError("Where keeps the scores where its condition is false; swap its operands and use NotEqual")
    if scores.dtype not in SCORES or not isinstance(scores.encoding, ScaleOffset):
        raise _NoMatchError(f"its scores are {scores.type.with_shape(())}; quantize them to uint8 or uint16")
    if node.outputs[0].dtype is not scores.dtype:
        raise _NoMatchError(f"its scores are {scores.dtype.value}, its result {node.outputs[0].dtype.value}; use one")
    if scores.shape != reads.shape:
        raise _NoMatchError("Where broadcasts the scores; only the mask may be smaller")
    if reads.role is not Role.NATIVE or sum(reads.users.values()) != 1:
        raise _NoMatchError("what Where gives is read elsewhere, too")
    low = _far_below(node, scores, far)
    mask, keeps_zeros, between = _mask(condition)
    if mask.shape[-1:] != scores.shape[-1:]:
        raise _NoMatchError(f"a mask {list(mask.shape)} has not an entry for each of {scores.shape[-1]} scores")
    return MaskedScores(scores, mask, keeps_zeros, (node, chooses, *low, *between))


def _refuse_added_mask(node: Node) -> None:
    """_NoMatchError for scores to which a mask of as many columns is added."""
    first, second = (v for v in node.inputs if v is not None)
    for scores, mask in ((first, second), (second, first)):
        product = _before_scaling(scores)
        added = product is not None and product.op.name == "MatMul" and not _comes_from_product(mask)
        if added and not mask.is_static and mask.shape[-1:] == node.outputs[0].shape[-1:]:
            raise _NoMatchError(f"its mask {mask.name!r} is added; write {_STRUCTURE}")


def _before_scaling(value: Value) -> Node | None:
    node = value.producer
    while node is not None and node.op.name in ("ElementWiseMultiply", "ElementWiseDivide", "Reshape", "Convert"):
        node = node.inputs[0].producer if node.inputs[0] is not None else None
    return node


def _comes_from_product(value: Value) -> bool:
    node = _before_scaling(value)
    return node is not None and node.op.name == "MatMul"


def _far_below(softmax: Node, scores: Value, far: Value) -> tuple[Node, ...]:
    """Add and ReduceMin, which make what is so far below all scores that its exponential is nothing."""
    add = far.producer
    if add is None or add.op.name != "ElementWiseAdd":
        raise _NoMatchError(f"Where puts {far.name!r} in place of masked scores; write {_STRUCTURE}")
    constants = [v for v in add.inputs if v is not None and v.data is not None]
    lowest = [v for v in add.inputs if v is not None and v.data is None]
    if len(constants) != 1 or len(lowest) != 1 or constants[0].type.size != 1:
        raise _NoMatchError(f"Where puts {far.name!r} in place of masked scores; write {_STRUCTURE}")
    reduce = lowest[0].producer
    axis = int(softmax.params["axis"]) % len(scores.shape)
    along = () if reduce is None else tuple(int(a) % len(scores.shape) for a in reduce.params.get("axes", ()))
    if reduce is None or reduce.op.name != "ReduceMin" or reduce.inputs[0] is not scores or axis not in along:
        raise _NoMatchError(f"{lowest[0].name!r} is not the least score of each row; write {_STRUCTURE}")
    if not reduce.params["keep_dims"] and len(along) != len(scores.shape):
        raise _NoMatchError("ReduceMin drops the axis it reduces; set keepdims")
    constant = constants[0]
    assert constant.data is not None
    number = dequantize(constant.data, constant.type) if constant.encoding is not None else constant.data
    value = float(number.ravel()[0])
    if value > LARGEST_B * (1 - ROUNDING):
        raise _NoMatchError(f"B is {value:g}; it must be -20 or less")
    return add, reduce


def _mask(condition: Value) -> tuple[Value, bool, tuple[Node, ...]]:
    """The mask that a condition is made of, whether it keeps zeros, and the nodes between."""
    keeps_zeros, between, value = False, [], condition
    node = value.producer
    while node is not None and node.op.name in ("ElementWiseNot", "Reshape", "Cast"):
        if node.op.name == "Reshape" or node.inputs[0] is None:
            raise _NoMatchError("its mask is reshaped after it is compared; reshape the mask itself")
        if node.op.name == "Cast" and not _is_mask(node.inputs[0]):
            break
        keeps_zeros ^= node.op.name == "ElementWiseNot"
        between.append(node)
        value = node.inputs[0]
        node = value.producer
    if _is_mask(value) and (node is None or node.op.name not in ("ElementWiseEqual", "ElementWiseNotEqual")):
        return value, keeps_zeros, tuple(between)
    if node is None or node.op.name not in ("ElementWiseEqual", "ElementWiseNotEqual"):
        made = "an input" if node is None else f"the result of {node.op.name}"
        raise _NoMatchError(
            f"its condition is {made}, {value.type.with_shape(())}; use Equal or NotEqual of a uint16 mask and 0, or "
            "a uint8 mask"
        )
    mask, zero = _compared(node)
    if not _is_mask(mask):
        raise _NoMatchError(f"its mask {mask.name!r} is {mask.type.with_shape(())}; quantize it to uint8 or uint16")
    if zero is None:
        raise _NoMatchError(f"its mask {mask.name!r} is not compared with 0")
    return mask, keeps_zeros ^ (node.op.name == "ElementWiseEqual"), (*between, node)


def _compared(node: Node) -> tuple[Value, Value | None]:
    """The mask, and what it is compared with where that is 0."""
    first, second = node.operands(2)
    mask, other = (second, first) if first.data is not None else (first, second)
    if other.data is None or other.type.size != 1:
        return mask, None
    real = dequantize(other.data, other.type) if other.encoding is not None else other.data
    return mask, other if not real.any() else None


def _is_mask(value: Value) -> bool:
    """True for integers that the op reads as they are: uint8 and uint16, fixed point or plain, and booleans."""
    fixed = value.encoding is None or isinstance(value.encoding, ScaleOffset)
    return value.dtype in (DType.BOOL, *SCORES) and fixed


def _remove_unread(graph: Graph, nodes: tuple[Node, ...]) -> None:
    """Remove nodes that nothing reads any more, those that read others first."""
    for node in nodes:
        if all(v.role is Role.NATIVE and not v.users for v in node.outputs):
            outputs, constants = list(node.outputs), {v for v in node.inputs if v is not None and v.is_static}
            graph.remove(node)
            for value in (*outputs, *(v for v in constants if not v.users)):
                graph.remove_value(value)
