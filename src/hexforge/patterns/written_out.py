# SPDX-License-Identifier: Apache-2.0
"""Written out: functions that a model writes out in several nodes, where QNN or ONNX has one op for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnx_ir import Node, Value

from hexforge.patterns.nodes import dims


@dataclass(frozen=True, slots=True, eq=False)
class WrittenOut:
    """Nodes that compute one function. Only the output of the last one is read from outside."""

    nodes: tuple[Node, ...]
    inputs: tuple[Value | None, ...]

    @property
    def last(self) -> Node:
        """The node that writes the result."""
        return self.nodes[-1]


def keeps_shape(x: Value | None, nodes: Sequence[Node]) -> bool:
    """True where the last node writes the shape of `x`: a constant of more dimensions would add some."""
    return dims(x) == dims(nodes[-1].outputs[0])
