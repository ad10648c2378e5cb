"""Edit: a simplified model read and changed in the terms rewrites think in: constants, shapes, readers, new nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir
from onnx_ir import Node, Value
from onnx_ir.passes import common

from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.model.shapes import infer_node

FLOATS = {onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT16, onnx_ir.DataType.DOUBLE}


def shape(value: Value | None) -> tuple[int, ...]:
    """The static shape of a value; (-1,) where it is not known, which fits nothing."""
    if value is None or value.shape is None or not value.shape.is_static():
        return (-1,)
    return tuple(d for d in value.shape if isinstance(d, int))


def is_float(value: Value | None) -> bool:
    """True for a tensor of floating-point numbers."""
    return value is not None and value.dtype in FLOATS


def data(value: Value | None) -> Array | None:
    """A constant's numbers, None where the value is computed."""
    return None if value is None or value.const_value is None else value.const_value.numpy()


def number(value: Value | None) -> float | None:
    """A constant of one element."""
    found = data(value)
    return float(found.reshape(())) if found is not None and found.size == 1 else None


def source(node: Node, index: int = 0) -> Node | None:
    """The node that writes an input."""
    value = operand(node, index)
    return None if value is None else value.producer()


def operand(node: Node, index: int) -> Value | None:
    """An input, None where it is left out."""
    return node.inputs[index] if index < len(node.inputs) else None


def is_op(node: Node | None, *ops: str) -> bool:
    """True for a node of ONNX's own domain that is one of these ops."""
    return node is not None and node.domain == "" and node.op_type in ops


def dequantizes(node: Node | None) -> bool:
    """True for a DequantizeLinear; com.microsoft's takes 16-bit codes before opset 21."""
    return node is not None and node.op_type == "DequantizeLinear" and node.domain in ("", "com.microsoft")


def is_quantized(node: Node) -> bool:
    """True for a node between codes: it reads what was dequantized, or what it writes is quantized."""
    if any(v is not None and dequantizes(v.producer()) for v in node.inputs):
        return True
    return any(user.op_type == "QuantizeLinear" for v in node.outputs for user, _ in v.uses())


def reader(value: Value | None) -> Node | None:
    """The only node that reads a value; None where there are more, or where it leaves the graph."""
    if value is None or value.is_graph_output():
        return None
    readers = {node for node, _ in value.uses()}
    return next(iter(readers)) if len(readers) == 1 else None


def ints(node: Node, name: str, default: Sequence[int]) -> tuple[int, ...]:
    """An attribute of whole numbers."""
    found = node.attributes.get(name)
    return tuple(default) if found is None else tuple(found.as_ints())


def integer(node: Node, name: str, default: int) -> int:
    """An attribute of one whole number."""
    found = node.attributes.get(name)
    return default if found is None else found.as_int()


def real(node: Node, name: str, default: float) -> float:
    """An attribute of one number."""
    found = node.attributes.get(name)
    return default if found is None else found.as_float()


def text(node: Node, name: str, default: str) -> str:
    """An attribute of letters."""
    found = node.attributes.get(name)
    return default if found is None else found.as_string()


def split_constant(node: Node) -> tuple[Value, Value, int] | None:
    """The computed operand of a node of two, the constant one, and which of them comes first (0: the computed)."""
    if len(node.inputs) != 2 or any(v is None for v in node.inputs):
        return None
    for index in (0, 1):
        x, c = node.inputs[index], node.inputs[1 - index]
        assert x is not None
        assert c is not None
        if c.const_value is not None and x.const_value is None:
            return x, c, index
    return None


class Editor:
    """Changes to one model. Nothing is lost on the way: a node goes when nothing reads it any more."""

    def __init__(self, model: onnx_ir.Model) -> None:
        self.model, self.graph = model, model.graph
        self.opset = model.opset_imports.get("", 1)
        self._names = {v.name for v in self.graph.inputs} | set(self.graph.initializers)
        self._names |= {v.name for n in self.graph for v in n.outputs} | {n.name for n in self.graph}

    def name(self, stem: str) -> str:
        """A name that nothing has yet."""
        found, count = stem, 0
        while found in self._names:
            count += 1
            found = f"{stem}_{count}"
        self._names.add(found)
        return found

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
        self,
        op: str,
        inputs: Sequence[Value | None],
        at: Node,
        count: int = 1,
        domain: str = "",
        **attributes: Any,
    ) -> tuple[Value, ...]:
        """A new node before another; what it writes has its types and shapes."""
        stem = f"{at.name}_{op}"
        outputs = [Value(name=self.name(f"{stem}_out")) for _ in range(count)]
        made = [onnx_ir.convenience.convert_attribute(key, value) for key, value in attributes.items()]
        version = self.model.opset_imports.get(domain, 1)
        node = Node(domain, op, inputs, made, name=self.name(stem), outputs=outputs, version=version)
        self.graph.insert_before(at, node)
        infer_node(node, self.model.opset_imports, self.model.ir_version)
        for value in outputs:
            if shape(value) == (-1,):
                raise ModelError(f"node {node.name!r} ({op}): its shape does not follow from its inputs")
        return tuple(outputs)

    def like(self, node: Node, inputs: Sequence[Value | None], **attributes: Any) -> Value:
        """A copy of a node with other inputs and some attributes changed."""
        kept = {a.name: a.value for a in node.attributes.values() if a.name not in attributes}
        (made,) = self.add(node.op_type, inputs, node, 1, node.domain, **kept, **attributes)
        return made

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
        """The nodes there are now; those that go meanwhile are passed over."""
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
