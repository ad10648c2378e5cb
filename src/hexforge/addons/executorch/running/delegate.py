# SPDX-License-Identifier: Apache-2.0
"""Delegate: the part of a method that the QNN backend runs: a graph of a context file, bound to arguments by name.

Tensors are called as ExecuTorch's Qualcomm backend calls them: `input_<i>_...` is argument i, `output_...` are the
outputs in the graph's order, `..._mutbuf_<i>_...` is a buffer that the delegate keeps from run to run; what else the
graph gives are intermediate tensors that were asked for.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.addons.executorch.formats.qnn_options import QnnOptions, read_options
from hexforge.addons.executorch.resizing import dynamic_key, resize_graph
from hexforge.backend import Program
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array, ScaleOffset, Value
from hexforge.runtime import registry
from hexforge.runtime.contexts.context import Context

_NUMBER = re.compile(r"input_(\d+)_")
_MOST_SIZES = 32
"""Programs for other sizes that are kept."""
_BUFFER = re.compile(r"mutbuf_(\d+)_")


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A tensor within a delegate, under its QNN name."""

    name: str
    array: Array


class QnnDelegate:
    """A graph of a context with its buffers; runs of one delegate follow each other."""

    def __init__(
        self, context: Context, graph: str, program: Program, where: str, spec: memoryview | None = None
    ) -> None:
        self.context, self.graph, self.program, self.where = context, graph, program, where
        self._spec = spec
        row = context.graph(graph)
        inputs, outputs = row.values()
        named = any(_NUMBER.match(v.name) for v in inputs) or any(v.name.startswith("output_") for v in outputs)
        self.inputs = sorted((v for v in inputs if not _BUFFER.search(v.name)), key=_number) if named else inputs
        given = [v for v in outputs if not _BUFFER.search(v.name)]
        self.outputs = [v for v in given if v.name.startswith("output_")] if named else given
        self.intermediates = [v for v in given if v not in self.outputs]
        self._kept = [(v.name, _buffer(v.name)) for v in inputs if _BUFFER.search(v.name)]
        self._renewed = [(v.name, _buffer(v.name)) for v in outputs if _BUFFER.search(v.name)]
        self._buffers = {_buffer(v.name): _zeros(v) for v in inputs if _BUFFER.search(v.name)}
        self._lock = threading.Lock()
        self._dynamic = context.info.metadata.get(dynamic_key(graph))
        self._resized: dict[tuple[tuple[int, ...], ...], tuple[Program, Sequence[Value]]] = {}
        self.last: list[Intermediate] = []
        """Intermediate tensors of the last run."""

    @functools.cached_property
    def options(self) -> QnnOptions | None:
        """What it was compiled with, where the file says so."""
        return None if self._spec is None else read_options(self._spec, self.where)

    def reset(self) -> None:
        """Let the buffers be what they were at first."""
        inputs, _ = self.context.graph(self.graph).values()
        self._buffers = {_buffer(v.name): _zeros(v) for v in inputs if _BUFFER.search(v.name)}

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Outputs for inputs; both in the order of the method's arguments."""
        if len(arrays) != len(self.inputs):
            raise FormatError(f"{self.where}: is called with {len(arrays)} tensors, its graph has {len(self.inputs)}")
        program, inputs = self._for_sizes(arrays)
        feeds = {v.name: self._fed(v, a) for v, a in zip(inputs, arrays, strict=True)}
        with self._lock:
            feeds.update((name, self._buffers[number]) for name, number in self._kept)
            results = program.run(feeds)
            self._buffers.update((number, results[name]) for name, number in self._renewed)
            self.last = [Intermediate(v.name, results[v.name]) for v in self.intermediates]
        return [results[v.name] for v in self.outputs]

    def _for_sizes(self, arrays: Sequence[Array]) -> tuple[Program, Sequence[Value]]:
        """The program for the sizes of a run: the compiled one, or one that is made where dimensions vary."""
        if self._dynamic is None or all(a.shape == v.shape for a, v in zip(arrays, self.inputs, strict=True)):
            return self.program, self.inputs
        shapes = tuple(a.shape for a in arrays)
        if shapes not in self._resized:
            from hexforge.passes import NEUTRAL, run

            names = [v.name for v in self.inputs]
            graph = resize_graph(self._dynamic, dict(zip(names, shapes, strict=True)), self.where)
            inputs = {v.name: v for v in graph.inputs}
            run(graph, NEUTRAL)
            info = self.context.info
            program = registry.backend(info.backend, info.options).compile(graph)
            if len(self._resized) == _MOST_SIZES:
                self._resized.pop(next(iter(self._resized)))
            self._resized[shapes] = program, [inputs[name] for name in names]
        return self._resized[shapes]

    def _fed(self, value: Value, array: Array) -> Array:
        """An argument as the graph takes it: the same bytes under the graph's type and sizes."""
        array = convert_border_type(array, value.dtype.numpy, f"{self.where}: input {value.name!r}")
        if array.shape != value.shape:
            if array.size != int(np.prod(value.shape)):
                raise CallError(
                    f"{self.where}: input {value.name!r} has the sizes {list(array.shape)}, it must have "
                    f"{list(value.shape)}"
                )
            array = array.reshape(value.shape)
        return array


def convert_border_type(array: Array, dtype: np.dtype[Any], where: str) -> Array:
    """What crosses a delegate's border in the other side's type: integers of another width as numbers, else the bytes.

    ExecuTorch declares indices of 64 bits for some ops, such as topk, whose QNN ops have 32.
    """
    if array.dtype == dtype:
        return array
    if array.dtype.kind in "iu" and dtype.kind in "iu" and array.dtype.itemsize != dtype.itemsize:
        converted = array.astype(dtype)
        if dtype.itemsize < array.dtype.itemsize and not np.array_equal(converted, array):
            raise CallError(f"{where}: has integers that {dtype.name} does not hold")
        return converted
    if array.dtype.itemsize != dtype.itemsize or (array.dtype.kind == "f") != (dtype.kind == "f"):
        raise CallError(f"{where} is {array.dtype.name}, it must be {dtype.name}")
    return np.ascontiguousarray(array).view(dtype)


def output_order(outputs: Sequence[Array], slots: Sequence[tuple[np.dtype[Any], int]]) -> Sequence[Array]:
    """Outputs of a graph in the order of the file's own: data types, and numbers of elements.

    ExecuTorch binds them by position, but its Dequantize of an op's first output comes after the op, and so behind the
    op's other outputs: a quantized topk gives indices, then values, where the file has values, then indices.
    """
    left = list(outputs)
    ordered: list[Array] = []
    for dtype, size in slots:
        at = next((i for i, o in enumerate(left) if (_kind(o.dtype), o.size) == (_kind(dtype), size)), None)
        if at is None:
            return outputs  # sizes that vary, or a mismatch that is said where it is met
        ordered.append(left.pop(at))
    return ordered


def _kind(dtype: np.dtype[Any]) -> str:
    return "i" if dtype.kind in "iu" else dtype.kind


def _number(value: Value) -> int:
    match = _NUMBER.match(value.name)
    return int(match.group(1)) if match else -1


def _buffer(name: str) -> int:
    match = _BUFFER.search(name)
    assert match is not None
    return int(match.group(1))


def _zeros(value: Value) -> Array:
    """A buffer that holds the real number zero."""
    encoding = value.type.encoding
    code = -encoding.offset if isinstance(encoding, ScaleOffset) else 0
    return np.full(value.shape, code, value.dtype.numpy)
