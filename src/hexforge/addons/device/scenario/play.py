# SPDX-License-Identifier: Apache-2.0
"""Play: a script on a device: each thread of each process is a task under the clock."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.addons.device.buffers import AddressRange, MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.client import Client
from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.addons.device.contexts import creation, execution
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig, SharingType
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.loading import CreationNotice
from hexforge.addons.device.contexts.registration import deregister, register
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.addons.device.log import audit
from hexforge.addons.device.power.profiles import PROFILES
from hexforge.addons.device.scenario.fields import MOST_STEPS, Fields
from hexforge.addons.device.scenario.script import FaultScript, ProcessScript, Script, ScriptStep
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Device
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.options import did_you_mean
from hexforge.scheduling.clock import ClockTask, Waits


@dataclass(frozen=True, slots=True)
class StepOutcome:
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

    @property
    def as_expected(self) -> bool:
        """Whether it went as the script says."""
        return self.code == self.step.expect


@dataclass(slots=True)
class PlayedScenario:
    """A scenario after it was played."""

    device: Device
    script: Script
    steps: list[StepOutcome] = field(default_factory=list)
    executed: dict[str, list[execution.ExecutionResult]] = field(default_factory=dict)
    """Every execution that ended well, by process and graph."""
    responses_us: dict[str, list[float]] = field(default_factory=dict)
    """From the moment each was due, which is that of the call unless the step has a period, to its end."""

    def responses_by_context(self) -> dict[str, list[float]]:
        """`responses_us` by the name that the script gives a graph's context."""
        return {label.split(" ", 1)[1].partition("#")[0]: times for label, times in self.responses_us.items()}

    @property
    def unexpected(self) -> list[StepOutcome]:
        """Steps that did not go as the script says."""
        return [step for step in self.steps if not step.as_expected]


def play(script: Script) -> PlayedScenario:
    """Play a script to its end; the log is audited."""
    device = Device(
        script.soc.name, platform=script.platform, cores=script.cores, ram_bytes=script.ram_bytes,
        signed_image=script.signed_image,
    )  # fmt: skip
    played = PlayedScenario(device, script)
    clients = {p.name: device.process(p.name, signed=p.signed, privileged=p.privileged) for p in script.processes}
    for fault in script.faults:
        device.clock.at(fault.at_us, _fault, device, clients, fault)
    threads: list[tuple[str, ClockTask]] = []
    for process in script.processes:
        player = _Player(script, played, clients, process)
        for number, steps in enumerate(process.threads):
            threads.append((f"{process.name}, thread {number}", player.client.start(player.thread(number, steps))))
    device.clock.run()
    for name, thread in threads:
        if not thread.done:
            raise CallError(f"{name}: waits for something that never comes")
        if not isinstance(thread.error, ProcessEndedError):
            thread.result()
    audit(device.log.entries)
    return played


def _fault(device: Device, clients: Mapping[str, Client], fault: FaultScript) -> None:
    client = clients[fault.process]
    if fault.kind == "ssr":
        device.restart()
    elif fault.kind == "kill" and not client.ended:
        device.kill(client)
    elif any(session.index == fault.session for session in client.sessions):
        device.crash(client, fault.session)
    else:
        device.log.write("fault_missed", process=fault.process, session=fault.session)


def feeds_of(spec: GraphSpec, seed: int, batch: int = 1) -> dict[str, Array]:
    """Inputs of a graph made from a seed: the same wherever it is run."""
    random = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name, type in spec.inputs:
        shape = (type.shape[0] * batch, *type.shape[1:]) if type.shape else ()
        kind = type.dtype.numpy
        if np.issubdtype(kind, np.floating):
            feeds[name] = random.standard_normal(shape).astype(kind)
        elif kind == np.dtype(bool):
            feeds[name] = random.integers(0, 2, shape).astype(bool)
        else:
            info = np.iinfo(kind)
            feeds[name] = random.integers(max(info.min, -128), min(info.max, 255), shape, endpoint=True).astype(kind)
    return feeds


