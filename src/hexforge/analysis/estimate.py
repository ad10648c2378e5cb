"""Estimate: how long a model takes on a chip, with the error to expect and the timeline it comes from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.backends.htp.chip import soc as chips
from hexforge.backends.htp.chip.power import Power
from hexforge.backends.htp.config import GraphConfig
from hexforge.backends.htp.time import band, capacity, cost, schedule, simulate, tile
from hexforge.backends.htp.time.concurrent import Job, Priority, Shared, share
from hexforge.backends.htp.time.settings import Settings
from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError
from hexforge.ir import Graph
from hexforge.runtime.contexts.context import Context, is_context
from hexforge.timeline import Row, Timeline

if TYPE_CHECKING:
    from hexforge.backend import Program
    from hexforge.model.reader import Model, ModelSource

BOTTLENECKS = 20
"""Nodes that `--json` names as those that take longest."""
AS_IS = "as-is"
"""Each node at the precision of its own types: a QDQ model, or float."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What an inference of a model takes on a chip."""

    model: str
    soc: str
    precision: str
    runtime: str
    band: float
    """Nine of ten rows of model families nobody fitted were off by at most this part, for a graph known as well."""
    provenance: str
    """Whether the chip's costs were fitted on its own measurements."""
    config: GraphConfig
    power: Power
    threads: int
    timeline: Timeline
    little_known: tuple[str, ...] = ()
    """Kinds of work it leans on that few measured model families have at its precision: the band is wider for them."""

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
        most = self.timeline.batch * 1e6 / self.power.interval_us if self.power.interval_us else math.inf
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
            "performance_mode": self.power.performance_mode,
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
            "vtcm_peak_bytes": line.vtcm_peak_bytes,
            "context_bytes": line.context_bytes,
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


def estimate(
    model: ModelSource | Graph | Program,
    soc: str = "SM8650",
    precision: str = AS_IS,
    runtime: str = "qnn_dlc",
    *,
    batch: int = 1,
    threads: int = 1,
    config: GraphConfig | None = None,
    power: Power | None = None,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Estimate:
    """How long an inference takes: of a model file, its bytes, a QNN graph or a compiled program."""
    chip = chips.named(str(soc))
    if not all(isinstance(count, int) and count >= 1 for count in (batch, threads)):
        raise CallError(f"batch {batch}, threads {threads}: both are at least 1, and whole numbers")
    config, power = config or GraphConfig(), power or Power()
    if not isinstance(config, GraphConfig) or not isinstance(power, Power):
        raise CallError("config is a hexforge.GraphConfig and power a hexforge.Power, with the options as their fields")
    graph = graph_of(model, dims=dims, shapes=shapes)
    wanted = None if precision == AS_IS else tile.precision(precision)
    kinds = {wanted.name} if wanted else {schedule.precision_of(node).name for node in graph}
    if "float" in kinds and not chips.Target(chip.htp_arch, chip).float16:
        raise UnsupportedError(f"{chip.name} has no float16; choose precision w8a8 or w8a16, or another chip")
    costs = cost.costs(chip)
    capacity.check(graph, wanted, Settings.of(costs, config, power).vtcm_bytes, batch)
    timeline = simulate.simulate(graph, costs, wanted, runtime, config, power, batch)
    known = band.certainty(timeline.work_us, costs, cost.fitted()["support"])
    width = band.width(known, {tile.PRECISIONS[kind].rate for kind in kinds}, costs.provenance == "fitted")
    return Estimate(
        graph.name, chip.name, precision, runtime, math.expm1(width), costs.provenance, config, power, threads,
        timeline, known.little_known,
    )  # fmt: skip


def together(estimates: Sequence[Estimate], priorities: Sequence[str] = (), *, count: int = 10) -> Shared:
    """Several models on one chip at the same time: by priority, yielding between tasks, `count` inferences of each.

    One whose power has an interval is called that often, others again when they return.
    """
    if len({e.soc for e in estimates}) != 1:
        raise CallError("models run together on one chip; estimate them for the same one")
    names = Counter(e.model for e in estimates)
    us_per_mb = cost.costs(chips.named(estimates[0].soc)).dram_us(1 << 20)
    jobs = [
        Job(
            e.model if names[e.model] == 1 else f"{e.model} #{i}",
            tuple(us * e.timeline.factor for us in e.timeline.pieces_us),
            Priority.of(priorities[i] if i < len(priorities) else "normal"),
            e.timeline.vtcm_peak_bytes,
            count,
            e.threads,
            e.timeline.host_us * e.timeline.factor,
            period_us=e.power.interval_us,
        )
        for i, e in enumerate(estimates)
    ]
    return share(jobs, us_per_mb)


def everywhere(model: ModelSource | Graph | Program, **how: Any) -> list[Estimate | tuple[str, str]]:
    """The estimate on every chip, or (its name, why there is none); what every chip refuses is an error."""
    graph = graph_of(model, dims=how.pop("dims", None), shapes=how.pop("shapes", None))
    found: list[Estimate | tuple[str, str]] = []
    refused: list[HexforgeError] = []
    for chip in chips.SOCS:
        try:
            found.append(estimate(graph, chip.name, **how))
        except (CallError, CapacityError, UnsupportedError) as error:
            found.append((chip.name, str(error)))
            refused.append(error)
    if len(refused) == len(found):
        counted = Counter(str(error) for error in refused)
        raise max(refused, key=lambda error: counted[str(error)])
    return found


def _of_context(path: Path) -> Graph:
    """The graph of a context, which must be its only one."""
    context = Context(path)
    names = [g.name for g in context.graphs]
    if len(names) > 1:
        raise CallError(
            f"{path}: has the graphs {', '.join(names)}; estimate Context(path).program(NAME), one at a time"
        )
    return context.program(names[0]).graph


def graph_of(
    model: ModelSource | Model | Graph | Program,
    *,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> Graph:
    """A whole model as one QNN graph; UnsupportedError naming the nodes there is no QNN op for."""
    if isinstance(model, Graph):
        return model
    if isinstance(found := getattr(model, "graph", None), Graph):
        return found
    if isinstance(model, str | Path) and is_context(model):
        return _of_context(Path(model))
    from hexforge.frontends.onnx.pipeline import build, place, units
    from hexforge.model.reader import Model, read
    from hexforge.passes import NEUTRAL, run

    loaded = model if isinstance(model, Model) else read(model, dims=dims, shapes=shapes)  # type: ignore[arg-type]
    loaded.require_static()
    placements = place(units(loaded.ir), lambda node: None)
    refused = [f"{p.unit.op} ({p.reason})" for p in placements if not p.taken]
    if any(p.unit.op == "EPContext" for p in placements):
        raise UnsupportedError(
            f"{loaded.name}: is a context model; give the context it names, a .bin, or the model it is of"
        )
    if refused:
        raise UnsupportedError(f"{loaded.name}: cannot be timed on the HTP: {'; '.join(dict.fromkeys(refused))}")
    name = Path(model).stem if isinstance(model, str | Path) else loaded.name
    graph = build((p.unit for p in placements), name, [v.name for v in loaded.outputs])
    run(graph, NEUTRAL)
    if not graph.nodes:
        raise UnsupportedError(f"{name}: nothing of it runs on the HTP: its outputs are its inputs or constants")
    return graph
