# SPDX-License-Identifier: Apache-2.0
"""Shapes: types and shapes a node writes: by onnx's schemas, and by the table here for ops onnx does not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import onnx
import onnx_ir
from onnx_ir import serde

from hexforge.errors import HexforgeError
from hexforge.ir import Call, DType, TensorType
from hexforge.model.simplifying.node_keys import Key, inference_key
from hexforge.model.source import schema_of
from hexforge.ops.packages import custom_op
from hexforge.patterns.nodes import integer, ints, operand

Type = tuple[onnx_ir.DataType | None, onnx_ir.Shape | None]
Rule = Callable[[onnx_ir.Node], list[Type]]
Dim = int | onnx_ir.SymbolicDim

_FAILURES = (
    onnx.shape_inference.InferenceError, onnx.checker.ValidationError, serde.SerdeError,
    RuntimeError, ValueError, LookupError, TypeError, HexforgeError,
)  # fmt: skip
InferredTypes: TypeAlias = "dict[Key, list[tuple[onnx_ir.TypeProtocol | None, onnx_ir.Shape | None]]]"
"""Types and shapes of the outputs of nodes, by all that they follow from."""
MOST_DATA = 4096
"""Elements of a constant shown to onnx's inference: shapes, axes and sizes are all shorter."""


def infer_node(
    node: onnx_ir.Node, opsets: Mapping[str, int], ir_version: int, known: InferredTypes | None = None
) -> None:
    """Set dtype and shape of what a node writes, as far as they follow from what it reads.

    `known` keeps what onnx's inference said of one node for others that are like it.
    """
    rule = _RULES.get((node.domain, node.op_type))
    if rule is None and custom_op(node.domain, node.op_type) is not None:
        rule = _by_package
    try:
        types = rule(node) if rule is not None else (_plain(node) or _by_schema(node, opsets, ir_version, known))
        if node.op_type == "ConvTranspose" and not node.domain:
            types = [(dtype, None if shape is None else _same_padded(node, shape)) for dtype, shape in types]
        if node.op_type in CEILED_POOLS and not node.domain:
            types = [(dtype, None if shape is None else _pooled(node, shape)) for dtype, shape in types]
    except _FAILURES:
        return  # a node that does not fit its own op keeps unknown outputs, and is refused with that reason
    for value, (dtype, shape) in zip(node.outputs, types, strict=False):
        if dtype is not None and dtype is not onnx_ir.DataType.UNDEFINED:
            value.dtype = dtype
        if shape is not None:
            value.shape = better_shape(shape, value.shape)


def _same_padded(node: onnx_ir.Node, shape: onnx_ir.Shape) -> onnx_ir.Shape:
    """The shape of a ConvTranspose with SAME pads: at most the input's times the strides.

    onnx's inference adds the output padding, which the pads take away again.
    """
    source = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    auto = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    if source is None or not auto.startswith("SAME") or "output_shape" in node.attributes:
        return shape
    strides = ints(node, "strides", [1] * (len(shape) - 2))
    sizes = [
        min(n * s, o) if isinstance(n, int) and isinstance(o, int) else o
        for n, s, o in zip(source[2:], strides, shape[2:], strict=True)
    ]
    return onnx_ir.Shape([*shape[:2], *sizes])


CORRECTED = ("MaxPool", "AveragePool", "LpPool", "ConvTranspose")
"""Ops whose shape onnx's own inference has wrong in places."""
CEILED_POOLS = ("MaxPool", "AveragePool", "LpPool")


