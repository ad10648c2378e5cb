# SPDX-License-Identifier: Apache-2.0
"""Write: a float model and its plan to a model with QuantizeLinear and DequantizeLinear nodes.

A run-time tensor gets one Q, and a DQ for each group of nodes that compute together; a constant becomes integers with a
DQ; where a node reads a tensor in another type, DQ and Q convert it; a bias is int32 in steps of its product.
"""

from __future__ import annotations

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.ir import Array, AxisScaleOffset, Block, BlockwiseExpansion, DType, Encoding, ScaleOffset, TensorType
from hexforge.ir.fixed_point import encoding_fault, quantize
from hexforge.model.simplifying.tidying import sort_graph
from hexforge.patterns.nodes import dims, float_constant
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.quant_units import Bias, QuantUnit, is_float, quant_units
from hexforge.quant.decide.ranges import INT16_WEIGHT_RANGE

_BLOCKS_SINCE = 21
"""The opset that has 16-bit, 4-bit and blockwise Q and DQ; before it, com.microsoft's have 16 and 4 bits."""
_IR_VERSION = 10
_MICROSOFT = "com.microsoft"


KnownIntegers = dict[tuple[str, Fixed], Array]
"""Constants of a model as integers, by their names and types: several plans for one model have many in common."""


def write(model: onnx_ir.Model, plan: EncodingPlan, known: KnownIntegers | None = None) -> onnx_ir.Model:
    """A copy of the model with the plan in it; ModelError where an encoding does not fit its tensor.

    `known` keeps integers from one plan of the model to the next.
    """
    quantized = model.clone()
    sort_graph(quantized.graph)
    _Writer(quantized, plan, {} if known is None else known).write()
    sort_graph(quantized.graph)
    quantized.ir_version = max(quantized.ir_version, _IR_VERSION)
    quantized.producer_name = "hexforge"
    return quantized


def bias_fixed(data: Fixed, weight: Fixed) -> Fixed:
    """int32 in steps of the data's scale times the weight's: what a product adds without converting it."""
    if not isinstance(data.encoding, ScaleOffset):
        raise ModelError("data of a product has one scale")
    step = data.encoding.scale
    match weight.encoding:
        case ScaleOffset(scale=scale):
            return Fixed(DType.INT32, ScaleOffset(float(np.float32(step) * np.float32(scale))))
        case AxisScaleOffset(scales=scales) | BlockwiseExpansion(scales=scales):
            steps = np.float32(step) * np.asarray(scales, np.float32)
            return Fixed(DType.INT32, AxisScaleOffset(0, tuple(map(float, steps)), (0,) * len(scales)))
        case _:
            raise ModelError("a bias beside weights with a float scale per block; add it with another node")


