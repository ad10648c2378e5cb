# SPDX-License-Identifier: Apache-2.0
"""One model for each builtin operator, type and shape, as rows; LiteRT's reference kernels say what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.addons.tflite.convert import TRANSLATIONS
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph

FLOAT, INT8, UINT8, INT16, INT32, INT64, BOOL = "float32", "int8", "uint8", "int16", "int32", "int64", "bool"
QUANTIZED = (INT8, UINT8, INT16)
REAL = (FLOAT, *QUANTIZED)
NUMBERS = (*REAL, INT32, INT64)
SAME, RANGE = "same", "range"
"""The scale of an output: that of the first input, or what fits the output's range."""


@dataclass(frozen=True)
class Value:
    """An input of the case's own type: an activation, or with `constant` a weight."""

    shape: tuple[int, ...]
    low: float = -1.0
    high: float = 1.0
    constant: bool = False
    channel: int | None = None
    """The axis of one scale for each channel, for 8-bit weights."""
    bias: bool = False


@dataclass(frozen=True)
class Given:
    """An input of a type of its own: a constant, or with `computed` an input of the model."""

    values: Any
    dtype: str = INT32
    computed: bool = False


@dataclass(frozen=True)
class State:
    """A variable of float32, which the file keeps between runs."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """An operator with its inputs, options and the types that it is tried in."""

    operator: str
    inputs: tuple[Value | Given | State | None, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    types: tuple[str, ...] = REAL
    outputs: tuple[str | None, ...] = (None,)
    """Types of outputs; None: the case's own."""
    scale: Any = RANGE
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of outputs that LiteRT does not find out by itself."""
    label: str = ""

    def model(
        self, kind: str, ranges: Sequence[tuple[float, float]] = (), shapes: Sequence[Sequence[int]] = ()
    ) -> MadeModel:
        """The file for a type; outputs have scales for the ranges, and the shapes that are known by now."""
        random = np.random.default_rng(7)
        tensors, inputs, places = [], [], []
        scales: list[tuple[float, int]] = []
        for number, each in enumerate(self.inputs):
            if each is None:
                places.append(-1)
                continue
            if isinstance(each, State):
                tensor = Made(each.shape, is_variable=True)
            else:
                tensor = _given(each) if isinstance(each, Given) else _value(each, kind, random, scales)
            if tensor.data is None and not tensor.is_variable:
                inputs.append(len(tensors))
            places.append(len(tensors))
            tensor.name = f"input{number}"
            tensors.append(tensor)
        outputs = []
        for number, own in enumerate(self.outputs):
            shape = shapes[number] if shapes else self.shapes[number] if self.shapes else ()
            made = Made(tuple(shape), own or kind, name=f"output{number}")
            if own is None and kind in QUANTIZED:
                made.scale, made.zero = self._output_scale(kind, number, ranges, scales)
            outputs.append(len(tensors))
            tensors.append(made)
        spelled = TRANSLATIONS[self.operator].options if self.operator in TRANSLATIONS else ""
        options = [_option(text, self.options) for text in spelled.split()]
        operator = MadeOperator(self.operator, places, outputs, options)
        return MadeModel([MadeSubgraph(tensors, [operator], inputs, outputs)])

    def feeds(self, kind: str) -> list[np.ndarray]:
        """Inputs of the model, over the range that they say."""
        random, scales = np.random.default_rng(11), list[tuple[float, int]]()
        made = []
        for each in self.inputs:
            if isinstance(each, Given) and each.computed:
                made.append(np.asarray(each.values, each.dtype))
            elif isinstance(each, Value) and not each.constant:
                values: Any = random.uniform(each.low, each.high, each.shape)
                if kind in QUANTIZED:
                    tensor = _value(each, kind, random, scales)
                    limits = np.iinfo(kind)
                    values = np.clip(np.round(values / tensor.scale) + tensor.zero, limits.min, limits.max)
                elif kind != FLOAT:
                    values = values > 0 if kind == BOOL else np.round(values)
                made.append(np.asarray(values, kind))
        return made

    def _output_scale(
        self, kind: str, number: int, ranges: Sequence[tuple[float, float]], scales: Sequence[tuple[float, int]]
    ) -> tuple[float, int]:
        if self.scale == SAME:
            return scales[0]
        if isinstance(self.scale, Mapping):
            found: tuple[float, int] = self.scale[kind]
            return found
        return encoding(kind, *(ranges[number] if ranges else (-1.0, 1.0)))


def encoding(kind: str, low: float, high: float) -> tuple[float, int]:
    """Scale and zero point for a range."""
    limits = np.iinfo(kind)
    low, high = min(low, 0.0), max(high, 0.0, low + 1e-3)
    if kind == INT16:
        return float(np.float32(max(-low, high) / limits.max)), 0
    scale = np.float32((high - low) / (limits.max - limits.min))
    return float(scale), int(np.clip(round(limits.min - low / scale), limits.min, limits.max))


def _given(each: Given) -> Made:
    values = np.asarray(each.values, each.dtype)
    return Made(values.shape, each.dtype, None if each.computed else values)


def _value(each: Value, kind: str, random: np.random.Generator, scales: list[tuple[float, int]]) -> Made:
    values: Any = random.uniform(each.low, each.high, each.shape)
    if kind not in QUANTIZED:
        made = values if kind == FLOAT else values > 0 if kind == BOOL else np.round(values)
        return Made(each.shape, kind, made if each.constant else None)
    if each.bias:
        product = np.float32(scales[0][0]) * np.asarray(_weight_scale, np.float32)
        wide = INT64 if kind == INT16 else INT32
        return Made(each.shape, wide, np.round(values / product), product, 0)
    if each.constant:
        return _weight(each, kind, values, scales)
    scale, zero = encoding(kind, each.low, each.high)
    scales.append((scale, zero))
    return Made(each.shape, kind, None, scale, zero)


_weight_scale: Any = 1.0


def _weight(each: Value, kind: str, values: np.ndarray, scales: list[tuple[float, int]]) -> Made:
    global _weight_scale
    stored = UINT8 if kind == UINT8 else INT8
    if each.channel is not None and stored == INT8:
        others = tuple(axis for axis in range(values.ndim) if axis != each.channel)
        scale: Any = np.abs(values).max(axis=others).astype(np.float32) / np.float32(127)
        around = [-1 if axis == each.channel else 1 for axis in range(values.ndim)]
        integers, zero = np.round(values / scale.reshape(around)), 0
    elif stored == INT8:
        scale = np.float32(np.abs(values).max() / 127)
        integers, zero = np.round(values / scale), 0
    else:
        scale, zero = encoding(UINT8, each.low, each.high)
        integers = np.clip(np.round(values / scale) + zero, 0, 255)
    _weight_scale = scale
    return Made(each.shape, stored, integers, scale, zero, each.channel or 0)


def _option(spelled: str, given: Mapping[str, Any]) -> tuple[str, Any] | None:
    name, _, letter = spelled.partition(":")
    letter = letter.partition("=")[0]
    return (letter, given[name]) if name in given else None
