# SPDX-License-Identifier: Apache-2.0
"""Support: which nodes the gpu backend takes, and why not the others, each rule with how it is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hexforge.addons.gpu.kernels import pointwise
from hexforge.addons.gpu.kernels.code import C_TYPES
from hexforge.addons.gpu.kernels.element import GATHERS, MAPS
from hexforge.addons.gpu.kernels.moves import MOVES
from hexforge.addons.gpu.kernels.products.recurrent import MOST_LOCAL_BYTES, LstmShape
from hexforge.addons.gpu.qnn_ops import EXCLUDED, SOURCES
from hexforge.ir import Block, DType, Node, ScaleOffset, Value
from hexforge.rules import Rule, RuleTable

_PRODUCTS = ("Conv2d", "Conv3d", "TransposeConv2d", "TransposeConv3d", "DepthWiseConv2d", "FullyConnected", "MatMul")
_FLOAT_ONLY = (
    *_PRODUCTS, "PoolAvg2d", "PoolAvg3d", "L2Pool2d", "Lrn", "Softmax", "LogSoftmax", "LayerNorm", "RmsNorm", "L2Norm",
    "InstanceNorm", "GroupNorm", "GridSample", "Batchnorm", "Lstm", "RoiAlign",
)  # fmt: skip
_ANY = (
    "PoolMax2d", "PoolMax3d", "Argmax", "Argmin", "CumulativeSum", "Resize", "ResizeBilinear", "ResizeNearestNeighbor",
    "ScatterElements", "ScatterNd", "TopK", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum",
    "ReduceSumSquare",
)  # fmt: skip
KNOWN = frozenset({*MAPS, *_FLOAT_ONLY, *_ANY})
_MOVING = frozenset({*MOVES, *GATHERS, "Concat", "Pack", "Pad", "Cast"})
_ELEMENT_WISE = frozenset(name for name in KNOWN if name.startswith("ElementWise"))
_FLOAT_POINTWISE = {*_ELEMENT_WISE, *pointwise.FLOAT} - {*pointwise.INTEGER, *pointwise.PREDICATE, "ElementWiseSelect"}
_MOST = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class GpuNode:
    """What the rules judge."""

    node: Node
    beyond_qnn: bool = False
    """Whether ops are taken that QNN's GPU has not, where there is a kernel here."""


def unsupported(node: Node, beyond_qnn: bool = False) -> str | None:
    """Why the backend refuses a node and what would work, or None.

    With `beyond_qnn` it takes ops that QNN's GPU has not, where it has a kernel.
    """
    refused = RULES.refusal(node.op.name, GpuNode(node, beyond_qnn))
    return None if refused is None else refused[1]


# -- ops --------------------------------------------------------------------------------------------------------------


def _not_on_qnn(subject: GpuNode) -> str | None:
    name = subject.node.op.name
    if name in SOURCES or (subject.beyond_qnn and name in KNOWN):
        return None
    other = "gpu_ops=any runs it here with a kernel of our own" if name in KNOWN else "it runs on the CPU"
    return f"QNN's GPU has no {name}; {other}"


def _no_kernel(subject: GpuNode) -> str | None:
    name = subject.node.op.name
    return None if name in KNOWN else f"the gpu backend has no kernel for {name}; it runs on the CPU"


# -- tensors ----------------------------------------------------------------------------------------------------------


def _tensors(node: Node) -> list[Value]:
    return [v for v in (*node.inputs, *node.outputs) if v is not None]


def _each(check: Callable[[Node, Value], str | None]) -> Callable[[GpuNode], str | None]:
    """The first tensor of a node that is refused."""

    def every(subject: GpuNode) -> str | None:
        reasons = (check(subject.node, value) for value in _tensors(subject.node))
        return next((reason for reason in reasons if reason is not None), None)

    return every


def _encoded(node: Node, value: Value) -> str | None:
    if value.encoding is None or _block_weight(node, value) or _dequantized(node, value):
        return None
    return (
        f"{value.type.qnn_dtype} tensor; QNN's GPU takes float models, 4-bit weights in blocks of 32, and "
        "Dequantize of up to 8 bits with one scale"
    )


def _unknown_type(node: Node, value: Value) -> str | None:
    if value.dtype in C_TYPES:
        return None
    return f"{value.dtype.value} tensor, which QNN's GPU has not; use float32, float16, bool, int64 or shorter"


def _too_large(node: Node, value: Value) -> str | None:
    if value.type.size <= _MOST:
        return None
    return f"a tensor of {value.type.size} elements; the gpu backend counts them in 32 bits"


def _half_bytes(node: Node, value: Value) -> str | None:
    name = node.op.name
    moved = name in GATHERS or name in _MOVING or name.startswith("ElementWise")
    if moved or value.dtype.bits != 4 or value.encoding is not None:
        return None
    return f"{value.dtype.value} tensor; the gpu backend only looks such elements up"


