# SPDX-License-Identifier: Apache-2.0
"""Operator call: one operator of a .tflite while it is translated, and the row that says how that is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from hexforge.addons.tflite.graph_writer import GraphWriter, channels_first
from hexforge.addons.tflite.model_file import OTHER_TYPES, TYPES, FusedActivation, Operator, Tensor
from hexforge.errors import UnsupportedError
from hexforge.ir import Array

Translate = Callable[["OperatorCall"], None]
Inline = Callable[[int, list[str] | None], GraphWriter]
"""Writes a subgraph by its number: over values of the graph outside, or with inputs of its own."""


@dataclass(frozen=True, slots=True)
class Translation:
    """How an operator is written in ONNX, and the fields of its options in the order of the schema."""

    translate: Translate
    options: str = ""
    """As in "padding:b stride_w:i dilation_w:i=1": name, struct's letter ([] for several) and the default."""


class UntranslatedError(UnsupportedError):
    """An operator that is not translated, with the reason and what would work."""


class OperatorCall:
    """One operator: its tensors by place, its options by name, and the graph that it is written to."""

    def __init__(self, writer: GraphWriter, operator: Operator, options: str, inline: Inline) -> None:
        self.writer, self.operator = writer, operator
        self.inputs, self.outputs = operator.inputs, operator.outputs
        self.inline = inline
        self._fields = options

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The options by name."""
        values: dict[str, Any] = {}
        for number, spelled in enumerate(self._fields.split()):
            name, _, kind = spelled.partition(":")
            kind, _, default = kind.partition("=")
            table = self.operator.options
            if kind.endswith("[]"):
                values[name] = () if table is None else table.numbers(number, kind[0])
            elif kind == "f":
                values[name] = float(default or 0) if table is None else table.single(number, float(default or 0))
            elif kind != "-":
                values[name] = int(default or 0) if table is None else table.integer(number, kind, int(default or 0))
        return values

    def refuse(self, reason: str) -> UntranslatedError:
        """The error that says why this operator is not translated."""
        return UntranslatedError(reason)

    # -- tensors ------------------------------------------------------------------------------------------------

    def has(self, place: int) -> bool:
        """Whether the operator has an input at a place."""
        return place < len(self.inputs) and self.inputs[place] >= 0

    def _index(self, place: int) -> int:
        if not self.has(place):
            raise self.refuse(f"it lacks input {place}; the file is damaged")
        return self.inputs[place]

    def tensor(self, place: int) -> Tensor:
        """An input."""
        return self.writer.tensors[self._index(place)]

    def result(self, place: int = 0) -> Tensor:
        """An output."""
        if place >= len(self.outputs):
            raise self.refuse(f"it lacks output {place}; the file is damaged")
        return self.writer.tensors[self.outputs[place]]

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape of an input; refused where a size of it is not known."""
        return self._known_shape(self._index(place))

    def result_shape(self) -> tuple[int, ...]:
        """The shape of the output; refused where a size of it is not known."""
        self.result()
        return self._known_shape(self.outputs[0])

    def _known_shape(self, index: int) -> tuple[int, ...]:
        tensor = self.writer.tensors[index]
        sizes = [self.writer.size(index, axis) for axis in range(len(tensor.shape))]
        known = tuple(size for size in sizes if size is not None)
        if len(known) < len(sizes):
            raise self.refuse(
                f"the shape {list(tensor.signature)} of {tensor.name!r} is open; convert it with fixed sizes"
            )
        return known

    def size(self, place: int, axis: int) -> int:
        """One size of an input; refused where it is not known."""
        index = self._index(place)
        tensor = self.writer.tensors[index]
        size = self.writer.size(index, axis % max(len(tensor.shape), 1))
        if size is None:
            raise self.refuse(
                f"a size of {tensor.name!r} is open, {list(tensor.signature)}; convert it with fixed sizes"
            )
        return size

    def is_open(self, place: int) -> bool:
        """Whether a size of an input is not known."""
        index = self._index(place)
        return any(self.writer.size(index, axis) is None for axis in range(self.rank(place)))

    def rank(self, place: int = 0) -> int:
        """How many dimensions an input has."""
        return len(self.tensor(place).shape)

    def axis(self, axis: int, place: int = 0) -> int:
        """An axis of an input, counted from its front."""
        rank = self.rank(place)
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"its axis {axis} is none of an input with {rank} dimensions; the file is damaged")
        return axis % max(rank, 1)

    def dtype(self, place: int = 0) -> np.dtype:
        """The type that an input is computed in: quantized ones as float32."""
        return self._computed(self.tensor(place), self._index(place))

    def result_dtype(self, place: int = 0) -> np.dtype:
        """The type that an output is computed in."""
        return self._computed(self.result(place), self.outputs[place])

    def _computed(self, tensor: Tensor, index: int) -> np.dtype:
        if tensor.type in OTHER_TYPES:
            raise self.refuse(f"tensor {tensor.name!r} is of type {tensor.type_name}, which is not translated")
        return np.dtype(np.float32 if self.writer.quantization(index) is not None else TYPES[tensor.type])

    def is_quantized(self, place: int = 0) -> bool:
        """Whether an input is stored as integers with a scale."""
        return self.writer.quantization(self._index(place)) is not None

    def constant(self, place: int) -> Array | None:
        """The values of an input as they are stored, where they are constant."""
        return self.writer.constant(self._index(place)) if self.has(place) else None

    def fixed(self, place: int, what: str) -> Array:
        """The values of an input that must be constant."""
        values = self.constant(place)
        if values is None:
            raise self.refuse(
                f"its {what} (input {place}) is computed while the model runs; convert it with fixed sizes"
            )
        return values

    def sizes(self, place: int, what: str) -> list[int]:
        """A constant list of integers."""
        return [int(value) for value in self.fixed(place, what).reshape(-1)]

    # -- values -------------------------------------------------------------------------------------------------

    def read(self, place: int, first: bool = False) -> str:
        """The real numbers of an input, in the layout that is wanted."""
        return self.writer.read(self._index(place), first)

    def scaled(self, place: int, factor: float) -> str:
        """An input times a number, which for a quantized one is a matter of its scale."""
        index = self._index(place)
        quantization = self.writer.quantization(index)
        if quantization is None or self.constant(place) is not None:
            return self.node("Mul", self.read(place), self.like(factor, place))
        by_factor = replace(quantization, scales=tuple(scale * factor for scale in quantization.scales))
        return self.writer.dequantize(self.writer.stored(index), index, by_factor)

    def reads(self) -> list[str]:
        """The real numbers of all inputs."""
        return [self.read(place) for place in range(len(self.inputs)) if self.has(place)]

    def wide(self, place: int) -> str:
        """A list of integers as 64-bit ones, which ONNX wants sizes and indices in."""
        values = self.constant(place)
        if values is not None:
            return self.array(values.astype(np.int64))
        return self.cast(self.read(place), np.int64)

    def array(self, values: Any, dtype: npt.DTypeLike | None = None) -> str:
        """A constant."""
        return self.writer.initializer(np.asarray(values, dtype), f"{self.writer.owner}/constant")

    def like(self, values: Any, place: int = 0) -> str:
        """A constant of the type that an input is computed in."""
        return self.array(values, self.dtype(place))

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """A value as another type."""
        return self.node("Cast", value, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node with one output."""
        name: str = self.writer.add(op_type, inputs, **attributes)
        return name

    def nodes(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> tuple[str, ...]:
        """A node with several outputs."""
        made = self.writer.add(op_type, inputs, count=count, **attributes)
        return (made,) if count == 1 else made

    def write(self, value: str, place: int = 0, first: bool = False) -> None:
        """An output has this value; one with another type than it declares would be an error of this translation."""
        self.writer.write(self.outputs[place], value, first)

    def make_known(self, values: Any) -> None:
        """The output is a constant."""
        self.result()
        self.writer.make_known(self.outputs[0], np.asarray(values, TYPES[self.result().type]))

    def reshape(self, value: str, shape: Any) -> str:
        """A value in another shape."""
        return self.node("Reshape", value, self.array(shape, np.int64))

    def transpose(self, value: str, order: Any) -> str:
        """A value with its axes in another order."""
        return self.node("Transpose", value, perm=list(order))

    def as_input(self, value: str, place: int) -> str:
        """An input that was moved, with the input's scales again, so that what reads it is quantized as a whole."""
        return self._again(value, self._index(place))

    def as_output(self, value: str, place: int = 0) -> str:
        """A result that is still moved before it is written, with the scales of the output."""
        return self._again(value, self.outputs[place])

    def _again(self, value: str, index: int) -> str:
        quantization = self.writer.quantization(index)
        if quantization is None:
            return value
        return self.writer.dequantize(self.writer.quantize(value, index, quantization), index, quantization)

    # -- what several operators do alike --------------------------------------------------------------------------

    def prefers_first(self) -> bool:
        """Whether it is computed with the channels first: an input is stored like that, and the others can be."""
        present = [index for index in self.inputs if index >= 0]
        computed = [index for index in present if self.writer.constant(index) is None]
        rank = max((len(self.writer.tensors[index].shape) for index in present), default=0)
        return any(self.writer.is_only_first(index) for index in computed) and all(
            len(self.writer.tensors[index].shape) in (0, rank) for index in computed
        )

    def aligned(self, place: int, first: bool, rank: int) -> str:
        """An input that is broadcast against others of a rank, in the layout that is wanted."""
        if not first or not self.rank(place):
            return self.read(place)
        if self.rank(place) == rank:
            return self.read(place, True)
        values = self.writer.real(self._index(place))
        assert values is not None  # else `prefers_first` says no
        whole = values.reshape((1,) * (rank - values.ndim) + values.shape)
        return self.array(whole.transpose(channels_first(rank)))

    def place_of(self, axis: int, first: bool, rank: int) -> int:
        """Where an axis is in the layout."""
        return channels_first(rank).index(axis) if first else axis

    def activated(self, value: str, number: int | None = None) -> str:
        """A result behind the activation of the options; nothing is written that the output's own range implies."""
        activation = FusedActivation(self.options["activation"] if number is None else number)
        dtype = self.result_dtype()
        if activation is FusedActivation.TANH:
            return self.node("Tanh", value)
        if activation is FusedActivation.SIGN_BIT:
            raise self.refuse("its activation SIGN_BIT is not translated; no converter writes it")
        bounds = {FusedActivation.RELU: (0, None), FusedActivation.RELU6: (0, 6), FusedActivation.RELU_N1_TO_1: (-1, 1)}
        low, high = bounds.get(activation, (None, None))
        if low is None or self._is_within(low, high):
            return value
        if high is None and dtype.kind == "f":
            return self.node("Relu", value)
        if high is None:
            return self.node("Max", value, self.array(low, dtype))
        return self.node("Clip", value, self.array(low, dtype), self.array(high, dtype))

    def _is_within(self, low: float, high: float | None) -> bool:
        """Whether the output's integers stand for nothing outside these bounds."""
        index = self.outputs[0]
        quantization = self.writer.quantization(index)
        if quantization is None or len(quantization.scales) > 1:
            return False
        scale, zero = quantization.scales[0], quantization.zero_points[0]
        limits = np.iinfo(TYPES[self.writer.tensors[index].type])
        least, most = (limits.min - zero) * scale, (limits.max - zero) * scale
        return least >= low - scale / 2 and (high is None or most <= high + scale / 2)
