# SPDX-License-Identifier: Apache-2.0
"""Compile: models into one context, prepared for one or several chips and never run."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hexforge.backend import Backend, ContextBackend, GraphSettings, Program
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import BURST
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.container import Buffer
from hexforge.formats.context import Info
from hexforge.formats.files import write_atomically
from hexforge.options import did_you_mean
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph, model_record, models_metadata
from hexforge.runtime.contexts.native_kv import NativeCaches, NativeFormat, native_metadata
from hexforge.runtime.contexts.request import ContextRequest, check_sharing, check_sources, item_of
from hexforge.runtime.prepare import ModelRequest
from hexforge.runtime.registry import backend_for
from hexforge.runtime.stages import PlacedNode

if TYPE_CHECKING:
    from hexforge.model.source import ModelSource
    from hexforge.runtime.plan import Plan

REMEDY = "change the model as said, or allow parts (--allow-partial) to leave them to the CPU"
Progress = Callable[[int, int], None]
"""Told how many steps are done, of how many."""


@dataclass(frozen=True, slots=True)
class NodesOnCpu:
    """The nodes of a model that are not in the context because they stay on the CPU."""

    model: str
    rows: tuple[PlacedNode, ...]


class Compiled:
    """A context that was just made: in memory until it is saved."""

    def __init__(self, builder: ContextBuilder, models: Mapping[str, Sequence[str]], weights: Mapping[str, int],
                 left_on_cpu: Sequence[NodesOnCpu]) -> None:  # fmt: skip
        self._parts: list[Buffer] = list(builder.writer().parts())
        self.info: Info = builder.info
        self.models = {model: tuple(graphs) for model, graphs in models.items()}
        """The graphs of each model."""
        self.weights_bytes = dict(weights)
        """Bytes of the weights that each model uses."""
        self.stored_bytes = builder.pool.stored
        """Bytes of weights in the file."""
        self.left_on_cpu = tuple(left_on_cpu)
        """Nodes that stay with the CPU; empty unless parts were allowed."""

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self._parts))

    @property
    def saved_bytes(self) -> int:
        """Bytes of weights that lie in one file once instead of in several."""
        return max(0, sum(self.weights_bytes.values()) - self.stored_bytes)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the file, whole or not at all."""
        write_atomically(Path(path), self._parts)
        return Path(path)

    def to_bytes(self) -> bytes:
        """The file in memory."""
        return b"".join(self._parts)

    @cached_property
    def context(self) -> Context:
        """The context, opened as it would be from its file."""
        return Context(self.to_bytes(), "the compiled context")

    def program(self, name: str = "", backend: Backend | None = None) -> Program:
        """A graph, ready to run; the only one where none is named."""
        if not name and len(self.info.graphs) != 1:
            raise CallError(f"name a graph; the context has {', '.join(g.name for g in self.info.graphs)}")
        return self.context.program(name or self.info.graphs[0].name, backend)


def compile(
    models: ModelSource | Sequence[ModelSource],
    output: str | os.PathLike[str] | None = None,
    deployment: Deployment | Backend | str | None = None,
    request: ContextRequest | None = None,
    *,
    dims: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] | None = None,
    constants: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compile models into one context for one or several chips, and write it where `output` says.

    `deployment` is a hexforge.Deployment, a chip or a comma list of chips by name, "cpu", or a backend.
    UnsupportedError tells why the backend refuses nodes, unless the request allows parts. `dims`, `shapes`
    and `constants`, which makes inputs constant, are for all models, or a list with an item for each.
    """
    from hexforge.runtime.plan import Plan, no_cpu_part
    from hexforge.runtime.prepare import prepare_model

    is_one = isinstance(models, (str, bytes)) or not isinstance(models, Sequence)
    sources = [cast("ModelSource", models)] if is_one else list(cast("Sequence[ModelSource]", models))
    check_sources(sources, output)
    backend, request = backend_for(deployment), request or ContextRequest()
    power = request.power or (deployment.power if isinstance(deployment, Deployment) else BURST)
    settings_of_models = _settings(request, len(sources), backend)
    sharing = request.weight_sharing
    check_sharing(sharing, settings_of_models, backend)
    builder = ContextBuilder.of(backend, weight_sharing=sharing)
    report = _Steps(progress, len(sources) * (2 + len(builder.targets)) + 1)
    names = request.names(sources)
    hows = [
        {
            name: item_of(given, i, len(sources), name)
            for name, given in (("dims", dims), ("shapes", shapes), ("constants", constants))
        }
        for i in range(len(sources))
    ]
    weights: dict[str, int] = {}
    left_on_cpu: list[NodesOnCpu] = []
    graphs: dict[str, list[str]] = {}
    formats: dict[str, NativeFormat] = {}

    def add(name: str, source: ModelSource, how: Mapping[str, Any], settings: GraphSettings) -> None:
        """Compile one model's graphs into the context; what else was made of it goes when this returns."""
        exposed = request.exposed_of(name)
        parts = prepare_model(source, backend, ModelRequest(**how, offload_io_quantization=request.quantized_io))
        label = parts.model.name
        if not request.allow_partial:
            parts.require_whole(f"{label}:", backend.name, REMEDY)
        native = NativeCaches(
            request.native, _graph_names(name, sum(part.taken for part in parts.parts)), backend, settings
        )
        plan = Plan(parts, backend, no_cpu_part, exposed, native.mark)
        formats.update(native.formats)
        report.step()
        programs = _programs(plan, name, label)
        _require_exposed(exposed, name, [program for _, program in programs])
        left_on_cpu.extend([NodesOnCpu(label, parts.left_on_cpu)] if parts.left_on_cpu else [])
        if not sharing:
            builder.pool.forget()
        for number, ((graph_name, program), (updatable, updatable_bytes)) in enumerate(
            zip(programs, _updatable(plan, request.updatable, source, how), strict=True)
        ):
            step = report.step if number == 0 else _no_step
            prepared = PreparedGraph.prepared(graph_name, program, backend, settings, power, step=step)
            entry = replace(prepared, updatable=updatable, updatable_bytes=updatable_bytes)
            weights[name] = weights.get(name, 0) + builder.add(entry)
        graphs.setdefault(label if label not in graphs else name, []).extend(n for n, _ in programs)
        report.step()

    for model in zip(names, sources, hows, settings_of_models, strict=True):
        add(*model)
        if len(sources) > 1:
            gc.collect()  # graphs refer to their own parts: of large models two would be in memory at once
    _require_updatable(request.updatable, builder.info)
    if request.native:
        builder.metadata |= native_metadata(request.native, formats)
    builder.metadata.update(models_metadata(dict(zip(names, map(model_record, sources, hows), strict=True))))
    compiled = Compiled(builder, graphs, weights, left_on_cpu)
    if output is not None:
        compiled.save(output)
    report.step()
    return compiled


