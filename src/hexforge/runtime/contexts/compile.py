"""Compile: models into one context, prepared for one or several chips and never run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, Program
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.container import Buffer
from hexforge.formats.context import Info, Target
from hexforge.formats.files import write_atomically
from hexforge.ir import Graph
from hexforge.options import ProviderOptions
from hexforge.runtime.contexts.chips import Chips
from hexforge.runtime.contexts.context import Builder, Context, is_context
from hexforge.runtime.contexts.provenance import metadata, origin
from hexforge.runtime.contexts.request import (
    chosen_options,
    graph_fields,
    item_of,
    names_of,
    shares_weights,
    targets_of,
)
from hexforge.runtime.stages import Row

if TYPE_CHECKING:
    from hexforge.backends.htp.config import GraphConfig
    from hexforge.model.reader import Model, ModelSource
    from hexforge.runtime.plan import Plan

DEFAULT_OPTIMIZATION = 3
OFFLOADED = "offload_graph_io_quantization=1"
"""What the reason begins with where a quantization is left outside on purpose."""
SCHEMATIC_COLUMNS = ("name", "op", "start_us", "us", "cycles", "bound", "weight_bytes", "spill_bytes", "nodes")
Progress = Callable[[int, int], None]
"""Told how many steps are done, of how many."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is not in the context: the nodes of a model that stay with the CPU."""

    model: str
    rows: tuple[Row, ...]


