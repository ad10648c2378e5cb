# SPDX-License-Identifier: Apache-2.0
"""Compare: what quantizing costs each tensor of a model, and how the tensors of a QDQ model are watched."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx_ir

from hexforge._native import channel_products, difference, rounding_difference
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.patterns.nodes import dims, is_float
from hexforge.results import Column, Result

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
SUFFIXES = ("_QuantizeLinear_Input", "_QuantizeLinear_Output", "_DequantizeLinear_Output", "_quantized", "_dequantized")
"""What quantizers append to the names of a float model's tensors."""

_FLOATS = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16)
_FITTED_PIECES = 2
"""Samples that factors are looked for in: equalized weights show in one, and looking costs more than comparing."""
_PER_CHANNEL, _EXPLAINED_DB = 32, 12.0
"""Elements of a channel that a factor can be told from, and the SQNR with it that says it is one."""

Kind = Literal["input", "tensor", "output", "weight"]


def same_extent(first: Array, second: Array) -> tuple[Array, Array]:
    """Two arrays as long as the longer of both along each axis, zeros where one of them has nothing."""
    if first.ndim != second.ndim:
        first, second = np.ravel(first), np.ravel(second)
    sizes = [max(pair) for pair in zip(first.shape, second.shape, strict=True)]
    both = [
        np.pad(array, [(0, size - own) for own, size in zip(array.shape, sizes, strict=True)])
        for array in (first, second)
    ]
    return both[0], both[1]


def open_outputs(model: onnx_ir.Model) -> list[str]:
    """The float outputs whose lengths depend on the data (NonZero, NonMaxSuppression), by name."""
    return [str(v.name) for v in model.graph.outputs if is_float(v) and dims(v) is None]


