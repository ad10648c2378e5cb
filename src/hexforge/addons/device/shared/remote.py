# SPDX-License-Identifier: Apache-2.0
"""SharedDevice: a device that another program serves, with the calls of one's own.

    device = connect()                       # the address in HEXFORGE_DEVICE, or this user's socket
    qnn = device.qnn("app")
    context = qnn.QnnContext_createFromBinary(Binary.of("model.bin", device.soc))

Memory, time, power and faults are the shared device's; numbers are computed here, where weights and tensors are.
"""

from __future__ import annotations

import contextlib
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
from hexforge.addons.device.contexts.binary import Binary, loaded_program, require_suits
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback
from hexforge.addons.device.contexts.configs import CreationConfig, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph, State
from hexforge.addons.device.contexts.loading import CreationNotice, Notify
from hexforge.addons.device.contexts.tensors import Feed, check_output, checked_feeds, compute_outputs
from hexforge.addons.device.memory import MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.power import PerfProfile, PowerConfig
from hexforge.addons.device.scheduling.clock import ClockTask, Pending
from hexforge.addons.device.shared.address import VARIABLE, DeviceAddress, default_address
from hexforge.addons.device.shared.binaries import binary_to_json, config_to_json
from hexforge.addons.device.shared.connection import DeviceConnection
from hexforge.addons.device.shared.messages import Message, to_json
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, HexforgeError
from hexforge.formats.validated import Count, arguments, validated

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


