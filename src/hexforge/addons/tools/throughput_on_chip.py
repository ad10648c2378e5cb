# SPDX-License-Identifier: Apache-2.0
"""What the threads of a throughput test would do to each other on a chip: a scenario with a process for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hexforge.backend import Backend, Program, TimedBackend
from hexforge.chips.power import Power

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
        rows += [_row(chip, thread, played, number) for number, thread in enumerate(members)]
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


def _row(chip: str, thread: ChipThread, played: PlayedScenario, number: int) -> dict[str, Any]:
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
