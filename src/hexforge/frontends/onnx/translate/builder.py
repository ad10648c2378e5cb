# SPDX-License-Identifier: Apache-2.0
"""Builder: what a translator writes QNN nodes with, in one step or several; and the registry of translators."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir

from hexforge.errors import ModelError
from hexforge.frontends.onnx.unit import Operand, Refusal, Unit, constant, onnx_dtype, onnx_shape
from hexforge.ir import Array, DType, Encoding, Graph, ParamValue, Role, ScaleOffset, TensorType, Value
from hexforge.ir.fixed_point import dequantize, encoding_fault, permute_type, quantized_range
from hexforge.ops.packages import custom_op

Translator = Callable[["Builder", Unit], None]
TRANSLATORS: dict[str, Translator] = {}
"""ONNX op type -> the function that writes it."""
WRITES: dict[str, tuple[str, ...]] = {}
"""ONNX op type -> the QNN ops its translator may write, besides AROUND."""
AROUND = ("Cast", "Convert", "Dequantize", "Quantize", "ReluMinMax", "Reshape", "Transpose")
"""QNN ops that may stand around those of any translator: other types, shapes and layouts, and a Relu that was fused."""


def translates(*ops: str, writes: Sequence[str] | Mapping[str, str]) -> Callable[[Translator], Translator]:
    """Register a translator for op types (`Type`, or `domain:Type` outside ai.onnx).

    `writes` names the QNN ops that it may write, or the one for each op type. Those of AROUND are named only where they
    are what the op type becomes.
    """

    def register(function: Translator) -> Translator:
        for op in ops:
            if op in TRANSLATORS:
                raise ValueError(f"two translators for {op}")
            TRANSLATORS[op] = function
            WRITES[op] = (writes[op],) if isinstance(writes, Mapping) else tuple(writes)
        return function

    return register


class Builder:
    """Writes the QNN nodes of units into a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._source: tuple[str, ...] = ()
        self._stem = ""
        self._values: dict[tuple[str, Encoding | None], Value] = {}  # statics may appear under several encodings
        self._pending: dict[int, Value] = {}
        self._after: tuple[Value, Value, tuple[float, float]] | None = None

    # -- reading the unit ---------------------------------------------------------------------------------------

    def has(self, unit: Unit, index: int) -> bool:
        """True where the unit has that input."""
        return index < len(unit.inputs) and unit.inputs[index] is not None

    def operand(self, unit: Unit, index: int) -> Operand:
        """An input that must be there."""
        operand = unit.inputs[index] if index < len(unit.inputs) else None
        if operand is None:
            raise Refusal(f"input {index} is missing")
        return operand

    def input(self, unit: Unit, index: int) -> Value:
        """The graph's value of an input, fixed point where the unit says so (dequantized where its output is not)."""
        value = self.bind(self.operand(unit, index))
        return self.dequantize(value) if unit.dequantized else value

    def optional(self, unit: Unit, index: int) -> Value | None:
        """The graph's value of an input, None where it is not given."""
        return self.input(unit, index) if self.has(unit, index) else None

    def real(self, unit: Unit, index: int) -> Value:
        """An input as real numbers: a Dequantize is written where it is fixed point."""
        return self.dequantize(self.input(unit, index))

    def constant(self, unit: Unit, index: int, what: str = "") -> Array | None:
        """Data of a constant input (real numbers where it is fixed point), None if absent; Refusal if not constant."""
        if not self.has(unit, index):
            return None
        operand = self.operand(unit, index)
        data = constant(operand.value)
        if data is None:
            raise Refusal(
                f"{what or f'input {index}'} ({operand.value.name!r}) is computed at run time; make it constant"
            )
        if operand.encoding is not None:
            return dequantize(data, self.type_of(operand), np.float32)
        return data

    def is_constant(self, unit: Unit, index: int) -> bool:
        """True where the input is given and constant."""
        return self.has(unit, index) and self.operand(unit, index).value.const_value is not None

    def attr(self, unit: Unit, name: str, default: Any = None) -> Any:
        """An attribute of the target as a Python value (str, int, float, list, tensor), or `default`."""
        attribute = unit.target.attributes.get(name)
        return default if attribute is None else attribute.value

    def opset(self, unit: Unit) -> int:
        """The opset version the target is written in."""
        return int(unit.target.version or 1)

    def type_of(self, operand: Operand) -> TensorType:
        """The tensor type of an operand; Refusal if QNN cannot have it."""
        type = TensorType(onnx_dtype(operand.value), onnx_shape(operand.value), operand.encoding)
        problem = encoding_fault(type)
        if problem:
            raise Refusal(f"tensor {operand.value.name!r}: {problem}")
        return type

    def bind(self, operand: Operand) -> Value:
        """The graph's value of an operand, added on first use as STATIC, or APP_WRITE until a unit writes it."""
        name = operand.value.name
        assert name is not None
        key = (name, operand.encoding)
        if key in self._values:
            return self._values[key]
        data = constant(operand.value)
        if data is not None:
            value = self.graph.value(self.graph.unique(name), self.type_of(operand), Role.STATIC, data)
        elif name in self.graph.values:
            raise Refusal(f"tensor {name!r} is read with two different encodings")
        else:
            value = self.graph.value(name, self.type_of(operand), Role.APP_WRITE)
        self._values[key] = value
        return value

    # -- writing ------------------------------------------------------------------------------------------------

    def output(self, unit: Unit, index: int = 0) -> Value:
        """The value that an output of the unit must be written to."""
        operand = unit.outputs[index]
        if operand is None:
            raise Refusal(f"output {index} is missing")
        if index in self._pending:
            return self._pending[index]
        name = operand.value.name
        assert name is not None
        key = (name, operand.encoding)
        if key not in self._values:
            self._values[key] = self.graph.value(name, self.type_of(operand))
        final = self._values[key]
        if index == 0 and unit.clip is not None and (bounds := _clip_bounds(unit.clip, final.type)) is not None:
            before = self._pending[index] = self.temp(final.type)
            self._after = (before, final, bounds)
            return before
        return final

    def wants(self, unit: Unit, index: int) -> bool:
        """True where the unit's node names that output."""
        return index < len(unit.outputs) and unit.outputs[index] is not None

    def temp(self, type: TensorType, name: str | None = None) -> Value:
        """A new NATIVE value."""
        return self.graph.value(self.graph.unique(name or f"{self._stem}_tmp"), type)

    def static(self, data: Array, encoding: Encoding | None = None, name: str | None = None) -> Value:
        """A new STATIC value."""
        return self.graph.static(data, encoding, name or f"{self._stem}_const")

    def emit(
        self, op: str, inputs: Sequence[Value | None], out: Value | TensorType | None = None, **params: ParamValue
    ) -> Value:
        """Write a one-output node. `out`: the value to write, the type of a new one, or None to infer it."""
        target = self.temp(out) if isinstance(out, TensorType) else out
        outputs = None if target is None else [target]
        return self.emit_many(op, inputs, outputs, **params)[0]

    def emit_many(
        self, op: str, inputs: Sequence[Value | None], outputs: Sequence[Value] | None = None, **params: ParamValue
    ) -> tuple[Value, ...]:
        """Write a node with several outputs (inferred types where `outputs` is None)."""
        node = self.graph.node(op, inputs, outputs, name=f"{self._stem}_{op}", source=self._source, **params)
        return node.outputs

    def transpose(self, value: Value, perm: Iterable[int], out: Value | None = None) -> Value:
        """`value` with its axes permuted; constants are transposed at once, as a view."""
        perm = tuple(perm)
        type = permute_type(value.type, perm)
        if out is None and perm == tuple(range(len(perm))):
            return value
        if value.data is not None and out is None:
            return self.static(value.data.transpose(perm), type.encoding, f"{value.name}_t")
        return self.emit("Transpose", [value], type if out is None else out, perm=perm)

    def reshape(self, value: Value, shape: Iterable[int], out: Value | None = None) -> Value:
        """`value` in another shape; constants are reshaped at once."""
        shape = tuple(int(d) for d in shape)
        if out is None and shape == value.shape:
            return value
        if value.data is not None and out is None and not hasattr(value.encoding, "axis"):
            return self.static(value.data.reshape(shape), value.encoding, f"{value.name}_r")
        return self.emit("Reshape", [value], value.type.with_shape(shape) if out is None else out)

    def to_channel_last(self, value: Value) -> Value:
        """NC... to N...C."""
        rank = len(value.shape)
        return self.transpose(value, (0, *range(2, rank), 1))

    def to_channel_first(self, value: Value, out: Value | None = None) -> Value:
        """N...C to NC...; written to `out` where given."""
        rank = len(value.shape)
        return self.transpose(value, (0, rank - 1, *range(1, rank - 1)), out)

    def dequantize(self, value: Value) -> Value:
        """`value` as float32: itself where it is not fixed point."""
        if value.encoding is None:
            return value
        if value.data is not None:
            return self.static(dequantize(value.data, value.type, np.float32), name=f"{value.name}_real")
        return self.emit("Dequantize", [value], TensorType(DType.FLOAT32, value.shape))

    def finish(self, unit: Unit, value: Value, index: int = 0) -> None:
        """Make `value` the unit's output: written there directly, or through Reshape, Cast, Quantize, Dequantize."""
        out = self.output(unit, index)
        if value.shape != out.shape:
            if value.type.with_shape(out.shape) == out.type:
                self.reshape(value, out.shape, out)
                return
            value = self.reshape(value, out.shape)
        if value.type == out.type:
            node = value.producer
            if node is not None and value.role is Role.NATIVE and not value.users and node.source == self._source:
                self.graph.set_outputs(node, [out if v is value else v for v in node.outputs])
                self.graph.remove_value(value)
            else:
                self.emit("Reshape", [value], out)
        elif value.encoding is not None and out.encoding is not None:
            self.emit("Convert", [value], out)
        elif out.encoding is not None:
            self.emit("Quantize", [value], out)
        elif value.encoding is not None:
            self.emit("Dequantize", [value], out)
        else:
            self.emit("Cast", [value], out)

    # -- a whole unit -------------------------------------------------------------------------------------------

    def translate(self, unit: Unit, translator: Translator) -> None:
        """Write one unit; Refusal (or ModelError from an op's checks) if it cannot become QNN ops."""
        self._source = tuple(n.name or n.op_type for n in unit.nodes)
        self._stem = unit.target.name or unit.target.op_type
        self._pending = {}
        self._after = None
        _require_sizes(unit)
        try:
            translator(self, unit)
        except (MemoryError, OverflowError) as error:
            raise Refusal(f"what it would become does not fit into memory: {error}") from None
        if self._after is not None:
            before, final, (low, high) = self._after
            self.emit("ReluMinMax", [before], final, min_value=low, max_value=high)

    def close(self, outputs: Iterable[str]) -> Graph:
        """The graph, with roles set: written values named in `outputs` become APP_READ."""
        self.graph.expose(set(outputs))
        self.graph.sort()
        return self.graph


