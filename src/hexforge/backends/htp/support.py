# SPDX-License-Identifier: Apache-2.0
"""What HTP takes: limits and data types per op and architecture, each with who says so and what would work instead.

Two tables: `RULES`, what is refused of ops and tensors, and `WEIGHTED`, which data types the two operands of products
and normalizations may have. Where the sources are silent, HTP takes it. Sources, by the words used here:
- EP: the QNN execution provider: its documentation, its op builders' checks and the targets its tests ask for
- guide: the HTP chapter of the QNN SDK's documentation
- ExecuTorch: its Qualcomm backend's documentation
- measured: the latency measurements, which models ran on which chips; what the vendor's library answers on x86
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from hexforge.chips.soc import A16W16_ARCH, SESSION_BYTES, ChipTarget
from hexforge.errors import CapacityError
from hexforge.ir import AxisScaleOffset, DType, Graph, Node, ScaleOffset, TensorType, Value, Work
from hexforge.ops.packages import custom_named
from hexforge.rules import Rule, RuleTable

MAX_RANK = 5
INT16_WEIGHTS = (-0x8000, 0x7F7F)
"""guide: what the hardware takes of int16 weights."""

Check = Callable[[Node, ChipTarget], str | None]
"""What is refused and what would work, or None."""


@dataclass(frozen=True, slots=True)
class NodeOnChip:
    """What the rules judge."""

    node: Node
    target: ChipTarget


def unsupported(node: Node, target: ChipTarget) -> str | None:
    """Why HTP refuses the node, and what would work; None if it takes it."""
    custom = custom_named(node.op.name)
    if custom is not None and "HTP" not in custom.targets:
        return f"its op package {custom.package!r} is registered for the CPU only; register it with the target HTP"
    refused = RULES.refusal(node.op.name, NodeOnChip(node, target))
    return None if refused is None else refused[1]


def traits(target: ChipTarget) -> tuple[object, ...]:
    """All that the rules look at of a chip but its name: chips of the same traits take the same nodes."""
    operands = tuple(target.arch >= row.since for row in WEIGHTED)
    return operands, target.float16, target.bfloat16, target.bfloat16_math


def columns(op: str) -> tuple[bool, bool]:
    """Whether HTP has the op of fixed point or integers (QNN's column HTP), and of floats (its column HTP_FP16)."""
    absent = op in NOT_ON_HTP
    return not absent and op not in FLOAT_ONLY, not absent and op not in FIXED_ONLY


def require_fit(graph: Graph) -> int:
    """The bytes of a graph's constants; CapacityError where they do not fit one session's address space."""
    size = sum(v.type.nbytes for v in graph.values.values() if v.data is not None)
    if size > SESSION_BYTES:
        raise CapacityError(
            f"graph {graph.name}: its constants have {size / 2**30:.2f} GB, an HTP session takes "
            f"{SESSION_BYTES / 2**30:.2f} GB; split the model, or give its weights fewer bits"
        )
    return size


# -- rules of tensors -----------------------------------------------------------------------------------------------


def _tensors(check: Callable[[Value, ChipTarget], str | None]) -> Check:
    """The first tensor of a node that is refused."""

    def every(node: Node, target: ChipTarget) -> str | None:
        for value in (*node.inputs, *node.outputs):
            if value is not None and (reason := check(value, target)) is not None:
                return reason
        return None

    return every


def _rank(value: Value, target: ChipTarget) -> str | None:
    if len(value.shape) <= MAX_RANK:
        return None
    return f"tensor {value.name!r} has {len(value.shape)} dimensions, HTP takes at most {MAX_RANK}; merge two of them"


def _bytes(value: Value, target: ChipTarget) -> str | None:
    if value.type.nbytes <= SESSION_BYTES:
        return None
    return f"tensor {value.name!r} has {value.type.nbytes} bytes, an HTP session takes {SESSION_BYTES}; split it"


def _float16(node: Node, target: ChipTarget) -> str | None:
    if target.float16 or node.op.kind is Work.CONVERT:
        return None
    for value in (*node.inputs, *node.outputs):
        if value is not None and _kind(value.type) == "float" and value.data is None:
            return f"{target.name} has no float math; quantize {value.name!r} to 8 or 16 bits"
    return None


def _bfloat16(value: Value, target: ChipTarget) -> str | None:
    if value.dtype is not DType.BFLOAT16 or target.bfloat16:
        return None
    return f"tensor {value.name!r} is bfloat16, which needs v81 and soc_model 88, this is {target.name}; use float16"


def _integers(value: Value, target: ChipTarget) -> str | None:
    if value.dtype is DType.UINT64:
        return f"tensor {value.name!r} is uint64, which HTP has no ops for; use int32"
    if value.dtype is DType.INT64 and value.data is not None and value.data.size:
        low, high = DType.INT32.range
        if value.data.min() < low or value.data.max() > high:
            return f"constant {value.name!r} has numbers beyond int32, which HTP holds int64 in; use smaller ones"
    return None


def _activation(value: Value, target: ChipTarget) -> str | None:
    if value.data is not None or value.encoding is None:
        return None
    if not isinstance(value.encoding, ScaleOffset):
        return f"tensor {value.name!r}: HTP activations have one scale; only constant weights may have more"
    if _bits(value.type) < 8 or value.dtype.bits > 32:
        return f"tensor {value.name!r} is fixed-point {value.dtype.value}; HTP activations have 8 or 16 bits"
    return None


# -- rules of ops ---------------------------------------------------------------------------------------------------


def _never(works: str) -> Check:
    return lambda node, target: f"HTP has no {node.op.name}; {works}"


def _ranks(most: int, works: str) -> Check:
    def check(node: Node, target: ChipTarget) -> str | None:
        rank = len(node.call.input(0).shape)
        return f"{rank} dimensions, HTP takes {most}; {works}" if rank > most else None

    return check


def _is_inf(node: Node, target: ChipTarget) -> str | None:
    dtype = node.call.input(0).dtype
    if dtype is DType.FLOAT16:
        return None
    return f"HTP has no IsInf of {dtype.value}; cast it to float16, compare with a finite bound, or leave it to the CPU"


def _inverse(node: Node, target: ChipTarget) -> str | None:
    if node.call.input(0).shape[-2:] == (2, 2):
        return None
    return "HTP inverts matrices of 2 x 2; leave it to the CPU"


def _last_axes(node: Node, target: ChipTarget) -> str | None:
    rank = len(node.call.input(0).shape)
    axes = sorted(a % rank for a in node.params["axes"])
    if axes == list(range(rank - len(axes), rank)):
        return None
    return f"axes {axes} of {rank} dimensions, HTP normalizes the last ones; transpose them there"


def _reductions(most: int) -> Check:
    def check(node: Node, target: ChipTarget) -> str | None:
        reduction = int(node.params["reduction"])
        if reduction <= most:
            return None
        names = {number: name for name, number in node.op.params[-1].choices.items()}
        taken = ", ".join(names[i].lower() for i in range(most + 1))
        return f"reduction {names[reduction].lower()}, HTP has {taken}; leave it to the CPU"

    return check


def _bfloat16_resize(node: Node, target: ChipTarget) -> str | None:
    narrow = (DType.BFLOAT16, DType.FLOAT32) if target.bfloat16_math else (DType.BFLOAT16,)
    if node.call.input(0).dtype not in narrow or node.params["interpolation_mode"] == 1:
        return None
    return "bfloat16 is resized linearly only; use float16, or interpolation mode linear"


# -- products and normalizations: data types of two operands --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weighted:
    """Data types that inputs 0 and 1 of some ops may have together, and from which architecture on."""

    ops: str
    data: str
    weight: str
    source: str
    since: int = 68


_CONV = "Conv2d Conv3d DepthWiseConv2d TransposeConv2d TransposeConv3d"
_PRODUCT = f"{_CONV} FullyConnected MatMul"
_NORM = "Batchnorm LayerNorm"

WEIGHTED: tuple[Weighted, ...] = (
    Weighted(f"{_PRODUCT} {_NORM}", "8-bit", "8-bit", "EP, guide"),
    Weighted(f"{_PRODUCT} {_NORM}", "16-bit", "8-bit", "EP, guide"),
    Weighted(_PRODUCT, "8-bit", "4-bit", "EP, ExecuTorch"),
    Weighted(_PRODUCT, "16-bit", "4-bit", "EP, ExecuTorch"),
    Weighted(_PRODUCT, "16-bit", "2-bit", "ExecuTorch: 16a2w"),
    Weighted("MatMul", "8-bit", "16-bit", "EP"),
    Weighted("Conv2d DepthWiseConv2d TransposeConv2d FullyConnected MatMul Batchnorm LayerNorm", "16-bit", "16-bit",
             "guide: A16W16; EP: from v73", A16W16_ARCH),
    Weighted(f"{_PRODUCT} {_NORM}", "float", "float", "guide"),
    Weighted(_PRODUCT, "float", "8-bit", "ExecuTorch: fp16a8w"),
    Weighted(_PRODUCT, "float", "4-bit", "EP: MatMulNBits"),
    Weighted(_PRODUCT, "float", "2-bit", "EP: MatMulNBits"),
    Weighted(f"{_PRODUCT} {_NORM}", "bfloat16", "bfloat16", "EP", 81),
    # the EP gives float constants beside fixed point an encoding itself
    Weighted(_NORM, "8-bit", "float", "EP"),
    Weighted(_NORM, "16-bit", "float", "EP"),
)  # fmt: skip
"""Pairs of operands, data first. What is not here is refused for the ops that are."""


@functools.cache
def _operands_of(op: str) -> tuple[Weighted, ...]:
    return tuple(row for row in WEIGHTED if op in row.ops.split())


def _pair(node: Node) -> tuple[Value, Value, str, str] | None:
    """Data and weight, and what kinds of numbers they are; None where there are not both, or both are integers."""
    if len(node.inputs) < 2:
        return None
    data, weight = node.inputs[0], node.inputs[1]
    if data is None or weight is None:
        return None
    kinds = _kind(data.type), _kind(weight.type)
    return None if kinds == ("integer", "integer") else (data, weight, *kinds)


def _no_pair(node: Node, target: ChipTarget) -> str | None:
    if (pair := _pair(node)) is None:
        return None
    data, weight, of_data, of_weight = pair
    rows = _operands_of(node.op.name)
    if any((row.data, row.weight) == (of_data, of_weight) for row in rows):
        return None
    taken = ", ".join(f"{row.data} by {row.weight}" for row in rows if row.data == of_data)
    works = f"with {of_data} data it takes {taken}" if taken else f"quantize {data.name!r} to 8 or 16 bits"
    return f"{data.name!r} is {of_data} and {weight.name!r} {of_weight}; {works}"


def _too_new(node: Node, target: ChipTarget) -> str | None:
    if (pair := _pair(node)) is None:
        return None
    data, weight, of_data, of_weight = pair
    rows = [row for row in _operands_of(node.op.name) if (row.data, row.weight) == (of_data, of_weight)]
    if not rows or target.arch >= (since := min(row.since for row in rows)):
        return None
    return (
        f"{of_data} {data.name!r} by {of_weight} {weight.name!r} needs v{since}, this is {target.name}; "
        f"quantize {weight.name!r} to 8 bits"
    )


def _float_result(node: Node, target: ChipTarget) -> str | None:
    if (pair := _pair(node)) is None or pair[0].encoding is None or node.outputs[0].encoding is not None:
        return None
    return f"its output {node.outputs[0].name!r} is float but its input is fixed point; quantize the output"


def _int16_weight(node: Node) -> Value | None:
    """The constant int16 weight of a node, if it has one; the guide has rules for those of A16W16."""
    weight = pair[1] if (pair := _pair(node)) is not None else None
    return weight if weight is not None and weight.data is not None and weight.dtype is DType.INT16 else None


def _int16_offsets(node: Node, target: ChipTarget) -> str | None:
    if (weight := _int16_weight(node)) is None:
        return None
    encoding = weight.encoding
    offsets = (
        (encoding.offset,) if isinstance(encoding, ScaleOffset)
        else encoding.offsets if isinstance(encoding, AxisScaleOffset) else ()
    )  # fmt: skip
    return f"int16 weights {weight.name!r} have a zero point; quantize them symmetrically" if any(offsets) else None


def _int16_range(node: Node, target: ChipTarget) -> str | None:
    if (weight := _int16_weight(node)) is None or weight.data is None or not weight.data.size:
        return None
    low, high = INT16_WEIGHTS
    if (most := int(weight.data.max())) <= high:
        return None
    return (
        f"int16 weights {weight.name!r} go up to {most}, HTP takes {low} to {high} (-0x8000 to 0x7F7F); "
        "make their scale a little larger"
    )


def _bits(type: TensorType) -> int:
    return getattr(type.encoding, "bitwidth", 0) or type.dtype.bits


def _kind(type: TensorType) -> str:
    """A tensor type in the words of the table."""
    if type.encoding is not None:
        return f"{_bits(type)}-bit"
    if type.dtype is DType.BFLOAT16:
        return "bfloat16"
    return "float" if type.dtype.is_float else "integer"


# -- the table ------------------------------------------------------------------------------------------------------


def _rule(ops: str, reason: str, evidence: str, check: Check) -> Rule[NodeOnChip]:
    return Rule.of(ops, lambda subject: check(subject.node, subject.target), reason, evidence, "HTP")


NOT_ON_HTP = frozenset(("ReduceProd", "PoolMax3d"))
"""Ops that HTP has for no data type."""
FLOAT_ONLY = frozenset(("IsInf", "IsNan"))
"""Ops that ask what only floats can be."""
FIXED_ONLY = frozenset(("Convert", "MaskedSoftmax"))
"""Ops between encodings, and (guide) one of 8 and 16 bits."""
_LOG_SUM = "use Log, ReduceSum and Exp, or leave it to the CPU"
_SLICES = "pool each depth slice, or leave it to the CPU"
_WEIGHTED = " ".join(dict.fromkeys(op for row in WEIGHTED for op in row.ops.split()))

RULES: RuleTable[NodeOnChip] = RuleTable((
    _rule("ReduceProd", f"not on HTP; {_LOG_SUM}", "EP", _never(_LOG_SUM)),
    _rule("PoolMax3d", f"not on HTP; {_SLICES}", "EP", _never(_SLICES)),
    _rule("IsInf", "other than of float16; cast it, compare with a finite bound, or leave it to the CPU",
          "EP: not on HTP; ExecuTorch: of float16", _is_inf),
    _rule("Inverse", "matrices other than 2 x 2; leave them to the CPU", "EP", _inverse),
    _rule("*", "tensors of more than 5 dimensions; merge two of them", "EP", _tensors(_rank)),
    _rule("*", "tensors of more than 3.75 GB; split them", "guide", _tensors(_bytes)),
    _rule("*", "uint64, and int64 constants beyond int32; use int32", "EP: int64 is cast to int32",
          _tensors(_integers)),
    _rule("*", "run-time fixed point of several scales, or of other than 8, 16 or (a bias) 32 bits; quantize it to 8 "
          "or 16 bits with one scale", "EP, guide", _tensors(_activation)),
    _rule("*", "bfloat16 before v81 with soc_model 88; use float16", "EP", _tensors(_bfloat16)),
    _rule("*", "float math on chips that the vendor's library refuses it for (soc.py); quantize it to 8 or 16 bits",
          "guide: select SoCs; measured", _float16),
    _rule("Resize", "bfloat16 but for linear interpolation; use float16, or linear", "EP", _bfloat16_resize),
    _rule("Batchnorm", "more than 4 dimensions; reshape it, or fold it into a convolution", "EP",
          _ranks(4, "reshape it, or fold it into a convolution")),
    _rule("InstanceNorm Lrn RmsNorm", "more than 4 dimensions; merge two of them", "EP",
          _ranks(4, "merge two of them")),
    _rule("LayerNorm RmsNorm", "axes other than the last ones; transpose them there", "EP", _last_axes),
    _rule("ScatterElements", "a reduction but for add, mul and max; leave it to the CPU", "EP", _reductions(3)),
    _rule("ScatterNd", "a reduction but for add and mul; leave it to the CPU", "EP", _reductions(2)),
    _rule(_WEIGHTED, "data types of data and weights that are no pair of the table; quantize them to one",
          "EP, guide, ExecuTorch", _no_pair),
    _rule(_WEIGHTED, "a pair of data types on an older chip than the table has it for; quantize weights to 8 bits",
          "EP, guide", _too_new),
    _rule(_WEIGHTED, "fixed-point data with a float result; quantize the output", "EP", _float_result),
    _rule(_WEIGHTED, "int16 weights with a zero point; quantize them symmetrically", "guide: A16W16", _int16_offsets),
    _rule(_WEIGHTED, "int16 weights above 0x7F7F; make their scale a little larger", "guide: A16W16", _int16_range),
))  # fmt: skip
"""Limits of tensors and ops; the first that is broken is the reason."""
