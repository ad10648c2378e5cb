# SPDX-License-Identifier: Apache-2.0
"""Ops as the op table has them: what QNN says by another op, by `operation`, by tensors or by grouped filters.

QNN's filter is [kernel, Cin, Cout / group], so its scales run over the channels of one group. ExecuTorch repeats them:
output channel c of Cout / group has scale c of the filter, and its bias was quantized with scale c // group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams
from hexforge.errors import ModelError
from hexforge.ir import DType, Graph, TensorType, Value
from hexforge.ir.op import Op, ParamValue, lookup
from hexforge.ops import BUILT_IN

# The numbers are those of QnnOpDef.h.
_BINARY = (
    "Add And Divide Equal FloorDiv Fmod Greater GreaterEqual Less LessEqual Maximum Minimum Mod Multiply NotEqual Or "
    "Power SquaredDifference Subtract Xor"
).split()
_UNARY = "Abs Asin Atan Ceil Cos Exp Floor Log Neg Not - Round Rsqrt Sign Sin SquareRoot".split()
_NEURON = [name.title().replace("_", "") for name in lookup("ElementWiseNeuron").params[0].choices]
_PLAIN = {op.name for op in BUILT_IN if not op.params}
OPERATIONS: dict[str, tuple[str, ...]] = {
    "ElementWiseBinary": tuple(f"ElementWise{name}" for name in _BINARY),
    "ElementWiseUnary": tuple("" if name == "-" else f"ElementWise{name}" for name in _UNARY),
    "ElementWiseNeuron": tuple(name if name in _PLAIN else "" for name in _NEURON),
}
"""For each op with a parameter `operation` the op of its own that each number has; empty where it has none."""


_GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate", "hidden_state")
_NOTHING_ASKED: dict[str, float] = {
    "reuse_sparse_indices": 0.0,
    "threshold": 20.0,  # beyond it a softplus is its input, in as many bits as half has
    "hidden_state_offset": 0.0,
    **{f"{gate}_qscale": 0.0 for gate in _GATES},
}
"""Parameters that QNN's ops have and those of the table do not, at the value that asks for nothing."""
_OF_THE_LAST_AXIS = ("Softmax", "LogSoftmax")
"""Ops whose axis is the last one where none is given."""


def resolve_op(op: QnnOp) -> tuple[Op, dict[str, ParamValue]]:
    """The op of the table that an op of a graph is, and its parameters in the types that the table declares."""
    name, params = op.type, dict(op.params)
    if name in OPERATIONS:
        if "operation" not in params:
            raise ModelError(f"op {op.name!r} ({name}): parameter operation is missing")
        number, known = int(params["operation"]), OPERATIONS[name]
        if not 0 <= number < len(known):
            raise ModelError(f"op {op.name!r} ({name}): operation {number} is not one of 0 to {len(known) - 1}")
        if known[number]:
            name, params = known[number], {}
    if name in _OF_THE_LAST_AXIS and "axis" not in params:
        params["axis"] = len(op.inputs[0].dimensions) - 1
    if name == "L2Norm" and "axis" in params:  # the older spelling, which the QNN execution provider writes
        params["axes"] = [params.pop("axis")]
    known_op = lookup(name)
    declared = {p.name: p for p in known_op.params}
    made = {
        key: _value(declared[key].type, value) if key in declared else _value("", value)
        for key, value in params.items()
        if key in declared or key not in _NOTHING_ASKED or _value("float32", value) != _NOTHING_ASKED[key]
    }
    return known_op, made


def _value(type: str, value: Any) -> ParamValue:
    plain = np.asarray(value).tolist()
    return _converted(type, plain)


def _converted(type: str, value: Any) -> ParamValue:
    if isinstance(value, list):
        return tuple(_converted(type, item) for item in value)
    if type == "bool":
        return bool(value)
    if type == "float32":
        return float(value)
    return int(value) if type and float(value).is_integer() else value


