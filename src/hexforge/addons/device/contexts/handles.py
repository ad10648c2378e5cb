# SPDX-License-Identifier: Apache-2.0
"""Process, DeviceContext and DeviceGraph: what a handle of QNN stands for here: memory, programs, priorities, state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from hexforge.addons.device.chip import Chip
from hexforge.addons.device.codes import Code, DeviceError, ProcessEndedError
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.callbacks import ProvidedBuffers
from hexforge.addons.device.contexts.configs import RESTRICTED, CreationConfig, SharingType, thread_priorities
from hexforge.addons.device.contexts.groups import Group
from hexforge.addons.device.graph_time import GraphTime, SimulatedTime
from hexforge.addons.device.memory import CdspSession, Mappings, MemHandle, SessionMemory
from hexforge.addons.device.scheduling.clock import ClockTask, Pending, Waits
from hexforge.addons.device.votes import ProfileVotes
from hexforge.backend import Backend, Program
from hexforge.chips.priority import Priority
from hexforge.errors import HexforgeError
from hexforge.runtime.contexts.context import Context


class State(StrEnum):
    """What can be done with a context."""

    CREATING = "creating"
    ALIVE = "alive"
    LOST = "lost"
    """Its session crashed; it can be loaded again where it is not embedded."""
    FREED = "freed"


@dataclass(slots=True, eq=False)
class DeviceGraph:
    """A graph of a context."""

    context: DeviceContext
    spec: GraphSpec
    priority: Priority
    program: Program | None = None
    """Where it is loaded and the binary exists."""
    executions: int = 0
    executing: int = 0
    _time: GraphTime | None = None
    """Its time where options were changed since it was prepared."""
    adapter: str = ""
    """The adapter it runs with."""

    @property
    def name(self) -> str:
        """As its context calls it."""
        return self.spec.name

    @property
    def label(self) -> str:
        """As the log calls it."""
        return f"{self.context.label}/{self.spec.name}"

    @property
    def time(self) -> GraphTime:
        """How long it takes, with the options it has now."""
        return self.spec.time if self._time is None else self._time

    def adapt(self, adapter: str) -> None:
        """Compute with an adapter from now on, where the binary exists."""
        if self.context.opened is not None:
            try:
                self.context.opened.apply(adapter, [self.name])
            except HexforgeError as error:
                raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"{self.label}: {error}") from None

    def set_options(self, slc: bool | None, num_hvx_threads: int | None) -> None:
        """Whether it uses the system level cache, and how many HVX threads run it, where one is given."""
        if slc is not None:
            self.set_slc(slc)
        if num_hvx_threads is not None:
            self.set_hvx_threads(num_hvx_threads)

    def set_slc(self, on: bool) -> None:
        """Force the system level cache off, or let it be used again; only where the graph was prepared for it."""
        prepared = self.spec.time
        if not isinstance(prepared, SimulatedTime) or not prepared.config.slc_alloc_enable:
            raise DeviceError(
                Code.QNN_GRAPH_ERROR_UNSUPPORTED_FEATURE,
                f"{self.label}: was not prepared with slc_alloc_enable, so there is nothing to turn off or on",
            )
        now = self.time
        assert isinstance(now, SimulatedTime)
        self._time = prepared.under(replace(now.config, slc_alloc_enable=on))

    def set_hvx_threads(self, count: int) -> None:
        """How many HVX threads run it; only until it first runs."""
        now = self.time
        most = self.context.client.device.soc.hvx_threads
        if self.executions or self.executing:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED,
                f"{self.label}: the number of threads cannot be changed after the first execution",
            )
        if not 1 <= count <= most:
            raise DeviceError(
                Code.QNN_GRAPH_ERROR_INVALID_ARGUMENT, f"{self.label}: {count} HVX threads; the chip has 1 to {most}"
            )
        if isinstance(now, SimulatedTime):
            self._time = now.under(replace(now.config, num_hvx_threads=count))

    @property
    def hmx_thread(self) -> int:
        """Priority of its HMX threads."""
        return thread_priorities(self.priority)[0]

    @property
    def hvx_thread(self) -> int:
        """Priority of its HVX threads."""
        return thread_priorities(self.priority)[1]


@dataclass(slots=True, eq=False)
class DeviceContext:
    """A context on the device."""

    client: Process
    number: int
    binary: Binary
    config: CreationConfig
    state: State = State.CREATING
    session: CdspSession | None = None
    allocations: list[SessionMemory] = field(default_factory=list)
    """Of the whole context, until it is freed."""
    loads: dict[str, list[SessionMemory]] = field(default_factory=dict)
    """Of each graph that is loaded, where graphs are switched."""
    graphs: dict[str, DeviceGraph] = field(default_factory=dict)
    group: Group | None = None
    opened: Context | None = None
    backend: Backend | None = None
    io_mapped: bool = False
    reserved: SessionMemory | None = None
    """Addresses kept for its inputs and outputs (VA optimization)."""
    held: ProvidedBuffers | None = None
    """A client's buffers with its weights."""
    graphs_before: dict[str, DeviceGraph] = field(default_factory=dict)
    """Its graphs as they were when its session crashed."""
    blob: str = ""
    """The graph whose adapter lies in the one blob for adapters."""
    switches: int = 0
    """Graphs that were loaded since it was created."""

    @property
    def label(self) -> str:
        """As the log calls it."""
        return f"{self.binary.name}#{self.number}"

    @property
    def loaded(self) -> tuple[str, ...]:
        """Graphs that are loaded, where graphs are switched; else all."""
        return tuple(self.loads) if self.config.switching else tuple(self.graphs)

    @property
    def sharing(self) -> SharingType | None:
        """How it shares resources with the others of its list."""
        return None if self.group is None else self.group.sharing

    @property
    def runs(self) -> bool:
        """Whether a graph of it is being executed."""
        return any(graph.executing for graph in self.graphs.values())

    def specs(self) -> tuple[GraphSpec, ...]:
        """The graphs that are enabled, in the order they were asked for."""
        wanted = self.config.enable_graphs
        return self.binary.graphs if wanted is None else tuple(self.binary.graph(name) for name in wanted)

    def retrieve(self, name: str) -> DeviceGraph:
        """A graph by its name."""
        self.require_alive()
        if name not in self.graphs:
            self.binary.graph(name)
            raise DeviceError(Code.QNN_GRAPH_ERROR_DISABLED, f"{self.label}: graph {name!r} is not enabled")
        return self.graphs[name]

    def require_alive(self) -> None:
        """DeviceError where nothing can be done with it any more."""
        if self.state is State.LOST:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION,
                f"{self.label}: its session crashed; "
                + ("it is embedded: create the session again" if self.binary.embedded else "load it again"),
            )
        if self.state is not State.ALIVE:
            raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"{self.label}: is {self.state}")