MOST_ELEMENTS = 1 << 32
"""Of a tensor: QNN counts them in 32 bits. It bounds the work on constants that only repeat a number, too."""


def _require_sizes(unit: Unit) -> None:
    """Refusal where a tensor of a unit is larger than QNN's can be."""
    for operand in (*unit.inputs, *unit.outputs):
        shape = None if operand is None else operand.value.shape
        sizes = [] if shape is None else [size for size in shape if isinstance(size, int)]
        if math.prod(sizes) > MOST_ELEMENTS:
            raise Refusal(f"a tensor of {sizes}, {math.prod(sizes):,} elements; QNN's have at most {MOST_ELEMENTS:,}")


def _clip_bounds(clip: onnx_ir.Node, type: TensorType) -> tuple[float, float] | None:
    """Bounds of a Relu or Clip after a unit's target, None where the output's encoding implies them."""
    low, high = 0.0, float("inf")
    if clip.op_type == "Clip":
        constants = [constant(v) for v in (*clip.inputs, None, None)[1:3]]
        attributes = [clip.attributes.get(name) for name in ("min", "max")]
        bounds = [
            _bound(g) if g is not None else float(a.value) if a is not None else d
            for g, a, d in zip(constants, attributes, (-float("inf"), float("inf")), strict=True)
        ]
        low, high = bounds
    if type.encoding is not None and not hasattr(type.encoding, "axis"):
        q_low, q_high = (
            dequantize(np.asarray(q), TensorType(type.dtype, (), type.encoding))
            for q in quantized_range(type.dtype, type.encoding)
        )
        if low <= q_low and high >= q_high:
            return None
    return low, high


