# SPDX-License-Identifier: Apache-2.0
"""The saver backend: another backend whose every QNN call is recorded, with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from hexforge.addons.saver.recording import Recorder
from hexforge.backend import Backend, ContextBackend, Program, TimedBackend, WrappedProgram
from hexforge.ir import Array, Graph, Value, text
from hexforge.ir.types import pack

FOLDER = "saver_output"
"""Where recordings go, from the folder the process runs in, as QNN's Saver does."""


class _FromInner:
    """An attribute that is read from the recorded backend."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, saver: SaverBackend | None, owner: type) -> Any:
        return self if saver is None else getattr(saver.inner, self._name)


class SaverBackend(Backend):
    """A backend that does what another does and records it."""

    unsupported = _FromInner()
    float16_hazard = _FromInner()
    remark = _FromInner()
    load = _FromInner()  # of what is loaded nothing is recorded: its graph was never composed here

    def __init__(self, inner: Backend, recorder: Recorder | None = None, folder: Path | None = None) -> None:
        super().__init__(inner.config)
        self.inner, self.name, self.ep_limited = inner, inner.name, inner.ep_limited
        self._folder = folder or Path(FOLDER)
        self._recorder = recorder

    @property
    def recorder(self) -> Recorder:
        """Where calls are written; the folder is made with the first of them."""
        if self._recorder is None:
            self._recorder = Recorder(self._folder)
            settings = self.inner.config.pairs()
            self._recorder.call("QnnBackend_create", self.inner.name, settings)
            self._recorder.call("QnnContext_create", "context_0", code=self._recorder.program.context(settings))
        return self._recorder

    def compile(self, graph: Graph) -> SavedProgram:
        """Compile the graph as the other backend does, every tensor and node of it recorded."""
        name = self._record(graph)
        self.inner.spinning = self.spinning
        program = self.inner.compile(graph)
        self.recorder.call("QnnGraph_finalize", name, code=self.recorder.program.finalize(name))
        return SavedProgram(program, name, self.recorder)

    def opened(self, program: Program) -> SavedProgram:
        """A program that was compiled elsewhere, its graph and its executions recorded."""
        name = self._record(program.graph)
        self.recorder.call("QnnGraph_finalize", name, code=self.recorder.program.finalize(name))
        return SavedProgram(program, name, self.recorder)

    def _record(self, graph: Graph) -> str:
        """Record the calls that build a graph; the graph's name there."""
        graph.sort()
        to = self.recorder
        name = f"graph_{next(to.numbers)}"
        to.call("QnnGraph_create", "context_0", name, graph.name, code=to.program.graph(name, graph))
        for value in graph.values.values():
            _record_tensor(to, name, value)
        for node in graph:
            reads = [None if v is None else v.name for v in node.inputs]
            writes = [v.name for v in node.outputs]
            params = {key: _plain(value) for key, value in node.params.items()}
            code = to.program.node(name, node, "qti.aisw")
            to.call("QnnGraph_addNode", name, node.name, "qti.aisw", node.op.name, params, reads, writes, code=code)
        return name


class ChipSaverBackend(SaverBackend, ContextBackend, TimedBackend):
    """A SaverBackend for a backend that has chips: the recorded backend answers whatever concerns a chip."""

    inner: ContextBackend

    chips = _FromInner()
    chip_name = _FromInner()
    require_chip = _FromInner()
    graph_config = _FromInner()
    prepared = _FromInner()
    timing = _FromInner()
    mixed_us = _FromInner()
    accelerator = _FromInner()
    targets = _FromInner()
    graph_settings = _FromInner()
    schematic = _FromInner()
    fits = _FromInner()
    compatibility = _FromInner()
    no_weight_sharing = _FromInner()
    most_graphs = _FromInner()
    needs_spill_fill_size = _FromInner()
    float_io = _FromInner()
    blob_info = _FromInner()

    def for_chip(self, index: int) -> Self:
        """This backend for one of the chips."""
        return type(self)(self.inner.for_chip(index), self._recorder, self._folder)

    def at_level(self, level: int) -> Self:
        """This backend with another level of effort for preparing graphs."""
        return type(self)(self.inner.at_level(level), self._recorder, self._folder)


def recorded_backend(inner: Backend, folder: Path | None = None) -> SaverBackend:
    """A backend that does what another does and records it."""
    kind = ChipSaverBackend if isinstance(inner, ContextBackend) else SaverBackend
    return kind(inner, folder=folder)


class SavedProgram(WrappedProgram):
    """A program whose executions are recorded, with what went in and what came out."""

    def __init__(self, program: Program, name: str, recorder: Recorder) -> None:
        super().__init__(program)
        self._name, self._recorder = name, recorder

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run it, and record that."""
        outputs = self._program.run(feeds)
        self.record(feeds, outputs)
        return outputs

    def record(self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
        """Record an execution."""
        reads = {v.name: self._kept(v, feeds[v.name]) for v in self.graph.inputs}
        writes = {v.name: self._kept(v, outputs[v.name]) for v in self.graph.outputs}
        given = {v.name: feeds[v.name] for v in self.graph.inputs}
        made = {v.name: outputs[v.name] for v in self.graph.outputs}
        code = self._recorder.program.execute(self._name, given, made)
        self._recorder.call("QnnGraph_execute", self._name, reads, writes, code=code)

    def _kept(self, value: Value, array: Array) -> list[Any]:
        """An array as it was given, whose type may be wider than the tensor's."""
        import numpy as np

        plain = np.ascontiguousarray(array)
        return [str(plain.dtype), list(plain.shape), self._recorder.put(plain.tobytes())]


def _record_tensor(to: Recorder, graph: str, value: Value) -> None:
    arguments: list[Any] = [graph, value.name, f"QNN_TENSOR_TYPE_{value.role.value}", text.dump_type(value.type)]
    if value.data is not None:
        arguments.append(to.put(pack(value.data, value.dtype)))
    to.call("QnnTensor_createGraphTensor", *arguments, code=to.program.tensor(graph, value))


def _plain(value: Any) -> Any:
    """A parameter as JSON has it; real numbers that JSON has not are texts."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": str(value)}
    return value
