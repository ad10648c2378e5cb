# SPDX-License-Identifier: Apache-2.0
"""`hexforge bench`: how fast a model runs on this computer, next to what it would take on the chip."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.cli.arguments import BackendArguments, InputArguments, Json, Model, pairs
from hexforge.cli.commands.run import GraphName, Inputs
from hexforge.cli.runnable import engine_of, feeds_for, open_target
from hexforge.cli.screen import bar, bold_start, console, print_json, table
from hexforge.errors import HexforgeError
from hexforge.request_fields import option
from hexforge.results import Key, Result, length
from hexforge.runtime.prepare import ModelRequest

if TYPE_CHECKING:
    from hexforge.analysis.estimate import Estimate

PERCENTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class BenchTimes(Result):
    """Times of inferences, in ms, and how long all of them took together."""

    times_ms: tuple[float, ...]
    elapsed_s: float
    threads: int

    described = (
        Key("iterations", of=length("times_ms")),
        "threads",
        Key("throughput_per_s", of="throughput", rounded=3),
        Key("latency_ms", rounded=4),
    )

    @property
    def throughput(self) -> float:
        """Inferences a second, of all threads."""
        return len(self.times_ms) / self.elapsed_s

    @property
    def latency_ms(self) -> dict[str, float]:
        """The least, the mean, the most, and what so many percent stay below."""
        mean = sum(self.times_ms) / len(self.times_ms)
        figures = {"min": min(self.times_ms), "mean": mean, "max": max(self.times_ms)}
        return figures | {f"p{p}": self.percentile(p) for p in PERCENTILES}

    def percentile(self, part: float) -> float:
        """The time that so many percent of the inferences stay below."""
        ordered = sorted(self.times_ms)
        return ordered[min(len(ordered) - 1, max(0, -(-len(ordered) * int(part) // 100) - 1))]


def bench(
    model: Model,
    warmup: int = option(3, "Inferences before the clock starts.", min=0),
    iterations: int = option(0, "Inferences to time; 0: as many as --duration allows.", "--iterations", "-n", min=0),
    duration: float = option(3.0, "Seconds, unless --iterations.", min=0.01),
    threads: int = option(1, "Callers at the same time.", "--threads", "-t", min=1),
    input: Inputs = None,
    graph: GraphName = "",
    *,
    target: BackendArguments,
    inputs: InputArguments,
    as_json: Json = False,
) -> None:
    """Time a model or a context on this computer: warm-up, percentiles, throughput, threads; and the chip's time."""
    request = inputs.request(model)
    options = {"soc_model": target.soc} if engine_of(target) else target.provider_options()
    opened = open_target(model, target, request, graph)
    feeds = feeds_for(opened.inputs, pairs(input, "--input"))
    start = time.perf_counter()
    opened.run(feeds)
    first_ms = 1e3 * (time.perf_counter() - start)
    with bar(f"timing {model.name}") as progress:
        for _ in range(max(0, warmup - 1)):
            opened.run(feeds)
        measured = time_calls(lambda: opened.run(feeds), threads, iterations, duration, progress)
    on_chip = _on_the_chip(model, options.get("soc_model", ""), request)
    facts = {
        "model": model.name, "where": opened.about, "load_ms": round(opened.load_ms, 3), "first_ms": round(first_ms, 3),
        **measured.to_json(), "chip_estimate_ms": None if on_chip is None else round(on_chip.latency_ms, 4),
        "chip_total_us_rough": None if on_chip is None else on_chip.total_us_rough,
    }  # fmt: skip
    if as_json:
        print_json(facts)
        return
    screen = console()
    rate = f" median, {measured.throughput:,.1f} per second on this computer: {opened.about}"
    screen.print(bold_start(f"{measured.percentile(50):.3f} ms", rate))
    if on_chip is not None:
        from hexforge.report.formatting import npu_part_only

        part = f", {npu_part_only(on_chip)}" if on_chip.left_on_cpu else ""
        screen.print(
            f"{on_chip.latency_ms:.3f} ms on {options['soc_model']}{part}, as simulated: `hexforge estimate` says why"
        )
    screen.print()
    rows = [(key, f"{value:.3f}") for key, value in facts["latency_ms"].items()]
    rows += [("first", f"{first_ms:.3f}"), ("load", f"{opened.load_ms:.3f}")]
    title = f"{len(measured.times_ms)} inferences on {threads} thread{'s' if threads > 1 else ''}, {warmup} before them"
    screen.print(table(title, ("latency", "ms"), rows))


def time_calls(
    call: Callable[[], object],
    threads: int,
    iterations: int,
    duration_s: float,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> BenchTimes:
    """The times of calls from several threads: so many in all, or as many as the duration allows, one at least."""
    times: list[float] = []
    failures: list[BaseException] = []
    lock = threading.Lock()
    left = iterations
    start = time.perf_counter()

    def work() -> None:
        nonlocal left
        while not failures:
            with lock:
                if (iterations and left <= 0) or (not iterations and times and _since(start) >= duration_s):
                    return
                left -= 1
            began = time.perf_counter()
            try:
                call()
            except BaseException as error:
                failures.append(error)
                return
            took = 1e3 * (time.perf_counter() - began)
            with lock:
                times.append(took)
                done = (len(times), iterations) if iterations else (int(10 * _since(start)), int(10 * duration_s))
                progress(*done)

    workers = [threading.Thread(target=work) for _ in range(threads - 1)]
    for worker in workers:
        worker.start()
    work()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]
    return BenchTimes(tuple(times), _since(start), threads)


def _since(start: float) -> float:
    return time.perf_counter() - start


def _on_the_chip(model: Path, soc: str, request: ModelRequest) -> Estimate | None:
    """What the chip would take; None where there is none, or nothing to say."""
    from hexforge.analysis.estimate import estimate
    from hexforge.analysis.timed_graphs import TimedSource
    from hexforge.chips.deployment import Deployment

    if not soc:
        return None
    try:
        return estimate(TimedSource(model, request), Deployment(soc))
    except HexforgeError:
        return None