def _pooled(node: onnx_ir.Node, shape: onnx_ir.Shape) -> onnx_ir.Shape:
    """The shape of a pool as kernels have it.

    With ceil_mode a last window that starts beyond the input and its first pads is dropped, as opset 22 does; the shape
    inference of older opsets counts it, beside SAME pads too. The SAME pads of a dilated pool are those without
    dilations.
    """
    source = node.inputs[0].shape if node.inputs and node.inputs[0] is not None else None
    spatial = len(shape) - 2
    strides, dilations = ints(node, "strides", [1] * spatial), ints(node, "dilations", [1] * spatial)
    pads = ints(node, "pads", [0] * (2 * spatial))
    auto = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    if source is None:
        return shape
    if auto.startswith("SAME"):
        return _same_pool(node, shape, source[2:], strides, dilations)
    if not integer(node, "ceil_mode", 0):
        return shape
    sizes: list[Dim] = list(shape)
    kernel = ints(node, "kernel_shape", [])
    for axis, (out, size) in enumerate(zip(sizes[2:], source[2:], strict=True)):
        if not isinstance(out, int) or not isinstance(size, int):
            continue
        room = size + pads[axis] + pads[axis + spatial] - dilations[axis] * (kernel[axis] - 1) - 1
        if room < 0:  # the window is larger than what it slides over; opset 22's inference rounds towards 0
            sizes[axis + 2] = -(-room // strides[axis]) + 1
        elif (out - 1) * strides[axis] >= size + pads[axis] > 0:
            sizes[axis + 2] = out - 1
    return onnx_ir.Shape(sizes)


def _same_pool(
    node: onnx_ir.Node, shape: onnx_ir.Shape, source: Sequence[Dim], strides: Sequence[int], dilations: Sequence[int]
) -> onnx_ir.Shape:
    sizes: list[Dim] = list(shape)
    for axis, (n, k, s, d) in enumerate(zip(source, ints(node, "kernel_shape", []), strides, dilations, strict=True)):
        if isinstance(n, int):
            needed = (-(-n // s) - 1) * s + k - n
            room = n + needed - d * (k - 1) - 1
            # a window that is larger than what it slides over is rounded towards 0, which is one place
            out = (-(-room // s) if integer(node, "ceil_mode", 0) or room < 0 else room // s) + 1
            sizes[axis + 2] = out - 1 if integer(node, "ceil_mode", 0) and (out - 1) * s >= n + needed else out
    return onnx_ir.Shape(sizes)


def better_shape(inferred: onnx_ir.Shape, declared: onnx_ir.Shape | None) -> onnx_ir.Shape:
    """What inference says, with its unknown dimensions taken from what the model declares."""
    if declared is None or len(declared) != len(inferred):
        return inferred
    pairs = zip(inferred, declared, strict=True)
    return onnx_ir.Shape([i if isinstance(i, int) or _is_open(d) else d for i, d in pairs])


def _is_open(dim: Dim) -> bool:
    return not isinstance(dim, int) and dim.value is None


# -- the plainest ops, whose types follow at once ----------------------------------------------------------------

_POINTWISE = frozenset(
    {"Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "HardSwish", "Elu", "Exp", "Sqrt", "Erf"}
)
"""Ops that write what they read, in type and shape."""
_BROADCAST = frozenset({"Add", "Sub", "Mul", "Div"})


def _plain(node: onnx_ir.Node) -> list[Type] | None:
    """What ops write that most nodes of a model are, where their inputs are known; None leaves it to the schema."""
    if node.domain or len(node.outputs) != 1:
        return None
    rule = _PLAIN_RULES.get(node.op_type)
    if rule is not None:
        return _by_plain_rule(node, rule)
    known = [v for v in node.inputs if v is not None and v.dtype is not None and _static(v.shape)]
    if not known or len(known) != len(node.inputs):
        return None
    if node.op_type in _POINTWISE:
        return [(known[0].dtype, known[0].shape)] if len(known) == 1 else None
    if node.op_type in _BROADCAST and len(known) == 2 and known[0].dtype is known[1].dtype:
        shapes = [value.shape.numpy() for value in known if value.shape is not None]
        return [(known[0].dtype, onnx_ir.Shape(np.broadcast_shapes(*shapes)))]
    if "output_dtype" not in node.attributes and len(known) == 3:
        if node.op_type == "QuantizeLinear":
            return [(known[2].dtype, known[0].shape)]
        if node.op_type == "DequantizeLinear":
            return [(known[1].dtype, known[0].shape)]
    return None


def _by_plain_rule(
    node: onnx_ir.Node, rule: Callable[[onnx_ir.Node, Sequence[Sequence[int]]], Sequence[int] | None]
) -> list[Type] | None:
    shapes = [v.shape.numpy() for v in node.inputs if v is not None and v.shape is not None and v.shape.is_static()]
    dtype = _dtype(node, 0)
    sizes = None if dtype is None or len(shapes) != len(node.inputs) else rule(node, shapes)
    return None if sizes is None else [(dtype, onnx_ir.Shape(sizes))]


def _conv_sizes(node: onnx_ir.Node, shapes: Sequence[Sequence[int]]) -> Sequence[int] | None:
    """The sizes of a Conv whose pads are numbers."""
    source, weight, *_ = shapes
    spatial = len(source) - 2
    if spatial < 1 or len(weight) != len(source) or "auto_pad" in node.attributes:
        return None
    kernel = ints(node, "kernel_shape", weight[2:])
    strides, dilations = ints(node, "strides", [1] * spatial), ints(node, "dilations", [1] * spatial)
    pads = ints(node, "pads", [0] * (2 * spatial))
    if not len(kernel) == len(strides) == len(dilations) == len(pads) // 2 == spatial or len(pads) % 2:
        return None
    room = [
        size + before + after - dilation * (window - 1) - 1
        for size, before, after, dilation, window in zip(
            source[2:], pads[:spatial], pads[spatial:], dilations, kernel, strict=True
        )
    ]
    if min(room) < 0 or min(strides) < 1 or min(pads) < 0 or min(dilations) < 1 or min(kernel) < 1:
        return None
    return [source[0], weight[0], *(space // stride + 1 for space, stride in zip(room, strides, strict=True))]


def _concat_sizes(node: onnx_ir.Node, shapes: Sequence[Sequence[int]]) -> Sequence[int] | None:
    first, axis = shapes[0] if shapes else (), node.attributes.get("axis")
    if axis is None or not -len(first) <= axis.value < len(first):
        return None
    along = axis.value % len(first)
    sizes = [*first]
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(
            a != b for i, (a, b) in enumerate(zip(shape, first, strict=True)) if i != along
        ):
            return None
        sizes[along] += shape[along]
    return sizes


def _normalized_sizes(node: onnx_ir.Node, shapes: Sequence[Sequence[int]]) -> Sequence[int] | None:
    source, *others = shapes
    fits = len(source) > 1 and len(others) == 4 and all(tuple(shape) == (source[1],) for shape in others)
    return source if fits else None


def _pooled_sizes(node: onnx_ir.Node, shapes: Sequence[Sequence[int]]) -> Sequence[int] | None:
    (source,) = shapes
    return [*source[:2], *([1] * (len(source) - 2))] if len(source) > 2 else None


_PLAIN_RULES = {
    "Conv": _conv_sizes,
    "Concat": _concat_sizes,
    "BatchNormalization": _normalized_sizes,
    "GlobalAveragePool": _pooled_sizes,
}


def _static(shape: onnx_ir.Shape | None) -> bool:
    return shape is not None and shape.is_static()


# -- ops with an onnx schema ------------------------------------------------------------------------------------


def _by_schema(
    node: onnx_ir.Node, opsets: Mapping[str, int], ir_version: int, known: InferredTypes | None = None
) -> list[Type]:
    opset = opsets.get(node.domain, 1)
    schema = schema_of(node.domain, node.op_type, opset)
    if schema is None or not schema.has_type_and_shape_inference_function:
        return []
    key = None if known is None else inference_key(node, opset, MOST_DATA)
    inferred = None if known is None or key is None else known.get(key)
    if inferred is None:
        inferred = _inferred_by_schema(node, schema, opsets, ir_version)
        if known is not None and key is not None and all(isinstance(kind, onnx_ir.TensorType) for kind, _ in inferred):
            known[key] = inferred
    result: list[Type] = []
    for value, (kind, shape) in zip(node.outputs, inferred, strict=False):
        # each value has a type and a shape of its own, which may be changed
        value.type = (
            onnx_ir.TensorType(kind.dtype, denotation=kind.denotation) if isinstance(kind, onnx_ir.TensorType) else kind
        ) or value.type
        result.append((None, None if shape is None else shape.copy()))
    return result


def _inferred_by_schema(
    node: onnx_ir.Node, schema: onnx.defs.OpSchema, opsets: Mapping[str, int], ir_version: int
) -> list[tuple[onnx_ir.TypeProtocol | None, onnx_ir.Shape | None]]:
    """The type and the shape of each output, None where nothing is known; empty where an input has no type."""
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        if value.type is None:
            return []
        type_proto = serde.serialize_type(value.type)
        if value.shape is not None:
            serde.serialize_shape_into(type_proto, value.shape)
        types[value.name or ""] = type_proto
        tensor = value.const_value
        if tensor is not None and tensor.size <= MOST_DATA and tensor.dtype is not onnx_ir.DataType.STRING:
            data[value.name or ""] = serde.serialize_tensor(tensor)
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    inferred_types = onnx.shape_inference.infer_node_outputs(
        schema, serde.serialize_node(node), types, data, opset_imports=imports, ir_version=ir_version
    )
    protos = (inferred_types.get(value.name or "") for value in node.outputs)
    return [
        (None, None)
        if proto is None
        else (serde.deserialize_type_proto_for_type(proto), serde.deserialize_type_proto_for_shape(proto))
        for proto in protos
    ]


# -- ops of packages ----------------------------------------------------------------------------------------------


def _by_package(node: onnx_ir.Node) -> list[Type]:
    """What the package of an op says of its outputs."""
    custom = custom_op(node.domain, node.op_type)
    assert custom is not None
    ins = tuple(None if value is None else _tensor_type(value) for value in node.inputs)
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    inferred = custom.op.infer(Call(custom.op, ins, (), custom.op.complete(attributes)))
    return [(onnx_ir.DataType.from_numpy(type.dtype.numpy), onnx_ir.Shape(type.shape)) for type in inferred]


def _tensor_type(value: onnx_ir.Value) -> TensorType:
    sizes = [] if value.shape is None else [size for size in value.shape if isinstance(size, int)]
    if value.dtype is None or value.shape is None or len(sizes) != len(value.shape):
        raise ValueError("unknown shape")
    return TensorType(DType.of(value.dtype.numpy()), tuple(sizes))


# -- ops of com.microsoft, and those onnxruntime adds to ai.onnx -------------------------------------------------


def _shape(node: onnx_ir.Node, index: int) -> list[Dim]:
    value = operand(node, index)
    if value is None or value.shape is None:
        raise ValueError("unknown shape")
    return list(value.shape)


def _dtype(node: onnx_ir.Node, index: int) -> onnx_ir.DataType | None:
    value = operand(node, index)
    return None if value is None else value.dtype


def _same(node: onnx_ir.Node) -> list[Type]:
    return [(_dtype(node, 0), onnx_ir.Shape(_shape(node, 0)))]


def _normalized(node: onnx_ir.Node) -> list[Type]:
    """Layer normalizations: the result, then statistics with the normalized axes left as 1, then the sum."""
    shape = _shape(node, 0)
    axis = integer(node, "axis", -1) % max(len(shape), 1)
    statistics = onnx_ir.Shape([*shape[:axis], *([1] * (len(shape) - axis))])
    same: Type = (_dtype(node, 0), onnx_ir.Shape(shape))
    real = onnx_ir.DataType.FLOAT
    skip = node.op_type.startswith("Skip")
    return [same, (real, statistics), (real, statistics), same][: 4 if skip else 3]


def _broadcast(first: Sequence[Dim], second: Sequence[Dim]) -> list[Dim]:
    rank = max(len(first), len(second))
    pairs = zip([1] * (rank - len(first)) + list(first), [1] * (rank - len(second)) + list(second), strict=True)
    result: list[Dim] = []
    for a, b in pairs:
        if a == 1 or b == 1 or a == b:
            result.append(b if a == 1 else a)
        else:
            raise ValueError("shapes do not broadcast")
    return result


def _binary(first: int, second: int) -> Rule:
    def rule(node: onnx_ir.Node) -> list[Type]:
        return [(_dtype(node, first), onnx_ir.Shape(_broadcast(_shape(node, first), _shape(node, second))))]

    return rule


def _matmul_shape(a: list[Dim], b: list[Dim]) -> list[Dim]:
    if len(a) == 1 or len(b) == 1:
        return [*a[:-1]] if len(b) == 1 else [*b[:-2], b[-1]]
    return [*_broadcast(a[:-2], b[:-2]), a[-2], b[-1]]


def _fused_matmul(node: onnx_ir.Node) -> list[Type]:
    a, b = _shape(node, 0), _shape(node, 1)
    for shape, name in ((a, "A"), (b, "B")):
        if integer(node, f"transBatch{name}", 0) and len(shape) > 2:
            shape.insert(len(shape) - 2, shape.pop(0))
        if integer(node, f"trans{name}", 0) and len(shape) > 1:
            shape[-2:] = reversed(shape[-2:])
    return [(_dtype(node, 0), onnx_ir.Shape(_matmul_shape(a, b)))]


def _matmul_of(a: int, b: int, dtype_from: int | None) -> Rule:
    def rule(node: onnx_ir.Node) -> list[Type]:
        dtype = onnx_ir.DataType.FLOAT if dtype_from is None else _dtype(node, dtype_from)
        return [(dtype, onnx_ir.Shape(_matmul_shape(_shape(node, a), _shape(node, b))))]

    return rule


def _matmul_nbits(node: onnx_ir.Node) -> list[Type]:
    return [(_dtype(node, 0), onnx_ir.Shape([*_shape(node, 0)[:-1], node.attributes["N"].as_int()]))]


def _dynamic_lstm(node: onnx_ir.Node) -> list[Type]:
    length, batch, _ = _shape(node, 0)
    hidden, directions = node.attributes["hidden_size"].as_int(), _shape(node, 1)[0]
    state = (_dtype(node, 0), onnx_ir.Shape([directions, batch, hidden]))
    return [(_dtype(node, 0), onnx_ir.Shape([length, directions, batch, hidden])), state, state]


def _quantize(node: onnx_ir.Node) -> list[Type]:
    return [(_dtype(node, 2) or onnx_ir.DataType.UINT8, onnx_ir.Shape(_shape(node, 0)))]


def _dequantize(node: onnx_ir.Node) -> list[Type]:
    return [(_dtype(node, 1), onnx_ir.Shape(_shape(node, 0)))]


def _gather_block_quantized(node: onnx_ir.Node) -> list[Type]:
    data, indices = _shape(node, 0), _shape(node, 1)
    bits = integer(node, "bits", 4)
    if _dtype(node, 0) is onnx_ir.DataType.UINT8 and isinstance(data[-1], int):
        data[-1] *= 8 // bits  # bytes hold several elements along the last axis
    axis = integer(node, "gather_axis", 0) % len(data)
    return [(_dtype(node, 2), onnx_ir.Shape([*data[:axis], *indices, *data[axis + 1 :]]))]


def _group_query_attention(node: onnx_ir.Node) -> list[Type]:
    query, past = _shape(node, 0), _shape(node, 3) if len(node.inputs) > 3 and node.inputs[3] is not None else None
    width = query[-1]
    if len(node.inputs) < 2 or node.inputs[1] is None:  # query, key and value are packed
        heads, kv_heads = node.attributes["num_heads"].as_int(), node.attributes["kv_num_heads"].as_int()
        if not isinstance(width, int):
            raise ValueError("unknown width")
        width = width // (heads + 2 * kv_heads) * heads
    present = None
    if past is not None:
        rows = past[2] if integer(node, "sliding_window_cache", 0) else onnx_ir.SymbolicDim(None)
        present = onnx_ir.Shape([*past[:2], rows, *past[3:]])
    dtype = _dtype(node, 0)
    kept = dtype if past is None else _dtype(node, 3)  # quantized caches stay quantized
    return [(dtype, onnx_ir.Shape([*query[:-1], width])), (kept, present), (kept, present)]


def _by_standard(op_type: str, inputs: Sequence[int], dtype_from: int) -> Rule:
    """The rule of a quantized or fused form of an onnx op: its shape is the op's shape for the named inputs."""

    def rule(node: onnx_ir.Node) -> list[Type]:
        values = []
        for index in inputs:
            value = operand(node, index)
            if value is None or value.shape is None:
                raise ValueError("unknown shape")
            values.append(onnx_ir.Value(name=f"i{index}", shape=value.shape, type=_FLOAT))
        schema = schema_of("", op_type, 13)
        assert schema is not None
        attributes = [a for name, a in node.attributes.items() if name in schema.attributes]
        plain = onnx_ir.Node("", op_type, values, attributes, outputs=[onnx_ir.Value(name="o")])
        (_, shape), *_ = _by_schema(plain, {"": 13}, 8)
        if op_type in CEILED_POOLS and shape is not None:
            shape = _pooled(plain, shape)
        return [(_dtype(node, dtype_from), shape)]

    return rule


def _qlinear_concat(node: onnx_ir.Node) -> list[Type]:
    """Inputs: y scale, y zero point, then (x, scale, zero point) for each part."""
    return _by_standard("Concat", range(2, len(node.inputs), 3), 1)(node)


_FLOAT = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
_MS = "com.microsoft"
_SAME = (
    "Gelu", "QuickGelu", "FastGelu", "BiasGelu", "Inverse", "GroupNorm", "QLinearSigmoid", "QLinearLeakyRelu",
    "QLinearSoftmax", "RotaryEmbedding",
)  # fmt: skip
_RULES: dict[tuple[str, str], Rule] = {
    **{(_MS, op): _same for op in _SAME},
    ("", "GroupNormalization"): _same,  # its schema infers nothing
    ("", "SimplifiedLayerNormalization"): _normalized,
    (_MS, "SimplifiedLayerNormalization"): _normalized,
    (_MS, "LayerNormalization"): _normalized,
    (_MS, "SkipLayerNormalization"): _normalized,
    (_MS, "SkipSimplifiedLayerNormalization"): _normalized,
    (_MS, "MatMulNBits"): _matmul_nbits,
    (_MS, "FusedMatMul"): _fused_matmul,
    (_MS, "TransposeMatMul"): _fused_matmul,
    (_MS, "QLinearMatMul"): _matmul_of(0, 3, 7),
    (_MS, "DynamicQuantizeMatMul"): _matmul_of(0, 1, None),
    (_MS, "DynamicQuantizeLSTM"): _dynamic_lstm,
    (_MS, "MatMulIntegerToFloat"): _matmul_of(0, 1, 2),
    (_MS, "QuantizeLinear"): _quantize,
    (_MS, "DequantizeLinear"): _dequantize,
    (_MS, "QLinearAdd"): _binary(0, 3),
    (_MS, "QLinearMul"): _binary(0, 3),
    (_MS, "QLinearConcat"): _qlinear_concat,
    (_MS, "QLinearConv"): _by_standard("Conv", (0, 3), 7),
    (_MS, "QLinearAveragePool"): _by_standard("AveragePool", (0,), 0),
    (_MS, "QLinearGlobalAveragePool"): _by_standard("GlobalAveragePool", (0,), 0),
    (_MS, "FusedConv"): _by_standard("Conv", (0, 1), 0),
    (_MS, "FusedGemm"): _by_standard("Gemm", (0, 1), 0),
    (_MS, "GatherBlockQuantized"): _gather_block_quantized,
    (_MS, "GroupQueryAttention"): _group_query_attention,
}
