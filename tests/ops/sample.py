"""A sample of an op: inputs, parameters and the outputs it must give. Every op of the table has at least one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.ir import DType, Encoding, Graph, Node, Role, TensorType


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
            None if a is None else graph.value(f"in{i}", self._type(f"in{i}", a), Role.APP_WRITE)
            for i, a in enumerate(self.inputs)
        ]
        outs = [graph.value(f"out{i}", self._type(f"out{i}", a), Role.APP_READ) for i, a in enumerate(self.expected)]
        return graph.node(self.op, ins, outs, **self.params)

    def _type(self, name: str, array: np.ndarray) -> TensorType:
        return TensorType(DType.of(array.dtype), array.shape, self.encodings.get(name))


def f32(values: Any) -> np.ndarray:
    """A float32 array."""
    return np.asarray(values, np.float32)