# -- data types and parameters ----------------------------------------------------------------------------------------


def _first(subject: GpuNode) -> Value:
    return _tensors(subject.node)[0]


def _not_float(subject: GpuNode) -> str | None:
    dtype = _first(subject).dtype
    return None if dtype.is_float else f"{subject.node.op.name} of {dtype.value}; QNN's GPU computes it in float"


def _neuron(subject: GpuNode) -> str | None:
    operation = subject.node.params["operation"]
    if not _first(subject).dtype.is_float or operation in (0, 2, 7):
        return None
    return f"ElementWiseNeuron operation {operation} has an op of its own"


def _interpolated(subject: GpuNode) -> str | None:
    node, dtype = subject.node, _first(subject).dtype
    if dtype.is_float or not node.params.get("interpolation_mode", 1):
        return None
    return f"{node.op.name} of {dtype.value}; the gpu backend interpolates floats"


def _grid(subject: GpuNode) -> str | None:
    rank = len(_first(subject).shape)
    return None if rank == 4 else f"GridSample of {rank} dimensions; QNN's GPU samples images of 4"


def _lstm_inputs(subject: GpuNode) -> bool:
    return any(n.startswith("norm_") or n == "reset" for n in LstmShape.of(subject.node).given)


def _lstm_size(subject: GpuNode) -> str | None:
    lstm = LstmShape.of(subject.node)
    if lstm.local_bytes <= MOST_LOCAL_BYTES:
        return None
    return f"an Lstm of {lstm.units} units; its states and gates must fit into {MOST_LOCAL_BYTES >> 10} KiB"


def _dequantized(node: Node, value: Value) -> bool:
    """Whether a value is what QNN's GPU dequantizes: up to 8 bits, one scale."""
    small = value.dtype.bits <= 8 and isinstance(value.encoding, ScaleOffset)
    return node.op.name == "Dequantize" and small and value is node.inputs[0]


def _block_weight(node: Node, value: object) -> bool:
    """Whether a value is what QNN's GPU takes of quantized tensors: a 4-bit weight with a scale for each 32."""
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if node.op.name != "FullyConnected" or value is not weight or weight is None or not weight.is_static:
        return False
    encoding = weight.encoding
    return isinstance(encoding, Block) and encoding.block_shape == (1, 32) and weight.dtype in (DType.UINT4, DType.INT4)


# -- the table --------------------------------------------------------------------------------------------------------

_QNN, _HERE = "QNN's GPU", "the gpu backend"
_LISTED = "not listed: supplement of 2.25, revision history up to 2.46"
_KERNELS = "hexforge's kernels"

RULES: RuleTable[GpuNode] = RuleTable((
    *(Rule.of(op, _not_on_qnn, "not on QNN's GPU; gpu_ops=any takes those with a kernel here", why, _QNN)
      for op, why in EXCLUDED.items()),
    Rule.of("*", _not_on_qnn, "ops that QNN's GPU has not; gpu_ops=any takes those with a kernel here", _LISTED, _QNN),
    Rule.of("*", _no_kernel, "ops without a kernel here; they run on the CPU", _KERNELS, _HERE),
    Rule.of("*", _each(_encoded), "fixed point but for 4-bit weights in blocks of 32 and Dequantize of up to 8 bits; "
            "use float", "QNN's GPU is for float models: supplement", _QNN),
    Rule.of("*", _each(_unknown_type), "other data types than floats, bool, int64 and shorter; cast them",
            _KERNELS, _HERE),
    Rule.of("*", _each(_too_large), "tensors of 2^31 elements or more; split them", _KERNELS, _HERE),
    Rule.of("*", _each(_half_bytes), "4-bit integers but where they are only moved; cast them", _KERNELS, _HERE),
    Rule.of(" ".join((*_FLOAT_ONLY, *_FLOAT_POINTWISE)), _not_float, "integers; cast them to float", _KERNELS, _HERE),
    Rule.of("ElementWiseNeuron", _neuron, "operations with an op of their own; use that", _KERNELS, _HERE),
    Rule.of("GridSample", _grid, "other than 4 dimensions; sample images of 4", _KERNELS, _HERE),
    Rule.of("Resize ResizeBilinear", _interpolated, "interpolated integers; cast them to float", _KERNELS, _HERE),
    Rule.of("Lstm", _lstm_inputs, "an Lstm with layer norm or reset; the gpu backend has neither", _KERNELS, _HERE),
    Rule.of("Lstm", _lstm_size, "states and gates beyond a work-group's memory; use fewer units", _KERNELS, _HERE),
))  # fmt: skip
"""What is refused; the first that applies is the reason."""
