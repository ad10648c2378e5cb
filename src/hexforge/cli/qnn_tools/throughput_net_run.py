# SPDX-License-Identifier: Apache-2.0
"""`qnn-throughput-net-run`: models run in several threads for a count or a time, as a JSON file says."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hexforge.backend import Backend, Program
from hexforge.cli.qnn_tools import graphs
from hexforge.cli.qnn_tools.flags import Version
from hexforge.cli.qnn_tools.raw import OutputType, feeds_of, read_input_list, write_results
from hexforge.cli.screen import console, table, waiting
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.backend_extensions import Config, load_htp
from hexforge.formats.files import write_atomically
from hexforge.formats.json_text import read_json
from hexforge.ir import Array

TOOL = "qnn-throughput-net-run"


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BackendRecord(_Record):
    """A backend by its library."""

    backendName: str  # noqa: N815 - the file's own spelling, here and below
    backendPath: str  # noqa: N815
    profilingLevel: str = "OFF"  # noqa: N815
    backendExtensions: str = ""  # noqa: N815
    configFile: str = ""  # noqa: N815
    perfProfile: str = ""  # noqa: N815


class ModelRecord(_Record):
    """A model or a context binary, and what it is run on."""

    modelName: str  # noqa: N815
    modelPath: str  # noqa: N815
    loadFromCachedBinary: bool = False  # noqa: N815
    inputPath: str = ""  # noqa: N815
    inputDataType: Literal["FLOAT", "NATIVE"] = "FLOAT"  # noqa: N815
    outputPath: str = ""  # noqa: N815
    outputDataType: Literal["FLOAT_ONLY", "NATIVE_ONLY", "FLOAT_AND_NATIVE"] = "FLOAT_ONLY"  # noqa: N815
    saveOutput: Literal["NONE", "NATIVE_LAST", "NATIVE_ALL", "FLOAT_LAST", "FLOAT_ALL"] = "NONE"  # noqa: N815


class ContextRecord(_Record):
    """A context, which has a priority."""

    contextName: str  # noqa: N815
    priority: Literal["low", "normal", "normal_high", "high", "default"] = "default"


class ThreadRecord(_Record):
    """A thread: a model on a backend, over and over."""

    threadName: str  # noqa: N815
    backend: str
    context: str = ""
    model: str
    interval: float = Field(0, ge=0)
    """Milliseconds between the starts of two inferences."""
    loopUnit: Literal["count", "second"] = "count"  # noqa: N815
    loop: float = Field(1, gt=0)


class TestCase(_Record):
    """The threads that run together."""

    iteration: int = Field(1, ge=1)
    logLevel: str = "error"  # noqa: N815
    threads: list[ThreadRecord] = Field(min_length=1)


class ThroughputFile(_Record):
    """What is run."""

    backends: list[BackendRecord] = Field(min_length=1)
    models: list[ModelRecord] = Field(min_length=1)
    contexts: list[ContextRecord] = []
    testCase: TestCase  # noqa: N815


@dataclass(slots=True)
class Lane:
    """A thread and what it has done."""

    record: ThreadRecord
    model: ModelRecord
    program: Program
    feeds: Sequence[Sequence[dict[str, Array]]]
    milliseconds: list[float] = field(default_factory=list)
    last: list[dict[str, Array]] = field(default_factory=list)
    error: HexforgeError | None = None


def run(
    config: Annotated[Path | None, typer.Option("--config", help="The JSON file that says what runs.")] = None,
    output: Annotated[Path | None, typer.Option("--output", help="A JSON file for the results.")] = None,
    version: Version = False,
) -> None:
    """Run models in several threads, and print inferences a second for each."""
    if config is None:
        raise CallError("--config is missing; see --help")
    plan = _read(config)
    with waiting("loading"):
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
    if output is not None:
        write_atomically(output, json.dumps({"total_s": total, "threads": rows}, indent=2).encode())


def _read(path: Path) -> ThroughputFile:
    data = read_json(path)
    try:
        found = ThroughputFile.model_validate(data)
    except ValidationError as error:
        faults = [f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()]
        raise CallError("\n".join(faults)) from None
    known = {
        "backend": {b.backendName for b in found.backends},
        "model": {m.modelName for m in found.models},
        "context": {c.contextName for c in found.contexts} | {""},
    }
    for thread in found.testCase.threads:
        for what, names in known.items():
            if getattr(thread, what) not in names:
                listed = ", ".join(sorted(filter(None, names))) or "none"
                wanted = f"{what} {getattr(thread, what)!r}"
                raise CallError(f"{path}: thread {thread.threadName!r}: no {wanted} is defined; there is {listed}")
    return found


def _lane(thread: ThreadRecord, plan: ThroughputFile, where: Path) -> Lane:
    chosen = next(b for b in plan.backends if b.backendName == thread.backend)
    model = next(m for m in plan.models if m.modelName == thread.model)
    config = load_htp(Path(chosen.configFile)) if chosen.configFile else Config()
    backend = graphs.tool_backend(chosen.backendPath, config, TOOL, thread.model, chosen.perfProfile.lower())
    program = _program(model, backend)
    inputs = {value.name: value.type for value in program.graph.inputs}
    native = set(inputs) if model.inputDataType == "NATIVE" else set()
    if not model.inputPath:
        raise CallError(f"{where}: model {model.modelName!r}: inputPath is missing; it names an input list")
    listed = read_input_list(Path(model.inputPath))
    feeds = [
        feeds_of(line, inputs, native, f"{listed.path}: inference {i}") for i, line in enumerate(listed.inferences)
    ]
    return Lane(thread, model, program, feeds)


def _program(model: ModelRecord, backend: Backend) -> Program:
    path = Path(model.modelPath)
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
    begin = threading.Barrier(len(lanes))
    threads = [threading.Thread(target=_work, args=(lane, begin), daemon=True) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for lane in lanes:
        if lane.model.saveOutput != "NONE" and lane.error is None:
            folder = Path(lane.model.outputPath or "output") / lane.record.threadName
            types = {value.name: value.type for value in lane.program.graph.outputs}
            kind = OutputType.NATIVE_ONLY if lane.model.saveOutput.startswith("NATIVE") else OutputType.FLOAT_ONLY
            write_results(folder, len(lane.milliseconds) - 1, lane.last, types, list(types), kind)


def _work(lane: Lane, begin: threading.Barrier) -> None:
    begin.wait()
    start, done = time.perf_counter(), 0
    try:
        while True:
            now = time.perf_counter()
            if done >= lane.record.loop if lane.record.loopUnit == "count" else now - start >= lane.record.loop:
                return
            lane.last = [lane.program.run(one) for one in lane.feeds[done % len(lane.feeds)]]
            lane.milliseconds.append(1e3 * (time.perf_counter() - now))
            done += 1
            if (left := lane.record.interval / 1e3 - (time.perf_counter() - now)) > 0:
                time.sleep(left)
    except HexforgeError as error:
        lane.error = error


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
