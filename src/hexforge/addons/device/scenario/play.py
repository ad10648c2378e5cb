# SPDX-License-Identifier: Apache-2.0
"""Play: a script on a device: each thread of each process is a task under the clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hexforge.addons.device.codes import DeviceError, ProcessEndedError
from hexforge.addons.device.contexts import execution
from hexforge.addons.device.log import audit
from hexforge.addons.device.memory import CdspSession
from hexforge.addons.device.scenario.script import ProcessScript, Script, ScriptStep, read_script
from hexforge.addons.device.scenario.steps import ProcessSteps, RepeatedRun, crash
from hexforge.addons.device.scheduling.clock import ClockTask, Waits
from hexforge.addons.device.simulated_device import Device
from hexforge.errors import CallError
from hexforge.results import Key, Result, length, record


@dataclass(frozen=True, slots=True)
class StepOutcome(Result):
    """How a step went."""

    process: str
    thread: int
    step: ScriptStep
    start_us: float
    end_us: float
    code: str = ""
    """The code of its error; empty where it succeeded."""
    message: str = ""
    digests: tuple[str, ...] = ()
    """Of the outputs of each execution."""

    described = (
        "process thread",
        Key("do", of="step.do"),
        Key("start_us", rounded=3),
        Key("end_us", rounded=3),
        "code as_expected message digests",
    )

    @property
    def as_expected(self) -> bool:
        """Whether it went as the script says."""
        return self.code == self.step.expect


@dataclass(frozen=True, slots=True)
class ScenarioFigures:
    """What a scenario of models that run together costs."""

    ram_bytes: int
    energy_mw: float
    latencies_us: Mapping[str, list[float]]
    """Of each context's runs, from when they were due."""
    unexpected: tuple[str, ...] = ()
    """Steps that went otherwise than it says."""


@dataclass(slots=True)
class PlayedScenario(Result):
    """A scenario after it was played."""

    device: Device
    script: Script
    steps: list[StepOutcome] = field(default_factory=list)
    executed: dict[str, list[execution.ExecutionResult]] = field(default_factory=dict)
    """Every execution that ended well, by process and graph."""
    responses_us: dict[str, list[float]] = field(default_factory=dict)
    """From the moment each was due, which is that of the call unless the step has a period, to its end."""

    described = (
        Key("soc", of="device.soc.name"),
        Key("simulated_us", of="device.clock.now_us", rounded=3),
        Key("events", of=length("device.log.entries")),
        Key("memory_bytes", of="device.memory.used_bytes"),
        Key("peak_memory_bytes", of="device.log.peak_bytes"),
        Key("energy_uj_assumed", of="device.energy_uj", rounded=3),
        Key("sessions", of=lambda played: [_session(session) for session in played.device.memory.sessions.values()]),
        Key("contexts", of=lambda played: _contexts(played.device)),
        "steps",
    )

    def responses_by_context(self) -> dict[str, list[float]]:
        """`responses_us` by the name that the script gives a graph's context."""
        return {label.split(" ", 1)[1].partition("#")[0]: times for label, times in self.responses_us.items()}

    @property
    def unexpected(self) -> list[StepOutcome]:
        """Steps that did not go as the script says."""
        return [step for step in self.steps if not step.as_expected]


def _session(session: CdspSession) -> dict[str, Any]:
    return {**record(session, ("process index used_bytes",)), "by_kind": session.by_kind()}


def _contexts(device: Device) -> dict[str, Any]:
    """The session and the state of each context, by its name."""
    contexts = [context for client in device.clients.values() for context in client.contexts.values()]
    return {c.label: {"session": c.session.index if c.session else None, "state": str(c.state)} for c in contexts}


def play(script: Script) -> PlayedScenario:
    """Play a script to its end; the log is audited."""
    device = Device(
        script.soc.name, platform=script.platform, cores=script.cores, ram_bytes=script.ram_bytes,
        signed_image=script.signed_image,
    )  # fmt: skip
    played = PlayedScenario(device, script)
    clients = {p.name: device.process(p.name, signed=p.signed, privileged=p.privileged) for p in script.processes}
    for fault in script.faults:
        device.clock.at(fault.at_us, crash, device, clients[fault.process], fault.kind, fault.session)
    threads: list[tuple[str, ClockTask]] = []
    for process in script.processes:
        steps = ProcessSteps(device, clients, process.name, script.binaries, script.config)
        steps.client.votes.profile = process.profile
        steps.executed, steps.responses_us = played.executed, played.responses_us
        for number in range(len(process.threads)):
            task = steps.client.start(_thread(played, steps, process, number))
            threads.append((f"{process.name}, thread {number}", task))
    device.clock.run()
    for name, thread in threads:
        if not thread.done:
            raise CallError(f"{name}: waits for something that never comes")
        if not isinstance(thread.error, ProcessEndedError):
            thread.result()
    audit(device.log.entries)
    return played


def _thread(played: PlayedScenario, steps: ProcessSteps, process: ProcessScript, number: int) -> Waits:
    """One thread: its steps one after the other; a step that fails does not end it."""
    clock = played.device.clock
    for step in process.threads[number]:
        start, code, message = clock.now_us, "", ""
        digests: list[str] = []
        try:
            do = getattr(steps, step.do)
            yield from do(digests, run=RepeatedRun(**step.asked)) if step.do == "execute" else do(**step.asked)
        except DeviceError as error:
            code, message = error.name, str(error)
        except CallError as error:
            raise CallError(f"{step.where}: {error}") from None
        played.steps.append(StepOutcome(process.name, number, step, start, clock.now_us, code, message, tuple(digests)))
    yield 0.0


def scenario_figures(path: Path) -> ScenarioFigures:
    """What the models of a scenario's file cost together, played on the simulated device."""
    played = play(read_script(path))
    device = played.device
    wrong = tuple(f"{step.step.do}: {step.message}" for step in played.unexpected)
    power = device.energy_uj / 1e3 / (max(device.clock.now_us, 1.0) / 1e6)
    return ScenarioFigures(device.log.peak_bytes, power, played.responses_by_context(), wrong)