@dataclass(frozen=True, slots=True)
class _Welcome:
    """What a device says of itself."""

    soc: str
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
    """A call on a shared device; `SharedQnn.wait` waits for it."""

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
    """The calls of one process on a shared device."""

    def __init__(self, client: SharedClient) -> None:
        super().__init__(cast(Client, client))
        self._request = client.connection.request

    def wait(self, pending: Pending) -> Any:
        """Wait until a call is done."""
        assert isinstance(pending, SharedCall)
        return pending.wait()

    def sleep(self, us: float) -> None:
        """Let time of the device pass."""
        self._begin("sleep", lambda _: None, us=us).wait()

    def _begin(self, do: str, finish: Callable[[Any], Any], signal: DeviceSignal | None = None, *,
               creation: bool = False, **fields: Any) -> SharedCall:  # fmt: skip
        if signal is not None:
            fields["signal_us"] = signal.timeout_us or 0.0
        call = SharedCall(self._request(do, **fields)["call"], self._request, finish)
        if signal is not None:
            signal.follow(call, creation=creation)
        return call

    # -- contexts -----------------------------------------------------------------------------------------------------

    def QnnContext_createFromBinary(  # noqa: N802
        self, binary: Binary, config: CreationConfig | None = None
    ) -> DeviceContext:
        """A context, ready to run."""
        return self._create(binary, config, None)

    def QnnContext_createFromBinaryWithSignal(  # noqa: N802
        self, binary: Binary, signal: DeviceSignal, config: CreationConfig | None = None
    ) -> DeviceContext:
        """As createFromBinary, ended by an abort or a timeout."""
        return self._create(binary, config, signal)

    def QnnContext_createFromBinaryWithCallback(  # noqa: N802
        self, binary: Binary, callback: DmaBufferCallback, config: CreationConfig | None = None,
        signal: DeviceSignal | None = None,
    ) -> DeviceContext:  # fmt: skip
        """Not on a shared device: buffers of one program are not the other's."""
        raise DeviceError(
            Code.QNN_COMMON_ERROR_NOT_SUPPORTED, "a shared device takes no DMA buffers; use QnnContext_createFromBinary"
        )

    def _create(self, binary: Binary, config: CreationConfig | None, signal: DeviceSignal | None) -> DeviceContext:
        given = config or CreationConfig()
        sent = {"binary": binary_to_json(binary), "config": config_to_json(given)}
        call = self._begin("create", lambda made: self._made(binary, given, made), signal, creation=True, **sent)
        made: DeviceContext = call.wait()
        return made

    def QnnContext_createFromBinaryListAsync(  # noqa: N802
        self, members: Sequence[tuple[Binary, CreationConfig]], config: ListConfig, notify: Notify
    ) -> list[ClockTask]:
        """Begin to create several contexts and return; `notify` is told of each when it is waited for."""
        rows = [{"binary": binary_to_json(b), "config": config_to_json(c)} for b, c in members]
        begun = self._request("create_list", members=rows, shared=to_json(config))
        calls: list[Pending] = []
        for (binary, own), row in zip(members, begun, strict=True):

            def finish(made: Message, binary: Binary = binary, own: CreationConfig = own) -> DeviceContext:
                context = self._made(binary, own, made)
                for graph in context.graphs.values():
                    notify(CreationNotice(binary.name, context, graph))
                notify(CreationNotice(binary.name, context))
                return context

            calls.append(SharedCall(row["call"], self._request, finish))
        return cast("list[ClockTask]", calls)

    def _made(self, binary: Binary, config: CreationConfig, made: Message) -> DeviceContext:
        """The handle of a context on the device, with the programs that compute its numbers here."""
        context = DeviceContext(self.client, made["context"], binary, config, State.ALIVE)
        context.opened = binary.open()
        for name in made["graphs"]:
            priority = config.graph_priorities.get(name, config.priority)
            graph = context.graphs[name] = DeviceGraph(context, binary.graph(name), priority)
            if context.opened is not None:
                if context.backend is None:
                    soc = self.client.device.soc.name
                    context.backend = require_suits(context.opened, soc, config.binary_compatibility)
                graph.program = loaded_program(context.opened, name, context.backend)
        return context

    def QnnContext_setConfig(  # noqa: N802
        self, context: DeviceContext, *, priority: Priority | None = None, dsp_memory_profiling: bool | None = None
    ) -> None:
        """The priority of all graphs, and DSP heap profiling, from now on."""
        fields = _given(priority=priority and priority.name, dsp_memory_profiling=dsp_memory_profiling)
        self._request("set_context", context=self._own_context(context).number, **fields)

    def QnnContext_applyBinarySection(self, graph: DeviceGraph, adapter: str) -> None:  # noqa: N802
        """Apply an adapter to a graph: its numbers here, its memory there."""
        context = self._own_graph(graph).context
        if context.opened is not None:
            try:
                context.opened.apply(adapter, [graph.name])
            except HexforgeError as error:
                raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"{graph.label}: {error}") from None
        self._request("apply", **_named(graph), adapter=str(adapter))
        graph.adapter = adapter

    def QnnContext_free(self, context: DeviceContext) -> None:  # noqa: N802
        """Give back all that a context has."""
        self._begin("free", lambda _: None, context=self._own_context(context).number).wait()
        context.state, context.opened = State.FREED, None
        for graph in context.graphs.values():
            graph.program = None

    def recover(self, context: DeviceContext) -> DeviceContext:
        """Load a context again that was lost in a crash; its handles stay good."""
        self._begin("recover", lambda _: None, context=self._own_context(context).number).wait()
        return context

    # -- graphs -------------------------------------------------------------------------------------------------------

    def QnnGraph_setConfig(  # noqa: N802
        self,
        graph: DeviceGraph,
        *,
        priority: Priority | None = None,
        slc: bool | None = None,
        num_hvx_threads: int | None = None,
    ) -> None:
        """Priority and use of the system level cache from now on; HVX threads until the graph first runs."""
        fields = _given(priority=priority and priority.name, slc=slc, num_hvx_threads=num_hvx_threads)
        self._request("set_graph", **_named(self._own_graph(graph)), **fields)
        graph.priority = priority or graph.priority
        if slc is not None:
            graph.set_slc(slc)
        if num_hvx_threads is not None:
            graph.set_hvx_threads(num_hvx_threads)

    def QnnGraph_execute(  # noqa: N802
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None = None,
        outputs: Mapping[str, MemHandle] | None = None, signal: DeviceSignal | None = None, *, batch: int = 1,
        recover: bool = False,
    ) -> ExecutionResult:  # fmt: skip
        """Outputs for inputs, computed here; the time is the device's."""
        made: ExecutionResult = self._execute(graph, inputs, outputs, signal, batch, recover).wait()
        return made

    def QnnGraph_executeAsync(  # noqa: N802
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None = None,
        outputs: Mapping[str, MemHandle] | None = None, signal: DeviceSignal | None = None, *, batch: int = 1,
        recover: bool = False,
    ) -> ClockTask:  # fmt: skip
        """Begin to execute and return."""
        return cast(ClockTask, self._execute(graph, inputs, outputs, signal, batch, recover))

    def _execute(
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None, outputs: Mapping[str, MemHandle] | None,
        signal: DeviceSignal | None, batch: int, recover: bool,
    ) -> SharedCall:  # fmt: skip
        given, targets = dict(inputs or {}), dict(outputs or {})
        feeds, multiple = checked_feeds(self._own_graph(graph), given, batch)
        for name, handle in targets.items():
            check_output(graph, name, handle, multiple)

        def finish(row: Message) -> ExecutionResult:
            results = compute_outputs(graph, feeds, multiple, targets)
            graph.executions += 1
            return _result(row, results)

        raw = len(targets) < len(graph.spec.outputs)
        return self._begin(
            "execute", finish, signal, **_named(graph), **_feeds(given, targets, raw), batch=multiple, recover=recover
        )

    def execute_in_turn(self, graphs: Sequence[DeviceGraph], inputs: Mapping[str, Feed] | None = None) -> Pending:
        """Begin to execute graphs one after the other, contexts loaded again where they are lost."""
        rows = [_named(self._own_graph(graph)) for graph in graphs]

        def finish(row: Message) -> tuple[list[ExecutionResult], float]:
            return [_result(done, {}) for done in row["results"]], row["took_us"]

        return self._begin("execute_in_turn", finish, graphs=rows, **_feeds(inputs or {}, {}, False))

    # -- memory -------------------------------------------------------------------------------------------------------

    def QnnMem_register(  # noqa: N802
        self, context: DeviceContext, descriptors: Sequence[MemDescriptor]
    ) -> list[MemHandle]:
        """Tensors of a context in shared buffers, one or many in one: the memory is here, its addresses there."""
        rows = []
        for d in descriptors:
            if not isinstance(d.buffer, SharedBuffer):
                kind = type(d.buffer).__name__
                raise DeviceError(Code.QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE, f"{d.tensor!r} lies in a {kind}")
            d.buffer.array(d.shape, d.dtype, d.offset)
            rows.append({"buffer": d.buffer.fd, "bytes": d.buffer.size, "tensor": d.tensor, "offset": d.offset})
        numbers = self._request("register", context=self._own_context(context).number, tensors=rows)
        return [MemHandle(number, context, d) for number, d in zip(numbers, descriptors, strict=True)]

    def QnnMem_deRegister(self, handles: Sequence[MemHandle]) -> None:  # noqa: N802
        """Forget registered tensors."""
        self._request("deregister", handles=[handle.number for handle in handles])
        for handle in handles:
            handle.live = False

    def memory_facts(self) -> dict[str, Any]:
        """What the process has in use on the device, for what, and the most that all processes had."""
        made: Message = self._request("memory")
        return made

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Events of the device's log that name this process."""
        made: list[Message] = self._request("log", events=list(kinds))
        return made

    # -- power --------------------------------------------------------------------------------------------------------

    def createPowerConfigId(self, deviceId: int = 0, coreId: int = 0) -> int:  # noqa: N802, N803
        """An id to vote with."""
        return int(self._request("create_power_id", device_id=deviceId, core_id=coreId)["power_id"])

    def setPowerConfig(self, powerConfigId: int, configs: Sequence[PowerConfig]) -> None:  # noqa: N802, N803
        """Vote: DCVS, HMX, RPC latency and polling."""
        rows = [{"kind": type(config).__name__, "fields": to_json(config)} for config in configs]
        self._request("vote", power_id=powerConfigId, configs=rows)

    def destroyPowerConfigId(self, powerConfigId: int) -> None:  # noqa: N802, N803
        """Remove all votes of an id."""
        self._request("destroy_power_id", power_id=powerConfigId)

    def _use(self, profile: PerfProfile | None) -> None:
        self._request("profile", profile=to_json(profile), now=False)

    def vote_by(self, profile: PerfProfile | None) -> None:
        """Have stages vote by a profile from now on, and vote for it at once where it is voted for outside of them."""
        self._request("profile", profile=to_json(profile), now=True)


def _named(graph: DeviceGraph) -> Message:
    return {"context": graph.context.number, "graph": graph.name}


def _given(**fields: Any) -> Message:
    return {name: value for name, value in fields.items() if value is not None}


def _feeds(inputs: Mapping[str, Feed], outputs: Mapping[str, MemHandle], raw: bool) -> Message:
    handles = [feed.number for feed in (*inputs.values(), *outputs.values()) if isinstance(feed, MemHandle)]
    return {"shared": handles, "raw": raw or any(not isinstance(feed, MemHandle) for feed in inputs.values())}


def _result(row: Message, outputs: Mapping[str, Any]) -> ExecutionResult:
    given = arguments(ExecutionResult, row, "result of the shared device", without=("outputs",))
    return ExecutionResult(outputs, **given)
