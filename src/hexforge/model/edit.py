# SPDX-License-Identifier: Apache-2.0
"""Editor: changes to a simplified model. Rewrites add nodes and constants with it, and replace values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir
from onnx_ir import Node, Value
from onnx_ir.passes import common

from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.model.simplifying.shapes import infer_node
from hexforge.patterns.nodes import shape


class Editor:
    """Changes to one model. Nothing is lost on the way: a node goes when nothing reads it any more."""

    def __init__(self, model: onnx_ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self.opset = model.opset_imports.get("", 1)
        self._names = {v.name for v in self.graph.inputs} | set(self.graph.initializers)
        self._names |= {v.name for n in self.graph for v in n.outputs} | {n.name for n in self.graph}

    def name(self, stem: str) -> str:
        """A name that nothing has yet."""
        name, count = stem, 0
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._names.add(name)
        return name

    def constant(self, array: Array, stem: str) -> Value:
        """A new constant."""
        name = self.name(stem)
        tensor = onnx_ir.Tensor(array, name=name)
        value = Value(
            name=name, type=onnx_ir.TensorType(tensor.dtype), shape=onnx_ir.Shape(array.shape), const_value=tensor
        )
        self.graph.register_initializer(value)
        return value

    def add(
        self, op: str, inputs: Sequence[Value | None], at: Node, count: int = 1, domain: str = "", **attributes: Any
    ) -> tuple[Value, ...]:
        """A new node before another; what it writes has its types and shapes."""
        stem = f"{at.name}_{op}"
        outputs = [Value(name=self.name(f"{stem}_out")) for _ in range(count)]
        converted = [onnx_ir.convenience.convert_attribute(key, value) for key, value in attributes.items()]
        version = self.model.opset_imports.get(domain, 1)
        node = Node(domain, op, inputs, converted, name=self.name(stem), outputs=outputs, version=version)
        self.graph.insert_before(at, node)
        infer_node(node, self.model.opset_imports, self.model.ir_version)
        for value in outputs:
            if shape(value) == (-1,):
                raise ModelError(f"node {node.name!r} ({op}): its shape does not follow from its inputs")
        return tuple(outputs)

    def like(self, node: Node, inputs: Sequence[Value | None], **attributes: Any) -> Value:
        """A copy of a node with other inputs and some attributes changed."""
        unchanged = {a.name: a.value for a in node.attributes.values() if a.name not in attributes}
        (written,) = self.add(node.op_type, inputs, node, 1, node.domain, **unchanged, **attributes)
        return written

    def replace(self, old: Value, new: Value) -> None:
        """Let everything that reads `old` read `new`; what is not needed any more goes."""
        before = old.producer()
        if old.is_graph_output():
            producer = new.producer()
            if producer is None or new.is_graph_output():
                assert before is not None
                (new,) = self.add("Identity", [new], before)
            new.name, old.name = old.name, None
            if old.shape is not None:
                new.shape = old.shape
        onnx_ir.convenience.replace_all_uses_with(old, new, replace_graph_outputs=True)
        if before is not None:
            self.drop(before)

    def drop(self, node: Node) -> None:
        """Remove a node that nothing reads, and what only it read."""
        waiting = [node]
        while waiting:
            node = waiting.pop()
            if node.graph is None or not self.is_dead(node):
                continue
            producers = [p for v in node.inputs if v is not None and (p := v.producer()) is not None]
            self.graph.remove(node, safe=True)
            waiting += producers

    @staticmethod
    def is_dead(node: Node) -> bool:
        """True where nothing reads what a node writes."""
        return not any(v.uses() or v.is_graph_output() for v in node.outputs)

    def nodes(self) -> Iterator[Node]:
        """The nodes of the model; nodes that are removed during the loop are skipped."""
        for node in list(self.graph):
            if node.graph is not None:
                yield node

    def reshape(self, value: Value, sizes: Sequence[int], at: Node) -> Value:
        """A value under another shape."""
        if shape(value) == tuple(sizes):
            return value
        return self.add("Reshape", [value, self.constant(np.array(sizes, np.int64), f"{at.name}_shape")], at)[0]

    def tidy(self) -> None:
        """Order the nodes and leave out constants nobody reads."""
        common.TopologicalSortPass()(self.model)
        for name, value in list(self.graph.initializers.items()):
            if not value.uses() and not value.is_graph_output():
                del self.graph.initializers[name]
