"""HtpProgram: runs of native steps in one call each, references between them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backend import checked_feeds
from hexforge.backends.htp import arena
from hexforge.backends.htp.lowering import Lowering, Reference, Step
from hexforge.backends.htp.storage import half, natural, storage, stored
from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Node, Role, TensorType, Value
from hexforge.ops.evaluate import Evaluation


class HtpProgram:
    """A lowered graph. Threads may run it at the same time; results do not depend on the number of threads."""

    def __init__(self, graph: Graph, lowering: Lowering, threads: int = 1) -> None:
        self.graph = graph
        self.threads = threads
        self.lowering = lowering
        self._stages = _stages(lowering)
        self._inputs = graph.inputs
        self._outputs = graph.outputs
        self.arena_bytes = max((s.arena_bytes for s in self._stages if isinstance(s, _Segment)), default=0)

    @property
    def references(self) -> tuple[Node, ...]:
        """Nodes that have no native kernel."""
        return tuple(s.node for s in self._stages if isinstance(s, _Evaluated))

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        given = checked_feeds(self.graph.name, self._inputs, feeds)
        tensors = {v.name: _entering(given[v.name], v.type) for v in self._inputs}
        for stage in self._stages:
            stage.run(tensors, self.threads)
        return {v.name: _leaving(tensors, v) for v in self._outputs}


def _entering(array: Array, type: TensorType) -> Array:
    """A graph input as it is stored; floats stay float32, the steps that compute with them round first."""
    own = storage(type)
    if own.kind == "f32":
        return np.ascontiguousarray(array, np.float32)
    if own.shift == 128:
        return np.ascontiguousarray(array).view(np.uint8) ^ np.uint8(0x80)
    if own.shift == -32768:
        return (np.ascontiguousarray(array) ^ np.uint16(0x8000)).view(np.int16)
    return np.ascontiguousarray(array)


def _leaving(tensors: dict[str, Array], value: Value) -> Array:
    array = tensors[value.name].reshape(value.shape)
    own = storage(value.type)
    if own.shift == 128:
        return (array ^ np.uint8(0x80)).view(np.int8)
    if own.shift == -32768:
        return array.view(np.uint16) ^ np.uint16(0x8000)
    return natural(array, value.type)


class _Evaluated:
    """A node run by its reference on the model's types; float results are rounded to float16."""

    def __init__(self, lowering: Lowering, node: Node) -> None:
        self.node = node
        real = storage(node.outputs[0].type).kind == "f32"
        constants = [None if v is None or v.data is None else _constant(v, real) for v in node.inputs]
        self._constants = constants
        self._evaluation = Evaluation(node.call, constants)
        self._names = [None if v is None or v.data is not None else lowering.name(v) for v in node.inputs]
        self._outs = [lowering.name(v) for v in node.outputs]

    def run(self, tensors: dict[str, Array], threads: int) -> None:
        arrays = [
            constant if name is None else natural(tensors[name].reshape(value.shape), value.type)  # type: ignore[union-attr]
            for constant, name, value in zip(self._constants, self._names, self.node.inputs, strict=True)
        ]
        for name, value, result in zip(self._outs, self.node.outputs, self._evaluation(arrays), strict=True):
            tensors[name] = np.ascontiguousarray(stored(result, value.type))


def _constant(value: Value, real: bool) -> Array:
    """A constant as a node computes with it: float16 in float math, as it is beside fixed point."""
    assert value.data is not None
    if real and storage(value.type).kind == "f32":
        return half(value.data).astype(value.dtype.numpy)
    return value.data


class _Segment:
    """Native steps one after the other, in one call."""

    def __init__(
        self,
        lowering: Lowering,
        steps: list[Step],
        reads: list[str],
        writes: list[str],
        lives: dict[str, tuple[int, int]],
    ) -> None:
        self._reads, self._writes = reads, writes
        self._shapes = {name: lowering.tensors[name] for name in writes}
        sizes = {name: lowering.tensors[name].nbytes for name in lives}
        offsets, self.arena_bytes = arena.plan(sizes, lives)
        program = _native.Program(self.arena_bytes)
        ids: dict[str, int] = {}
        copies: list[tuple[str, int]] = []
        for name in reads:
            # Copied into the arena first: kernels may read a little past a tensor's end.
            copies.append((name, program.input_tensor(lowering.tensors[name].nbytes)))
        for name in writes:
            ids[name] = program.output_tensor(lowering.tensors[name].nbytes)
        for name, offset in offsets.items():
            ids[name] = program.arena_tensor(offset, sizes[name])
        for name, source in copies:
            attributes = {"element_bytes": 1, "dims": (sizes[name],), "strides_x": (1,), "strides_y": (1,)}
            program.step("copy", [source], [ids[name]], attributes)
        for step in steps:
            for name in (*step.ins, *step.outs):
                if name not in ids:
                    constant = lowering.constants[name]
                    ids[name] = program.constant_tensor(_with_room(constant.shape, constant.dtype, constant))
            program.step(step.kind, [ids[n] for n in step.ins], [ids[n] for n in step.outs], step.attributes)
        self._program = program

    def run(self, tensors: dict[str, Array], threads: int) -> None:
        outs = [_with_room(s.shape, s.dtype) for s in self._shapes.values()]
        try:
            self._program.run([np.ascontiguousarray(tensors[n]) for n in self._reads], outs, threads)
        except IndexError as error:  # a Gather or Scatter met an index outside its axis
            raise CallError(str(error)) from None
        tensors.update(zip(self._writes, outs, strict=True))


_ROOM = 64


def _with_room(shape: tuple[int, ...], dtype: np.dtype[Any], data: Array | None = None) -> Array:
    """An array with readable bytes behind it: kernels may read, never use, a vector past a tensor's end."""
    size = math.prod(shape)
    array = np.empty(size + -(-_ROOM // dtype.itemsize), dtype)[:size].reshape(shape)
    if data is not None:
        array[...] = data
    return array


def _stages(lowering: Lowering) -> list[Any]:
    """Native steps gathered into segments; tensors that cross a border are arrays, the others live in an arena."""
    groups: list[list[Step] | Reference] = []
    for step in lowering.steps:
        if isinstance(step, Reference):
            groups.append(step)
        elif groups and isinstance(groups[-1], list):
            groups[-1].append(step)
        else:
            groups.append([step])
    used: list[set[str]] = []
    for group in groups:
        if isinstance(group, Reference):
            used.append({lowering.name(v) for v in (*group.node.inputs, *group.node.outputs) if v is not None})
        else:
            used.append({n for s in group for n in (*s.ins, *s.outs)})
    graph_outputs = {lowering.name(v) for v in lowering.graph.values.values() if v.role is Role.APP_READ}
    stages: list[Any] = []
    for i, group in enumerate(groups):
        if isinstance(group, Reference):
            stages.append(_Evaluated(lowering, group.node))
            continue
        elsewhere = set().union(*used[:i], *used[i + 1 :])
        written: dict[str, None] = {}
        reads: dict[str, None] = {}
        for step in group:
            reads.update(dict.fromkeys(n for n in step.ins if n not in written and n not in lowering.constants))
            written.update(dict.fromkeys(step.outs))
        writes = [n for n in written if n in graph_outputs or n in elsewhere]
        lives: dict[str, tuple[int, int]] = dict.fromkeys(reads, (-1, -1))
        for at, step in enumerate(group):
            for name in (*step.ins, *step.outs):
                if name not in lowering.constants and name not in writes:
                    lives[name] = (lives.get(name, (at, at))[0], at)
        stages.append(_Segment(lowering, group, list(reads), writes, lives))
    return stages