def _bound(bound: Array) -> float:
    """A bound of a Clip: one number, as a scalar or, as exporters write it, in a list."""
    if bound.size != 1:
        raise Refusal(f"a bound of shape {list(bound.shape)} of the Clip that follows; it is one number")
    return float(bound.reshape(())[()])


def carried(b: Builder, u: Unit, index: int = 0) -> Value:
    """An input of an op that computes in its output's number format: fixed point only where output 0 is, too."""
    outputs = [o for o in u.outputs if o is not None]
    return b.input(u, index) if outputs and outputs[0].encoding is not None else b.real(u, index)


def translator_of(unit: Unit) -> Translator | None:
    """What writes the op of a unit: its translator, or that of ops of registered packages; None where there is none."""
    custom = _write_custom_op if custom_op(unit.target.domain, unit.target.op_type) is not None else None
    return TRANSLATORS.get(unit.op) or custom


def _write_custom_op(b: Builder, u: Unit) -> None:
    """A node of an op package becomes its op, with its attributes as parameters."""
    custom = custom_op(u.target.domain, u.target.op_type)
    assert custom is not None
    params = {name: attribute.value for name, attribute in u.target.attributes.items()}
    try:
        completed = custom.op.complete(params)
        inputs = [b.optional(u, index) for index in range(len(u.inputs))]
        b.emit_many(custom.op.name, inputs, [b.output(u, index) for index in range(len(u.outputs))], **completed)
    except ModelError as error:
        raise Refusal(f"op package {custom.package!r}: {error}") from None