def _settings(request: ContextRequest, count: int, backend: Backend) -> list[GraphSettings]:
    """The settings of each model's graphs; CallError where the backend has no such settings."""
    requested = [item_of(request.settings, i, count, "settings") for i in range(count)]
    if isinstance(backend, ContextBackend):
        return [backend.graph_settings(dict(settings)) for settings in requested]
    strange = dict.fromkeys(key for settings in requested for key in settings)
    if strange:
        raise CallError(f"{', '.join(strange)}: the {backend.name} backend has no such settings; leave it out")
    return [{} for _ in requested]


def _no_step() -> None:
    """Count nothing: a model's first graph does, on each chip."""


class _Steps:
    """Counts, and says so."""

    def __init__(self, progress: Progress | None, of: int) -> None:
        self._progress, self._of, self._done = progress, of, 0

    def step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._of)


def _require_updatable(patterns: Sequence[str], info: Info) -> None:
    """CallError where a pattern names no constant of the graphs."""
    unused = [p for p in patterns if not any(fnmatchcase(t, p) for g in info.graphs for t in g.updatable)]
    if unused:
        raise CallError(f"updatable {', '.join(unused)}: no constant of the graphs has such a name")


def _updatable(
    plan: Plan, patterns: Sequence[str], source: ModelSource, how: Mapping[str, Any]
) -> list[tuple[tuple[str, ...], int]]:
    """For each graph of a plan the constants that adapters may change, and what they take on a chip."""
    taken = [stage for stage in plan.stages if stage.part.taken]
    if not patterns:
        return [((), 0)] * len(taken)
    from hexforge.frontends.onnx.context_constants import Constants, updatable_names

    constants = Constants(source, **how)
    return [updatable_names(constants, patterns, [row.node for row in stage.rows]) for stage in taken]


def compiled_programs(
    source: ModelSource,
    name: str,
    backend: Backend,
    how: Mapping[str, Any],
    *,
    quantized_io: bool,
    native: Mapping[str, Collection[str]] | None = None,
) -> dict[str, Program]:
    """The programs of a model under the names that `compile` gives their graphs; `native` caches lie as said there."""
    from hexforge.runtime.plan import Plan, no_cpu_part
    from hexforge.runtime.prepare import prepare_model

    parts = prepare_model(source, backend, ModelRequest(**how, offload_io_quantization=quantized_io))
    caches = NativeCaches(native or {}, _graph_names(name, sum(part.taken for part in parts.parts)), backend, {})
    return dict(_programs(Plan(parts, backend, no_cpu_part, (), caches.mark), name, parts.model.name))


# -- from a model to programs -----------------------------------------------------------------------------------------


def _require_exposed(patterns: Sequence[str], name: str, programs: Sequence[Program]) -> None:
    """CallError for a pattern that no tensor of a model's graphs has as its name."""
    written = [value.name for program in programs for value in program.graph.outputs]
    for pattern in patterns:
        if not any(fnmatchcase(tensor, pattern) for tensor in written):
            inside = [v.name for p in programs for node in p.graph for v in node.outputs]
            near = did_you_mean(pattern, inside) or f"; it has {', '.join(inside[:8])}{' …' if len(inside) > 8 else ''}"
            raise CallError(f"graph {name!r} has no tensor {pattern!r}{near}")


def _graph_names(name: str, count: int) -> list[str]:
    """What the graphs of a model are called."""
    return [name] if count == 1 else [f"{name}_{i}" for i in range(count)]


def _programs(plan: Plan, name: str, label: str) -> list[tuple[str, Program]]:
    """Programs with the names their graphs get."""
    taken: list[Any] = [s.runner for s in plan.stages if s.part.taken]
    if not taken:
        raise UnsupportedError(f"{label}: nothing of it is left to compile: every node stays with the CPU")
    names = _graph_names(name, len(taken))
    for graph_name, program in zip(names, taken, strict=True):
        program.graph.name = graph_name
    return list(zip(names, taken, strict=True))
