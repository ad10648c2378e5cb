# SPDX-License-Identifier: Apache-2.0
"""What HTP takes: limits and data types per op and architecture, each with who says so and what would work instead.

Two tables: `RULES`, limits of ops and tensors, and `WEIGHTED`, which data types the two operands of products and
normalizations may have. Where the sources are silent, HTP takes it. Sources, by the words used here:
- EP: the QNN execution provider: its documentation, its op builders' checks and the targets its tests ask for
- guide: the HTP chapter of the QNN SDK's documentation
- ExecuTorch: its Qualcomm backend's documentation
- measured: the latency measurements, which models ran on which chips; what the vendor's library answers on x86
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from hexforge.chips.soc import SESSION_BYTES, ChipTarget
from hexforge.errors import CapacityError
from hexforge.ir import (
    AxisScaleOffset,
    DType,
    Graph,
    Node,
    ScaleOffset,
    TensorType,
    Value,
    Work,
)
from hexforge.ops.packages import custom_named

MAX_RANK = 5
INT16_WEIGHTS = (-0x8000, 0x7F7F)
"""guide: what the hardware takes of int16 weights."""

Check = Callable[[Node, ChipTarget], str | None]
"""What is refused and what would work, or None."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit of some ops (of every op where none is named)."""

    ops: str
    limit: str
    source: str
    check: Check

    def applies(self, op: str) -> bool:
        """True where the limit is one of the op."""
        return not self.ops or op in self.ops.split()


def unsupported(node: Node, target: ChipTarget) -> str | None:
    """Why HTP refuses the node, and what would work; None if it takes it."""
    custom = custom_named(node.op.name)
    if custom is not None and "HTP" not in custom.targets:
        return f"its op package {custom.package!r} is registered for the CPU only; register it with the target HTP"
    for rule in _rules_of(node.op.name):
        if (reason := rule.check(node, target)) is not None:
            return reason
    return _weighted(node, target)


@functools.cache
def _rules_of(op: str) -> tuple[Limit, ...]:
    return tuple(rule for rule in RULES if rule.applies(op))


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


RULES: tuple[Limit, ...] = (
    Limit("ReduceProd", "not on HTP", "EP", _never("use Log, ReduceSum and Exp, or leave it to the CPU")),
    Limit("PoolMax3d", "not on HTP", "EP", _never("pool each depth slice, or leave it to the CPU")),
    Limit("IsInf", "float16 only", "EP: not on HTP; ExecuTorch: of float16", _is_inf),
    Limit("Inverse", "matrices of 2 x 2", "EP", _inverse),
    Limit("", "tensors of at most 5 dimensions", "EP", _tensors(_rank)),
    Limit("", "tensors of at most 3.75 GB", "guide", _tensors(_bytes)),
    Limit("", "no uint64; int64 constants within int32", "EP: int64 is cast to int32", _tensors(_integers)),
    Limit("", "run-time fixed point has one scale and 8, 16 or (a bias) 32 bits", "EP, guide", _tensors(_activation)),
    Limit("", "bfloat16 on v81 with soc_model 88 and newer", "EP", _tensors(_bfloat16)),
    Limit(
        "",
        "float math, which is float16; not on chips that the vendor's library refuses it for (soc.py)",
        "guide: select SoCs; measured",
        _float16,
    ),
    Limit("Resize", "bfloat16 linear only", "EP", _bfloat16_resize),
    Limit("Batchnorm", "at most 4 dimensions", "EP", _ranks(4, "reshape it, or fold it into a convolution")),
    Limit("InstanceNorm Lrn RmsNorm", "at most 4 dimensions", "EP", _ranks(4, "merge two of them")),
    Limit("LayerNorm RmsNorm", "the last axes", "EP", _last_axes),
    Limit("ScatterElements", "reduction none, add, mul or max", "EP", _reductions(3)),
    Limit("ScatterNd", "reduction none, add or mul", "EP", _reductions(2)),
)
"""Limits of tensors and ops; the first that is broken is the reason."""


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
             "guide: A16W16; EP: from v73", 73),
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


def _weighted(node: Node, target: ChipTarget) -> str | None:
    rows = _operands_of(node.op.name)
    if not rows or len(node.inputs) < 2:
        return None
    data, weight, out = node.inputs[0], node.inputs[1], node.outputs[0]
    if data is None or weight is None:
        return None
    pair = (_kind(data.type), _kind(weight.type))
    if all(kind == "integer" for kind in pair):
        return None
    fitting = [row for row in rows if (row.data, row.weight) == pair]
    if not fitting:
        taken = ", ".join(f"{row.data} by {row.weight}" for row in rows if row.data == pair[0])
        works = f"with {pair[0]} data it takes {taken}" if taken else f"quantize {data.name!r} to 8 or 16 bits"
        return f"{data.name!r} is {pair[0]} and {weight.name!r} {pair[1]}; {works}"
    if target.arch < (since := min(row.since for row in fitting)):
        return (
            f"{pair[0]} {data.name!r} by {pair[1]} {weight.name!r} needs v{since}, this is {target.name}; "
            f"quantize {weight.name!r} to 8 bits"
        )
    if data.encoding is not None and out.encoding is None:
        return f"its output {out.name!r} is float but its input is fixed point; quantize the output"
    return _int16_weight(weight)


def _int16_weight(weight: Value) -> str | None:
    """What the guide says of A16W16 weights: symmetric, and not the whole range."""
    if weight.data is None or weight.dtype is not DType.INT16:
        return None
    encoding = weight.encoding
    offsets = (
        (encoding.offset,) if isinstance(encoding, ScaleOffset)
        else encoding.offsets if isinstance(encoding, AxisScaleOffset) else ()
    )  # fmt: skip
    if any(offsets):
        return f"int16 weights {weight.name!r} have a zero point; quantize them symmetrically"
    low, high = INT16_WEIGHTS
    if weight.data.size and int(weight.data.max()) > high:
        most = int(weight.data.max())
        return (
            f"int16 weights {weight.name!r} go up to {most}, HTP takes {low} to {high} (-0x8000 to 0x7F7F); "
            "make their scale a little larger"
        )
    return None


def _bits(type: TensorType) -> int:
    return getattr(type.encoding, "bitwidth", 0) or type.dtype.bits


def _kind(type: TensorType) -> str:
    """A tensor type in the words of the table."""
    if type.encoding is not None:
        return f"{_bits(type)}-bit"
    if type.dtype is DType.BFLOAT16:
        return "bfloat16"
    return "float" if type.dtype.is_float else "integer"
