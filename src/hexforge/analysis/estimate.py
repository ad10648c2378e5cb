# SPDX-License-Identifier: Apache-2.0
"""Estimate: how long a model takes on a chip, with the error to expect and the timeline it comes from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hexforge.analysis import estimate_views
from hexforge.analysis.estimate_views import task_columns
from hexforge.analysis.in_turn import with_waits
from hexforge.analysis.timed_graphs import TimedSource, built_graphs, timed_graphs
from hexforge.chips.application_memory import ModelSizes, peak_bytes
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.energy import waiting_uj
from hexforge.errors import CallError, CapacityError, HexforgeError, UnsupportedError
from hexforge.results import Key, Result, as_dataframe, length, record
from hexforge.runtime.collecting import without_collecting_cycles
from hexforge.runtime.prepare import ModelRequest
from hexforge.runtime.registry import timed_backend
from hexforge.runtime.stages import PlacedNode
from hexforge.timeline import Row, Timeline, join_timelines

if TYPE_CHECKING:
    from hexforge.analysis.cpu_estimate import CpuEstimate
    from hexforge.analysis.timed_graphs import Timeable
    from hexforge.ir import Graph

BOTTLENECKS = 20
"""Nodes that `--json` names as those that take longest."""

_LEFT_OUT = ("node", Key("op", of="op_type"), "reason")
_EP_LEFT = ("node", Key("op", of="op_type"), Key("reason", of="ep_refuses"))
_EVENT = ("name unit", Key("start_us", rounded=3), Key("end_us", rounded=3))


def _in_ms(part: str) -> Key:
    """A time of the timeline, in ms."""
    return Key(f"{part}_ms", of=lambda timed: getattr(timed.timeline, f"{part}_us") / 1e3, rounded=4)


@dataclass(frozen=True, slots=True, repr=False)
class Estimate(Result):
    """What an inference of a model takes on a chip."""

    model: str
    deployment: Deployment
    band: float
    """Nine of ten rows of model families nobody fitted were off by at most this part, for a graph known as well."""
    provenance: str
    """Whether the chip's costs were fitted on its own measurements."""
    threads: int
    timeline: Timeline
    left_on_cpu: tuple[PlacedNode, ...] = ()
    """Nodes that the NPU does not take; their time is not in the latency, which is the NPU's."""
    little_known: tuple[str, ...] = ()
    """Kinds of work it leans on that few measured model families have at its precision: the band is wider for them."""
    graphs: tuple[Graph, ...] = field(default=(), repr=False, compare=False)
    """The graphs that were timed, which are those that a session runs; not kept where all chips are compared."""
    vtcm_size_bytes: int = 0
    """The vector memory of the chip; the timeline's is what the graph has of it."""
    cpu: CpuEstimate | None = field(default=None, repr=False)
    """What the CPU takes for its nodes, rough; None where it has none, or where that was left out."""
    transfers_us: float = 0.0
    """Of the latency, what passes tensors between NPU and CPU: calls after the first, and copies."""
    built: bool = False
    """True where a float model was timed as the file that `quantize` would build of it."""
    io_bytes: int = 0
    """Inputs and outputs of the graphs."""
    activation_bytes: int = 0
    """Of every tensor that the graphs compute or are given."""
    weights_bytes: int | None = None
    """Of a context that exists, what its graph uses of the file's weights."""
    ep_refused: tuple[PlacedNode, ...] = ()
    """Nodes in the latency that onnxruntime's QNN EP leaves to the CPU: through it the model takes longer."""

    described = (
        *(Key(name, rounded=4) for name in ("latency_ms", "low_ms", "high_ms")),
        "model soc precision built runtime",
        Key("performance_mode", of="deployment.power.performance_mode"),
        Key("batch", of="timeline.batch"),
        "threads",
        Key("throughput_per_s", of="throughput", rounded=3),
        Key("costs", of="provenance"),
        "little_known",
        Key("without_effect", omit_empty=True),
        *(_in_ms(part) for part in ("accelerator", "host", "rpc", "io", "wait")),
        Key("runtime_factor", of="timeline.factor", rounded=4),
        Key("core_mhz", of="timeline.core_mhz", rounded=1),
        *(Key(name, of=f"timeline.{name}") for name in ("weight_bytes", "spill_bytes", "dram_bytes", "vtcm_bytes")),
        Key("vtcm_budget_bytes", of="timeline.vtcm_bytes"),
        "vtcm_size_bytes",
        *(Key(name, of=f"timeline.{name}") for name in ("vtcm_peak_bytes", "context_bytes")),
        "memory_bytes application_bytes",
        Key("energy_uj_assumed", of="energy_uj", rounded=3),
        *(Key(name, rounded=3) for name in ("npu_us", "cpu_us_rough", "transfers_us", "total_us_rough")),
        Key("per_second_rough", rounded=3),
        Key("cpu_nodes", of=length("left_on_cpu")),
        "cpu",
        Key("ep_refused", of=lambda timed: [record(row, _EP_LEFT) for row in timed.ep_refused], omit_empty=True),
        Key("left_out", of=lambda timed: [record(row, _LEFT_OUT) for row in timed.left_on_cpu]),
        Key("bottlenecks", of=lambda timed: timed.timeline.bottlenecks()[:BOTTLENECKS], rounded=3),
        Key("ops", of=lambda timed: [record(row, task_columns(timed.timeline)) for row in timed.rows]),
        Key("critical_path", of=lambda timed: [record(event, _EVENT) for event in timed.timeline.critical]),
    )

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
    def latency_ms(self) -> float:
        """One inference as the application sees it, alone; with more threads than the HTP keeps up with, it waits."""
        line = self.timeline
        return max(line.latency_us, self.threads * line.accelerator_us) / 1e3

    @property
    def npu_us(self) -> float:
        """The latency: the NPU's part of an inference, calls and copies included."""
        return self.latency_ms * 1e3

    @property
    def cpu_us_rough(self) -> float | None:
        """The CPU's part of an inference, right within a factor of two; None where it was not measured."""
        if not self.left_on_cpu:
            return 0.0
        return None if self.cpu is None else self.cpu.us

    @property
    def total_us_rough(self) -> float | None:
        """NPU and CPU one after the other; None where the CPU's part was not measured."""
        cpu = self.cpu_us_rough
        return None if cpu is None else self.npu_us + cpu

    @property
    def per_second_rough(self) -> float | None:
        """Samples per second where one caller waits for NPU and CPU; None where the CPU's part was not measured."""
        total = self.total_us_rough
        return None if total is None else self.timeline.batch * 1e6 / total

    @property
    def energy_uj(self) -> float | None:
        """Microjoules of one inference on the NPU, waking up, voting and idling included; all of it assumed, nothing is
        measured. None where the backend has no figure."""
        line, power = self.timeline, self.deployment.driven
        if not line.energy_uj:
            return None
        idle_us = max(line.rpc_us + line.io_us, power.interval_us - line.accelerator_us - line.wait_us)
        return line.energy_uj + waiting_uj(power, line.wait_us, idle_us)

    @property
    def without_effect(self) -> list[str]:
        """Options of the graph that were asked for and change no time, each with why."""
        from hexforge.analysis.idle_options import idle_options

        return idle_options(self)

    @property
    def memory_bytes(self) -> int:
        """What the model takes of the device's memory while it runs: weights, spill-fill, inputs and outputs."""
        line = self.timeline
        weights = line.context_bytes if self.weights_bytes is None else self.weights_bytes
        return weights + line.spill_fill_bytes + line.batch * self.io_bytes

    @property
    def sizes(self) -> ModelSizes:
        """The bytes that a process's memory depends on."""
        return ModelSizes(self.io_bytes, self.timeline.weight_bytes, self.activation_bytes)

    @property
    def application_bytes(self) -> int | None:
        """The most that a process takes on the host (fitted); None where nothing was measured for its runtime."""
        return peak_bytes(self.sizes, self.soc, self.runtime)

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
        """Samples per second of the NPU, with the threads and the interval between inferences it was asked for."""
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

    def __str__(self) -> str:
        parts = [
            f"{self.model} on {self.soc}, {self.precision}, {self.runtime}{', as quantize builds it' * self.built}",
            f"{self.latency_ms:.3f} ms ({self.low_ms:.3f} to {self.high_ms:.3f})",
            f"{self.throughput:,.0f} per second",
            f"{len(self.rows)} tasks",
        ]
        if self.left_on_cpu:
            parts.insert(2, f"NPU part only, {len(self.left_on_cpu)} nodes on the CPU")
            if (total := self.total_us_rough) is not None:
                parts.insert(3, f"roughly {total / 1e3:.1f} ms with them")
        if self.ep_refused:
            parts.append(f"the QNN EP leaves {len(self.ep_refused)} of its nodes to the CPU")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"<Estimate: {self}>"

    def _repr_html_(self) -> str:
        return estimate_views.as_html(str(self), self.rows)

    def to_dataframe(self) -> Any:
        """The tasks in the order they run as a pandas.DataFrame; an error where pandas is not installed."""
        return as_dataframe(self.to_json()["ops"])

    def plot(self, ax: Any = None) -> Any:
        """The tasks that take longest, drawn on matplotlib's axes; an error where matplotlib is not installed."""
        title = f"{self.model}, {self.soc}: {self.latency_ms:.3f} ms"
        return estimate_views.plot(title, self.rows, ax)


