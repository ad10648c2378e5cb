# SPDX-License-Identifier: Apache-2.0
"""A sample of an op: inputs, parameters and the outputs it must give. Every op of the table has at least one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.ir import DType, Encoding, Graph, Node, Role, ScaleOffset, TensorType, lookup
from hexforge.ir.fixed_point import quantize


@dataclass(frozen=True)
class Sample:
    """`expected` arrays also declare the outputs' types and shapes."""

    op: str
    inputs: Sequence[np.ndarray | None]
    expected: Sequence[np.ndarray]
    params: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    encodings: dict[str, Encoding] = field(default_factory=dict)  # of "in0", "out0"… that are fixed point

    def node(self) -> Node:
        """The sample as a node of a graph of its own."""
        graph = Graph("sample")
        ins = [
            None if a is None else graph.value(f"in{i}", self.type(f"in{i}", a), Role.APP_WRITE)
            for i, a in enumerate(self.inputs)
        ]
        outs = [graph.value(f"out{i}", self.type(f"out{i}", a), Role.APP_READ) for i, a in enumerate(self.expected)]
        return graph.node(self.op, ins, outs, **self.params)

    @property
    def quantizable(self) -> bool:
        """True where the sample is one of finite real numbers, which `quantized` can encode."""
        given = [a for a in self.inputs if a is not None]
        return (
            lookup(self.op).quant.output != "never"
            and any(a.dtype == np.float32 for a in given)
            and all(a.dtype == np.float32 for a in self.expected)
            and all(np.isfinite(a).all() for a in (*self.expected, *given))
        )

    def quantized(self, dtype: DType) -> tuple[list[Any], list[TensorType | None], list[TensorType]]:
        """The inputs in fixed point by the op's rule, their types, and the outputs' types."""
        rule = lookup(self.op).quant
        shared = _encoding(np.concatenate([np.ravel(a) for a in self.inputs if a is not None]), dtype)

        def encoded(array: np.ndarray) -> TensorType:
            return TensorType(dtype, array.shape, shared if rule.output == "input" else _encoding(array, dtype))

        arrays: list[Any] = []
        ins: list[TensorType | None] = []
        for i, array in enumerate(self.inputs):
            if array is not None and array.dtype == np.float32 and (rule.data is None or i in rule.data):
                type = encoded(array)
                arrays.append(quantize(array.astype(np.float64), type))
                ins.append(type)
            else:
                arrays.append(array)
                ins.append(None if array is None else TensorType(DType.of(array.dtype), array.shape))
        return arrays, ins, [encoded(a) for a in self.expected]

    def type(self, name: str, array: np.ndarray) -> TensorType:
        """The type of an input or output, by its name."""
        return TensorType(DType.of(array.dtype), array.shape, self.encodings.get(name))


def _encoding(array: np.ndarray, dtype: DType) -> ScaleOffset:
    low, high = dtype.range
    smallest, largest = min(0.0, float(np.min(array, initial=0))), max(1e-3, float(np.max(array, initial=0)))
    scale = float(np.float32((largest - smallest) / (high - low)))
    return ScaleOffset(scale, -int(np.clip(round(low - smallest / scale), low, high)))


def f32(values: Any) -> np.ndarray:
    """A float32 array."""
    return np.asarray(values, np.float32)