class Process:
    """What one process has on a device."""

    def __init__(self, device: Chip, name: str, *, signed: bool = False, privileged: bool = False) -> None:
        self.device, self.name, self.signed, self.privileged = device, name, signed, privileged
        self.sessions: list[CdspSession] = []
        self.contexts: dict[int, DeviceContext] = {}
        self.creating: dict[int, ClockTask] = {}
        self.tasks: dict[ClockTask, None] = {}
        """What it has begun and is not over, in order."""
        self.ended = False
        self.reserved_vtcm_bytes = 0
        """VTCM that it took for others than graphs."""
        self.memory: dict[int, MemHandle] = {}
        self.mappings = Mappings()
        self.votes = ProfileVotes(name, device.power, len(device.cores.cores), device.clock, device.log)
        self.libraries: set[str] = set()
        """Paths that the backend library was loaded from."""

    def start(self, waits: Waits) -> ClockTask:
        """Start a task of the process, which ends with it."""
        self.require_running()
        task = self.device.clock.start(waits)
        if not task.done:
            self.tasks[task] = None
            task.then(self._forget_task)
        return task

    def _forget_task(self, task: Pending) -> None:
        self.tasks.pop(task, None)  # type: ignore[call-overload]

    def require_running(self) -> None:
        """ProcessEndedError where it is over."""
        if self.ended:
            raise ProcessEndedError(f"{self.name}: the process has ended; make another one")

    @property
    def heap_bytes(self) -> int:
        """What its sessions have in use."""
        return sum(session.used_bytes for session in self.sessions)

    def new_context(self, binary: Binary, config: CreationConfig) -> DeviceContext:
        """A context that is about to be created; how its graphs share adapters the binary says, too."""
        self.require_running()
        if binary.lora_weight_sharing:
            config = replace(config, lora_weight_sharing_enabled=True)
        context = DeviceContext(self, self.device.next_number(), binary, config)
        self.contexts[context.number] = context
        return context

    def open_session(self) -> CdspSession:
        """One more session; DeviceError where its domain is to be signed and the device has no signed image."""
        if self.signed and not self.device.signed_image:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_LOADING_BINARIES,
                f"{self.name}: a signed process domain needs a signed DSP image on the device (signed_image); push "
                "one, or use the unsigned domain",
            )
        taken = {session.index for session in self.sessions}
        index = next(n for n in range(len(taken) + 1) if n not in taken)
        session = self.device.memory.open(self.name, index, self.signed)
        self.sessions.append(session)
        self.sessions.sort(key=lambda s: s.index)
        return session

    def require_priority(self, *priorities: Priority) -> None:
        """DeviceError for a priority that is not for everybody."""
        for priority in priorities:
            if not isinstance(priority, Priority):
                raise DeviceError(
                    Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"priority {priority!r}: give one of Priority's, as HIGH"
                )
            if priority in RESTRICTED and not self.privileged:
                raise DeviceError(
                    Code.QNN_COMMON_ERROR_OPERATION_NOT_PERMITTED,
                    f"priority {priority.name} is restricted; {self.name} is not privileged, use NORMAL or LOW",
                )

    def set_priority(self, target: DeviceContext | DeviceGraph, priority: Priority) -> None:
        """Of one graph, or of all graphs of a context, from now on."""
        self.require_priority(priority)
        context = target if isinstance(target, DeviceContext) else target.context
        context.require_alive()
        if context.group is not None and context.group.concurrent:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE,
                f"{context.label}: priorities of a concurrent group cannot be changed",
            )
        for graph in context.graphs.values() if isinstance(target, DeviceContext) else [target]:
            graph.priority = priority
            self.device.log.write(
                "priority", graph=graph.label, priority=priority.name, hmx_thread=graph.hmx_thread,
                hvx_thread=graph.hvx_thread,
            )  # fmt: skip

    def apply_adapter(self, graph: DeviceGraph, adapter: str) -> None:
        """QnnContext_applyBinarySection: put an adapter (a file, or a name where there are only figures) on a graph."""
        context = graph.context
        context.require_alive()
        graph.adapt(adapter)
        graph.adapter = adapter
        context.blob = graph.name
        self.device.log.write("adapter", graph=graph.label, adapter=str(adapter))
