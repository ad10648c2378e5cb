# SPDX-License-Identifier: Apache-2.0
"""`qnn-throughput-net-run`: models run in several threads for a count or a time, as a JSON file says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from hexforge.addons.tools import graphs
from hexforge.addons.tools.flags import Version
from hexforge.addons.tools.raw import OutputType, feeds_of, read_input_list, write_results
from hexforge.backend import Backend, Program, TimedBackend
from hexforge.chips.power import Power
from hexforge.cli import arguments
from hexforge.cli.screen import console, spinner, table
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.backend_extensions import Config, load
from hexforge.formats.files import file_stem, require_writable, write_atomically
from hexforge.formats.json_text import read_json
from hexforge.formats.validated import Within, validated
from hexforge.ir import Array, TensorType
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.addons.device import Binary
    from hexforge.addons.device.scenario.play import PlayedScenario

INFERENCES = 10
"""Of each thread, that are simulated."""


@dataclass(frozen=True, slots=True)
class ChipThread:
    """A thread, with what decides its share of a chip."""

    name: str
    program: Program
    backend: Backend
    priority: str
    interval_us: float
    power: Power


def on_chips(threads: Sequence[ChipThread]) -> list[dict[str, Any]]:
    """What each thread takes with the others of its chip, simulated; threads of other backends are left out.

    Each drives the chip by its own power: clocks are the highest that somebody votes for at the moment.
    """
    chips: dict[str, list[ChipThread]] = {}
    for thread in threads:
        if isinstance(thread.backend, TimedBackend):
            chips.setdefault(thread.backend.chip_name, []).append(thread)
    rows = []
    for chip, members in chips.items():
        played = _played(chip, members)
        rows += [_row_on_chip(chip, thread, played, number) for number, thread in enumerate(members)]
    return rows


def _played(chip: str, threads: Sequence[ChipThread]) -> PlayedScenario:
    """Each thread calls its graph again and again, when it is wanted or when the call before has returned."""
    from hexforge.addons.device.power import PerfProfile
    from hexforge.addons.device.scenario.play import play
    from hexforge.addons.device.scenario.script import parse_script
    from hexforge.chips.priority import Priority

    binaries = {f"{number}": _binary(thread) for number, thread in enumerate(threads)}
    processes = []
    for name, thread in zip(binaries, threads, strict=True):
        config = {"priority": Priority.of(thread.priority).name}
        create = {"do": "create", "context": name, "binary": name, "config": config}
        execute = {"do": "execute", "graph": name, "times": INFERENCES, "period_us": thread.interval_us}
        processes.append({"name": name, "privileged": True, "threads": [[create, execute]]})
    cores = max(binary.graphs[0].num_cores for binary in binaries.values())
    script = parse_script({"soc": chip, "cores": cores, "processes": processes}, where="threads", known=binaries)
    driven = tuple(
        replace(process, profile=PerfProfile.of(thread.power.through("qnn_dlc")))
        for process, thread in zip(script.processes, threads, strict=True)
    )
    return play(replace(script, processes=driven))


def _binary(thread: ChipThread) -> Binary:
    from hexforge.addons.device import Binary, GraphSpec, SimulatedTime
    from hexforge.chips.soc import require_chip

    assert isinstance(thread.backend, TimedBackend)
    graph, config = thread.program.graph, thread.backend.graph_config
    timed = SimulatedTime(graph, require_chip(thread.backend.chip_name), config)
    spec = GraphSpec(graph.name, vtcm_bytes=timed.timeline().vtcm_bytes, time=timed, num_cores=config.num_cores)
    return Binary(thread.name, (spec,))


def _row_on_chip(chip: str, thread: ChipThread, played: PlayedScenario, number: int) -> dict[str, Any]:
    """What became of the calls of a thread."""
    (ran,) = (step for step in played.steps if (step.process, step.step.do) == (f"{number}", "execute"))
    label = next(label for label in played.executed if label.startswith(f"{number} "))
    done, responses_us = played.executed[label], played.responses_us[label]
    return {
        "thread": thread.name,
        "chip": chip,
        "priority": thread.priority,
        "per_second": INFERENCES / (ran.end_us - ran.start_us) * 1e6,
        "mean_ms": sum(responses_us) / INFERENCES / 1e3,
        "worst_ms": max(responses_us) / 1e3,
        "yields": sum(result.yields for result in done),
        "energy_uj_assumed": sum(result.energy_uj for result in done) / INFERENCES,
    }


TOOL = "qnn-throughput-net-run"
LONGEST_S = 60
"""How long Ctrl-C waits for the inference that a thread is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecord:
    """A backend by its library."""

    backendName: str  # noqa: N815 - the file's own spelling, here and below
    backendPath: str  # noqa: N815
    profilingLevel: str = "OFF"  # noqa: N815
    backendExtensions: str = ""  # noqa: N815
    """The library of the backend's extensions; its name says nothing more."""
    configFile: str = ""  # noqa: N815
    """The config file of the backend, for threads without a backendConfig."""
    perfProfile: str = ""  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecord:
    """A model or a context binary, and what it is run on."""

    modelName: str  # noqa: N815
    modelPath: str  # noqa: N815
    loadFromCachedBinary: bool = False  # noqa: N815
    inputPath: str = ""  # noqa: N815
    inputDataType: Literal["FLOAT", "NATIVE"] = "FLOAT"  # noqa: N815
    outputPath: str = ""  # noqa: N815
    outputDataType: Literal["FLOAT_ONLY", "NATIVE_ONLY", "FLOAT_AND_NATIVE"] = "FLOAT_ONLY"  # noqa: N815
    saveOutput: Literal["NONE", "NATIVE_LAST", "NATIVE_ALL", "FLOAT_LAST", "FLOAT_ALL"] = "NONE"  # noqa: N815


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityRecord:
    """A context, which has a priority."""

    contextName: str  # noqa: N815
    priority: Literal["low", "normal", "normal_high", "high", "default"] = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadRecord:
    """A thread: a model on a backend, over and over."""

    threadName: str  # noqa: N815
    backend: str
    context: str = ""
    model: str
    interval: Annotated[float, Within(0)] = 0.0
    """Milliseconds between the starts of two inferences."""
    backendConfig: str = ""  # noqa: N815
    useRandomData: bool = False  # noqa: N815
    """Run on random numbers where the model has no input list, or in its place."""
    loopUnit: Literal["count", "second"] = "count"  # noqa: N815
    loop: Annotated[float, Within(0, above=True)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """The threads that run together."""

    iteration: Annotated[int, Within(1)] = 1
    logLevel: str = "error"  # noqa: N815
    threads: Annotated[list[ThreadRecord], Within(1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ThroughputFile:
    """What is run."""

    backends: Annotated[list[BackendRecord], Within(1)]
    models: Annotated[list[NetworkRecord], Within(1)]
    contexts: list[PriorityRecord] = field(default_factory=list)
    testCase: TestCase  # noqa: N815


@dataclass(slots=True)
class Lane:
    """A thread and what it has done."""

    record: ThreadRecord
    model: NetworkRecord
    program: Program
    backend: Backend
    power: Power
    feeds: Sequence[Sequence[dict[str, Array]]]
    milliseconds: list[float] = field(default_factory=list)
    kept: list[list[dict[str, Array]]] = field(default_factory=list)
    """What the first inferences gave, as many as there are inputs; of saveOutput …_LAST only the last."""
    error: HexforgeError | None = None


def run(
    config: Path | None = option(None, "The JSON file that says what runs."),
    output: Path | None = option(None, "A JSON file for the results."),
    version: Version = False,
) -> None:
    """Run models in several threads, and print inferences a second for each."""
    if config is None:
        raise CallError("--config is missing; see --help")
    plan = _read(config)
    _report_ignored_settings(plan)
    if output is not None:
        require_writable(output)
    with spinner("loading"):
        lanes = [_lane(thread, plan, config) for thread in plan.testCase.threads]
    start = time.perf_counter()
    for _ in range(plan.testCase.iteration):
        _run_together(lanes)
    total = time.perf_counter() - start
    failed = [lane.error for lane in lanes if lane.error is not None]
    if failed:
        raise failed[0]
    rows = [_row(lane) for lane in lanes]
    screen = console()
    screen.print(table("", ("thread", "model", "inferences", "per second", "mean ms", "p90 ms"), _cells(rows)))
    screen.print(
        f"TotalTime: {total * 1e6:.0f} us, {sum(r['inferences'] for r in rows) / total:.1f} inferences a second"
    )
    chips = on_chips([_on_chip(lane, plan) for lane in lanes]) if plan.contexts else []
    if chips:
        title = "on the chip, by the priorities of contexts (simulated)"
        columns = ("thread", "chip", "priority", "per second", "mean ms", "worst ms", "yields", "µJ (assumed)")
        cells = [[f"{c:.3f}" if isinstance(c, float) else str(c) for c in row.values()] for row in chips]
        screen.print(table(title, columns, cells))
    if output is not None:
        written = {"total_s": total, "threads": rows, **({"on_chips": chips} if chips else {})}
        write_atomically(output, json.dumps(written, indent=2).encode())


def _on_chip(lane: Lane, plan: ThroughputFile) -> ChipThread:
    """A lane as a thread of a chip, with its context's priority."""
    record = lane.record
    priority = next((c.priority for c in plan.contexts if c.contextName == record.context), "default")
    return ChipThread(record.threadName, lane.program, lane.backend, priority, 1e3 * record.interval, lane.power)


def _report_ignored_settings(plan: ThroughputFile) -> None:
    """Print the settings of a plan that have no effect here."""
    for backend in plan.backends:
        if backend.profilingLevel.upper() != "OFF":
            ignored = f"backends {backend.backendName!r}: profilingLevel {backend.profilingLevel} changes nothing: "
            arguments.print_notice(
                TOOL, f"{ignored}the table is the profile; qnn-net-run --profiling_level writes a log"
            )


def _read(path: Path) -> ThroughputFile:
    file = validated(ThroughputFile, read_json(path), str(path))
    known = {
        "backend": {b.backendName for b in file.backends},
        "model": {m.modelName for m in file.models},
        "context": {c.contextName for c in file.contexts} | {""},
    }
    for thread in file.testCase.threads:
        for what, names in known.items():
            if getattr(thread, what) not in names:
                listed = ", ".join(sorted(filter(None, names))) or "none"
                wanted = f"{what} {getattr(thread, what)!r}"
                raise CallError(f"{path}: thread {thread.threadName!r}: no {wanted} is defined; there is {listed}")
    return file


def _lane(thread: ThreadRecord, plan: ThroughputFile, where: Path) -> Lane:
    chosen = next(b for b in plan.backends if b.backendName == thread.backend)
    model = next(m for m in plan.models if m.modelName == thread.model)
    file = thread.backendConfig or chosen.configFile
    config = load(_plan_file(file, where)) if file else Config()
    from hexforge.runtime.tool_config import power_of

    backend = graphs.tool_backend(chosen.backendPath, config, TOOL, thread.model)
    power = power_of(config, chosen.perfProfile.lower())
    program = _program(model, backend, where)
    inputs = {value.name: value.type for value in program.graph.inputs}
    native = set(inputs) if model.inputDataType == "NATIVE" else set()
    if thread.useRandomData:
        return Lane(thread, model, program, backend, power, [[_random(inputs)]])
    if not model.inputPath:
        raise CallError(
            f"{where}: model {model.modelName!r}: inputPath is missing; it names an input list, or let thread "
            f"{thread.threadName!r} have useRandomData"
        )
    listed = read_input_list(_plan_file(model.inputPath, where))
    feeds = [
        feeds_of(line, inputs, native, f"{listed.path}: inference {i}") for i, line in enumerate(listed.inferences)
    ]
    return Lane(thread, model, program, backend, power, feeds)


def _plan_file(name: str, where: Path) -> Path:
    """A file that a plan names: from the folder the tool runs in, else from the plan's own."""
    by_plan = where.parent / name
    return by_plan if not Path(name).exists() and by_plan.exists() else Path(name)


def _random(inputs: Mapping[str, TensorType]) -> dict[str, Array]:
    """An input of random numbers, the same each time: reals of a normal distribution, integers of all there are."""
    random = np.random.default_rng(0)
    made: dict[str, Array] = {}
    for name, type in inputs.items():
        if type.dtype.is_float:
            made[name] = random.standard_normal(type.shape).astype(type.dtype.numpy)
        elif type.encoding is None:
            made[name] = np.zeros(type.shape, type.dtype.numpy)  # an index may not be just any number
        else:
            low, high = type.dtype.range
            made[name] = random.integers(low, high + 1, type.shape).astype(type.dtype.numpy)
    return made


def _program(model: NetworkRecord, backend: Backend, where: Path) -> Program:
    path = _plan_file(model.modelPath, where)
    if not model.loadFromCachedBinary:
        if graphs.is_graph_text(path):
            return graphs.text_program(path, backend)
        return graphs.compiled_model(path, backend, graphs.graph_name(path)).program()
    graphs.require_suits(path, backend, strict=False)
    programs = graphs.open_context(path, backend, Config())
    if len(programs) > 1 and model.modelName not in programs:
        raise CallError(f"{path}: has the graphs {', '.join(programs)}; let modelName be one of them")
    return programs.get(model.modelName) or next(iter(programs.values()))


def _run_together(lanes: Sequence[Lane]) -> None:
    """All lanes at once, each in a thread of its own."""
    begin, stop = threading.Barrier(len(lanes)), threading.Event()
    ended: list[threading.Event] = []  # a join that Ctrl-C interrupts would say that the thread has ended
    try:
        for lane in lanes:
            ended.append(threading.Event())
            threading.Thread(target=_work, args=(lane, begin, stop, ended[-1]), daemon=True).start()
        for end in ended:
            end.wait()
    except KeyboardInterrupt:
        stop.set()
        begin.abort()
        for end in ended:  # each ends with the inference that it is in
            end.wait(LONGEST_S)
        raise
    for lane in lanes:
        if lane.error is None:
            _save(lane)


def _save(lane: Lane) -> None:
    """Write what a lane has kept."""
    folder = Path(lane.model.outputPath or "output") / file_stem(lane.record.threadName)
    types = {value.name: value.type for value in lane.program.graph.outputs}
    kind = OutputType(lane.model.outputDataType.lower())
    if lane.model.saveOutput.startswith("NATIVE"):
        kind = OutputType.NATIVE_ONLY
    last = len(lane.milliseconds) - 1
    for index, outputs in enumerate(lane.kept):
        number = last if lane.model.saveOutput.endswith("LAST") else index
        write_results(folder, number, outputs, types, list(types), kind)


def _work(lane: Lane, begin: threading.Barrier, stop: threading.Event, end: threading.Event) -> None:
    """A lane's inferences one after another, until it has done its own or all are to stop."""
    try:
        begin.wait()
        _infer(lane, stop)
    except threading.BrokenBarrierError:
        pass
    except HexforgeError as error:
        lane.error = error
    finally:
        end.set()


def _infer(lane: Lane, stop: threading.Event) -> None:
    start, done = time.perf_counter(), 0
    while not stop.is_set():
        now = time.perf_counter()
        if done >= lane.record.loop if lane.record.loopUnit == "count" else now - start >= lane.record.loop:
            return
        given = [lane.program.run(one) for one in lane.feeds[done % len(lane.feeds)]]
        lane.milliseconds.append(1e3 * (time.perf_counter() - now))
        if lane.model.saveOutput.endswith("LAST"):
            lane.kept = [given]
        elif lane.model.saveOutput.endswith("ALL") and len(lane.kept) < len(lane.feeds):
            lane.kept.append(given)
        done += 1
        if (left := lane.record.interval / 1e3 - (time.perf_counter() - now)) > 0:
            stop.wait(left)


def _row(lane: Lane) -> dict[str, Any]:
    times = sorted(lane.milliseconds)
    mean = sum(times) / len(times)
    return {
        "thread": lane.record.threadName,
        "model": lane.model.modelName,
        "inferences": len(times),
        "per_second": 1e3 / max(mean, lane.record.interval),
        "mean_ms": mean,
        "p90_ms": times[min(len(times) - 1, int(0.9 * len(times)))],
    }


def _cells(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [
        (r["thread"], r["model"], str(r["inferences"]), *(f"{r[k]:.3f}" for k in ("per_second", "mean_ms", "p90_ms")))
        for r in rows
    ]
