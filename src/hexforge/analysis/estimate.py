# SPDX-License-Identifier: Apache-2.0
"""Estimate: how long a model takes on a chip, with the error to expect and the timeline it comes from."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, Program
from hexforge.backends.htp.chip.soc import named
from hexforge.backends.htp.deployment import Deployment
from hexforge.backends.htp.timing import AS_IS
from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError
from hexforge.formats.pte import is_pte
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType
from hexforge.runtime.contexts.context import Context, is_context
from hexforge.runtime.stages import PlacedNode
from hexforge.timeline import Row, Shared, Tenant, Timeline, Times, joined

if TYPE_CHECKING:
    from hexforge.model.reader import Model
    from hexforge.model.source import ModelSource

FLOAT = "float"
READERS = ("hexforge.executorch.running.lowered:timed_graphs_of",)
"""What reads models that are neither ONNX nor contexts, as "module:function", imported on use."""
BOTTLENECKS = 20
"""Nodes that `--json` names as those that take longest."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an inference of a model takes on a chip."""

    model: str
    deployment: Deployment
    band: float
    """Nine of ten rows of model families nobody fitted were off by at most this part, for a graph known as well."""
    provenance: str
    """Whether the chip's costs were fitted on its own measurements."""
    threads: int
    timeline: Timeline
    left: tuple[PlacedNode, ...] = ()
    """Nodes that the NPU does not take, whose time is not in it."""
    little_known: tuple[str, ...] = ()
    """Kinds of work it leans on that few measured model families have at its precision: the band is wider for them."""

    @property
    def soc(self) -> str:
        """The chip."""
        return self.deployment.soc

    @property
    def precision(self) -> str:
        """The precision it was estimated at."""
        return self.deployment.precision

    @property
    def runtime(self) -> str:
        """The path to the device."""
        return self.deployment.runtime

    @property
    def vtcm_size_bytes(self) -> int:
        """The vector memory of the chip; the timeline's is what the graph has of it."""
        return named(self.soc).vtcm_mb << 20

    @property
    def latency_ms(self) -> float:
        """One inference as the application sees it, alone; with more threads than the HTP keeps up with, it waits."""
        line = self.timeline
        return max(line.latency_us, self.threads * line.accelerator_us * line.factor) / 1e3

    @property
    def low_ms(self) -> float:
        """The lower end of the error band."""
        return self.latency_ms / (1 + self.band)

    @property
    def high_ms(self) -> float:
        """The upper end of the error band."""
        return self.latency_ms * (1 + self.band)

    @property
    def throughput(self) -> float:
        """Samples per second, with the threads and the interval between inferences it was asked for."""
        most = (
            self.timeline.batch * 1e6 / self.deployment.power.interval_us
            if self.deployment.power.interval_us
            else math.inf
        )
        return min(self.timeline.throughput(self.threads), most)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The tasks in the order they run."""
        return self.timeline.rows

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints; the latency is at its top."""
        line = self.timeline
        return {
            "latency_ms": round(self.latency_ms, 4),
            "low_ms": round(self.low_ms, 4),
            "high_ms": round(self.high_ms, 4),
            "model": self.model,
            "soc": self.soc,
            "precision": self.precision,
            "runtime": self.runtime,
            "performance_mode": self.deployment.power.performance_mode,
            "batch": line.batch,
            "threads": self.threads,
            "throughput_per_s": round(self.throughput, 3),
            "costs": self.provenance,
            "little_known": list(self.little_known),
            "accelerator_ms": round(line.accelerator_us / 1e3, 4),
            "host_ms": round(line.host_us / 1e3, 4),
            "rpc_ms": round(line.rpc_us / 1e3, 4),
            "io_ms": round(line.io_us / 1e3, 4),
            "wait_ms": round(line.wait_us / 1e3, 4),
            "runtime_factor": round(line.factor, 4),
            "core_mhz": round(line.core_mhz, 1),
            "weight_bytes": line.weight_bytes,
            "spill_bytes": line.spill_bytes,
            "dram_bytes": line.dram_bytes,
            "vtcm_bytes": line.vtcm_bytes,
            "vtcm_budget_bytes": line.vtcm_bytes,
            "vtcm_size_bytes": self.vtcm_size_bytes,
            "vtcm_peak_bytes": line.vtcm_peak_bytes,
            "context_bytes": line.context_bytes,
            "left_out": [{"node": row.node, "op": row.op_type, "reason": row.reason} for row in self.left],
            "bottlenecks": [
                {"node": s.node, "op": s.op, "us": round(s.us, 3)} for s in line.bottlenecks()[:BOTTLENECKS]
            ],
            "ops": [_row(row, line.accelerator_us) for row in line.rows],
            "critical_path": [
                {"name": e.name, "unit": e.unit, "start_us": round(e.start_us, 3), "end_us": round(e.end_us, 3)}
                for e in line.critical
            ],
        }


