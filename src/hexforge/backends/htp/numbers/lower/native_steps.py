# SPDX-License-Identifier: Apache-2.0
"""What a graph's nodes become: native steps over stored tensors, or the op's reference where none fits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge._native import crc32c
from hexforge.backends.htp.numbers.halves import matrix_half
from hexforge.backends.htp.numbers.segment import padded
from hexforge.backends.htp.numbers.storage import Storage, computes_in_float32, storage, stored
from hexforge.chips.soc import DEFAULT_ARCH
from hexforge.ir import Array, Graph, Node, Role, TensorType, Value


@dataclass(frozen=True, slots=True)
class NativeStep:
    """One native kernel call: tensors by name, attributes (integers, reals, constant arrays)."""

    kind: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    attributes: dict[str, Any]
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class ReferenceStep:
    """A node that has no native kernel: its reference runs in Python."""

    node: Node


@dataclass
class Lowering:
    """The steps written so far and the tensors they work on."""

    graph: Graph
    steps: list[NativeStep | ReferenceStep] = field(default_factory=list)
    tensors: dict[str, Storage] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    node: Node | None = None
    arch: int = DEFAULT_ARCH
    """Of the chip, which decides the unit that adds."""
    tables: dict[Hashable, Array] = field(default_factory=dict)
    """The tables written so far, by what they are tables of."""
    tiled: dict[Value, str] = field(default_factory=dict)
    """The tensors that hold a value's bytes as the matrix unit reads them (lower/tiled_layout.py)."""
    _shared: dict[tuple[str, int], list[Array]] = field(default_factory=dict)
    _storages: dict[Value, Storage] = field(default_factory=dict)

    def shared(self, array: Array) -> Array:
        """The first array with these bytes: tables of one function lie in memory, and in the caches, once."""
        raw = array.reshape(-1).view(np.uint8)
        alike = self._shared.setdefault((array.dtype.str, crc32c(raw, 0)), [])
        for known in alike:
            if np.array_equal(known.reshape(-1).view(np.uint8), raw):
                return known
        alike.append(array)
        return array

    def storage(self, value: Value) -> Storage:
        """How a value is stored."""
        known = self._storages.get(value)
        if known is None:
            known = self._storages[value] = storage(value.type)
        return known

    def name(self, value: Value) -> str:
        """The tensor that holds a value, adding it on first use."""
        name = value.name
        while name in self.alias:
            name = self.alias[name]
        if name not in self.tensors:
            self.tensors[name] = self.storage(value)
            if value.data is not None:
                self.constants[name] = _constant(value.data, value.type)
        return name

    def round_inputs(self) -> None:
        """Round the float inputs to halves for every node that computes with them.

        Quantize and floor divisions read float32, also where data is only moved before: where a move stands is a choice
        of passes.
        """
        for value in self.graph.inputs:
            own = self.storage(value)
            if own.kind == "f32" and own.size and not all(_keeps_float32(user) for user in value.users):
                rounded = self.temp(own, value.name)
                self.emit("round_half", [value], [rounded], count=own.size)
                self.alias[value.name] = rounded

    def read_by(self, node: Node, value: Value) -> str:
        """The tensor that a node run by its reference reads: a graph input itself where it computes in float32."""
        if value.role is not Role.APP_WRITE or not computes_in_float32(node):
            return self.name(value)
        self.tensors.setdefault(value.name, self.storage(value))
        return value.name

    def temp(self, like: Storage, stem: str) -> str:
        """A new tensor."""
        name = f"{stem}~{len(self.tensors)}"
        self.tensors[name] = like
        return name

    def emit(self, step: str, ins: Sequence[Value | str], outs: Sequence[Value | str], /, **attributes: Any) -> None:
        """Write a step."""
        names = [tuple(v if isinstance(v, str) else self.name(v) for v in side) for side in (ins, outs)]
        self.steps.append(NativeStep(step, names[0], names[1], attributes, self.node))

    def view(self, source: Value, target: Value) -> bool:
        """Let `target` be the same bytes as `source`; False where one of them must have its own."""
        if source.data is not None or source.role is Role.APP_WRITE or target.role is Role.APP_READ:
            return False
        self.alias[target.name] = self.name(source)
        return True


_MOVES = frozenset(("Reshape", "Transpose"))
"""Nodes that passes move past Quantize; they copy bits."""


def updates_state(node: Node) -> bool:
    """True for a scatter that puts new rows into a cache: a graph input that nothing else reads, as a graph output.

    A run that is given one array for both puts the rows into it, and copies nothing.
    """
    if node.op.name not in ("ScatterElements", "ScatterNd") or int(node.params["reduction"]):
        return False
    past, present = node.operand(0), node.outputs[0]
    alone = past.role is Role.APP_WRITE and past.users == {node: 1}
    return alone and present.role is Role.APP_READ and past.type == present.type


def _keeps_float32(node: Node) -> bool:
    """True for Quantize, a floor division and an update of a state, which rounds all that it stores, and for a move
    whose result only such nodes read.
    """
    if node.op.name == "Quantize" or computes_in_float32(node) or updates_state(node):
        return True
    moved = node.outputs[0]
    return node.op.name in _MOVES and moved.role is Role.NATIVE and all(_keeps_float32(user) for user in moved.users)


Lower = Callable[[Lowering, Node], bool]
"""Writes a node's steps and says True, or writes nothing and says False: the reference runs."""

LOWERINGS: dict[str, Lower] = {}


def lowers(*ops: str) -> Callable[[Lower], Lower]:
    """Register the lowering of QNN ops; one that tries another's first calls it."""

    def register(function: Lower) -> Lower:
        for op in ops:
            if op in LOWERINGS:
                raise ValueError(f"op {op} is lowered twice")
            LOWERINGS[op] = function
        return function

    return register


def _constant(data: Array, type: TensorType) -> Array:
    """A constant as it is stored, with room behind it; converted in pieces, as it may be most of the model."""
    own = storage(type)
    if (own.kind != "f32" and not own.shift) or not data.flags.c_contiguous:
        return np.ascontiguousarray(stored(data, type, matrix_half))
    ready = padded(data.shape, own.dtype)
    source, target = data.reshape(-1), ready.reshape(-1)
    for first in range(0, source.size, _PIECE):
        target[first : first + _PIECE] = stored(source[first : first + _PIECE], type, matrix_half)
    return ready


_PIECE = 1 << 20