class _Writer:
    def __init__(self, model: onnx_ir.Model, plan: EncodingPlan, known: KnownIntegers) -> None:
        self.graph, self.plan, self.known = model.graph, plan, known
        self.units = [u for u in quant_units(model.graph) if u.reason is None and u.name not in plan.floats]
        self.values = {v.name or "": v for v in (*self.graph.inputs, *self.graph.initializers.values())}
        self.values.update((v.name or "", v) for node in self.graph for v in node.outputs)
        self.names = {n for n in self.values if n} | {node.name or "" for node in self.graph}
        self.computed = {value for unit in self.units for value in unit.writes}
        self.domain = self._domain(model)
        self._parameters: dict[tuple[str, Encoding], tuple[onnx_ir.Value, onnx_ir.Value]] = {}

    def write(self) -> None:
        """All of the plan."""
        unknown = sorted(name for name in {*self.plan.tensors, *(t for t, _ in self.plan.converts)} - set(self.values))
        if unknown:
            raise ModelError(f"the plan names tensors the model lacks: {', '.join(unknown[:5])}")
        for name, array in self.plan.constants.items():
            self._replace(name, array)
        components = _components(self.graph, self.plan)
        for unit in self.units:
            if unit.bias is not None:
                self._bias(unit, unit.bias)
        reads = {(node, index) for unit in self.units for node, index, _ in unit.reads}
        for name, fixed in self.plan.tensors.items():
            value = self.values[name]
            if value.const_value is not None:
                self._constant(value, fixed, reads)
            else:
                self._tensor(value, fixed, components)
        self._remove_unused()

    def _domain(self, model: onnx_ir.Model) -> str:
        opset = model.opset_imports.get("", 0)
        fixed = [*self.plan.tensors.values(), *self.plan.converts.values()]
        if opset >= _BLOCKS_SINCE or not fixed:
            return ""
        if any(isinstance(f.encoding, (Block, BlockwiseExpansion)) for f in fixed):
            raise ModelError(f"scales per block need opset {_BLOCKS_SINCE}, the model has {opset}; convert it first")
        if opset >= 13 and all(f.dtype.bits == 8 for f in fixed):
            return ""
        model.opset_imports[_MICROSOFT] = 1
        return _MICROSOFT

    # -- run-time tensors ---------------------------------------------------------------------------------------

    def _tensor(self, value: onnx_ir.Value, fixed: Fixed, components: dict[onnx_ir.Node, int]) -> None:
        name = value.name or ""
        uses = [(use.node, use.idx) for use in value.uses()]
        output = value.is_graph_output()
        if value not in self.computed:  # what the CPU makes or is given, it reads and gives back as it is
            uses = [(node, index) for node, index in uses if (node.name or "") not in self.plan.on_cpu]
            maker = value.producer()
            output = output and (maker is None or (maker.name or "") not in self.plan.on_cpu)
        if output:
            value.name = self._unique(f"{name}_float")
        quantized = self._quantize(value, fixed, name)
        readers: dict[tuple[Fixed | None, int], onnx_ir.Value] = {}
        converted: dict[Fixed, onnx_ir.Value] = {}
        for node, index in uses:
            other = self.plan.converts.get((name, node.name or ""))
            other = None if other == fixed else other
            key = (other, components.get(node, -1))
            if key not in readers:
                source = quantized
                if other is not None:
                    if other not in converted:
                        real = self._dequantize(quantized, fixed, name)
                        converted[other] = self._quantize(real, other, f"{name}_{other.dtype.value}")
                    source = converted[other]
                stem = name if other is None else f"{name}_{other.dtype.value}"
                readers[key] = self._dequantize(source, other or fixed, stem)
            node.replace_input_with(index, readers[key])
        if output:
            real = self._dequantize(quantized, fixed, name, name)
            for position, graph_output in enumerate(self.graph.outputs):
                if graph_output is value:
                    self.graph.outputs[position] = real

    def _quantize(self, value: onnx_ir.Value, fixed: Fixed, stem: str) -> onnx_ir.Value:
        name, dtype = f"{stem}_QuantizeLinear_Output", onnx_ir.DataType[fixed.dtype.name]
        return self._node("QuantizeLinear", value, fixed, stem, name, dtype)

    def _dequantize(self, value: onnx_ir.Value, fixed: Fixed, stem: str, out: str = "") -> onnx_ir.Value:
        name = out or f"{stem}_DequantizeLinear_Output"
        return self._node("DequantizeLinear", value, fixed, stem, name, onnx_ir.DataType.FLOAT)

    def _node(
        self, op: str, value: onnx_ir.Value, fixed: Fixed, stem: str, name: str, dtype: onnx_ir.DataType
    ) -> onnx_ir.Value:
        scale, zero_point = self._scales(fixed, stem, value)
        out = onnx_ir.Value(
            name=name if name == stem else self._unique(name), shape=value.shape, type=onnx_ir.TensorType(dtype)
        )
        attributes = _attributes(fixed.encoding, dims(value) or ())
        node = onnx_ir.node(
            op, [value, scale, zero_point], attributes or None, domain=self.domain, outputs=[out],
            name=self._unique(f"{stem}_{op}"),
        )  # fmt: skip
        self.graph.append(node)
        return out

    # -- constants ----------------------------------------------------------------------------------------------

    def _constant(self, value: onnx_ir.Value, fixed: Fixed, reads: set[tuple[onnx_ir.Node, int]]) -> None:
        """Integers and a DQ for those who read the constant as fixed point; others keep the float numbers."""
        name, data = value.name or "", float_constant(value)
        if data is None:
            raise ModelError(f"constant {name!r} is not float32, which is what can be quantized")
        stored: dict[Fixed, onnx_ir.Value] = {}
        for use in list(value.uses()):
            if (use.node, use.idx) not in reads:
                continue
            chosen = self.plan.converts.get((name, use.node.name or ""), fixed)
            if chosen not in stored:
                integers = self.plan.integers.get(name) if chosen == fixed else None
                changed = integers is not None or name in self.plan.constants
                integers = integers if changed else self.known.get((name, chosen))
                stored[chosen] = self._integers(name, data if integers is None else integers, chosen)
                if not changed and (tensor := stored[chosen].const_value) is not None:
                    self.known[name, chosen] = np.asarray(tensor.numpy())
            use.node.replace_input_with(use.idx, self._dequantize(stored[chosen], chosen, name))

    def _integers(self, name: str, data: Array, fixed: Fixed) -> onnx_ir.Value:
        type = TensorType(fixed.dtype, data.shape, _single(fixed.encoding))
        problem = encoding_fault(type)
        if problem is not None:
            raise ModelError(f"the encoding of {name!r} does not fit it: {problem}")
        integers = quantize(data.astype(np.float64), type) if data.dtype.kind == "f" else data
        if fixed.dtype is DType.INT16:
            integers = np.minimum(integers, INT16_WEIGHT_RANGE[1])
        return self._initializer(f"{name}_quantized", integers.astype(fixed.dtype.numpy, copy=False))

    def _bias(self, unit: QuantUnit, bias: Bias) -> None:
        data = self._read(unit.target, 0)
        weight = self._read(unit.target, unit.rule.weight or 1)
        array = float_constant(bias.value)
        if array is None or data is None or weight is None:
            return
        if bias.row:
            width = len(array.ravel())
            fixed = bias_fixed(data, weight)
            if isinstance(fixed.encoding, AxisScaleOffset):
                width = len(fixed.encoding.scales)
            elif unit.target.op_type == "Gemm":
                width = (dims(unit.target.outputs[0]) or (width,))[-1]
            array = np.broadcast_to(array.ravel(), (width,))
        else:  # what a normalization adds has nothing to do with the scale of what it reads
            most = float(np.abs(array).max(initial=0.0)) or 1.0
            fixed = Fixed(DType.INT32, ScaleOffset(float(np.float32(most / 2**30))))
        name = bias.value.name or "bias"
        bias.node.replace_input_with(bias.index, self._dequantize(self._integers(name, array, fixed), fixed, name))

    def _read(self, node: onnx_ir.Node, index: int) -> Fixed | None:
        """How a node reads an input."""
        value = node.inputs[index]
        name = (value.name if value is not None else None) or ""
        return self.plan.converts.get((name, node.name or "")) or self.plan.tensors.get(name)

    def _replace(self, name: str, array: Array) -> None:
        value = self.values.get(name)
        if value is None or value.const_value is None:
            raise ModelError(f"the plan changes {name!r}, which is no constant of the model")
        value.const_value = onnx_ir.tensor(np.ascontiguousarray(array, np.float32), name=name)
        value.shape = onnx_ir.Shape(array.shape)

    def _remove_unused(self) -> None:
        outputs = set(self.graph.outputs)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and value not in outputs:
                del self.graph.initializers[name]

    # -- scales and zero points ---------------------------------------------------------------------------------

    def _scales(self, fixed: Fixed, stem: str, value: onnx_ir.Value) -> tuple[onnx_ir.Value, onnx_ir.Value | None]:
        key = (f"{stem} {fixed.dtype.value}", fixed.encoding)
        if key in self._parameters and not isinstance(fixed.encoding, BlockwiseExpansion):
            return self._parameters[key]
        scales, zeros = _arrays(fixed, dims(value) or ())
        scale = self._expanded(fixed.encoding, stem) if isinstance(fixed.encoding, BlockwiseExpansion) else None
        parameters = (
            self._initializer(f"{stem}_scale", scales) if scale is None else scale,
            self._initializer(f"{stem}_zero_point", zeros),
        )
        self._parameters[key] = parameters
        return parameters

    def _expanded(self, encoding: BlockwiseExpansion, stem: str) -> onnx_ir.Value:
        """The scales of blocks, as integers with a DQ of one float scale per channel."""
        steps = np.asarray(encoding.block_scales).reshape(len(encoding.scales), -1).astype(np.uint8)
        steps = np.ascontiguousarray(steps if encoding.axis < encoding.block_axis else steps.T)
        per_channel = AxisScaleOffset(encoding.axis, encoding.scales, (0,) * len(encoding.scales))
        value = self._initializer(f"{stem}_block_scale", steps)
        return self._dequantize(value, Fixed(DType.UINT8, per_channel), f"{stem}_block_scale")

    def _initializer(self, stem: str, array: Array) -> onnx_ir.Value:
        name = self._unique(stem)
        tensor = onnx_ir.Tensor(array, name=name)
        value = onnx_ir.Value(
            name=name, shape=onnx_ir.Shape(array.shape), type=onnx_ir.TensorType(tensor.dtype), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def _unique(self, stem: str) -> str:
        name, count = stem, 1
        while name in self.names:
            name, count = f"{stem}_{count}", count + 1
        self.names.add(name)
        return name


def _single(encoding: Encoding) -> Encoding:
    """The encoding with scales as the file will have them, float32, so that integers are rounded by those."""
    match encoding:
        case ScaleOffset(scale, offset, bitwidth):
            return ScaleOffset(float(np.float32(scale)), offset, bitwidth)
        case AxisScaleOffset(axis, scales, offsets, bitwidth):
            return AxisScaleOffset(axis, tuple(map(float, np.asarray(scales, np.float32))), offsets, bitwidth)
        case _:
            return encoding


def _attributes(encoding: Encoding, shape: tuple[int, ...]) -> dict[str, int]:
    match encoding:
        case AxisScaleOffset(axis=axis):
            return {"axis": axis}
        case BlockwiseExpansion(block_axis=axis, scales=scales, block_scales=block_scales):
            return {"axis": axis, "block_size": shape[axis] * len(scales) // len(block_scales)}
        case Block(block_shape=shape):
            axis = next((i for i, n in enumerate(shape) if n > 1), 0)
            return {"axis": axis, "block_size": shape[axis]}
        case _:
            return {}


def _arrays(fixed: Fixed, shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Scales and zero points as Q and DQ take them."""
    encoding, dtype = fixed.encoding, fixed.dtype.numpy
    if isinstance(encoding, ScaleOffset):
        return np.asarray(encoding.scale, np.float32), np.asarray(-encoding.offset).astype(dtype)
    scales, zeros = np.asarray(encoding.scales, np.float32), -np.asarray(encoding.offsets, np.int64)
    if isinstance(encoding, Block):
        counts = [n // b for n, b in zip(shape, encoding.block_shape, strict=True)]
        return scales.reshape(counts), zeros.reshape(counts).astype(dtype)
    if isinstance(encoding, BlockwiseExpansion):
        blocks = len(encoding.block_scales) // len(encoding.scales)
        counts = [len(encoding.scales), blocks]
        zeros = np.broadcast_to(zeros[:, None], counts)
        return scales, np.ascontiguousarray(zeros if encoding.axis < encoding.block_axis else zeros.T).astype(dtype)
    return scales, zeros.astype(dtype)


def _components(graph: onnx_ir.Graph, plan: EncodingPlan) -> dict[onnx_ir.Node, int]:
    """A number for each node; nodes with a float tensor between them that stays float have the same."""
    number = {node: i for i, node in enumerate(graph)}
    parent = list(range(len(number)))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for node, i in number.items():
        for value in node.outputs:
            if value.name in plan.tensors or not is_float(value):
                continue
            for use in value.uses():
                if use.node in number:
                    parent[root(number[use.node])] = root(i)
    return {node: root(i) for node, i in number.items()}
