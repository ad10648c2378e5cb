# SPDX-License-Identifier: Apache-2.0
"""QNN nodes: the nodes of a QNN graph as the graph that patterns are found in."""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.ir import Array, Node, Role, Value


class _QnnNodes:
    def writer(self, value: Value) -> Node | None:
        """The node that writes a value."""
        return value.producer

    def readers(self, value: Value) -> Sequence[Node]:
        """The nodes that read a value."""
        return tuple(value.users)

    def op(self, node: Node) -> str:
        """The name of a node's op."""
        return node.op.name

    def inputs(self, node: Node) -> Sequence[Value | None]:
        """What a node reads."""
        return node.inputs

    def outputs(self, node: Node) -> Sequence[Value | None]:
        """What a node writes."""
        return node.outputs

    def is_constant(self, value: Value) -> bool:
        """True where the numbers of a value are known."""
        return value.data is not None

    def constant(self, value: Value) -> Array | None:
        """The numbers of a constant, as they are stored."""
        return value.data

    def closed(self, nodes: Sequence[Node]) -> bool:
        """True where only the last of some nodes is read by others."""
        inner = [value for node in nodes[:-1] for value in node.outputs]
        return all(value.role is Role.NATIVE and value.users.keys() <= set(nodes) for value in inner)


QNN = _QnnNodes()
"""Patterns are found in QNN graphs by asking this."""
