# SPDX-License-Identifier: Apache-2.0
"""Support: which nodes the gpu backend takes, and why not the others."""

from __future__ import annotations

from hexforge.backends.gpu.kernels import pointwise
from hexforge.backends.gpu.kernels.code import C_TYPES
from hexforge.backends.gpu.kernels.element import GATHERS, MAPS
from hexforge.backends.gpu.kernels.moves import MOVES
from hexforge.backends.gpu.kernels.recurrent import MOST_LOCAL_BYTES, LstmShape
from hexforge.backends.gpu.qnn_ops import SOURCES
from hexforge.ir import Block, DType, Node, ScaleOffset, Value

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
_OTHERWISE = ("ElementWiseSelect", "ElementWiseNot", "ElementWiseUnary")
_MOST = (1 << 31) - 1


def unsupported(node: Node, beyond_qnn: bool = False) -> str | None:
    """Why the backend refuses a node and what would work, or None.

    With `beyond_qnn` it takes ops that QNN's GPU has not, where it has a kernel.
    """
    name = node.op.name
    if name not in SOURCES and not (beyond_qnn and name in KNOWN):
        other = "gpu_ops=any runs it here with a kernel of our own" if name in KNOWN else "it runs on the CPU"
        return f"QNN's GPU has no {name}; {other}"
    if name not in KNOWN:
        return f"the gpu backend has no kernel for {name}; it runs on the CPU"
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    for value in values:
        if value.encoding is not None and not _block_weight(node, value) and not _dequantized(node, value):
            return (
                f"{value.type.qnn_dtype} tensor; QNN's GPU takes float models, 4-bit weights in blocks of 32, and "
                "Dequantize of up to 8 bits with one scale"
            )
        if value.dtype not in C_TYPES:
            return f"{value.dtype.value} tensor, which QNN's GPU has not; use float32, float16, bool, int64 or shorter"
        if value.type.size > _MOST:
            return f"a tensor of {value.type.size} elements; the gpu backend counts them in 32 bits"
        if (
            value.dtype.bits == 4
            and value.encoding is None
            and not (name in GATHERS or name in _MOVING or name.startswith("ElementWise"))
        ):
            return f"{value.dtype.value} tensor; the gpu backend only looks such elements up"
    first = values[0]
    if name in _FLOAT_ONLY and not first.dtype.is_float:
        return f"{name} of {first.dtype.value}; QNN's GPU computes it in float"
    if first.dtype.is_float:
        rows = (*pointwise.FLOAT, *pointwise.PREDICATE)
        if name.startswith("ElementWise") and name not in rows and name not in _OTHERWISE:
            return f"{name} of floats is nothing the gpu backend computes"
        if name == "ElementWiseNot":
            return "ElementWiseNot takes booleans"
        if name == "ElementWiseNeuron" and node.params["operation"] not in (0, 2, 7):
            return f"ElementWiseNeuron operation {node.params['operation']} has an op of its own"
    elif name.startswith("ElementWise") or name in pointwise.FLOAT:
        taken = (*pointwise.INTEGER, *pointwise.PREDICATE, "ElementWiseSelect")
        if name not in taken:
            return f"{name} of {first.dtype.value}; QNN's GPU computes it in float"
    if name == "GridSample" and len(first.shape) != 4:
        return f"GridSample of {len(first.shape)} dimensions; QNN's GPU samples images of 4"
    if name in ("Resize", "ResizeBilinear") and not first.dtype.is_float and node.params.get("interpolation_mode", 1):
        return f"{name} of {first.dtype.value}; the gpu backend interpolates floats"
    if name == "Lstm":
        lstm = LstmShape.of(node)
        if any(n.startswith("norm_") or n == "reset" for n in lstm.given):
            return "an Lstm with layer norm or reset; the gpu backend has neither"
        if lstm.local_bytes > MOST_LOCAL_BYTES:
            return f"an Lstm of {lstm.units} units; its states and gates must fit into {MOST_LOCAL_BYTES >> 10} KiB"
    return None


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
