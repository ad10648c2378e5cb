# SPDX-License-Identifier: Apache-2.0
"""DeviceContext and DeviceGraph: what a handle of QNN stands for here: memory, programs, priorities, state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from hexforge.backend import Backend, Program
from hexforge.backends.htp.time.concurrent import Priority
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.binary import Binary, GraphSpec
from hexforge.device.contexts.configs import CreationConfig, SharingType, thread_priorities
from hexforge.device.graph_time import GraphTime, SimulatedTime
from hexforge.device.memory import CdspSession, Need, SessionMemory
from hexforge.runtime.contexts.context import Context

if TYPE_CHECKING:
    from hexforge.device.client import Client
    from hexforge.device.contexts.callbacks import Provided
    from hexforge.device.contexts.groups import Group


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

    client: Client
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
    held: Provided | None = None
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

    def specs(self) -> tuple[GraphSpec, ...]:
        """The graphs that are enabled, in the order they were asked for."""
        wanted = self.config.enable_graphs
        return self.binary.graphs if wanted is None else tuple(self.binary.graph(name) for name in wanted)

    def needs(self, session: CdspSession | None) -> list[Need]:
        """What it needs in a session, that of its group included where the session does not have it yet."""
        specs, config = self.specs(), self.config
        needs: list[Need] = []
        if config.switching:
            needs.append(("shared weights", self.binary.shared_bytes))
            needs += self.client_buffers()
            needs += [need for spec in specs if spec.name in self.first() for need in self.graph_needs(spec)]
        else:
            needs.append(("weights", self.binary.shared_bytes + sum(s.weights_bytes for s in specs)))
            if self.group is None:
                needs += [("spill-fill", s.spill_fill_bytes) for s in specs]
        backup = max((s.vtcm_bytes for s in specs), default=0)
        if self.group is None:
            needs.append(("VTCM backup", backup))
        else:
            needs += self.group.needs(self, session)
        adapters = [s.adapter_bytes for s in specs]
        if any(adapters):  # one blob as large as the largest, or one for each graph
            needs.append(("LoRA weights", max(adapters) if config.lora_weight_sharing_enabled else sum(adapters)))
        return [(what, size) for what, size in needs if size]

    def client_buffers(self) -> list[Need]:
        """Buffers that the client shares with the backend for graphs that are switched."""
        found: list[Need] = []
        for what, given, most in (
            ("client spill-fill", self.config.spill_fill_buffer, max(s.spill_fill_bytes for s in self.specs())),
            ("client weights", self.config.weights_buffer, max(s.weights_bytes for s in self.specs())),
        ):
            if 0 < given < most:
                raise DeviceError(
                    Code.QNN_CONTEXT_ERROR_INVALID_CONFIG,
                    f"{self.binary.name}: a {what} buffer of {given:,} bytes is too small, a graph needs {most:,}; -1 "
                    "takes what QNN says",
                )
            if given:
                found.append((what, most if given == -1 else given))
        return found

    def graph_needs(self, spec: GraphSpec) -> list[Need]:
        """What a graph that is switched in needs."""
        weights = 0 if self.config.weights_buffer else spec.weights_bytes
        spill = 0 if self.config.spill_fill_buffer else spec.spill_fill_bytes
        return [(what, size) for what, size in (("weights", weights), ("spill-fill", spill)) if size]

    def first(self) -> tuple[str, ...]:
        """Graphs that are loaded at once where graphs are switched: the retained ones, or the first."""
        return self.config.graph_retention_order or (self.specs()[0].name,)

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
