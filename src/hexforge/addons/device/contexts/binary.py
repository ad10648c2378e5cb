# SPDX-License-Identifier: Apache-2.0
"""Binary: what a context file asks of a device: its graphs, their memory, their time, and how they are loaded.

A binary is a context that exists (`Binary.of`), whose graphs run with real numbers, or figures alone (`Binary(...)`),
which take memory and time and compute nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.graph_time import DeclaredTime, GraphTime, SimulatedTime
from hexforge.backend import Backend, ContextBackend, Program
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.htp_config import HtpConfig
from hexforge.chips.soc import Soc
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.validated import Count, Positive
from hexforge.ir import TensorType
from hexforge.runtime import registry
from hexforge.runtime.contexts.compatibility import BINARY_SUBOPTIMAL, BinaryCompatibility, require_compatible
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.describe import weights_of

Tensors = tuple[tuple[str, TensorType], ...]


@dataclass(frozen=True, slots=True, eq=False)
class GraphSpec:
    """What one graph asks for."""

    name: str
    weights_bytes: Count = 0
    """Its own, what it shares with other graphs left out."""
    spill_fill_bytes: Count = 0
    io_bytes: Count = 0
    vtcm_bytes: Count = 0
    time: GraphTime = DeclaredTime(1000.0)  # noqa: RUF009 - it is frozen
    num_cores: Positive = 1
    adapter_bytes: Count = 0
    """What adapters may change of its weights."""
    inputs: Tensors = ()
    outputs: Tensors = ()


@dataclass(frozen=True, slots=True, eq=False)
class Binary:
    """A context binary."""

    name: str
    graphs: tuple[GraphSpec, ...]
    shared_bytes: Count = 0
    """Weights that several graphs have in common."""
    shared_end: Count = 0
    """Where in the section of weights the last of them ends."""
    embedded: bool = False
    """Inside a model and not a file of its own: it cannot be loaded again after a crash."""
    udma64: bool = False
    secure: bool = False
    """Protected by the secure process domain."""
    lora_weight_sharing: bool = False
    """Its graphs have one place for an adapter's weights."""
    dlbc: bool = False
    """Its graphs were prepared with DLBC, of activations or of weights: they share no spill-fill buffer."""
    source: Path | bytes | None = None
    """The context where it exists."""
    _first: list[Context] = field(default_factory=list)
    """The context as it was read for its figures, with its programs: whoever opens it first has it."""

    def __post_init__(self) -> None:
        names = [graph.name for graph in self.graphs]
        if not names or len(set(names)) != len(names):
            raise CallError(f"binary {self.name!r}: give its graphs, each with a name of its own")
        sizes = [self.shared_bytes]
        sizes += [n for g in self.graphs for n in (g.weights_bytes, g.spill_fill_bytes, g.io_bytes, g.vtcm_bytes)]
        if min(sizes) < 0:
            raise CallError(f"binary {self.name!r}: sizes are 0 or more")

    @property
    def weights_bytes(self) -> int:
        """All weights."""
        return self.shared_bytes + sum(graph.weights_bytes for graph in self.graphs)

    def graph(self, name: str) -> GraphSpec:
        """A graph by its name."""
        for spec in self.graphs:
            if spec.name == name:
                return spec
        known = ", ".join(spec.name for spec in self.graphs)
        raise DeviceError(Code.QNN_GRAPH_ERROR_GRAPH_DOES_NOT_EXIST, f"{self.name}: no graph {name!r}; it has {known}")

    def open(self) -> Context | None:
        """The context, anew from its file or bytes; None where there are only figures."""
        if self._first:
            return self._first.pop()
        return None if self.source is None else Context(self.source, self.name)

    def embed(self) -> Binary:
        """The same as a model would have it inside."""
        source = self.source.read_bytes() if isinstance(self.source, Path) else self.source
        return replace(self, embedded=True, source=source)

    def without_numbers(self) -> Binary:
        """The same memory and time, with graphs that compute nothing."""
        graphs = tuple(replace(spec, inputs=(), outputs=()) for spec in self.graphs)
        return replace(self, graphs=graphs, source=None, _first=[])

    def with_vtcm(self, size_mb: int) -> Binary:
        """The same as if its graphs had been prepared for another size of VTCM; numbers do not depend on it."""
        graphs = []
        for spec in self.graphs:
            assert isinstance(spec.time, SimulatedTime)
            config = spec.time.config.with_vtcm(size_mb)
            graphs.append(replace(spec, vtcm_bytes=config.vtcm_bytes, time=spec.time.under(config)))
        return replace(self, graphs=tuple(graphs))

    @classmethod
    def of(cls, source: str | os.PathLike[str] | bytes, soc: Soc, name: str = "") -> Binary:
        """A context file, or one in memory, on a chip."""
        kept = source if isinstance(source, bytes) else Path(source)
        where = name or (kept.name if isinstance(kept, Path) else "context")
        context = _KeptPrograms(kept, where)
        options = registry.backend(context.info.backend, context.info.options).config
        config = options.graph if isinstance(options, HtpConfig) else GraphConfig()
        backend = registry.backend(context.info.backend)
        graphs = []
        for row in context.graphs:
            program = context.kept[row.name] = context.program(row.name, backend)
            running = config.running(row.settings, soc)
            graphs.append(
                GraphSpec(
                    row.name, 0, row.spill_fill_bytes, _bytes((*row.inputs, *row.outputs)), running.vtcm_bytes,
                    SimulatedTime(program.graph, soc, running), config.num_cores, row.updatable_bytes,
                    row.inputs, row.outputs,
                )
            )  # fmt: skip
        weights = weights_of(context)
        # what adapters change is counted apart, in the graph's own weights or in those that agree with another graph's
        own = {spec.name: max(0, weights.own_bytes(spec.name) - spec.adapter_bytes) for spec in graphs}
        among_shared = max((spec.adapter_bytes - weights.own_bytes(spec.name) for spec in graphs), default=0)
        shared = sum(size for _, size in weights.shared)
        shared -= min(shared, max(0, among_shared))
        named = tuple(replace(spec, weights_bytes=own[spec.name]) for spec in graphs)
        udma, lora = (context.info.options.get(k, "0") == "1" for k in ("extended_udma", "lora_weight_sharing"))
        dlbc = bool(config.kinds_of_dlbc)
        end = max((offset + size for offset, size in weights.shared), default=0)
        return cls(where, named, shared, end, isinstance(kept, bytes), udma, lora_weight_sharing=lora, dlbc=dlbc,
                   source=kept, _first=[context])  # fmt: skip