def scalar(b: Builder, number: float, like: Value | DType) -> Value:
    """A constant number of `like`'s data type, which broadcasts to any shape."""
    dtype = like.dtype if isinstance(like, Value) else like
    return b.static(np.asarray([number]).astype(dtype.numpy))


def exact_scalar(b: Builder, number: float, like: Value) -> Value:
    """A constant number beside `like`: where that is fixed point, one step (or none) of an encoding made for it."""
    shape = (1,) * min(1, len(like.shape))
    if like.encoding is None:
        return b.static(np.full(shape, number).astype(like.dtype.numpy))
    if number > 0:
        return b.static(np.ones(shape, like.dtype.numpy), ScaleOffset(number))
    return b.static(np.zeros(shape, like.dtype.numpy), ScaleOffset(-number, -1) if number else ScaleOffset(1.0))


def scaled_output(b: Builder, u: Unit, factor: float, write: Callable[[Value | TensorType], Value]) -> bool:
    """Write `factor` times a result in the output's fixed point, rounded once; False where it is no fixed point.

    The result is written with the output's integers, each step worth 1 / `factor` of it; the product with the factor
    then changes what a step is worth, and no integer.
    """
    out = b.output(u)
    encoding = out.encoding
    if not isinstance(encoding, ScaleOffset) or not factor > 0 or not np.isfinite(encoding.scale / factor):
        return False
    if factor == 1:
        write(out)
        return True
    steps = write(TensorType(out.dtype, out.shape, replace(encoding, scale=encoding.scale / factor)))
    b.emit("ElementWiseMultiply", [steps, exact_scalar(b, factor, steps)], out)
    return True


def binary(b: Builder, op: str, x: Value, y: Value | float) -> Value:
    """ElementWise`op` of two values, or of a value and a number."""
    return b.emit(f"ElementWise{op}", [x, y if isinstance(y, Value) else scalar(b, y, x)])