@without_collecting_cycles()  # the model has many objects, and a timeline no cycles
def estimate(
    model: Timeable,
    deployment: Deployment | str | None = None,
    *,
    soc: str | None = None,
    batch: int = 1,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    quantized_io: bool = False,
    cpu_part: bool = True,
    built: bool = False,
) -> Estimate:
    """How long an inference takes: of a model file, its bytes, a context, a .pte, an exported program of torch, a
    QNN graph or a compiled program.

    `deployment` is a hexforge.Deployment, or a chip by name, as `soc` is. A float model at the precision of integers
    is timed as a converter would bring it there: its inputs and outputs are integers, and the input's normalisation
    stays; that is what was measured, and what errors are known of. With `built` it is timed as the file that
    `quantize` would build of it, whose inputs and outputs are floats. The latency is the NPU's. What it does not take
    is measured on this computer and scaled to the chip's CPU, roughly (`cpu_us_rough`, `total_us_rough`); with
    `cpu_part=False` nothing is measured. With `quantized_io` inputs and outputs of a quantized model are integers, as
    the graphs of a session have them by default.
    """
    if soc is not None and deployment is not None:
        raise CallError(f"soc {soc!r} and a deployment are given: a deployment names its chip itself, give one of them")
    given = soc if deployment is None else deployment
    chosen = Deployment() if given is None else Deployment.of(given)
    if not all(isinstance(count, int) and count >= 1 for count in (batch, threads)):
        raise CallError(f"batch {batch}, threads {threads}: both are at least 1, and whole numbers")
    request = ModelRequest(dims, shapes, offload_io_quantization=quantized_io)
    timed = (built_graphs if built else timed_graphs)(model, chosen, request)
    chosen = timed.deployment(chosen)
    backend = timed_backend(chosen)
    precision = AS_IS if timed.built else chosen.precision
    cpu, passed = None, 0.0
    timings = [
        backend.timing(graph, precision, chosen.runtime, batch, chosen.driven, shared)
        for graph, shared in zip(timed.graphs, timed.shared, strict=True)
    ]
    lines = with_waits([timing.timeline for timing in timings], chosen.driven)
    if timed.left_on_cpu:
        from hexforge.analysis.cpu_estimate import estimate_cpu, transfers_us

        cpu = estimate_cpu(timed, backend.chip_name, batch) if cpu_part else None
        passed = transfers_us(timed.graphs, lines, timed.placed)
    return Estimate(
        timed.name,
        chosen.on(backend.chip_name),
        max(timing.band for timing in timings),
        timings[0].provenance,
        threads,
        join_timelines(lines),
        timed.left_on_cpu,
        tuple(dict.fromkeys(kind for timing in timings for kind in timing.little_known)),
        timed.graphs,
        backend.accelerator().vtcm_bytes,
        cpu,
        passed,
        timed.built,
        sum(v.type.nbytes for graph in timed.graphs for v in (*graph.inputs, *graph.outputs)),
        sum(v.type.nbytes for graph in timed.graphs for v in graph.values.values() if not v.is_static),
        timed.weights_bytes,
        timed.ep_refused,
    )