class ExactMean:
    """The mean of any number of figures in the memory of one: their sum is exact, so their order does not matter."""

    _UNIT = 1 << 1074
    """One over the smallest step of a float, by which every float is an integer."""

    def __init__(self) -> None:
        self._count, self._sum, self._not_finite = 0, 0, 0.0

    def add(self, figure: float) -> None:
        """Count one more."""
        self._count += 1
        if math.isfinite(figure):
            numerator, denominator = float(figure).as_integer_ratio()
            self._sum += numerator * (self._UNIT // denominator)
        else:
            self._not_finite += figure

    def sums(self) -> list[Any]:
        """What it holds, as JSON."""
        return [self._count, hex(self._sum), self._not_finite]

    def go_on(self, sums: Sequence[Any]) -> None:
        """Hold what another has held."""
        self._count, self._sum, self._not_finite = int(sums[0]), int(sums[1], 16), float(sums[2])

    def result(self) -> float:
        """The sum, rounded once, over the count."""
        return (self._sum / self._UNIT + self._not_finite) / self._count


@dataclass(slots=True)
class ErrorSums(Result):
    """The error of an array against its reference, summed up piece by piece; pieces can be merged in any number."""

    signal: float = 0.0
    noise: float = 0.0
    power: float = 0.0
    max_error: float = 0.0
    count: int = 0
    not_finite: int = 0
    """Elements that are NaN or infinite where the reference is a number."""

    described = (
        Column("SQNR dB", "decibels", 2, key="sqnr_db", rounded=6),
        Column("cosine", "number", 6, rounded=6),
        Column("max error", "number", 5, key="max_error", text=lambda sums: max_error_text(sums)),
        "not_finite",
    )

    def update(self, reference: Array, result: Array) -> None:
        """Add a piece. Elements whose reference is no finite number (masks) are left out.

        Where a length depends on the data, what only one of the two has counts as an error against 0.
        """
        if reference.size != result.size:
            reference, result = same_extent(reference, result)
        first, second = np.ravel(reference), np.ravel(result)
        if first.dtype != np.float32 or second.dtype != np.float32:
            first, second = first.astype(np.float64), second.astype(np.float64)
        self._add(difference(first, second))

    def update_rounded(self, real: Array, linear: LinearQuantizer) -> None:
        """Add a piece: real numbers, and what quantizing leaves of them."""
        if linear.scale.size == 1 and linear.dtype.bitwidth <= 16:
            low, high = linear.steps
            self._add(
                rounding_difference(np.ravel(np.asarray(real, np.float32)), float(linear.scale.flat[0]), low, high)
            )
        else:
            self.update(real, linear.rounded(np.asarray(real, np.float32)))

    def _add(self, piece: tuple[float, float, float, float, int, int]) -> None:
        self.merge(ErrorSums(*piece))

    def merge(self, other: ErrorSums) -> None:
        """Add what another has seen."""
        self.signal += other.signal
        self.noise += other.noise
        self.power += other.power
        self.max_error = max(self.max_error, other.max_error)
        self.count += other.count
        self.not_finite += other.not_finite

    @property
    def sqnr_db(self) -> float:
        """SQNR in dB: infinite where nothing is lost, minus infinite for results that are not finite."""
        if self.not_finite:
            return -math.inf
        if self.noise == 0:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf

    @property
    def cosine(self) -> float:
        """The cosine between both, 1 where they are the same."""
        if self.not_finite:
            return 0.0
        length = math.sqrt(self.signal * self.power)
        product = (self.signal + self.power - self.noise) / 2
        return min(1.0, product / length) if length else float(self.noise == 0)


class ChannelFit:
    """Whether an array is its reference but for a factor per channel, as equalized weights make it."""

    def __init__(self) -> None:
        self._sums: dict[int, Array] = {}
        self._count = self._pieces = 0

    def update(self, reference: Array, result: Array) -> None:
        """Add a piece: per channel, along axis 1 and along the last, the sums that a best factor follows from."""
        if self._pieces == _FITTED_PIECES:
            return
        self._pieces += 1
        self._count += reference.size
        first, second = (np.ascontiguousarray(a, np.float32) for a in (reference, result))
        for axis in {1, reference.ndim - 1} if reference.ndim > 1 else ():
            shape = reference.shape
            cube = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
            sums = self._sums.setdefault(axis, np.zeros((3, shape[axis])))
            channel_products(first.reshape(cube), second.reshape(cube), sums)

    def sqnr_db(self) -> float | None:
        """The SQNR with the best factors; None where they explain little, or where channels have too few elements."""
        best = -math.inf
        for signal, product, power in self._sums.values():
            if self._count < _PER_CHANNEL * len(signal) or not (power > 0).all():
                continue
            noise = float((signal - product**2 / power).sum())
            best = max(best, 10 * math.log10(float(signal.sum()) / noise) if noise > 0 else math.inf)
        return best if best >= _EXPLAINED_DB else None


def is_quantized(model: onnx_ir.Model) -> bool:
    """True where a model has Q or DQ nodes."""
    return any(n.op_type in (QUANTIZE, DEQUANTIZE) for n in model.graph)


def require_float(model: onnx_ir.Model, name: str) -> None:
    """CallError where a model has Q or DQ nodes."""
    done = [n.name or n.op_type for n in model.graph if n.op_type in (QUANTIZE, DEQUANTIZE)]
    if done:
        raise CallError(
            f"{name}: is quantized already ({len(done)} Q and DQ nodes, as {done[0]!r}); give the float model"
        )


def _sums(reference: Array, result: Array) -> ErrorSums:
    sums = ErrorSums()
    sums.update(reference, result)
    return sums


def sqnr_db(reference: Array, result: Array) -> float:
    """Signal to quantization noise in dB."""
    return _sums(reference, result).sqnr_db


def cosine(reference: Array, result: Array) -> float:
    """The cosine between two arrays."""
    return _sums(reference, result).cosine


def max_error(reference: Array, result: Array) -> float:
    """The largest difference of an element."""
    sums = _sums(reference, result)
    return math.inf if sums.not_finite else sums.max_error


@dataclass(frozen=True, slots=True)
class LinearQuantizer:
    """How a QuantizeLinear or DequantizeLinear maps numbers, out of its constants."""

    dtype: onnx_ir.DataType
    scale: Array
    zero_point: Array
    axis: int
    block: int

    @staticmethod
    def of(node: onnx_ir.Node) -> LinearQuantizer | None:
        """The mapping of a node; None where its scale is not constant."""
        scale = _constant(node.inputs[1])
        zero = node.inputs[2] if len(node.inputs) > 2 else None
        if scale is None or (zero is not None and _constant(zero) is None):
            return None
        integers = node.inputs[0] if node.op_type == DEQUANTIZE else node.outputs[0]
        dtype = zero.dtype if zero is not None else integers.dtype if integers is not None else None
        zeros = _constant(zero) if zero is not None else None
        zeros = np.zeros(scale.shape, np.int64) if zeros is None else zeros.astype(np.int64)
        axis, block = (node.attributes.get(name) for name in ("axis", "block_size"))
        return LinearQuantizer(
            dtype or onnx_ir.DataType.UINT8,
            scale.astype(np.float32),
            zeros,
            1 if axis is None else axis.as_int(),
            0 if block is None else block.as_int(),
        )

    @property
    def type(self) -> str:
        """The integer type, e.g. uint8."""
        return self.dtype.name.lower()

    @property
    def steps(self) -> tuple[int, int]:
        """The lowest and the highest multiple of the scale; for encodings with one scale."""
        bits = self.dtype.bitwidth
        low = (-(1 << (bits - 1)) if self.dtype.is_signed() else 0) - int(self.zero_point.flat[0])
        return low, low + (1 << bits) - 1

    def _spread(self, values: Array, shape: tuple[int, ...]) -> Array:
        """A scale or zero point against an array of this shape."""
        if values.size == 1:
            return values.reshape(())
        if self.block:
            return np.repeat(values, self.block, self.axis)[tuple(slice(size) for size in shape)]
        return values.reshape([-1 if i == self.axis % len(shape) else 1 for i in range(len(shape))])

    def dequantize(self, integers: Array) -> Array:
        """Real numbers of integers."""
        centered = integers.astype(np.int64) - self._spread(self.zero_point, integers.shape)
        return np.asarray(centered * self._spread(self.scale, integers.shape), np.float32)

    def rounded(self, real: Array) -> Array:
        """Real numbers after they were quantized and dequantized."""
        scale, zero = (self._spread(v, real.shape).astype(np.float32) for v in (self.scale, self.zero_point))
        bits = self.dtype.bitwidth
        low = -(1 << (bits - 1)) if self.dtype.is_signed() else 0
        steps = np.asarray(np.asarray(real, np.float32) / scale)  # of a scalar numpy makes no array by itself
        np.rint(steps, out=steps)
        np.clip(steps, low - zero, low + (1 << bits) - 1 - zero, out=steps)
        steps *= scale
        return steps


@dataclass(frozen=True, slots=True)
class WatchedTensor:
    """A tensor of the QDQ model that has a counterpart in the float model."""

    name: str
    """The tensor's name in the float model."""
    kind: Kind
    linear: LinearQuantizer | None
    """How it is quantized; None for an output that is not."""
    output: str
    """The output of the watched model that gives its dequantized value."""
    producer: str
    """The op type that makes it, empty for inputs of the model."""


def watch(model: onnx_ir.Model, names: Collection[str]) -> list[WatchedTensor]:
    """Make every quantized activation an output of a QDQ model, and say which tensor of the float model each is.

    `names` are the float model's tensors. The model is edited: each gets a DequantizeLinear of its own, so that the
    QDQ groups stay as they are. Tensors without a counterpart are passed over.
    """
    graph = model.graph
    outputs = {value.name: value for value in graph.outputs}
    watched: dict[tuple[str, str], WatchedTensor] = {}
    inputs = {value.name for value in graph.inputs}
    for node in [node for node in graph if node.op_type == QUANTIZE]:
        linear = LinearQuantizer.of(node)
        name = float_name(node, names)
        if linear is None or name is None or (name, linear.type) in watched:
            continue
        direct = [u.outputs[0] for u in node.outputs[0].consumers() if u.op_type == DEQUANTIZE]
        shown = next((str(v.name) for v in direct if v.name in outputs), "")
        kind: Kind = "input" if name in inputs else "output" if shown and shown == name else "tensor"
        if not shown:
            shown = f"{name}/{linear.type}/watched"
            value = onnx_ir.Value(name=shown, shape=node.inputs[0].shape if node.inputs[0] else None)
            value.dtype = onnx_ir.DataType.FLOAT
            copied = onnx_ir.Node(
                node.domain, DEQUANTIZE, [node.outputs[0], *node.inputs[1:]],
                [a for key, a in node.attributes.items() if key in ("axis", "block_size")],
                outputs=[value], name=shown,
            )  # fmt: skip
            graph.insert_after(node, copied)
            graph.outputs.append(value)
        source = node.inputs[0].producer() if node.inputs[0] is not None else None
        watched[name, linear.type] = WatchedTensor(
            name, kind, linear, shown, source.op_type if source is not None else ""
        )
    compared = {item.output for item in watched.values()}
    for name, value in outputs.items():
        if name in names and name not in compared:
            producer = value.producer()
            watched[str(name), ""] = WatchedTensor(
                str(name), "output", None, str(name), producer.op_type if producer else ""
            )
    return list(watched.values())


def float_name(node: onnx_ir.Node, names: Collection[str]) -> str | None:
    """The name that the float model has for what a QuantizeLinear quantizes, or None."""
    value = node.inputs[0]
    if value is None or value.const_value is not None:
        return None
    before = value.producer()
    if before is not None and before.op_type == DEQUANTIZE:  # from one integer type to another
        first = before.inputs[0].producer() if before.inputs[0] is not None else None
        return float_name(first, names) if first is not None and first.op_type == QUANTIZE else None
    after = [u.outputs[0].name for u in node.outputs[0].consumers() if u.op_type == DEQUANTIZE]
    return next((n for n in _candidates(str(value.name), *map(str, after)) if n in names), None)


def quantized_weights(
    model: onnx_ir.Model, floats: Mapping[str, Array]
) -> Iterator[tuple[str, onnx_ir.Node, Array, Array]]:
    """Quantized constants of the float model: name, DequantizeLinear node, float values, dequantized values."""
    for node in model.graph:
        if node.op_type != DEQUANTIZE or (integers := _constant(node.inputs[0])) is None:
            continue
        linear = LinearQuantizer.of(node)
        names = _candidates(str(node.inputs[0].name), str(node.outputs[0].name))  # type: ignore[union-attr]
        name = next((n for n in names if n in floats), None)
        if linear is not None and name is not None and floats[name].shape == integers.shape:
            yield name, node, floats[name], linear.dequantize(integers)


def _candidates(*names: str) -> Iterator[str]:
    for name in names:
        yield name
        for suffix in SUFFIXES:
            if name.endswith(suffix):
                yield name.removesuffix(suffix)


def _constant(value: onnx_ir.Value | None) -> Array | None:
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def float_tensors(model: onnx_ir.Model) -> list[str]:
    """Every float tensor that changes with the inputs: the model's inputs and what its nodes make."""
    values = [*model.graph.inputs, *(v for node in model.graph for v in node.outputs)]
    return [str(v.name) for v in values if v.name and v.dtype in (None, *_FLOATS)]


def float_constants(model: onnx_ir.Model) -> dict[str, Array]:
    """The float constants of a model, in float32."""
    constants = {}
    for name, value in model.graph.initializers.items():
        if value.const_value is not None and value.dtype in _FLOATS:
            constants[name] = value.const_value.numpy().astype(np.float32, copy=False)
    return constants


def add_outputs(model: onnx_ir.Model, names: Collection[str]) -> None:
    """Make tensors of a float model outputs of the model; its inputs and existing outputs stay as they are."""
    have = {value.name for value in (*model.graph.outputs, *model.graph.inputs)}
    values = {value.name: value for node in model.graph for value in node.outputs}
    for name in names:
        if name in values and name not in have:
            if values[name].dtype is None:
                values[name].dtype = onnx_ir.DataType.FLOAT
            model.graph.outputs.append(values[name])


def max_error_text(sums: ErrorSums | None) -> str:
    """The largest error, and how many results are no numbers."""
    if sums is None:
        return "-"
    return f"{sums.max_error:.4g}" + (f" ({sums.not_finite} not finite)" if sums.not_finite else "")