def _row(row: Row, whole_us: float) -> dict[str, Any]:
    return {
        "name": row.name,
        "op": row.op,
        "nodes": list(row.ops),
        "start_us": round(row.start_us, 3),
        "us": round(row.us, 3),
        "cycles": row.cycles,
        "share": round(row.us / whole_us, 5) if whole_us else 0.0,
        "bound": row.bound,
        "hmx_us": round(row.hmx_us, 3),
        "hvx_us": round(row.hvx_us, 3),
        "dma_us": round(row.dma_us, 3),
        "wait_us": round(row.wait_us, 3),
        "overlap_us": round(row.overlap_us, 3),
        "weight_bytes": row.weight_bytes,
        "spill_bytes": row.spill_bytes,
        "vtcm_bytes": row.vtcm_bytes,
    }


@dataclass(frozen=True, slots=True)
class TimedGraphs:
    """The QNN graphs of a model as the backend prepares them, and what is not in them."""

    name: str
    graphs: tuple[Graph, ...]
    left: tuple[PlacedNode, ...] = ()
    promised: bool = False
    """True for the graphs of the model that quantizing would give: they have the types of the precision already."""


def estimate(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    batch: int = 1,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Estimate:
    """How long an inference takes: of a model file, its bytes, a context, a .pte, an exported program of torch, a
    QNN graph or a compiled program.

    `deployment` is a hexforge.Deployment, or a chip by name. What the NPU does not take is left out, and said. A float
    model at the precision of integers is timed as the model that `quantize` would make of it.
    """
    chosen = Deployment.of(deployment)
    if not all(isinstance(count, int) and count >= 1 for count in (batch, threads)):
        raise CallError(f"batch {batch}, threads {threads}: both are at least 1, and whole numbers")
    backend = chosen.timed_backend()
    timed = timed_graphs(model, chosen, dims=dims, shapes=shapes)
    precision = AS_IS if timed.promised else chosen.precision
    timings = [backend.timing(graph, precision, chosen.runtime, batch) for graph in timed.graphs]
    return Estimate(
        timed.name,
        chosen.on(backend.chip_name),
        max(timing.band for timing in timings),
        timings[0].provenance,
        threads,
        joined([timing.timeline for timing in timings]),
        timed.left,
        tuple(dict.fromkeys(kind for timing in timings for kind in timing.little_known)),
    )


def together(estimates: Sequence[Estimate], priorities: Sequence[str] = (), *, count: int = 10) -> Shared:
    """Several models on one chip at the same time: by priority, yielding between tasks, `count` inferences of each.

    One whose power has an interval is called that often, others again when they return.
    """
    if len({e.soc for e in estimates}) != 1:
        raise CallError("models run together on one chip; estimate them for the same one")
    tenants = [
        Tenant(
            e.model,
            e.timeline,
            priorities[i] if i < len(priorities) else "normal",
            e.threads,
            e.deployment.power.interval_us,
        )
        for i, e in enumerate(estimates)
    ]
    return estimates[0].deployment.timed_backend().together(tenants, count)


def everywhere(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    batch: int = 1,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Estimate | tuple[str, str]]:
    """The estimate on every chip, or (its name, why there is none); what every chip refuses is an error."""
    chosen = Deployment.of(deployment)
    backend = chosen.timed_backend()
    loaded = _read(model, dims=dims, shapes=shapes)
    results: list[Estimate | tuple[str, str]] = []
    refused: list[HexforgeError] = []
    last: TimedGraphs | None = None
    for chip in backend.chips:
        try:
            there = chosen.on(chip)
            last = last if last and _fits(last, there.timed_backend()) else timed_graphs(loaded, there)
            results.append(estimate(last, there, batch=batch, threads=threads))
        except (CallError, CapacityError, UnsupportedError) as error:
            results.append((chip, str(error)))
            refused.append(error)
        progress(len(results), len(backend.chips))
    if len(refused) == len(results):
        counted = Counter(str(error) for error in refused)
        raise max(refused, key=lambda error: counted[str(error)])
    return results


def _fits(timed: TimedGraphs, backend: Backend) -> bool:
    """True where another chip takes the same whole model, so that it need not be placed again."""
    return not timed.left and all(backend.unsupported(node) is None for graph in timed.graphs for node in graph)


def timed_graphs(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    deployment: Deployment,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> TimedGraphs:
    """The graphs that a deployment's estimate is of: of a float model at w8a8, those of the model quantized so."""
    source = _read(model, dims=dims, shapes=shapes)
    if isinstance(source, TimedGraphs):
        return source
    quantized = promised_model(source, deployment)
    if quantized is None:
        return graphs_of(as_converted(source), deployment.timed_backend())
    as_built = replace(deployment, precision=AS_IS)
    return replace(graphs_of(quantized, as_built.timed_backend()), promised=True)


def as_converted(model: Model) -> Model:
    """The model as it comes to the backend: converters and onnxruntime put a normalization into the layer before it."""
    from hexforge.frontends.onnx.rewrites import NORMALIZATIONS, apply

    if not any(node.op_type == "BatchNormalization" for node in model.ir.graph):
        return model
    converted = model.copied()
    apply(converted.ir, NORMALIZATIONS)
    return converted


def promised_model(model: Model, deployment: Deployment) -> Model | None:
    """The model that `quantize` would make at the deployment's precision; None where it is to be timed as it is."""
    if deployment.precision in (AS_IS, FLOAT):
        return None
    from hexforge.backends.htp.time.tile import precision
    from hexforge.quant.measure.compare import is_quantized
    from hexforge.quant.promise import promised, recipe_of

    if is_quantized(model.ir):
        return None
    chosen = recipe_of(precision(deployment.precision).name)
    return replace(model, ir=promised(model.ir, chosen, wide_products=wide_products(deployment.timed_backend())))


def wide_products(backend: Backend) -> bool:
    """Whether the backend multiplies two run-time tensors of 16 bits: it is shown such a product."""
    import hexforge.ops  # noqa: F401 - fills the table

    graph = Graph("wide product")
    type = TensorType(DType.UINT16, (2, 2), ScaleOffset(1.0, 0))
    left, right = (graph.value(name, type, Role.APP_WRITE) for name in ("left", "right"))
    node = graph.node("MatMul", [left, right], [graph.value("product", type, Role.APP_READ)])
    return backend.unsupported(node) is None


def graphs_of(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    backend: Backend,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> TimedGraphs:
    """The graphs that the backend's programs would run of a model as it is; UnsupportedError where it takes nothing."""
    source = _read(model, dims=dims, shapes=shapes)
    if isinstance(source, TimedGraphs):
        return source
    from hexforge.frontends.onnx.pipeline import place_model
    from hexforge.runtime.plan import partitioned

    placed = place_model(source, backend)
    parts = partitioned(placed, keep_converts=True)
    name = source.path.stem if source.path is not None else source.name
    taken = [part for part in parts.parts if part.taken]
    if not taken:
        reasons = list(dict.fromkeys(f"{row.op_type} ({row.reason})" for row in parts.refused))
        more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
        why = f"cannot be timed on the HTP: {'; '.join(reasons[:3])}{more}"
        if not reasons:
            why = "nothing of it runs on the HTP: its outputs are its inputs or constants"
        raise UnsupportedError(f"{source.name}: {why}")
    names = [name] if len(taken) == 1 else [f"{name}_{i}" for i in range(len(taken))]
    graphs = tuple(
        _prepared(backend, parts.graph(part, part_name)) for part, part_name in zip(taken, names, strict=True)
    )
    return TimedGraphs(name, graphs, parts.refused)


def graph_of(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
) -> Graph:
    """A whole model as the one graph that the NPU runs; UnsupportedError naming the nodes that it does not take."""
    timed = graphs_of(model, Deployment.of(deployment).timed_backend())
    if timed.left:
        refused = dict.fromkeys(f"{row.op_type} ({row.reason})" for row in timed.left)
        raise UnsupportedError(f"{timed.name}: cannot be timed whole on the HTP: {'; '.join(refused)}")
    return timed.graphs[0]


def _prepared(backend: Backend, graph: Graph) -> Graph:
    assert isinstance(backend, Times)
    graph.sort()
    return backend.prepared(graph)


def _read(
    model: ModelSource | Model | Graph | Program | TimedGraphs,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Model | TimedGraphs:
    """A model to place, or graphs that are there already."""
    if isinstance(model, TimedGraphs):
        return model
    if isinstance(model, Graph):
        return TimedGraphs(model.name, (model,))
    if isinstance(model, Program):
        return TimedGraphs(model.graph.name, (model.graph,))
    if isinstance(model, str | Path) and is_context(model):
        return _of_context(Path(model))
    from hexforge.model.reader import Model, read

    if not isinstance(model, bytes | Model) and (other := _of_reader(model)) is not None:
        return other
    loaded = model if isinstance(model, Model) else read(model, dims=dims, shapes=shapes)
    loaded.require_static()
    if any(node.op_type == "EPContext" for node in loaded.ir.graph):
        raise UnsupportedError(
            f"{loaded.name}: is a context model; give the context it names, a .bin, or the model it is of"
        )
    return loaded


def _of_reader(model: Any) -> TimedGraphs | None:
    """The graphs of a .pte or of an exported program of torch; None for anything else."""
    is_file = isinstance(model, str | Path) and is_pte(model)
    if not is_file and not type(model).__module__.startswith("torch."):
        return None
    for reader in READERS:
        module, _, name = reader.partition(":")
        graphs: TimedGraphs | None = getattr(importlib.import_module(module), name)(model)
        if graphs is not None:
            return graphs
    return None


def _of_context(path: Path) -> TimedGraphs:
    """The graph of a context, which must be its only one."""
    context = Context(path)
    names = [g.name for g in context.graphs]
    if len(names) > 1:
        raise CallError(
            f"{path}: has the graphs {', '.join(names)}; estimate Context(path).program(NAME), one at a time"
        )
    return TimedGraphs(names[0], (context.program(names[0]).graph,))
