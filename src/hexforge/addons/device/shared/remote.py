# SPDX-License-Identifier: Apache-2.0
"""SharedDevice: a device that another program serves, with the calls of one's own.

    device = connect()                       # the address in HEXFORGE_DEVICE, or this user's socket
    qnn = device.qnn("app")
    context = qnn.QnnContext_createFromBinary(Binary.of("model.bin", device.soc))

Memory, time, power and faults are the shared device's; numbers are computed here, where weights and tensors are.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import secrets
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hexforge.addons.device.api import Qnn
from hexforge.addons.device.chip import ChipFacts
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import Binary, require_suits
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback
from hexforge.addons.device.contexts.configs import CreationConfig, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph, State
from hexforge.addons.device.contexts.loading import CreationNotice, Notify, make_program
from hexforge.addons.device.contexts.tensors import (
    Feed,
    check_output,
    checked_feeds,
    compute_outputs,
    require_shared_buffers,
)
from hexforge.addons.device.memory import MemDescriptor, MemHandle
from hexforge.addons.device.power import PerfProfile, PowerConfig
from hexforge.addons.device.scheduling.clock import ClockTask, Pending
from hexforge.addons.device.shared.address import VARIABLE, DeviceAddress, default_address
from hexforge.addons.device.shared.connection import DeviceConnection
from hexforge.addons.device.shared.messages import Message
from hexforge.addons.device.shared.request_fields import write_request
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client, Device
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.validated import Count, arguments, validated
from hexforge.qnn_api.calls import messages

_PROGRAM = secrets.token_hex(8)
"""By which a device knows that several processes are of this program."""


def connect(address: str = "") -> SharedDevice:
    """The device that is served at an address; without one at HEXFORGE_DEVICE's, else at this user's own socket."""
    return SharedDevice(DeviceAddress.parse(address) if address else default_address())


def device_of_environment(soc: str, cores: int = 1) -> SharedDevice | None:
    """The device that HEXFORGE_DEVICE names, where it does; CallError where that has another chip or fewer cores."""
    given = os.environ.get(VARIABLE, "")
    if not given:
        return None
    device = connect(given)
    if device.soc is not require_chip(soc):
        raise CallError(f"{VARIABLE}: the shared device is {device.soc.name}, and {soc} is asked for; serve that one")
    if device.cores < cores:
        raise CallError(f"{VARIABLE}: the shared device has {device.cores} cores in use, and {cores} are asked for")
    return device


def qnn_for(
    soc: str, name: str, *, cores: int = 1, signed: bool = False, own: Callable[[], Device] | None = None
) -> Qnn:
    """The calls of a new process on the device that HEXFORGE_DEVICE names, else on one of this program (`own`).

    Whoever asks for a signed process domain has pushed a signed image to a device of this program.
    """
    shared = device_of_environment(soc, cores)
    if shared is not None:
        return shared.qnn(f"{name} {os.getpid()}", signed=signed, privileged=True)
    device = Device(soc, cores=cores) if own is None else own()
    device.signed_image |= signed
    return Qnn(device.process(name, signed=signed, privileged=True))


@dataclass(frozen=True, slots=True)
class _Welcome:
    """What a device says of itself."""

    soc: str
    soc_model: Count
    cores: Count
    platform: str
    ram_bytes: Count
    signed_image: bool
    version: int


class SharedDevice:
    """A device that is served; every process on it has a connection of its own."""

    def __init__(self, address: DeviceAddress) -> None:
        self.address = address
        self._numbers = itertools.count(1)
        welcome = validated(_Welcome, self._asked(), "the shared device")
        self.soc = require_chip(welcome.soc)
        self.cores = welcome.cores
        self.facts = ChipFacts(self.soc.name, self.soc.htp_arch, welcome.platform)
        self.user_driver = False

    def qnn(self, name: str = "app", *, signed: bool = False, privileged: bool = False) -> SharedQnn:
        """The calls of a new process on the device."""
        return SharedQnn(SharedClient(self, name, signed=signed, privileged=privileged))

    def next_number(self) -> int:
        """A number that nothing else of this program has."""
        return next(self._numbers)

    def status(self) -> Message:
        """Who is on the device, its memory, cores, queue, votes and faults."""
        made: Message = self._asked("status")
        return made

    def restart(self) -> None:
        """The subsystem crashes and restarts (SSR), for all programs."""
        self._asked("fault", kind="ssr")

    def fault(self, kind: str, process: str = "", session: int = 0) -> None:
        """`ssr`; `pd`: a session of a process crashes; `kill`: a process ends as if its program had been killed."""
        self._asked("fault", kind=kind, process=process, session=session)

    def stop(self) -> None:
        """End the service."""
        self._asked("stop")

    def _asked(self, do: str = "", **fields: Any) -> Any:
        connection = DeviceConnection(self.address, "control")
        try:
            return connection.request(do, **fields) if do else connection.welcome
        finally:
            connection.close()


class SharedClient:
    """A process of this program on a shared device."""

    def __init__(self, device: SharedDevice, name: str, *, signed: bool, privileged: bool) -> None:
        self.device, self.name = device, name
        about = {"name": name, "signed": signed, "privileged": privileged}
        about |= {"program": f"{os.getpid()} {_PROGRAM}", "pid": os.getpid()}
        self.connection = DeviceConnection(device.address, "process", **about)
        self.libraries: set[str] = set()
        self.close: Callable[[], None] = weakref.finalize(self, _close, self.connection)
        """The process ends."""

    @property
    def heap_bytes(self) -> int:
        """What it has in use on the device."""
        return int(self.connection.request("memory")["bytes"])


def _close(connection: DeviceConnection) -> None:
    with contextlib.suppress(HexforgeError):  # the device is gone, or has ended the process
        connection.request("close")
    connection.close()


class SharedCall(Pending):
    """A call that was begun on a shared device."""

    __slots__ = ("_finish", "_request", "number")

    def __init__(self, number: int, request: Callable[..., Any], finish: Callable[[Any], Any]) -> None:
        super().__init__()
        self.number, self._request, self._finish = number, request, finish

    def interrupt(self, error: BaseException) -> None:
        """End it as its signal would."""
        if not self.done:
            self._request("abort", call=self.number)

    def wait(self) -> Any:
        """Wait until the device has done it."""
        if not self.done:
            try:
                self.resolve(self._finish(self._request("wait", call=self.number)))
            except HexforgeError as error:
                self.fail(error)
        return self.result()


class SharedQnn(Qnn):
    """The calls of one process on a shared device: a request for each, and what only this program can do of it."""

    def __init__(self, client: SharedClient) -> None:
        super().__init__(cast(Client, client))
        self._request = client.connection.request

    def wait(self, pending: Pending) -> Any:
        """Wait until a call is done."""
        assert isinstance(pending, SharedCall)
        return pending.wait()

    def _ask(self, message: str, **given: Any) -> Any:
        return self._request(message, **write_request(messages()[message], given))

    def _begin(self, message: str, finish: Callable[[Any], Any] = lambda _: None, **given: Any) -> SharedCall:
        call = SharedCall(self._ask(message, **given)["call"], self._request, finish)
        if (signal := given.get("signal")) is not None:
            signal.follow(call, creation=message == "create")
        return call

    def sleep(self, us: float) -> None:
        """Let time of the device pass."""
        self._begin("sleep", us=us).wait()

    # -- contexts -----------------------------------------------------------------------------------------------------

    def check_config(self, config: CreationConfig) -> None:
        """Refuse what a context cannot be created with."""
        self._ask("check_config", config=config)

    def _create(
        self, binary: Binary, config: CreationConfig | None, signal: DeviceSignal | None = None,
        callback: DmaBufferCallback | None = None,
    ) -> DeviceContext:  # fmt: skip
        if callback is not None:  # buffers of one program are not the other's
            raise DeviceError(
                Code.QNN_COMMON_ERROR_NOT_SUPPORTED,
                "a shared device takes no DMA buffers; use QnnContext_createFromBinary",
            )
        given = config or CreationConfig()
        call = self._begin(
            "create", lambda made: self._made(binary, given, made), binary=binary, config=given, signal=signal
        )
        made: DeviceContext = call.wait()
        return made

    def QnnContext_createFromBinaryListAsync(  # noqa: N802
        self, members: Sequence[tuple[Binary, CreationConfig]], config: ListConfig, notify: Notify = lambda notice: None
    ) -> list[ClockTask]:
        """Begin to create several contexts and return; `notify` is told of each when it is waited for."""

        def finish(binary: Binary, own: CreationConfig, made: Message) -> DeviceContext:
            context = self._made(binary, own, made)
            for graph in context.graphs.values():
                notify(CreationNotice(binary.name, context, graph))
            notify(CreationNotice(binary.name, context))
            return context

        begun = self._ask("create_list", members=members, config=config)
        calls = [
            SharedCall(row["call"], self._request, functools.partial(finish, binary, own))
            for (binary, own), row in zip(members, begun, strict=True)
        ]
        return cast("list[ClockTask]", calls)

    def _made(self, binary: Binary, config: CreationConfig, made: Message) -> DeviceContext:
        """The handle of a context on the device, with the programs that compute its numbers here."""
        context = DeviceContext(self.client, made["context"], binary, config, State.ALIVE)
        context.opened = binary.open()
        if context.opened is not None:
            soc = self.client.device.soc.name
            context.backend = require_suits(context.opened, soc, config.binary_compatibility)
        for name in made["graphs"]:
            priority = config.graph_priorities.get(name, config.priority)
            graph = context.graphs[name] = DeviceGraph(context, binary.graph(name), priority)
            make_program(graph)
        return context

    def QnnContext_applyBinarySection(self, graph: DeviceGraph, adapter: str) -> None:  # noqa: N802
        """Apply an adapter to a graph: its numbers here, its memory there."""
        self._own_graph(graph).adapt(adapter)
        self._ask("apply", graph=graph, adapter=str(adapter))
        graph.adapter = adapter

    def QnnContext_free(self, context: DeviceContext) -> None:  # noqa: N802
        """Give back all that a context has, there and here."""
        self._begin("free", context=self._own_context(context)).wait()
        context.state, context.opened = State.FREED, None
        for graph in context.graphs.values():
            graph.program = None

    def recover(self, context: DeviceContext) -> DeviceContext:
        """Load a context again that was lost in a crash; its handles stay good."""
        self._begin("recover", context=self._own_context(context)).wait()
        return context

    def _set_context(
        self, context: DeviceContext, priority: Priority | None, dsp_memory_profiling: bool | None
    ) -> None:
        self._ask("set_context", context=context, priority=priority, dsp_memory_profiling=dsp_memory_profiling)

    # -- graphs -------------------------------------------------------------------------------------------------------

    def _set_graph(
        self, graph: DeviceGraph, priority: Priority | None, slc: bool | None, num_hvx_threads: int | None
    ) -> None:
        self._ask("set_graph", graph=graph, priority=priority, slc=slc, num_hvx_threads=num_hvx_threads)
        graph.priority = priority or graph.priority
        graph.set_options(slc, num_hvx_threads)

    def QnnGraph_executeAsync(  # noqa: N802
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None = None,
        outputs: Mapping[str, MemHandle] | None = None, signal: DeviceSignal | None = None, *, batch: int = 1,
        recover: bool = False,
    ) -> ClockTask:  # fmt: skip
        """Begin to execute and return: outputs are computed here, the time is the device's."""
        given, targets = dict(inputs or {}), dict(outputs or {})
        feeds, multiple = checked_feeds(self._own_graph(graph), given, batch)
        for name, handle in targets.items():
            check_output(graph, name, handle, multiple)

        def finish(row: Message) -> ExecutionResult:
            results = compute_outputs(graph, feeds, multiple, targets)
            graph.executions += 1
            return _result(row, results)

        copied = [None] * (len(graph.spec.outputs) - len(targets))
        tensors = [*given.values(), *targets.values(), *copied]
        call = self._begin(
            "execute", finish, graph=graph, inputs=tensors, signal=signal, batch=multiple, recover=recover
        )
        return cast(ClockTask, call)

    def execute_in_turn(self, graphs: Sequence[DeviceGraph], inputs: Mapping[str, Feed] | None = None) -> Pending:
        """Begin to execute graphs one after the other; their outputs are not computed."""

        def finish(row: Message) -> tuple[list[ExecutionResult], float]:
            return [_result(done, {}) for done in row["results"]], row["took_us"]

        known = [self._own_graph(graph) for graph in graphs]
        return self._begin("execute_in_turn", finish, graphs=known, inputs=[*(inputs or {}).values()])

    # -- memory, power and what there is to know ----------------------------------------------------------------------

    def QnnMem_register(  # noqa: N802
        self, context: DeviceContext, descriptors: Sequence[MemDescriptor]
    ) -> list[MemHandle]:
        """Tensors of a context in shared buffers: the memory is here, its addresses there."""
        require_shared_buffers(self._own_context(context), descriptors)
        numbers = self._ask("register", context=context, descriptors=descriptors)
        return [MemHandle(number, context, d) for number, d in zip(numbers, descriptors, strict=True)]

    def QnnMem_deRegister(self, handles: Sequence[MemHandle]) -> None:  # noqa: N802
        """Forget registered tensors."""
        self._ask("deregister", handles=handles)
        for handle in handles:
            handle.live = False

    def createPowerConfigId(self, deviceId: int = 0, coreId: int = 0) -> int:  # noqa: N802, N803
        """An id to vote with."""
        return int(self._ask("create_power_id", deviceId=deviceId, coreId=coreId)["power_id"])

    def setPowerConfig(self, powerConfigId: int, configs: Sequence[PowerConfig]) -> None:  # noqa: N802, N803
        """Vote: DCVS, HMX, RPC latency and polling."""
        self._ask("vote", powerConfigId=powerConfigId, configs=configs)

    def destroyPowerConfigId(self, powerConfigId: int) -> None:  # noqa: N802, N803
        """Remove all votes of an id."""
        self._ask("destroy_power_id", powerConfigId=powerConfigId)

    def _use(self, profile: PerfProfile | None, now: bool) -> None:
        self._ask("profile", profile=profile, now=now)

    def memory_facts(self) -> dict[str, Any]:
        """What the process has in use on the device, for what, and the most that all processes had."""
        made: Message = self._ask("memory")
        return made

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Events of the device's log that name this process."""
        made: list[Message] = self._ask("log", kinds=kinds)
        return made


def _result(row: Message, outputs: Mapping[str, Any]) -> ExecutionResult:
    given = arguments(ExecutionResult, row, "result of the shared device", without=("outputs",))
    return ExecutionResult(outputs, **given)