_PER_CHANNEL = ("QNN_QUANTIZATION_ENCODING_AXIS_SCALE_OFFSET", "QNN_QUANTIZATION_ENCODING_BW_AXIS_SCALE_OFFSET")
_OPS = ("TransposeConv2d", "TransposeConv3d")


def merge_groups(op: QnnOp) -> QnnOp:
    """The op with one group, where it is a transposed convolution of several with a scale per channel; else itself."""
    group = int(op.params.get("group", 1))
    if op.type not in _OPS or group == 1 or len(op.inputs) < 2:
        return op
    filter, q = op.inputs[1], op.inputs[1].quantization
    if q is None or q.encoding not in _PER_CHANNEL or any(q.offsets) or op.inputs[0].quantization is None:
        return op
    inputs = [op.inputs[0], _spread(filter, group)]
    if len(op.inputs) > 2:
        inputs.append(_bias(op.inputs[2], op.inputs[0], inputs[1], group))
    return replace(op, inputs=tuple(inputs), params={**op.params, "group": 1})


def _spread(filter: QnnTensor, group: int) -> QnnTensor:
    """The filter over all output channels: each group's inputs reach only its own."""
    assert filter.quantization is not None
    *kernel, channels, per_group = filter.dimensions
    shape = (*kernel, channels, per_group * group)
    data = filter.data
    if data is not None and data.size:
        wide = np.zeros(shape, data.dtype)
        for index in range(group):
            inputs = slice(index * channels // group, (index + 1) * channels // group)
            wide[..., inputs, index * per_group : (index + 1) * per_group] = data[..., inputs, :]
        data = wide
    scales, offsets = list(filter.quantization.scales) * group, list(filter.quantization.offsets) * group
    return replace(
        filter, dimensions=shape, data=data, quantization=replace(filter.quantization, scales=scales, offsets=offsets)
    )


def _bias(bias: QnnTensor, x: QnnTensor, filter: QnnTensor, group: int) -> QnnTensor:
    """The bias in the scales of the accumulators, which are the input's scale times the filter's."""
    own = bias.quantization
    if own is None or own.encoding not in _PER_CHANNEL or x.quantization is None or filter.quantization is None:
        return bias
    wanted = np.asarray(filter.quantization.scales, np.float64) * float(x.quantization.scales[0])
    data = bias.data
    if data is not None and data.size:
        scales = np.repeat(np.asarray(own.scales, np.float64), group)[: data.size]
        scales = scales if len(own.scales) != data.size else np.asarray(own.scales, np.float64)
        data = np.rint(data.ravel() * scales / wanted).astype(np.int32)
    return replace(bias, data=data, quantization=replace(own, scales=list(wanted), offsets=[0] * len(wanted)))


def rotary_embedding(graph: Graph, op: QnnOp, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
    """Write the nodes. Inputs: [batch, heads, tokens, size], cos and sin by position or by token, positions."""
    if len(inputs) not in (3, 4) or len(outputs) != 1 or any(value is None for value in inputs):
        raise ModelError("it reads data, cos, sin and maybe positions, and writes one tensor")
    x, cos, sin, *positions = [value for value in inputs if value is not None]
    if any(not value.dtype.is_float for value in (x, cos, sin, outputs[0])):
        raise ModelError("data of fixed point; dequantize them before, and quantize the result")
    if len(x.shape) != 4 or outputs[0].shape != x.shape:
        raise ModelError(f"data of shape {list(x.shape)}; it must be [batch, heads, tokens, size], as the output")
    size = int(op.params.get("rotary_embedding_dim", 0)) or x.shape[-1]
    nodes = _Nodes(graph, op.name)
    rows = [nodes.rows(cache, positions[0] if positions else None, x) for cache in (cos, sin)]
    if size % 2 or size > x.shape[-1] or any(2 * row.shape[-1] != size for row in rows):
        raise ModelError(f"caches of width {rows[0].shape[-1]} do not rotate {size} of {x.shape[-1]} elements")
    turned = nodes.rotated(nodes.part(x, 0, size), rows[0], rows[1], bool(op.params.get("interleaved", False)))
    if size < x.shape[-1]:
        turned = nodes.concat([turned, nodes.part(x, size, x.shape[-1])])
    graph.node("Reshape", [turned], [outputs[0]], source=(op.name,))


class _Nodes:
    """Nodes of one op, each with a value of its own."""

    def __init__(self, graph: Graph, name: str) -> None:
        self._graph, self._name = graph, name

    def rows(self, cache: Value, positions: Value | None, x: Value) -> Value:
        """Rows of cos or sin for every token, [batch, 1, tokens, half]."""
        batch, _, tokens, _ = x.shape
        if positions is not None:
            if len(cache.shape) != 2 or positions.shape != (batch, tokens):
                raise ModelError(f"a cache of shape {list(cache.shape)} with positions {list(positions.shape)}")
            index = positions
            if index.dtype is not DType.INT32:
                index = self._emit("Cast", [index], TensorType(DType.INT32, index.shape))
            cache = self._emit(
                "Gather", [cache, index], TensorType(cache.dtype, (batch, tokens, cache.shape[1])), axis=0
            )
        if cache.shape[:-1] != (batch, tokens):
            raise ModelError(f"a cache of shape {list(cache.shape)} for data of shape {list(x.shape)}")
        return self._reshape(cache, (batch, 1, tokens, cache.shape[-1]))

    def rotated(self, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
        """Pairs of the last axis rotated: neighbours where interleaved, else the halves."""
        shape, half = x.shape, x.shape[-1] // 2
        if interleaved:
            pairs = self._reshape(x, (*shape[:-1], half, 2))
            real, imaginary = (self._reshape(self.part(pairs, i, i + 1), (*shape[:-1], half)) for i in (0, 1))
        else:
            real, imaginary = self.part(x, 0, half), self.part(x, half, 2 * half)
        made = [
            self._binary("Subtract", self._binary("Multiply", real, cos), self._binary("Multiply", imaginary, sin)),
            self._binary("Add", self._binary("Multiply", real, sin), self._binary("Multiply", imaginary, cos)),
        ]
        if not interleaved:
            return self.concat(made)
        return self._reshape(self.concat([self._reshape(v, (*v.shape, 1)) for v in made]), shape)

    def part(self, x: Value, begin: int, end: int) -> Value:
        """Elements of the last axis."""
        if (begin, end) == (0, x.shape[-1]):
            return x
        ranges = (*((0, size, 1) for size in x.shape[:-1]), (begin, end, 1))
        return self._emit("StridedSlice", [x], TensorType(x.dtype, (*x.shape[:-1], end - begin)), ranges=ranges)

    def concat(self, values: Sequence[Value]) -> Value:
        """Values one after the other along the last axis."""
        first = values[0]
        width = sum(value.shape[-1] for value in values)
        type = TensorType(first.dtype, (*first.shape[:-1], width))
        return self._emit("Concat", list(values), type, axis=len(first.shape) - 1)

    def _binary(self, name: str, left: Value, right: Value) -> Value:
        return self._emit(f"ElementWise{name}", [left, right], TensorType(left.dtype, left.shape))

    def _reshape(self, x: Value, shape: tuple[int, ...]) -> Value:
        return self._emit("Reshape", [x], TensorType(x.dtype, shape))

    def _emit(self, op: str, inputs: Sequence[Value], type: TensorType, **params: ParamValue) -> Value:
        made = self._graph.value(self._graph.unique(f"{self._name}_{op}"), type)
        self._graph.node(op, list(inputs), [made], source=(self._name,), **params)
        return made


_SIGMOID = 6
"""ElementWiseNeuron's number of it."""
_FIXED_BITS = {"QNN_DATATYPE_UFIXED_POINT_8": 8, "QNN_DATATYPE_UFIXED_POINT_16": 16}


def table_form(op: QnnOp) -> QnnOp:
    """The op in the form of the table; itself where it has that."""
    form = _FORMS.get(op.type)
    return op if form is None else form(op)


def _align_prelu(op: QnnOp) -> QnnOp:
    """A Prelu whose coefficients are one for each channel of NCHW data, with them along that axis.

    QNN broadcasts from the last axis; ExecuTorch leaves a Prelu without neighbours that fix a layout in torch's.
    """
    if len(op.inputs) != 2:
        return op
    shape, given = op.inputs[0].dimensions, op.inputs[1].dimensions
    if len(given) != 1 or len(shape) < 3 or given[0] in (1, shape[-1]) or given[0] != shape[1]:
        return op
    coefficients = replace(op.inputs[1], dimensions=(given[0], *(1,) * (len(shape) - 2)))
    return replace(op, inputs=(op.inputs[0], coefficients))


def _seed(op: QnnOp) -> QnnOp:
    """Random numbers whose seed is a second, constant input."""
    if len(op.inputs) != 2:
        return op
    data = op.inputs[1].data
    seed = 0.0 if data is None or not data.size else float(np.ravel(data)[0])
    return replace(op, inputs=op.inputs[:1], params={**op.params, "seed": seed})


def _frame_length(op: QnnOp) -> QnnOp:
    """A Fourier transform whose frames are as long as its window."""
    if "frame_length" in op.params or len(op.inputs) != 2 or not op.inputs[1].dimensions:
        return op
    return replace(op, params={**op.params, "frame_length": op.inputs[1].dimensions[0]})


def _output_padding(op: QnnOp) -> QnnOp:
    """A transposed convolution whose output has rows that no input reaches: ONNX's output_shape asks for them."""
    if len(op.inputs) < 2 or len(op.outputs) != 1:
        return op
    image, kernel, made = (list(t.dimensions) for t in (op.inputs[0], op.inputs[1], op.outputs[0]))
    spatial = len(image) - 2
    if spatial < 1 or len(kernel) != spatial + 2 or len(made) != spatial + 2 or "stride" not in op.params:
        return op
    stride = np.ravel(np.asarray(op.params["stride"])).tolist()
    pads = np.asarray(op.params.get("pad_amount", np.zeros((spatial, 2)))).reshape(-1, 2).sum(axis=1).tolist()
    if len(stride) != spatial or len(pads) != spatial:
        return op
    extra = [int(made[1 + i] - ((image[1 + i] - 1) * stride[i] + kernel[i] - pads[i])) for i in range(spatial)]
    given = np.ravel(np.asarray(op.params.get("output_padding", (0,) * spatial))).tolist()
    if any(given) or not all(0 <= more < step for more, step in zip(extra, stride, strict=True)):
        return op
    return replace(op, params={**op.params, "output_padding": extra})


def _sigmoid(op: QnnOp) -> QnnOp:
    """A sigmoid in fixed point without an encoding, in the one that its range of 0 to 1 asks for."""
    if op.type == "ElementWiseNeuron" and int(op.params.get("operation", -1)) != _SIGMOID:
        return op
    return replace(op, outputs=tuple(from_0_to_1(tensor) for tensor in op.outputs))


def from_0_to_1(tensor: QnnTensor) -> QnnTensor:
    """A tensor in fixed point without an encoding, as one of 0 to 1."""
    bits = _FIXED_BITS.get(tensor.data_type)
    if bits is None or tensor.quantization is not None:
        return tensor
    encoding = QuantizeParams("QNN_QUANTIZATION_ENCODING_SCALE_OFFSET", (1 / (1 << bits),), (0,))
    return replace(tensor, quantization=encoding)


_FORMS: dict[str, Callable[[QnnOp], QnnOp]] = {
    "ElementWiseNeuron": _sigmoid,
    "Prelu": _align_prelu,
    "RandomNormalLike": _seed,
    "RandomUniformLike": _seed,
    "Sigmoid": _sigmoid,
    "Stft": _frame_length,
    "TransposeConv2d": _output_padding,
    "TransposeConv3d": _output_padding,
}
