# SPDX-License-Identifier: Apache-2.0
"""Graph, Node and Value: the only mutable things of the IR, edited only through Graph's methods."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from hexforge.errors import ModelError
from hexforge.ir.op import Call, Op, ParamValue, lookup
from hexforge.ir.types import Array, DType, Encoding, TensorType


class Role(enum.Enum):
    """Who writes and reads a tensor, as in QNN_TENSOR_TYPE_*."""

    APP_WRITE = "APP_WRITE"
    APP_READ = "APP_READ"
    NATIVE = "NATIVE"
    STATIC = "STATIC"


class Value:
    """A tensor of a graph. STATIC values hold `data`, which may be a view, a memory map or a zero-stride splat.

    `tile` says of an input or output whose bytes lie for HTP's matrix unit how many columns a piece has; 0: row by row.
    """

    __slots__ = ("data", "name", "producer", "role", "tile", "type", "users")

    def __init__(self, name: str, type: TensorType, role: Role = Role.NATIVE, data: Array | None = None) -> None:
        self.name = name
        self.type = type
        self.role = role
        self.data = data
        self.tile = 0
        self.producer: Node | None = None
        self.users: dict[Node, int] = {}  # node -> how many of its inputs this value is

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type of the tensor."""
        return self.type.dtype

    @property
    def encoding(self) -> Encoding | None:
        """Encoding of the tensor, None where it is not fixed point."""
        return self.type.encoding

    @property
    def is_static(self) -> bool:
        """True where the data is known at compile time."""
        return self.role is Role.STATIC

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class Node:
    """One op of a graph. `source` names the model's nodes it came from."""

    __slots__ = ("inputs", "name", "op", "outputs", "params", "source")

    def __init__(
        self,
        name: str,
        op: Op,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        params: Mapping[str, ParamValue],
        source: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.op = op
        self.inputs: tuple[Value | None, ...] = tuple(inputs)
        self.outputs: tuple[Value, ...] = tuple(outputs)
        self.params: dict[str, ParamValue] = dict(params)
        self.source = source

    def operand(self, index: int) -> Value:
        """An input that every node of the op has."""
        value = self.inputs[index]
        assert value is not None
        return value

    def operands(self, count: int) -> tuple[Value, ...]:
        """The first inputs, which every node of the op has."""
        return tuple(map(self.operand, range(count)))

    @property
    def call(self) -> Call:
        """What the op's shape inference, reference and work functions are asked with."""
        ins = tuple(None if v is None else v.type for v in self.inputs)
        return Call(self.op, ins, tuple(v.type for v in self.outputs), self.params)

    def __repr__(self) -> str:
        return f"{self.name} = {self.op.name}({', '.join('_' if v is None else v.name for v in self.inputs)})"


class Graph:
    """A QNN graph: named values, nodes in an order that `sort` keeps topological."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: dict[str, Value] = {}
        self._nodes: dict[Node, None] = {}
        self._node_names: set[str] = set()
        self._counters: dict[str, int] = {}

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in order."""
        return tuple(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(tuple(self._nodes))

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def inputs(self) -> tuple[Value, ...]:
        """APP_WRITE values, in the order they were added."""
        return tuple(v for v in self.values.values() if v.role is Role.APP_WRITE)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """APP_READ values, in the order they were added."""
        return tuple(v for v in self.values.values() if v.role is Role.APP_READ)

    def unique(self, stem: str) -> str:
        """`stem`, or `stem_1`, `stem_2`… if a value or node has that name already."""
        name = stem
        while name in self.values or name in self._node_names:
            self._counters[stem] = self._counters.get(stem, 0) + 1
            name = f"{stem}_{self._counters[stem]}"
        return name

    def value(self, name: str, type: TensorType, role: Role = Role.NATIVE, data: Array | None = None) -> Value:
        """Add a value; its name must be new."""
        if name in self.values:
            raise ModelError(f"graph {self.name}: two tensors are named {name!r}")
        if (data is not None) != (role is Role.STATIC):
            raise ModelError(f"graph {self.name}: tensor {name!r} is {role.value} but has {'no ' * (data is None)}data")
        value = self.values[name] = Value(name, type, role, data)
        return value

    def static(self, data: Array, encoding: Encoding | None = None, name: str = "const") -> Value:
        """Add a STATIC value under a new name made from `name`."""
        array = np.asarray(data)
        return self.value(
            self.unique(name), TensorType(DType.of(array.dtype), array.shape, encoding), Role.STATIC, array
        )

    def node(
        self,
        op: str | Op,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value] | None = None,
        *,
        name: str | None = None,
        out: str | None = None,
        source: tuple[str, ...] = (),
        **params: ParamValue,
    ) -> Node:
        """Append a node. Without `outputs`, NATIVE ones are made with inferred types, named after `out` or the node."""
        op = lookup(op) if isinstance(op, str) else op
        full = op.complete(params)
        name = self.unique(name or op.name)
        trimmed = list(inputs)
        while trimmed and trimmed[-1] is None:
            trimmed.pop()
        if outputs is None:
            ins = tuple(None if v is None else v.type for v in trimmed)
            types = op.infer(Call(op, ins, (), full))
            stem = out or f"{name}_out"
            outputs = []
            for i, type in enumerate(types):
                outputs.append(self.value(self.unique(stem if len(types) == 1 else f"{stem}_{i}"), type))
        node = Node(name, op, trimmed, outputs, full, source)
        for value in outputs:
            if value.producer is not None:
                raise ModelError(f"graph {self.name}: tensor {value.name!r} is written by two nodes")
            value.producer = node
        self._nodes[node] = None
        self._node_names.add(name)
        self._link(node)
        return node

    def rename(self, node: Node, name: str) -> None:
        """Give a node a name no other node has."""
        if name == node.name:
            return
        if name in self._node_names:
            raise ModelError(f"graph {self.name}: two nodes are named {name!r}")
        self._node_names.discard(node.name)
        self._node_names.add(name)
        node.name = name

    def _link(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None:
                value.users[node] = value.users.get(node, 0) + 1

    def _unlink(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None:
                value.users.pop(node, None)

    def set_inputs(self, node: Node, inputs: Sequence[Value | None]) -> None:
        """Give a node other inputs."""
        self._unlink(node)
        node.inputs = tuple(inputs)
        self._link(node)

    def rewrite(
        self, node: Node, op: str | Op, inputs: Sequence[Value | None], params: Mapping[str, ParamValue] | None = None
    ) -> None:
        """Make a node another op with other inputs and parameters; its place, name and outputs stay."""
        node.op = lookup(op) if isinstance(op, str) else op
        node.params = node.op.complete(params or {})
        self.set_inputs(node, inputs)

    def freeze(self, value: Value, data: Array) -> None:
        """Make a NATIVE value that nothing writes STATIC."""
        if value.role is not Role.NATIVE or value.producer is not None:
            raise ModelError(f"graph {self.name}: tensor {value.name!r} is not free to become STATIC")
        value.role, value.data = Role.STATIC, data

    def retype(self, value: Value, type: TensorType, data: Array | None = None) -> None:
        """Give a value another type of the same shape, a STATIC one its data in that type."""
        if type.shape != value.shape:
            raise ModelError(f"graph {self.name}: tensor {value.name!r} is {value.type}, it cannot become {type}")
        if (data is not None) != value.is_static:
            raise ModelError(
                f"graph {self.name}: tensor {value.name!r} is {value.role.value}; only STATIC ones have data"
            )
        if data is not None and (data.dtype, data.shape) != (type.dtype.numpy, type.shape):
            raise ModelError(f"graph {self.name}: tensor {value.name!r} is {type}, its data are {data.dtype.name}")
        value.type, value.data = type, data

    def expose(self, names: Collection[str]) -> None:
        """Let the written values of these names be read from outside (APP_READ), and no others (NATIVE)."""
        for value in self.values.values():
            if value.producer is not None:
                value.role = Role.APP_READ if value.name in names else Role.NATIVE

    def set_outputs(self, node: Node, outputs: Sequence[Value]) -> None:
        """Give a node other outputs; the old ones lose their producer."""
        for value in node.outputs:
            value.producer = None
        node.outputs = tuple(outputs)
        for value in outputs:
            value.producer = node

    def replace_uses(self, old: Value, new: Value) -> None:
        """Let every user of `old` read `new`."""
        for user in tuple(old.users):
            self.set_inputs(user, [new if v is old else v for v in user.inputs])

    def remove(self, node: Node) -> None:
        """Remove a node; its outputs stay until they are removed or written by another node."""
        self._unlink(node)
        for value in node.outputs:
            value.producer = None
        del self._nodes[node]
        self._node_names.discard(node.name)

    def remove_value(self, value: Value) -> None:
        """Remove a value that nothing writes or reads."""
        if value.users or value.producer:
            raise ModelError(f"graph {self.name}: tensor {value.name!r} is still used")
        del self.values[value.name]

    def sort(self) -> None:
        """Order the nodes topologically, keeping the present order where it is free; ModelError on a cycle."""
        if self._is_sorted():
            return
        waiting = {node: len({v.producer for v in node.inputs if v is not None and v.producer}) for node in self._nodes}
        position = {node: i for i, node in enumerate(self._nodes)}
        ready = [(position[n], n.name, n) for n, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order: dict[Node, None] = {}
        while ready:
            node = heapq.heappop(ready)[2]
            order[node] = None
            for user in {u: None for v in node.outputs for u in v.users}:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, (position[user], user.name, user))
        if len(order) != len(self._nodes):
            stuck = [n.name for n in self._nodes if n not in order]
            raise ModelError(f"graph {self.name}: nodes form a cycle: {', '.join(stuck[:5])}")
        self._nodes = order

    def _is_sorted(self) -> bool:
        seen: set[Node] = set()
        for node in self._nodes:
            if any(v is not None and v.producer is not None and v.producer not in seen for v in node.inputs):
                return False
            seen.add(node)
        return True