class Compiled:
    """A context that was just made: in memory until it is saved."""

    def __init__(self, builder: Builder, models: Mapping[str, Sequence[str]], alone: Mapping[str, int],
                 left: Sequence[Left]) -> None:  # fmt: skip
        self._parts: list[Buffer] = list(builder.writer().parts())
        self.info: Info = builder.info
        self.models = {model: tuple(graphs) for model, graphs in models.items()}
        """The graphs of each model."""
        self.alone = dict(alone)
        """Bytes of a context of each model by itself."""
        self.left = tuple(left)
        """Nodes that stay with the CPU; empty unless parts were allowed."""

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(map(len, self._parts))

    @property
    def saved_bytes(self) -> int:
        """Bytes that lie in one file once instead of in several."""
        return max(0, sum(self.alone.values()) - self.nbytes)

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
    *,
    soc: str | Sequence[str] | None = None,
    backend: str = "htp",
    optimization: int = DEFAULT_OPTIMIZATION,
    num_hvx_threads: int | None = None,
    vtcm_mb: int | None = None,
    dlbc: bool = False,
    dlbc_weights: bool = False,
    weights_packing: bool = False,
    slc_alloc_enable: bool = False,
    weight_sharing: bool | None = None,
    quantized_io: bool = False,
    allow_partial: bool = False,
    updatable: Sequence[str] = (),
    graph_names: Sequence[str] | None = None,
    dims: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
    shapes: Mapping[str, Sequence[int]] | Sequence[Mapping[str, Sequence[int]]] | None = None,
    options: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Compiled:
    """Compile models into one context for one or several chips, and write it where `output` says.

    UnsupportedError names every node that the backend refuses, unless `allow_partial` leaves them to the CPU. Of
    several models the weights they have in common are stored once, where every chip can share them (v73 and newer).
    `dims` and `shapes` are for all models, or a list with an item for each. `updatable` are patterns of the names of
    constants that adapters may change (runtime/lora_make.py).
    """
    from hexforge.backends.htp.config import GraphConfig

    sources: list[ModelSource] = [models] if isinstance(models, (str, bytes, os.PathLike)) else list(models)
    if not sources:
        raise CallError("give a model to compile")
    if output is not None and not Path(output).absolute().parent.is_dir():
        raise CallError(f"{output}: cannot be written: there is no folder {Path(output).absolute().parent}")
    for source in sources:
        if not isinstance(source, bytes) and is_context(source):
            raise CallError(f"{source}: is a context, compiled already; `hexforge info` says for what, `hexforge wrap` "
                            "makes a model of it")  # fmt: skip
    chosen = chosen_options(backend, soc, optimization, options)
    config = GraphConfig(
        optimization=optimization,
        dlbc=dlbc,
        dlbc_weights=dlbc_weights,
        weights_packing=weights_packing,
        slc_alloc_enable=slc_alloc_enable,
    )
    targets = targets_of(chosen)
    row = graph_fields(chosen, targets, num_hvx_threads, vtcm_mb, config)
    config = replace(config, **{k: v for k, v in row.items() if k != "optimization"})
    sharing = shares_weights(weight_sharing, len(sources), targets, config)
    compiler = Chips(chosen)
    report = _Steps(progress, len(sources) * (2 + len(targets)) + 1)
    names = names_of(sources, graph_names)
    hows = [
        {"dims": item_of(dims, i, len(sources), "dims"), "shapes": item_of(shapes, i, len(sources), "shapes")}
        for i in range(len(sources))
    ]
    made = Builder(chosen.backend, targets, chosen.pairs(), sharing)
    alone: dict[str, int] = {}
    left: list[Left] = []
    graphs: dict[str, list[str]] = {}
    for index, (source, name) in enumerate(zip(sources, names, strict=True)):
        how = hows[index]
        plan, label = _planned(source, how, compiler, quantized_io, allow_partial)
        report.step()
        parts = _parts(plan, name, label)
        changing = _updatable(plan, updatable, source, how)
        refused = tuple(r for r in plan.rows if r.reason is not None and not r.reason.startswith(OFFLOADED))
        left += [Left(label, refused)] if refused else []
        by_itself = Builder(chosen.backend, targets, chosen.pairs())
        for number, (graph_name, program) in enumerate(parts):
            schematics, spill = _schematics(program.graph, targets, config, report if number == 0 else None)
            fields: dict[str, Any] = {**row, "spill_fill_bytes": spill, "updatable": changing[number]}
            if not sharing:
                made.pool.forget()
            made.add(program, graph_name, schematics, **fields)
            if len(sources) > 1:
                by_itself.add(program, graph_name, schematics, **fields)
        graphs.setdefault(label if label not in graphs else name, []).extend(n for n, _ in parts)
        if len(sources) > 1:
            alone[name] = sum(map(len, by_itself.writer().parts()))
        report.step()
    if unused := [p for p in updatable if not any(fnmatchcase(t, p) for g in made.info.graphs for t in g.updatable)]:
        raise CallError(f"updatable {', '.join(unused)}: no constant of the graphs has such a name")
    made.metadata.update(metadata(dict(zip(names, map(origin, sources, hows), strict=True)), config))
    found = Compiled(made, graphs, alone, left)
    if not alone:
        found.alone[names[0]] = found.nbytes
    if output is not None:
        found.save(output)
    report.step()
    return found


class _Steps:
    """Counts, and says so."""

    def __init__(self, progress: Progress | None, of: int) -> None:
        self._progress, self._of, self._done = progress, of, 0

    def step(self) -> None:
        self._done += 1
        if self._progress is not None:
            self._progress(self._done, self._of)


def _updatable(plan: Plan, patterns: Sequence[str], source: ModelSource, how: Mapping[str, Any]
               ) -> list[tuple[str, ...]]:  # fmt: skip
    """For each graph of a plan the constants that adapters may change."""
    taken = [stage for stage in plan.stages if stage.part.taken]
    if not patterns:
        return [()] * len(taken)
    from hexforge.frontends.onnx.context.constants import Constants
    from hexforge.runtime.contexts.lora_adapters import updatable_names

    constants = Constants(source, **how)
    return [updatable_names(constants, patterns, [row.node for row in stage.rows]) for stage in taken]


