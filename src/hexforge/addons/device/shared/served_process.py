# SPDX-License-Identifier: Apache-2.0
"""ServedProcess: the calls of one program on a shared device: each request is one of QNN's calls in its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from hexforge.addons.device.api import Qnn
from hexforge.addons.device.buffers import AddressRange, MemDescriptor, MemHandle
from hexforge.addons.device.client import Client
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts import creation
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.addons.device.power.payloads import PowerConfig
from hexforge.addons.device.power.profiles import PerfProfile
from hexforge.addons.device.scenario.fields import MOST_STEPS, Fields
from hexforge.addons.device.shared.binaries import GROUPS, binary_from_json
from hexforge.addons.device.shared.messages import Message, from_json, to_json
from hexforge.addons.device.signal import DeviceSignal
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.scheduling.clock import Pending, Waits

MOST_CALLS = 1000
"""That one program may have begun and not waited for."""
POWER_CONFIGS: dict[str, type[PowerConfig]] = {kind.__name__: kind for kind in get_args(PowerConfig)}
Answer = Callable[[Any], Any]
"""What of a call's result is sent."""


class ServedProcess:
    """A process of the device, and the handles by whose numbers its program knows them."""

    def __init__(self, client: Client) -> None:
        self.client, self.qnn = client, Qnn(client)
        self._contexts: dict[int, DeviceContext] = {}
        self._calls: dict[int, tuple[Pending, Answer]] = {}
        self._signals: dict[int, DeviceSignal] = {}
        self._ever = 0

    def do(self, given: Fields) -> Any:
        """Do what a request asks for; what comes later is a call with a number, and is waited for."""
        name = given.text("do", choices=REQUESTS)
        step: Callable[[Fields], Any] = getattr(self, f"_{name}")
        return step(given)

    def waited_for(self, given: Fields) -> tuple[Pending, Answer]:
        """The call that a program waits for: it is forgotten with its answer."""
        number = given.count("call")
        given.done()
        if number not in self._calls:
            raise CallError(f"there is no call {number}, or it was waited for before")
        self._signals.pop(number, None)
        return self._calls.pop(number)

    def _begun(self, call: Pending, answer: Answer, signal: DeviceSignal | None = None) -> Message:
        if len(self._calls) >= MOST_CALLS:
            raise CallError(f"{MOST_CALLS:,} calls were begun and not waited for; wait for one")
        self._ever += 1
        self._calls[self._ever] = call, answer
        if signal is not None:
            self._signals[self._ever] = signal
        return {"call": self._ever}

    # -- contexts -----------------------------------------------------------------------------------------------------

    def _create(self, given: Fields) -> Message:
        soc = self.client.device.soc
        binary = binary_from_json(given.any("binary"), soc, "binary")
        config, signal = self._config(given.any("config")), _signal(given)
        given.done()
        return self._begun(creation.create(self.client, binary, config, signal), self._created, signal)

    def _create_list(self, given: Fields) -> list[Message]:
        members = []
        for i, row in enumerate(given.list("members")):
            item = Fields(row, f"members[{i}]")
            binary = binary_from_json(item.any("binary"), self.client.device.soc, f"members[{i}]: binary")
            members.append((binary, self._config(item.any("config"))))
            item.done()
        shared = from_json(ListConfig, Fields(given.any("shared"), "shared"))
        given.done()
        tasks = creation.create_list(self.client, members, shared, lambda notice: None)
        return [self._begun(task, self._created) for task in tasks]

    def _created(self, context: DeviceContext) -> Message:
        self._contexts[context.number] = context
        return {"context": context.number, "graphs": list(context.graphs)}

    def _free(self, given: Fields) -> Message:
        context = self._context(given)
        given.done()

        def freed(_: Any) -> Message:
            self._contexts.pop(context.number, None)
            return {}

        return self._begun(self.client.start(creation.free(context)), freed)

    def _recover(self, given: Fields) -> Message:
        context = self._context(given)
        given.done()
        return self._begun(self.client.start(creation.reload(context)), lambda _: {})

    def _set_context(self, given: Fields) -> Message:
        context, priority = self._context(given), _priority(given)
        profiling = given.flag("dsp_memory_profiling") if given.has("dsp_memory_profiling") else None
        given.any("dsp_memory_profiling", None)
        given.done()
        self.qnn.QnnContext_setConfig(context, priority=priority, dsp_memory_profiling=profiling)
        return {}

    def _apply(self, given: Fields) -> Message:
        graph, adapter = self._graph(given), given.text("adapter")
        given.done()
        self.qnn.QnnContext_applyBinarySection(graph, adapter)
        return {}

    def _set_graph(self, given: Fields) -> Message:
        graph, priority = self._graph(given), _priority(given)
        slc = given.flag("slc") if given.has("slc") else None
        threads = given.count("num_hvx_threads") if given.has("num_hvx_threads") else None
        given.any("slc", None)
        given.any("num_hvx_threads", None)
        given.done()
        self.qnn.QnnGraph_setConfig(graph, priority=priority, slc=slc, num_hvx_threads=threads)
        return {}

    # -- executions ---------------------------------------------------------------------------------------------------

    def _execute(self, given: Fields) -> Message:
        graph, feeds, signal = self._graph(given), self._feeds(given), _signal(given)
        batch, recover = given.count("batch", 1, 1, MOST_STEPS), given.flag("recover")
        given.done()
        task = self.qnn.QnnGraph_executeAsync(graph, feeds, None, signal, batch=batch, recover=recover)
        return self._begun(task, _result_to_json, signal)

    def _execute_in_turn(self, given: Fields) -> Message:
        rows = given.list("graphs")
        graphs = [self._graph(Fields(row, f"graphs[{i}]"), alone=True) for i, row in enumerate(rows)]
        feeds = self._feeds(given)
        given.done()
        task = self.qnn.execute_in_turn(graphs, feeds)
        return self._begun(task, lambda end: {"results": [_result_to_json(r) for r in end[0]], "took_us": end[1]})

    def _feeds(self, given: Fields) -> dict[str, Feed]:
        """Registered memory by its numbers; `raw`: other tensors are copied."""
        feeds: dict[str, Feed] = {}
        for number in given.list("shared", []):
            feeds[f"handle {number}"] = self._handle(number)
        if given.flag("raw"):
            feeds["raw"] = np.empty(0, np.uint8)
        return feeds

    def _sleep(self, given: Fields) -> Message:
        us = given.number("us")
        given.done()
        return self._begun(self.client.start(_sleeping(us)), lambda _: {})

    def _abort(self, given: Fields) -> Message:
        """End a call as its signal would; nothing where it has none, or is over."""
        signal = self._signals.get(given.count("call"))
        given.done()
        if signal is not None:
            signal.abort()
        return {}

    # -- memory -------------------------------------------------------------------------------------------------------

    def _register(self, given: Fields) -> list[int]:
        """Buffers by the program's own numbers for them: a buffer that has several tensors is mapped once."""
        context, buffers, made = self._context(given), dict[int, AddressRange](), []
        for i, row in enumerate(given.list("tensors")):
            item = Fields(row, f"tensors[{i}]")
            number, size = item.count("buffer"), item.count("bytes", low=1)
            buffer = buffers.get(number)
            if buffer is None:
                buffer = buffers[number] = AddressRange(size)
                buffer.fd = number
            made.append(MemDescriptor(buffer, item.text("tensor"), (size,), "uint8", item.count("offset", 0)))
            item.done()
        given.done()
        return [handle.number for handle in self.qnn.QnnMem_register(context, made)]

    def _deregister(self, given: Fields) -> Message:
        handles = [self._handle(number) for number in given.list("handles")]
        given.done()
        self.qnn.QnnMem_deRegister(handles)
        return {}

    def _memory(self, given: Fields) -> Message:
        given.done()
        return self.qnn.memory_facts()

    def _log(self, given: Fields) -> list[Any]:
        """Events of some kinds that name this process."""
        kinds = given.names("events")
        given.done()
        return self.qnn.events(*kinds)

    # -- power --------------------------------------------------------------------------------------------------------

    def _create_power_id(self, given: Fields) -> Message:
        device_id, core_id = given.count("device_id", 0), given.count("core_id", 0)
        given.done()
        return {"power_id": self.qnn.createPowerConfigId(device_id, core_id)}

    def _vote(self, given: Fields) -> Message:
        configs = []
        for i, row in enumerate(given.list("configs")):
            item = Fields(row, f"configs[{i}]")
            kind = POWER_CONFIGS[item.text("kind", choices=tuple(POWER_CONFIGS))]
            configs.append(from_json(kind, Fields(item.any("fields"), f"configs[{i}]")))
            item.done()
        number = self._power_id(given)
        self.qnn.setPowerConfig(number, configs)
        return {}

    def _destroy_power_id(self, given: Fields) -> Message:
        self.qnn.destroyPowerConfigId(self._power_id(given))
        return {}

    def _power_id(self, given: Fields) -> int:
        """A power config id of this process: those of others are not touched."""
        number = given.count("power_id")
        given.done()
        self.client.device.power.require_owner(number, self.client.name)
        return number

    def _profile(self, given: Fields) -> Message:
        profile = None
        if given.any("profile") is not None:
            profile = from_json(PerfProfile, Fields(given.any("profile"), "profile"))
            profile.check()
        now = given.flag("now")
        given.done()
        if now:
            self.qnn.vote_by(profile)
        else:
            self.qnn.use_profile(profile)
        return {}

    # -- handles ------------------------------------------------------------------------------------------------------

    def _context(self, given: Fields) -> DeviceContext:
        return self._known_context(given.count("context"))

    def _known_context(self, number: int) -> DeviceContext:
        if number not in self._contexts:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"context {number} is none of {self.client.name}, or was freed"
            )
        return self._contexts[number]

    def _graph(self, given: Fields, *, alone: bool = False) -> DeviceGraph:
        context, name = self._context(given), given.text("graph")
        if alone:
            given.done()
        if name not in context.graphs:
            self.qnn.QnnGraph_retrieve(context, name)  # which says what is wrong
        return context.graphs[name]

    def _handle(self, number: Any) -> MemHandle:
        handle = self.client.memory.get(number) if isinstance(number, int) else None
        if handle is None:
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"memory {number!r}: is not registered")
        return handle

    def _config(self, data: Any) -> CreationConfig:
        given = Fields(data, "config")
        groups: dict[str, GroupRegistration | None] = dict.fromkeys(GROUPS)
        for name in GROUPS:
            if given.has(name):
                item = Fields(given.any(name), f"config: {name}")
                first = item.any("first")
                handle = None if first is None else self._known_context(item.count("first"))
                groups[name] = GroupRegistration(handle, item.count("bytes"))
                item.done()
            given.any(name, None)
        return from_json(CreationConfig, given, **groups)


REQUESTS = (
    "create", "create_list", "free", "recover", "set_context", "apply", "set_graph", "execute", "execute_in_turn",
    "sleep", "abort", "register", "deregister", "memory", "log", "create_power_id", "vote", "destroy_power_id",
    "profile",
)  # fmt: skip
"""What a program can ask for; everything else is refused."""


def _sleeping(us: float) -> Waits:
    yield us


def _signal(given: Fields) -> DeviceSignal | None:
    """A signal with or without a time; None where the call has none."""
    if not given.has("signal_us"):
        given.any("signal_us", None)
        return None
    return DeviceSignal(given.number("signal_us") or None)


def _priority(given: Fields) -> Priority | None:
    if not given.has("priority"):
        given.any("priority", None)
        return None
    return Priority[given.text("priority", choices=tuple(Priority.__members__))]


def _result_to_json(done: ExecutionResult) -> Message:
    made: Message = to_json(replace(done, outputs={}), without=("outputs",))
    return made