class _KeptPrograms(Context):
    """A context that keeps the programs that were made for its figures, for those who ask first."""

    def __init__(self, source: Path | bytes, where: str) -> None:
        super().__init__(source, where)
        self.kept: dict[str, Program] = {}


def _bytes(tensors: Sequence[tuple[str, TensorType]]) -> int:
    return sum(type.size * max(1, type.dtype.numpy.itemsize) for _, type in tensors)


def require_suits(context: Context, soc: str, mode: str) -> Backend:
    """The backend that a context's programs run on; DeviceError where the chip cannot run it, or not well (strict)."""
    backend = registry.backend(context.info.backend, {"soc_model": soc} if _prepares(context) else {})
    try:
        require_compatible(context.info, backend, BinaryCompatibility(mode), where=context.where)
    except UnsupportedError as error:
        weak = error.code == BINARY_SUBOPTIMAL
        code = Code.QNN_CONTEXT_ERROR_BINARY_SUBOPTIMAL if weak else Code.QNN_CONTEXT_ERROR_CREATE_FROM_BINARY
        raise DeviceError(code, str(error)) from None
    return registry.backend(context.info.backend, {}, 1)


def _prepares(context: Context) -> bool:
    return isinstance(registry.backend(context.info.backend), ContextBackend)


def loaded_program(context: Context, name: str, backend: Backend) -> Program:
    """A graph of a context, ready to run; DeviceError where its bytes are wrong."""
    if isinstance(context, _KeptPrograms) and name in context.kept:
        return context.kept.pop(name)
    try:
        return context.program(name, backend)
    except FormatError as error:
        raise DeviceError(Code.QNN_CONTEXT_ERROR_CREATE_FROM_BINARY, str(error)) from None