def compiled_programs(
    source: ModelSource, name: str, options: ProviderOptions, how: Mapping[str, Any], *, quantized_io: bool
) -> dict[str, Program]:
    """The programs of a model under the names that `compile` gives their graphs."""
    plan, label = _planned(source, how, Chips(options), quantized_io, allow_partial=True)
    return dict(_parts(plan, name, label))


# -- from a model to programs -----------------------------------------------------------------------------------------


def _planned(
    source: ModelSource, how: Mapping[str, Any], compiler: Chips, quantized_io: bool, allow_partial: bool
) -> tuple[Plan, str]:
    """A model placed and compiled, and what it is called; UnsupportedError naming what the backend refuses."""
    from hexforge.model.reader import read
    from hexforge.runtime.plan import Plan

    def loaded() -> Model:
        model = read(source, **how)
        model.require_static()
        return model

    def unprepared(*_: Any) -> Any:
        return None  # what stays with the CPU is not run here

    model = loaded()
    name = model.name
    if not quantized_io:
        try:
            return Plan(model, compiler, strict=True, make_cpu_part=unprepared), name
        except UnsupportedError as error:
            refusal = error
        model = loaded()  # placing edits a model
    plan = Plan(model, compiler, offload_io=quantized_io, make_cpu_part=unprepared)
    refused = [r for r in plan.rows if r.reason is not None and not r.reason.startswith(OFFLOADED)]
    if refused and not allow_partial:
        lines = dict.fromkeys(f"  {row}: {row.reason}" for row in refused)
        raise UnsupportedError(
            f"{name}: the {compiler.name} backend refuses {len(refused)} of {len(plan.rows)} nodes:\n"
            + "\n".join(lines)
            + "\nchange the model as said, or allow parts (--allow-partial) to leave them to the CPU"
        )
    if not refused and not quantized_io:
        raise refusal
    return plan, name


def _parts(plan: Plan, name: str, label: str) -> list[tuple[str, Program]]:
    """Programs with the names their graphs get."""
    taken: list[Any] = [s.runner for s in plan.stages if s.part.taken]
    if not taken:
        raise UnsupportedError(f"{label}: nothing of it is left to compile: every node stays with the CPU")
    names = [name] if len(taken) == 1 else [f"{name}_{i}" for i in range(len(taken))]
    for graph_name, program in zip(names, taken, strict=True):
        program.graph.name = graph_name
    return list(zip(names, taken, strict=True))


def _schematics(
    graph: Graph, targets: Sequence[Target], config: GraphConfig, steps: _Steps | None
) -> tuple[dict[str, Any], int]:
    """The graph's timeline on each chip, compact, and the largest spill-fill buffer it needs on one."""
    found: dict[str, Any] = {}
    spill = 0
    for target in targets:
        if target.soc_model:
            found[target.soc], needed = schematic(graph, target.soc, config)
            spill = max(spill, needed)
        if steps is not None:
            steps.step()
    return found, spill


def schematic(graph: Graph, soc: str, config: GraphConfig) -> tuple[dict[str, Any], int]:
    """A graph as a chip runs it, as plain data, and the bytes of its spill-fill buffer."""
    from hexforge.analysis.estimate import estimate

    line = estimate(graph, soc, config=config).timeline
    rows = [
        [r.name, r.op, round(r.start_us, 3), round(r.us, 3), r.cycles, r.bound, r.weight_bytes, r.spill_bytes,
         list(r.ops)]
        for r in line.rows
    ]  # fmt: skip
    found = {
        "soc": soc,
        "num_hvx_threads": config.num_hvx_threads,
        "vtcm_mb": config.vtcm_mb,
        "core_mhz": round(line.core_mhz, 1),
        "accelerator_us": round(line.accelerator_us, 3),
        "latency_us": round(line.latency_us, 3),
        "dram_bytes": line.dram_bytes,
        "vtcm_peak_bytes": line.vtcm_peak_bytes,
        "columns": list(SCHEMATIC_COLUMNS),
        "rows": rows,
    }
    return found, line.spill_fill_bytes
