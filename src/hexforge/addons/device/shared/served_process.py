# SPDX-License-Identifier: Apache-2.0
"""ServedProcess: the calls of one program on a shared device: each request is one of QNN's calls in its process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

import numpy as np

from hexforge.addons.device.api import Qnn
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts import creation
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.addons.device.graph_time import MOST_STEPS
from hexforge.addons.device.memory import AddressRange, MemDescriptor, MemHandle
from hexforge.addons.device.power import PerfProfile, PowerConfig
from hexforge.addons.device.scheduling.clock import Pending, Waits
from hexforge.addons.device.shared.binaries import GROUPS, binary_from_json
from hexforge.addons.device.shared.messages import Message, to_json
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.formats.validated import Amount, ByName, Count, OneOf, Positive, Within, arguments, validated
from hexforge.options import did_you_mean

MOST_CALLS = 1000
"""That one program may have begun and not waited for."""
POWER_CONFIGS: dict[str, type[PowerConfig]] = {kind.__name__: kind for kind in get_args(PowerConfig)}
Answer = Callable[[Any], Any]
"""What of a call's result is sent."""


GivenPriority = Annotated[Priority, ByName()]


@dataclass(frozen=True, slots=True)
class _Member:
    """A context of a list."""

    binary: dict[str, Any]
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _NamedGraph:
    context: Count
    graph: str


@dataclass(frozen=True, slots=True)
class _SharedTensor:
    """A tensor in a buffer of the program, which has a number of its own for it."""

    buffer: Count
    bytes: Positive
    tensor: str
    offset: Count = 0


@dataclass(frozen=True, slots=True)
class _Vote:
    kind: Annotated[str, OneOf(tuple(POWER_CONFIGS))]
    fields: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Group:
    """The group of a context, by the number of its first one."""

    first: Count | None
    bytes: Count


