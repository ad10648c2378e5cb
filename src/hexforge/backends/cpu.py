# SPDX-License-Identifier: Apache-2.0
"""The cpu backend: runs the reference of each op, float and fixed point, node after node."""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from hexforge.backend import Backend, KernelTime, Program, checked_feeds, interruption, kernel_times
from hexforge.errors import CapacityError
from hexforge.formats.container import mappings_of, require_whole
from hexforge.ir import Array, Graph, Node, Value
from hexforge.ir.verify import verify
from hexforge.ops.evaluate import PreparedCall
from hexforge.ops.packages import custom_named


class CpuBackend(Backend):
    """Runs every op of the table in every data type; the threads are numpy's and its BLAS's own."""

    name = "cpu"

    def unsupported(self, node: Node) -> str | None:
        """None: what the op table defines, this backend runs; but for op packages that are for HTP alone."""
        custom = custom_named(node.op.name)
        if custom is not None and "CPU" not in custom.targets:
            return f"its op package {custom.package!r} is registered for HTP only; register it with the target CPU"
        return None

    def compile(self, graph: Graph) -> CpuProgram:
        """A program of the graph's nodes in order."""
        graph.sort()
        verify(graph)
        return CpuProgram(graph)


_Step = tuple[PreparedCall, tuple[Value | None, ...], tuple[Value, ...]]
_PREPARED_BYTES = 256 << 20
"""Constants are kept in the form their op computes with (float64 of int8, say) up to this or their own size."""


class CpuProgram(Program):
    """A compiled graph. `run` keeps nothing between calls, so threads may call it at the same time."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._outputs = graph.outputs
        self._inputs = graph.inputs
        self._steps = _prepared(graph)
        self._statics = {v: v.data for v in graph.values.values() if v.data is not None}
        self._mappings = mappings_of(self._statics.values())
        last = {v: i for i, (_, inputs, outputs) in enumerate(self._steps) for v in (*inputs, *outputs) if v}
        self._frees: list[list[Value]] = [[] for _ in self._steps]
        for value, i in last.items():
            if value.data is None and value not in self._outputs:
                self._frees[i].append(value)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        checked = checked_feeds(self.graph.name, self._inputs, feeds)
        given = {v: checked[v.name] for v in self._inputs}
        environment: dict[Value, Array] = {**self._statics, **given}
        check, times = interruption.get(), kernel_times.get()
        for (evaluation, inputs, outputs), frees in zip(self._steps, self._frees, strict=True):
            if check is not None:
                check()
            start = 0 if times is None else time.perf_counter_ns()
            arrays = [None if v is None else environment[v] for v in inputs]
            try:
                environment.update(zip(outputs, evaluation(arrays), strict=True))
            except MemoryError as error:
                what = f"{self.graph.name}: {outputs[0].name!r} {list(outputs[0].shape)}"
                raise CapacityError(f"{what} needs memory that cannot be had: {error}") from None
            if times is not None:
                node = outputs[0].producer
                times.append(KernelTime(node.name if node else "", "CPU", start, time.perf_counter_ns()))
            for value in frees:
                environment.pop(value, None)
        require_whole(self._mappings)
        taken = {id(a) for a in (*given.values(), *self._statics.values())}
        return {v.name: _own(environment[v], taken) for v in self._outputs}


def _prepared(graph: Graph) -> list[_Step]:
    """The nodes with constants laid out and converted once, as far as memory stays modest."""
    for value in graph.values.values():
        if value.data is not None and not value.data.flags.c_contiguous and not is_splat(value.data):
            # a transposed view would be copied again by every run
            graph.retype(value, value.type, np.ascontiguousarray(value.data))
    room = max(_PREPARED_BYTES, sum(v.type.nbytes for v in graph.values.values() if v.data is not None))
    steps: list[_Step] = []
    for node in graph.nodes:
        constants = [None if v is None else v.data for v in node.inputs]
        evaluation = PreparedCall(node.call, constants)
        if evaluation.prepared_bytes > room:
            evaluation = PreparedCall(node.call)
        room -= evaluation.prepared_bytes
        steps.append((evaluation, node.inputs, node.outputs))
    return steps


def is_splat(array: Array) -> bool:
    """True where one stored element stands for all."""
    return array.size > 1 and not any(array.strides)


def _own(array: Array, taken: set[int]) -> Array:
    """The array C-contiguous and sharing memory with no input, constant or other output."""
    if array.base is not None or not array.flags.c_contiguous or id(array) in taken:
        array = array.copy(order="C")
    taken.add(id(array))
    return array