def estimates(
    model: Timeable,
    deployments: Iterable[Deployment | str],
    *,
    batch: int = 1,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    quantized_io: bool = False,
    cpu_part: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Estimate | HexforgeError]:
    """The estimate of one model for each of several deployments, or the error that says why there is none.

    Each is what `estimate` gives, to the last digit. The model is read once, and what chips, precisions and options
    share of placing, quantizing and scheduling it is done once. A model that cannot be read is an error at once.
    """
    wanted = [Deployment.of(deployment) for deployment in deployments]
    request = ModelRequest(dims, shapes, offload_io_quantization=quantized_io)
    shared = model if isinstance(model, TimedSource) else TimedSource(model, request)
    results: list[Estimate | HexforgeError] = []
    for deployment in wanted:
        try:
            results.append(estimate(shared, deployment, batch=batch, threads=threads, cpu_part=cpu_part))
        except HexforgeError as error:
            results.append(error)
        progress(len(results), len(wanted))
    return results


def estimate_all_chips(
    model: Timeable,
    deployment: Deployment | str = Deployment(),  # noqa: B008 - it is frozen
    *,
    batch: int = 1,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    cpu_part: bool = True,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> list[Estimate | tuple[str, str]]:
    """The estimate on every chip, or the chip's name and why it has none; an error where no chip takes the model."""
    chosen = Deployment.of(deployment)
    chips = timed_backend(chosen).chips
    everywhere = [chosen.on(chip) for chip in chips]
    each = estimates(
        model, everywhere, batch=batch, threads=threads, dims=dims, shapes=shapes, cpu_part=cpu_part, progress=progress
    )
    refused = [error for error in each if isinstance(error, HexforgeError)]
    for error in refused:
        if not isinstance(error, CallError | CapacityError | UnsupportedError):
            raise error
    if len(refused) == len(each):
        counted = Counter(str(error) for error in refused)
        raise max(refused, key=lambda error: counted[str(error)])
    return [
        replace(one, graphs=()) if isinstance(one, Estimate) else (chip, str(one))
        for chip, one in zip(chips, each, strict=True)
    ]