def unary(b: Builder, op: str, x: Value) -> Value:
    """ElementWise`op` of a value."""
    return b.emit(f"ElementWise{op}", [x])


def reduce(b: Builder, op: str, x: Value, axes: Sequence[int], keep_dims: bool = True) -> Value:
    """Reduce`op` along axes; the value itself where there are none."""
    return b.emit(f"Reduce{op}", [x], axes=tuple(axes), keep_dims=keep_dims) if axes else x


def cast(b: Builder, x: Value, dtype: DType) -> Value:
    """`x` in another data type; itself where it has it."""
    if x.dtype is dtype and x.encoding is None:
        return x
    if x.data is not None and x.encoding is None:
        return b.static(x.data.astype(dtype.numpy), name=f"{x.name}_{dtype.value}")
    return b.emit("Cast", [x], TensorType(dtype, x.shape))


def part(b: Builder, x: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """The slice start:stop:step of `x` along one axis, a view where it is constant."""
    axis %= len(x.shape)
    if (start, stop, step) == (0, x.shape[axis], 1):
        return x
    if x.data is not None and not hasattr(x.encoding, "scales"):
        return b.static(x.data[(slice(None),) * axis + (slice(start, stop, step),)], x.encoding, f"{x.name}_part")
    ranges = [(start, stop, step) if i == axis else (0, n, 1) for i, n in enumerate(x.shape)]
    return b.emit("StridedSlice", [x], ranges=ranges)


def concat(b: Builder, values: Sequence[Value], axis: int) -> Value:
    """Values joined along an axis."""
    return values[0] if len(values) == 1 else b.emit("Concat", values, axis=axis % len(values[0].shape))


def ranged(b: Builder, shape: Sequence[int], axis: int, dtype: DType = DType.INT32) -> Value:
    """A constant 0, 1, 2… along one axis of `shape`, whose other axes are 1."""
    return b.static(np.arange(shape[axis]).astype(dtype.numpy).reshape(shape))


def less_zero_point(b: Builder, u: Unit, index: int, trailing: int = 0) -> Value:
    """An 8-bit operand of an integer op as int32 less its zero point, input index + 2.

    Several zero points run along the axis that has `trailing` axes behind it.
    """
    value = cast(b, b.input(u, index), DType.INT32)
    if not b.has(u, index + 2):
        return value
    zero = cast(b, b.input(u, index + 2), DType.INT32)
    if trailing and len(zero.shape) == 1 and zero.type.size > 1:
        zero = b.reshape(zero, (zero.type.size, *(1,) * trailing))
    return binary(b, "Subtract", value, zero) if zero.data is None or zero.data.any() else value


def map_axis(b: Builder, x: Value, axis: int, matrix: Array) -> Value:
    """`x` with the vectors along `axis` multiplied by `matrix` [out, in]."""
    rank, weights = len(x.shape), matrix.astype(x.dtype.numpy)
    if rank > 1 and axis == rank - 2:
        return b.emit("MatMul", [b.static(weights), x])
    if axis == rank - 1:
        flat = x if rank > 1 else b.reshape(x, (1, *x.shape))
        value = b.emit("MatMul", [flat, b.static(np.ascontiguousarray(weights.T))])
        return value if rank > 1 else b.reshape(value, value.shape[1:])
    outer, inner = x.shape[: axis + 1], x.shape[axis + 1 :]
    flat = b.reshape(x, (*outer, int(np.prod(inner))))
    value = b.emit("MatMul", [b.static(weights), flat])
    return b.reshape(value, (*outer[:-1], matrix.shape[0], *inner))


def take_axis(b: Builder, x: Value, axis: int, index: Array) -> Value:
    """`x` with the elements along `axis` that `index` names; fixed point stays as it is."""
    if index.ndim == 1 and np.array_equal(index, np.arange(x.shape[axis])):
        return x
    shape = (*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
    return b.emit("Gather", [x, b.static(index.astype(np.int32))], x.type.with_shape(shape), axis=axis)
