"""What HTP takes: data types and limits per op and architecture, each refusal with what would work."""

from __future__ import annotations

from hexforge.ir import AxisScaleOffset, DType, Node, ScaleOffset, Value

_ACTIVATION = {DType.UINT8, DType.INT8, DType.UINT16, DType.INT16}
_MAC = {"Conv2d", "Conv3d", "DepthWiseConv2d", "TransposeConv2d", "TransposeConv3d", "FullyConnected", "MatMul"}
_MAX_RANK = 5
_NEVER = {
    "ReduceProd": "HTP has no ReduceProd; use Log, ReduceSum and Exp, or leave it to the CPU",
    "PoolMax3d": "HTP has no PoolMax3d; pool each depth slice, or leave it to the CPU",
    "IsInf": "HTP has no IsInf; compare with a finite bound, or leave it to the CPU",
    "Inverse": "HTP has no general Inverse; leave it to the CPU",
    "Shape": "HTP needs static shapes; fold it to a constant",
}


def unsupported(node: Node, arch: int) -> str | None:
    """Why HTP of this architecture refuses the node, and what would work; None if it takes it."""
    if node.op.name in _NEVER:
        return _NEVER[node.op.name]
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    for value in values:
        reason = _tensor(value, arch)
        if reason is not None:
            return reason
    if node.op.name in _MAC:
        return _weights(node, arch)
    return None


def _tensor(value: Value, arch: int) -> str | None:
    if len(value.shape) > _MAX_RANK:
        return (
            f"tensor {value.name!r} has {len(value.shape)} dimensions, HTP takes at most {_MAX_RANK}; merge two of them"
        )
    if value.dtype is DType.FLOAT16 or value.dtype is DType.FLOAT32:
        if arch < 69 and value.encoding is None and value.data is None:
            return f"v{arch} has no float16 math; quantize {value.name!r} to 8 or 16 bits"
    elif value.dtype is DType.BFLOAT16 and arch < 81:
        return f"tensor {value.name!r} is bfloat16, which needs v81, this is v{arch}; use float16"
    elif value.dtype is DType.UINT64 or (value.dtype is DType.INT64 and value.encoding is not None):
        return f"tensor {value.name!r} is {value.dtype.value}, which HTP has no ops for; use int32"
    if value.data is None and value.encoding is not None:
        if not isinstance(value.encoding, ScaleOffset):
            return f"tensor {value.name!r}: HTP activations have one scale; only weights may have more"
        if value.dtype not in _ACTIVATION and value.dtype is not DType.INT32:
            return f"tensor {value.name!r} is fixed-point {value.dtype.value}; HTP activations have 8 or 16 bits"
    return None


def _weights(node: Node, arch: int) -> str | None:
    x, weight, out = node.inputs[0], node.inputs[1], node.outputs[0]
    if x is None or weight is None or x.encoding is None:
        return None
    if out.encoding is None:
        return f"its output {out.name!r} is float but its input is fixed point; quantize the output"
    if weight.dtype is DType.INT16 and x.dtype in (DType.UINT8, DType.INT8):
        return f"weights {weight.name!r} are int16 but activations have 8 bits; use 16-bit activations or int8 weights"
    if (
        weight.dtype is DType.INT16
        and weight.data is not None
        and arch < 73
        and isinstance(weight.encoding, AxisScaleOffset)
    ):
        return f"int16 weights {weight.name!r} per channel need v73, this is v{arch}; use one scale"
    if weight.dtype is DType.INT16 and weight.data is not None and int(weight.data.max(initial=0)) > 0x7F7F:
        most = int(weight.data.max())
        return f"int16 weights {weight.name!r} go up to {most}, HTP takes -0x8000 to 0x7F7F; rescale them"
    return None