def digest(outputs: Mapping[str, Array]) -> str:
    """What tells outputs apart, bit by bit."""
    hashed = hashlib.blake2b(digest_size=12)
    for name in sorted(outputs):
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(outputs[name]).tobytes())
    return hashed.hexdigest()


class _Player:
    """What the threads of one process have in common."""

    def __init__(
        self, script: Script, played: PlayedScenario, clients: Mapping[str, Client], process: ProcessScript
    ) -> None:
        self.script, self.played, self.clients, self.process = script, played, clients, process
        self.client = clients[process.name]
        self.device = played.device
        self.contexts: dict[str, DeviceContext] = {}
        self.buffers: dict[str, list[MemHandle]] = {}
        self.tried: set[str] = set()
        """Contexts and buffers that a step was to make."""
        self.client.votes.profile = process.profile

    def thread(self, number: int, steps: tuple[ScriptStep, ...]) -> Waits:
        """One thread: its steps one after the other; a step that fails does not end it."""
        for step in steps:
            start, code, message = self.device.clock.now_us, "", ""
            digests: list[str] = []
            try:
                yield from self._step(step, digests)
            except DeviceError as error:
                code, message = error.name, str(error)
            self.played.steps.append(
                StepOutcome(
                    self.process.name, number, step, start, self.device.clock.now_us, code, message, tuple(digests)
                )
            )
        yield 0.0

    def _step(self, step: ScriptStep, digests: list[str]) -> Waits:
        if step.do == "execute":
            yield from self._execute(step, digests)
        else:
            do: Callable[[Fields, ScriptStep], Waits] = getattr(self, f"_{step.do}")
            fields = Fields(step.fields, step.where)
            yield from do(fields, step)
            fields.done()

    # -- steps --------------------------------------------------------------------------------------------------------

    def _create(self, fields: Fields, step: ScriptStep) -> Waits:
        name, binary = fields.text("context"), self.script.binaries[fields.text("binary")]
        self.tried.add(name)
        self.contexts.pop(name, None)
        config = self._config(fields.any("config", {}), step)
        signal = self._signal_of(fields.number("timeout_us", 0.0), fields.number("abort_us", 0.0))
        self.contexts[name] = yield creation.create(self.client, binary, config, signal)

    def _create_list(self, fields: Fields, step: ScriptStep) -> Waits:
        rows: list[tuple[str, Binary, CreationConfig]] = []
        self.tried.update(item["context"] for item in fields.list("contexts"))
        for item in fields.list("contexts"):
            binary = self.script.binaries[item["binary"]]
            rows.append((item["context"], binary, self._config(item.get("config", {}), step)))
        sharing = SharingType(fields.text("optimization_type", next(iter(SharingType))))
        config = ListConfig(fields.flag("share_resources"), sharing)
        tasks = creation.create_list(self.client, [(b, c) for _, b, c in rows], config, self._notice)
        failed: DeviceError | None = None
        for (name, _, _), task in zip(rows, tasks, strict=True):
            try:
                self.contexts[name] = yield task
            except DeviceError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _notice(self, notice: CreationNotice) -> None:
        graph = notice.graph.name if notice.graph is not None else ""
        self.device.log.write("notice", binary=notice.binary, graph=graph, ok=notice.error is None)

    def _execute(self, step: ScriptStep, digests: list[str]) -> Waits:
        fields = Fields(step.fields, step.where)
        graph = self._graph(fields)
        times, batch = (fields.count(key, 1, 1, MOST_STEPS) for key in ("times", "batch"))
        seed = fields.count("seed", 0)
        recover, shared = fields.flag("recover"), fields.text("shared", "")
        limits = {key: fields.number(key, 0.0) for key in ("timeout_us", "abort_us")}
        period, deadline, jitter = (fields.number(key, 0.0) for key in ("period_us", "deadline_us", "jitter_us"))
        late, begin, chance = 0, self.device.clock.now_us, random.Random(seed)
        handles = {h.descriptor.tensor: h for h in self._registered(shared, step)} if shared else {}
        for k in range(times):
            released = begin + k * period if period else self.device.clock.now_us
            released += chance.uniform(0.0, jitter) if jitter else 0.0
            if released > self.device.clock.now_us:
                yield released - self.device.clock.now_us
            feeds: dict[str, Feed] = {}
            for name, array in feeds_of(graph.spec, seed + k, batch).items():
                feeds[name] = array
                if name in handles:
                    handles[name].array()[...] = array
                    feeds[name] = handles[name]
            outputs = {name: handles[name] for name, _ in graph.spec.outputs if name in handles}
            signal = self._signal_of(limits["timeout_us"], limits["abort_us"])
            done: execution.ExecutionResult = yield execution.execute(
                graph, feeds, outputs, signal, batch=batch, recover=recover
            )
            if graph.spec.outputs:
                digests.append(digest(done.outputs))
            label = f"{self.process.name} {graph.label}"
            self.played.executed.setdefault(label, []).append(done)
            response = self.device.clock.now_us - released
            self.played.responses_us.setdefault(label, []).append(response)
            late += deadline > 0 and response > deadline
        if late:
            raise DeviceError(
                Code.QNN_GRAPH_ERROR_TIMED_OUT,
                f"{graph.label}: {late} of {times} executions ended after their deadline of {deadline:g} us",
            )

    def _recover(self, fields: Fields, step: ScriptStep) -> Waits:
        yield self.client.start(creation.reload(self._context(fields.text("context"), step)))

    def _free(self, fields: Fields, step: ScriptStep) -> Waits:
        yield self.client.start(creation.free(self._context(fields.text("context"), step)))

    def _priority(self, fields: Fields, step: ScriptStep) -> Waits:
        priority = Priority[fields.text("priority")]
        target = self._graph(fields) if fields.has("graph") else self._context(fields.text("context"), step)
        self.client.set_priority(target, priority)
        yield 0.0

    def _register(self, fields: Fields, step: ScriptStep) -> Waits:
        """A dummy buffer of some size, or one buffer with all tensors of a graph."""
        name = fields.text("buffer")
        self.tried.add(name)
        if fields.has("graph"):
            graph = self._graph(fields)
            context, size = graph.context, 0
            places = []
            for tensor, type in (*graph.spec.inputs, *graph.spec.outputs):
                places.append((tensor, type, size))
                size += -(-type.size * type.dtype.numpy.itemsize // 64) * 64
            buffer = SharedBuffer(max(size, 1))
            made = [MemDescriptor(buffer, t, ty.shape, ty.dtype.numpy.name, at) for t, ty, at in places]
        else:
            context, size = self._context(fields.text("context"), step), fields.bytes("size")
            made = [MemDescriptor(AddressRange(size), name, (size,), "uint8")]
        self.buffers[name] = register(context, made)
        yield 0.0

    def _deregister(self, fields: Fields, step: ScriptStep) -> Waits:
        deregister(self.client, self._registered(fields.text("buffer"), step))
        self.buffers.pop(fields.text("buffer"))
        yield 0.0

    def _apply(self, fields: Fields, step: ScriptStep) -> Waits:
        self.client.apply_adapter(self._graph(fields), fields.text("adapter"))
        yield 0.0

    def _profile(self, fields: Fields, step: ScriptStep) -> Waits:
        self.client.votes.profile = PROFILES[fields.text("profile")]
        yield 0.0

    def _reserve_vtcm(self, fields: Fields, step: ScriptStep) -> Waits:
        self.device.reserve_vtcm(fields.bytes("size"), self.client)
        yield 0.0

    def _release_vtcm(self, fields: Fields, step: ScriptStep) -> Waits:
        self.device.release_vtcm(fields.bytes("size"), self.client)
        yield 0.0

    def _sleep(self, fields: Fields, step: ScriptStep) -> Waits:
        yield fields.number("us")

    def _fault(self, fields: Fields, step: ScriptStep) -> Waits:
        process = fields.text("process", self.process.name, tuple(self.clients))
        fault = FaultScript(0.0, fields.text("kind"), process, fields.count("session", 0))
        yield 0.0
        _fault(self.device, self.clients, fault)
        yield 0.0  # where a process kills itself, it ends here

    # -- what steps name ----------------------------------------------------------------------------------------------

    def _context(self, name: str, step: ScriptStep) -> DeviceContext:
        if name not in self.contexts:
            if name in self.tried:
                raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"context {name!r} could not be created")
            hint = did_you_mean(name, self.contexts)
            raise CallError(f"{step.where}: process {self.process.name!r} has created no context {name!r}{hint}")
        return self.contexts[name]

    def _graph(self, fields: Fields) -> DeviceGraph:
        context_name, _, name = fields.text("graph").partition("/")
        step = ScriptStep("", {}, fields.where)
        context = self._context(context_name, step)
        name = name or next(iter(context.graphs), "")
        if name not in context.graphs:
            context.require_alive()
            context.binary.graph(name)
            raise CallError(f"{fields.where}: graph {name!r} is not enabled in context {context_name!r}")
        return context.graphs[name]

    def _registered(self, name: str, step: ScriptStep) -> list[MemHandle]:
        if name not in self.buffers:
            if name in self.tried:
                raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"buffer {name!r} could not be registered")
            raise CallError(f"{step.where}: no buffer {name!r} is registered{did_you_mean(name, self.buffers)}")
        return self.buffers[name]

    def _signal_of(self, timeout_us: float, abort_us: float) -> DeviceSignal | None:
        if not timeout_us and not abort_us:
            return None
        signal = DeviceSignal(timeout_us or None)
        if abort_us:
            self.device.clock.after(abort_us, signal.abort)
        return signal

    def _config(self, data: Any, step: ScriptStep) -> CreationConfig:
        """A context's config by QNN's keys; `group` registers it: {"first": context, "max_spill_fill_bytes": n}."""
        f = Fields(data, f"{step.where}: config")
        own = self.script.config
        groups: dict[str, GroupRegistration | None] = {"register_multi_contexts": own.register_multi_contexts}
        for key in ("register_multi_contexts", "register_concurrent_resource_sharing"):
            groups.setdefault(key, None)
            if f.has(key):
                inner = Fields(f.any(key), f"{step.where}: config.{key}")
                first = self._context(inner.text("first"), step) if inner.has("first") else None
                inner.any("first", None)
                groups[key] = GroupRegistration(first, inner.bytes("max_spill_fill"))
                inner.done()
            f.any(key, None)
        enabled = f.names("enable_graphs", list(own.enable_graphs or ())) or None
        made = CreationConfig(
            priority=Priority[f.text("priority", own.priority.name, tuple(p.name for p in Priority))],
            register_multi_contexts=groups["register_multi_contexts"],
            register_concurrent_resource_sharing=groups["register_concurrent_resource_sharing"],
            io_mem_estimation=f.flag("io_memory_estimation", own.io_mem_estimation),
            file_read_memory_budget_in_mb=f.count("file_read_memory_budget_in_mb", own.file_read_memory_budget_in_mb),
            dsp_memory_profiling_enabled=f.flag("dsp_memory_profiling"),
            init_acceleration=f.flag("init_acceleration", own.init_acceleration),
            lora_weight_sharing_enabled=f.flag("lora_weight_sharing", own.lora_weight_sharing_enabled),
            prepare_only=f.flag("prepare_only"),
            is_persistent_binary=f.flag("is_persistent_binary", own.is_persistent_binary),
            memory_limit_hint=f.count("memory_limit_hint", own.memory_limit_hint),
            enable_graphs=enabled,
            graph_retention_order=f.names("graph_retention_order", list(own.graph_retention_order)),
            spill_fill_buffer=f.count("spill_fill_buffer", own.spill_fill_buffer, -1),
            weights_buffer=f.count("weights_buffer", own.weights_buffer, -1),
            share_resources=f.flag("share_resources"),
            binary_compatibility=own.binary_compatibility,
            graph_priorities=own.graph_priorities,
        )
        f.done()
        return made
