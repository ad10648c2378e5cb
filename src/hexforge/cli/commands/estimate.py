# SPDX-License-Identifier: Apache-2.0
"""`hexforge estimate`: how long a model takes on a chip, where the time goes and what bounds each op."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hexforge.amounts import size
from hexforge.chips.graph_config import GraphConfig, vtcm_text
from hexforge.chips.soc import DEFAULT_SOC, known_for
from hexforge.cli.arguments import (
    ALL_ROWS,
    CoRunningArguments,
    DeploymentArguments,
    InputArguments,
    Json,
    Model,
    model_and_priority,
)
from hexforge.cli.say import say
from hexforge.cli.screen import TOP, bar, console, print_json, result_table, rows_left_out, spinner, table
from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.request_fields import option
from hexforge.results import Column, Key, length, plain, record, select
from hexforge.rules import by_reason, counted, some_of

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate
    from hexforge.analysis.timed_graphs import TimedGraphs

ALL = "all"
MOST_REASONS = 3
TASK_FIGURES = "name op us cycles share bound hmx_us hvx_us dma_us wait_us overlap_us"
"""Of a task, those that the table has."""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """How a model is called, and what of it is timed by what costs."""

    batch: int = option(1, "Samples a call: a multiple of the model's batch.", min=1)
    threads: int = option(1, "Threads that call at the same time.", min=1)
    interval_ms: float = option(0.0, "From one inference to the next; 0: at once.", min=0)
    method: str = option("", "Which method of a .pte, or graph of a context, that has several.")
    cpu: bool = option(True, "Measure here what the NPU leaves to the CPU, for a rough time.", "--cpu/--no-cpu")
    costs: Path | None = option(None, "Costs that `calibrate` wrote.", exists=True, dir_okay=False)


@dataclass(frozen=True, slots=True)
class RowArguments:
    """Which rows are printed."""

    rows: int = option(TOP, "Rows of the table; 0 for all.", min=0)
    every: bool = field(default=False, metadata=ALL_ROWS)
    refused: bool = option(False, "Every node the NPU does not take, with why.")


@dataclass(frozen=True, slots=True)
class EstimateFiles:
    """What is written of an estimate."""

    trace: Path | None = option(None, "Write a Chrome/Perfetto trace; .gz compresses it.")
    report: Path | None = option(None, "Write a page to look at, as HTML.")

    def check(self, model: Path) -> None:
        """CallError where a file to write is the model or is to be written twice."""
        outputs = [path.resolve() for path in (self.trace, self.report) if path is not None]
        if model.resolve() in outputs or len(set(outputs)) < len(outputs):
            raise CallError("--trace and --report are files of their own; neither may be the model or the other")


def estimate(
    model: Model,
    soc: str = option(DEFAULT_SOC, "Chip by name, number or device, or all to compare them."),
    *,
    deploying: DeploymentArguments,
    calls: CallArguments,
    others: CoRunningArguments,
    graph: GraphConfig,
    inputs: InputArguments,
    shown: RowArguments,
    files: EstimateFiles,
    as_json: Json = False,
) -> None:
    """Say how long a model takes on a chip, where the time goes and what bounds each op."""
    from hexforge.analysis.estimate import estimate as estimated
    from hexforge.analysis.estimate import estimate_all_chips
    from hexforge.analysis.timed_graphs import TimedSource, timed_graphs
    from hexforge.formats.file_kinds import open_model

    files.check(model)
    others.check()
    every_chip = soc.lower() == ALL
    given = deploying.deployment(DEFAULT_SOC if every_chip else soc)
    deployment = replace(
        given,
        config=graph,
        power=replace(given.power, interval_us=calls.interval_ms * 1e3),
        cost_file=str(calls.costs.absolute()) if calls.costs else "",
    )
    called: dict[str, Any] = {"batch": calls.batch, "threads": calls.threads}
    with spinner(f"reading {model.name}"):
        source = TimedSource(open_model(model).do("estimate", inputs.request(model), calls.method))
        graphs = timed_graphs(source, deployment)
    if graph.reads_weights is not None:
        _require_8_bit_weights(graphs, graph.reads_weights)

    def chips(what: str) -> Sequence[Estimate | tuple[str, str]]:
        with bar(what) as progress:
            return estimate_all_chips(source, deployment, **called, cpu_part=calls.cpu, progress=progress)

    if every_chip:
        if files != EstimateFiles() or others.co_running:
            raise CallError(
                "--trace, --report and --co-running are of one chip; name it with --soc (a report compares all of them)"
            )
        _compare(chips("timing chips"), model.name, as_json)
        return
    with spinner(f"timing {model.name}"):
        timed = estimated(graphs, deployment, **called, cpu_part=calls.cpu)
        shared = _co_running(timed, others, calls.batch) if others.co_running else None
        as_built = None
        if deployment.quantizes_floats:
            as_built = estimated(source, deployment, **called, cpu_part=False, built=True)
            as_built = as_built if as_built.built else None
    if files.trace is not None:
        _write_trace(files.trace, timed, shared)
    if files.report is not None:
        _write_report(files.report, model.name, timed, chips("comparing chips"))
    _say_made_for_another(model, timed.soc)
    if as_json:
        of_file = {"built_ms": None if as_built is None else round(as_built.latency_ms, 4)}
        print_json(
            timed.to_json()
            | of_file
            | ({"together": [record(job, _CO_RUNNING) for job in shared.jobs]} if shared else {})
        )
        return
    for line in timed.without_effect:
        say(line, colour="yellow", err=True)
    _print(console(), timed, as_built, 0 if shown.every else shown.rows, shown.refused)
    if shared:
        _print_concurrent(console(), shared, calls.interval_ms)


def _write_trace(path: Path, timed: Estimate, shared: Any) -> None:
    trace = timed.timeline.trace()
    if shared is not None:
        shared.draw(trace, pid=1)
    data = json.dumps(trace.to_json()).encode()
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _say_made_for_another(model: Path, soc: str) -> None:
    """On standard error, where a context cannot run on the chip: what is timed is its graph, prepared for the chip."""
    from hexforge.backend import Verdict
    from hexforge.formats.file_kinds import open_model

    opened = open_model(model)
    judged = opened.do("validate", soc) if opened.does("validate") else None
    if judged is not None and judged.verdict is Verdict.UNSUPPORTED:
        why = "; ".join(judged.reasons)
        say(f"{model.name}: cannot run there: {why}; timed as if that was done", colour="yellow", err=True)


def _require_8_bit_weights(graphs: TimedGraphs, option: str) -> None:
    """CallError where the graphs have no 8-bit weights whose values could be looked at."""
    constants = (v for graph in graphs.graphs for node in graph for v in node.inputs if v is not None and v.is_static)
    if graphs.built or not any(v.dtype.bits == 8 for v in constants):
        raise CallError(f"{option} is seen by the values of 8-bit weights, and there are none; quantize first")


def _write_report(path: Path, title: str, timed: Estimate, others: Sequence[Estimate | tuple[str, str]]) -> None:
    from hexforge.report import page
    from hexforge.report.graph import graph_section

    graph = graph_section(timed)
    sections = [graph] if graph is not None else []
    write_atomically(path, page(timed, sections=sections, others=others, title=title).encode())


def _co_running(timed: Estimate, given: CoRunningArguments, batch: int) -> Any:
    """The model with others, each `MODEL` or `MODEL:PRIORITY`."""
    from hexforge.addon import Hook, hook
    from hexforge.analysis.estimate import estimate as estimated

    others, priorities = [timed], [given.priority]
    for text in given.co_running or ():
        path, its_priority = model_and_priority(text)
        others.append(estimated(path, timed.deployment, batch=batch, threads=timed.threads, cpu_part=False))
        priorities.append(its_priority)
    return hook(Hook.RUN_TOGETHER)(others, priorities)


_CO_RUNNING = (
    Column("model", of="name", key="model"),
    Column("mean ms", "number", 4, of=lambda job: job.mean_us / 1e3, key="mean_ms", rounded=4),
    Column("worst ms", "number", 4, of=lambda job: job.worst_us / 1e3, key="worst_ms", rounded=4),
    Column("per second", "number", 1, key="per_second", rounded=1),
    Column("yields", "number", 0),
    Column("VTCM moved ms", "number", 4, of=lambda job: job.moved_us / 1e3, key="moved_ms", rounded=4),
)
"""What a model takes that shares the chip with others."""


def _print_concurrent(screen: Console, shared: Any, interval_ms: float) -> None:
    """What the models that share the chip take."""
    called = f"every {interval_ms:g} ms" if interval_ms else "again when it returns"
    title = f"together on the chip, each called {called}"
    screen.print(result_table(title, _CO_RUNNING, shared.jobs))


_BY_CHIP = (Key("latency_ms", rounded=4), Key("total_us_rough", rounded=3), Key("cpu_nodes", of=length("left_on_cpu")))
"""What JSON has of an estimate for each of many chips."""


def _chip_columns(partial: bool) -> tuple[Column, ...]:
    """An estimate as a table of many chips has it; `partial` where nodes stay with the CPU."""
    whole = (
        Column("ms with the CPU, rough", of=_total),
        Column("nodes on the CPU", "number", 0, of=length("left_on_cpu")),
    )
    return (
        Column("chip", of="soc"),
        Column("NPU ms" if partial else "ms", "number", 3, of="latency_ms"),
        Column("nine of ten", of=lambda timed: f"{timed.low_ms:.3f} to {timed.high_ms:.3f}", leaves=1),
        *(whole if partial else (Column("per second", "number", 0, of="throughput"),)),
        Column("known for", of=lambda timed: known_for(timed.soc)),
        Column("costs", of="provenance", leaves=2),
    )


def _total(timed: Estimate) -> str:
    return "not measured" if timed.total_us_rough is None else f"about {timed.total_us_rough / 1e3:.3g}"


def _compare(outcomes: Sequence[Estimate | tuple[str, str]], name: str, as_json: bool) -> None:
    from hexforge.analysis.estimate import Estimate

    estimates = sorted((e for e in outcomes if isinstance(e, Estimate)), key=lambda e: e.latency_ms)
    refused = [e for e in outcomes if not isinstance(e, Estimate)]
    if as_json:
        figures = {key.json_key: {e.soc: plain(key.value(e), key.rounded) for e in estimates} for key in _BY_CHIP}
        print_json(figures | {"refused": dict(refused), "known_for": {e.soc: known_for(e.soc) for e in estimates}})
        return
    partial = any(e.left_on_cpu for e in estimates)
    title = f"{name}, {estimates[0].precision}, {estimates[0].runtime}"
    console().print(result_table(title, _chip_columns(partial), estimates))
    for chip, reason in refused:
        console().print(f"{chip}: {reason}")


def _print(screen: Console, timed: Estimate, as_built: Estimate | None, count: int, refused: bool) -> None:
    """The verdict, what is not in it, then the tasks that take longest."""
    from hexforge.analysis.estimate_views import task_columns
    from hexforge.report.formatting import npu_part_only, whole_time

    line = timed.timeline
    mode = timed.deployment.power.performance_mode
    rate = "" if timed.left_on_cpu else f", {timed.throughput:,.0f} per second"
    screen.print(
        Text.assemble(
            (f"{timed.latency_ms:.3f} ms", "bold green"),
            f" on {timed.soc}",
            (f", {npu_part_only(timed)}" if timed.left_on_cpu else "", "bold yellow"),
            f": {timed.model}, {timed.precision}, {timed.runtime}, {mode}\n"
            f"{timed.low_ms:.3f} to {timed.high_ms:.3f} in nine of ten models{rate}; costs {timed.provenance}",
        )
    )
    if timed.ep_refused:
        from hexforge.frontends.onnx.ep_limits import EP_VERSION

        of_nodes = "1 of its nodes" if len(timed.ep_refused) == 1 else f"{len(timed.ep_refused)} of its nodes"
        why = "; ".join(f"{some_of(ops)}: {reason}" for reason, ops in _ep_reasons(timed))
        screen.print(Text(f"the QNN EP {EP_VERSION} leaves {of_nodes} to the CPU: {why}", "bold yellow"))
    if as_built is not None:
        screen.print(f"as `hexforge quantize` builds it, with float inputs and outputs: {as_built.latency_ms:.3f} ms")
    if timed.left_on_cpu:
        screen.print(Text(whole_time(timed), "yellow"))
    screen.print(
        f"accelerator {line.accelerator_us / 1e3:.3f} ms, RPC {line.rpc_us / 1e3:.3f}, inputs and outputs "
        f"{line.io_us / 1e3:.3f}, wake-ups and votes {line.wait_us / 1e3:.3f}"
        + (f", all of them {line.factor:.2f} times those of qnn_dlc" if line.factor != 1 else "")
    )
    if timed.little_known:
        screen.print(f"little known, so less certain: {', '.join(timed.little_known)}")
    asked = timed.deployment.config.vtcm_bytes
    own = f", the graph {vtcm_text(asked)}" if asked else ""
    screen.print(
        f"VTCM peak {size(line.vtcm_peak_bytes)} of a budget of {size(line.vtcm_bytes)} (the chip has "
        f"{size(timed.vtcm_size_bytes)}{own}); DRAM {size(line.dram_bytes)}: weights "
        f"{size(line.weight_bytes)}, activations {size(line.spill_bytes)}; context about {size(line.context_bytes)}"
    )
    energy = timed.energy_uj
    screen.print(
        f"memory on the device about {size(timed.memory_bytes)}"
        + (f", of the process up to {size(process)}" if (process := timed.application_bytes) is not None else "")
        + (f"; energy {energy / 1e3:.3g} mJ, a model without measurements" if energy is not None else "")
    )
    _print_left_out(screen, timed, refused)
    screen.print()
    rows = sorted(line.rows, key=lambda row: -row.us)
    shown = rows[:count] if count else rows
    screen.print(result_table("", select(task_columns(line), TASK_FIGURES), shown))
    if len(rows) > len(shown):
        screen.print(rows_left_out(len(shown), len(rows), "tasks"))


def _ep_reasons(timed: Estimate) -> list[tuple[str, list[str]]]:
    """The commonest reasons for which the QNN EP leaves nodes to the CPU, with these nodes."""
    return [*by_reason((f"{row.op_type} {row.node}", row.ep_refuses) for row in timed.ep_refused)][:MOST_REASONS]


def _print_left_out(screen: Console, timed: Estimate, refused: bool) -> None:
    """What the NPU does not take, and so is not in its time."""
    if not timed.left_on_cpu:
        return
    reasons = by_reason((row.op_type, row.reason or "") for row in timed.left_on_cpu)
    count = "1 node" if len(timed.left_on_cpu) == 1 else f"{len(timed.left_on_cpu)} nodes"
    screen.print(Text(f"not in the NPU's time: {count} that it does not take and the CPU runs", "yellow"))
    for reason, ops in reasons if refused else reasons[:MOST_REASONS]:
        screen.print(Padding(Text(f"{', '.join(counted(ops))}: {reason}"), (0, 0, 0, 2)))
    if not refused and len(reasons) > MOST_REASONS:
        screen.print(rows_left_out(MOST_REASONS, len(reasons), "reasons", "--refused"))
    if refused:
        screen.print(table("", ("node", "op"), [(row.node, row.op_type) for row in timed.left_on_cpu]))