class ServedProcess:
    """A process of the device, and the handles by whose numbers its program knows them."""

    def __init__(self, client: Client) -> None:
        self.client, self.qnn = client, Qnn(client)
        self._contexts: dict[int, DeviceContext] = {}
        self._calls: dict[int, tuple[Pending, Answer]] = {}
        self._signals: dict[int, DeviceSignal] = {}
        self._ever = 0

    def do(self, name: str, given: Message) -> Any:
        """Do what a request asks for; what comes later is a call with a number, and is waited for."""
        if name not in REQUESTS:
            raise CallError(
                f"request: do is {name!r}; it is one of {', '.join(REQUESTS)}{did_you_mean(name, REQUESTS)}"
            )
        step = getattr(self, f"_{name}")
        return step(**arguments(step, given, f"request {name}"))

    def waited_for(self, *, call: Count) -> tuple[Pending, Answer]:
        """The call that a program waits for: it is forgotten with its answer."""
        if call not in self._calls:
            raise CallError(f"there is no call {call}, or it was waited for before")
        self._signals.pop(call, None)
        return self._calls.pop(call)

    def _begun(self, call: Pending, answer: Answer, signal: DeviceSignal | None = None) -> Message:
        if len(self._calls) >= MOST_CALLS:
            raise CallError(f"{MOST_CALLS:,} calls were begun and not waited for; wait for one")
        self._ever += 1
        self._calls[self._ever] = call, answer
        if signal is not None:
            self._signals[self._ever] = signal
        return {"call": self._ever}

    # -- contexts -----------------------------------------------------------------------------------------------------

    def _create(self, *, binary: dict[str, Any], config: dict[str, Any], signal_us: Amount | None = None) -> Message:
        made, signal = binary_from_json(binary, self.client.device.soc, "binary"), _signal(signal_us)
        return self._begun(creation.create(self.client, made, self._config(config), signal), self._created, signal)

    def _create_list(self, *, members: list[_Member], shared: ListConfig) -> list[Message]:
        soc = self.client.device.soc
        listed = [
            (binary_from_json(row.binary, soc, f"members[{i}].binary"), self._config(row.config))
            for i, row in enumerate(members)
        ]
        tasks = creation.create_list(self.client, listed, shared, lambda notice: None)
        return [self._begun(task, self._created) for task in tasks]

    def _created(self, context: DeviceContext) -> Message:
        self._contexts[context.number] = context
        return {"context": context.number, "graphs": list(context.graphs)}

    def _free(self, *, context: Count) -> Message:
        known = self._context(context)

        def freed(_: Any) -> Message:
            self._contexts.pop(context, None)
            return {}

        return self._begun(self.client.start(creation.free(known)), freed)

    def _recover(self, *, context: Count) -> Message:
        return self._begun(self.client.start(creation.reload(self._context(context))), lambda _: {})

    def _set_context(
        self, *, context: Count, priority: GivenPriority | None = None, dsp_memory_profiling: bool | None = None
    ) -> Message:
        known = self._context(context)
        self.qnn.QnnContext_setConfig(known, priority=priority, dsp_memory_profiling=dsp_memory_profiling)
        return {}

    def _apply(self, *, context: Count, graph: str, adapter: str) -> Message:
        self.qnn.QnnContext_applyBinarySection(self._graph(context, graph), adapter)
        return {}

    def _set_graph(
        self,
        *,
        context: Count,
        graph: str,
        priority: GivenPriority | None = None,
        slc: bool | None = None,
        num_hvx_threads: Count | None = None,
    ) -> Message:
        known = self._graph(context, graph)
        self.qnn.QnnGraph_setConfig(known, priority=priority, slc=slc, num_hvx_threads=num_hvx_threads)
        return {}

    # -- executions ---------------------------------------------------------------------------------------------------

    def _execute(
        self,
        *,
        context: Count,
        graph: str,
        shared: tuple[Count, ...] = (),
        raw: bool = False,
        signal_us: Amount | None = None,
        batch: Annotated[int, Within(1, MOST_STEPS)] = 1,
        recover: bool = False,
    ) -> Message:
        known, feeds, signal = self._graph(context, graph), self._feeds(shared, raw), _signal(signal_us)
        task = self.qnn.QnnGraph_executeAsync(known, feeds, None, signal, batch=batch, recover=recover)
        return self._begun(task, _result_to_json, signal)

    def _execute_in_turn(
        self, *, graphs: list[_NamedGraph], shared: tuple[Count, ...] = (), raw: bool = False
    ) -> Message:
        known, feeds = [self._graph(row.context, row.graph) for row in graphs], self._feeds(shared, raw)
        task = self.qnn.execute_in_turn(known, feeds)
        return self._begun(task, lambda end: {"results": [_result_to_json(r) for r in end[0]], "took_us": end[1]})

    def _feeds(self, shared: tuple[int, ...], raw: bool) -> dict[str, Feed]:
        """Registered memory by its numbers; `raw`: other tensors are copied."""
        feeds: dict[str, Feed] = {f"handle {number}": self._handle(number) for number in shared}
        if raw:
            feeds["raw"] = np.empty(0, np.uint8)
        return feeds

    def _sleep(self, *, us: Amount) -> Message:
        return self._begun(self.client.start(_sleeping(us)), lambda _: {})

    def _abort(self, *, call: Count) -> Message:
        """End a call as its signal would; nothing where it has none, or is over."""
        if call in self._signals:
            self._signals[call].abort()
        return {}

    # -- memory -------------------------------------------------------------------------------------------------------

    def _register(self, *, context: Count, tensors: list[_SharedTensor]) -> list[int]:
        """Buffers by the program's own numbers for them: a buffer that has several tensors is mapped once."""
        buffers, made = dict[int, AddressRange](), []
        for row in tensors:
            buffer = buffers.get(row.buffer)
            if buffer is None:
                buffer = buffers[row.buffer] = AddressRange(row.bytes)
                buffer.fd = row.buffer
            made.append(MemDescriptor(buffer, row.tensor, (row.bytes,), "uint8", row.offset))
        return [handle.number for handle in self.qnn.QnnMem_register(self._context(context), made)]

    def _deregister(self, *, handles: list[Count]) -> Message:
        self.qnn.QnnMem_deRegister([self._handle(number) for number in handles])
        return {}

    def _memory(self) -> Message:
        return self.qnn.memory_facts()

    def _log(self, *, events: tuple[str, ...]) -> list[Any]:
        """Events of some kinds that name this process."""
        return self.qnn.events(*events)

    # -- power --------------------------------------------------------------------------------------------------------

    def _create_power_id(self, *, device_id: Count = 0, core_id: Count = 0) -> Message:
        return {"power_id": self.qnn.createPowerConfigId(device_id, core_id)}

    def _vote(self, *, power_id: Count, configs: list[_Vote]) -> Message:
        votes = [validated(POWER_CONFIGS[row.kind], row.fields, f"configs[{i}]") for i, row in enumerate(configs)]
        self.qnn.setPowerConfig(self._power_id(power_id), votes)
        return {}

    def _destroy_power_id(self, *, power_id: Count) -> Message:
        self.qnn.destroyPowerConfigId(self._power_id(power_id))
        return {}

    def _power_id(self, number: int) -> int:
        """A power config id of this process: those of others are not touched."""
        self.client.device.power.require_owner(number, self.client.name)
        return number

    def _profile(self, *, profile: PerfProfile | None, now: bool = False) -> Message:
        if profile is not None:
            profile.check()
        if now:
            self.qnn.vote_by(profile)
        else:
            self.qnn.use_profile(profile)
        return {}

    # -- handles ------------------------------------------------------------------------------------------------------

    def _context(self, number: int) -> DeviceContext:
        if number not in self._contexts:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"context {number} is none of {self.client.name}, or was freed"
            )
        return self._contexts[number]

    def _graph(self, context: int, name: str) -> DeviceGraph:
        known = self._context(context)
        if name not in known.graphs:
            self.qnn.QnnGraph_retrieve(known, name)  # which says what is wrong
        return known.graphs[name]

    def _handle(self, number: int) -> MemHandle:
        handle = self.client.memory.get(number)
        if handle is None:
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"memory {number}: is not registered")
        return handle

    def _config(self, data: Message) -> CreationConfig:
        group_row = _Group | None
        given = arguments(
            CreationConfig, data, "config",
            register_multi_contexts=group_row, register_concurrent_resource_sharing=group_row,
        )  # fmt: skip
        for name in GROUPS:
            if (group := given.get(name)) is not None:
                first = None if group.first is None else self._context(group.first)
                given[name] = GroupRegistration(first, group.bytes)
        return CreationConfig(**given)


REQUESTS = (
    "create", "create_list", "free", "recover", "set_context", "apply", "set_graph", "execute", "execute_in_turn",
    "sleep", "abort", "register", "deregister", "memory", "log", "create_power_id", "vote", "destroy_power_id",
    "profile",
)  # fmt: skip
"""What a program can ask for; everything else is refused."""


def _sleeping(us: float) -> Waits:
    yield us


def _signal(us: float | None) -> DeviceSignal | None:
    """A signal with or without a time; None where the call has none."""
    return None if us is None else DeviceSignal(us or None)


def _result_to_json(done: ExecutionResult) -> Message:
    made: Message = to_json(replace(done, outputs={}), without=("outputs",))
    return made
