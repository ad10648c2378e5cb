# SPDX-License-Identifier: Apache-2.0
"""Client: a process that uses the device: its sessions, contexts, registered memory and performance profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hexforge.backends.htp.chip.power import VOTE_US
from hexforge.backends.htp.time.concurrent import Priority
from hexforge.device.buffers import Mappings, MemDescriptor, MemHandle, SharedBuffer
from hexforge.device.clock import ClockTask, Timer, Waits
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.binary import Binary
from hexforge.device.contexts.configs import RESTRICTED, CreationConfig
from hexforge.device.contexts.creation import release
from hexforge.device.contexts.handles import DeviceContext, DeviceGraph, State
from hexforge.device.memory import CdspSession
from hexforge.device.power.profiles import KEPT, RELAXED, STATES, TIMER, PerfProfile
from hexforge.errors import HexforgeError

if TYPE_CHECKING:
    from hexforge.device.simulated_device import Device


class Client:
    """One process of applications on the host."""

    def __init__(self, device: Device, name: str, *, signed: bool = False, privileged: bool = False) -> None:
        self.device, self.name, self.signed, self.privileged = device, name, signed, privileged
        self.sessions: list[CdspSession] = []
        self.contexts: dict[int, DeviceContext] = {}
        self.creating: dict[int, ClockTask] = {}
        self.memory: dict[int, MemHandle] = {}
        self.mappings = Mappings()
        self.profile: PerfProfile | None = None
        self.libraries: set[str] = set()
        """Paths that the backend library was loaded from."""
        self._power_ids: list[int] = []
        """One for each core, once a profile is voted for."""
        self._voted: PerfProfile | None = None
        self._timer: Timer | None = None
        self._busy = 0

    # -- sessions and contexts ----------------------------------------------------------------------------------------

    @property
    def heap_bytes(self) -> int:
        """What its sessions have in use."""
        return sum(session.used_bytes for session in self.sessions)

    def new_context(self, binary: Binary, config: CreationConfig) -> DeviceContext:
        """A context that is about to be created; how its graphs share adapters the binary says, too."""
        if binary.lora_weight_sharing:
            config = replace(config, lora_weight_sharing_enabled=True)
        context = DeviceContext(self, self.device.next_number(), binary, config)
        self.contexts[context.number] = context
        return context

    def open_session(self) -> CdspSession:
        """One more session."""
        taken = {session.index for session in self.sessions}
        index = next(n for n in range(len(taken) + 1) if n not in taken)
        session = self.device.memory.open(self.name, index, self.signed)
        self.sessions.append(session)
        self.sessions.sort(key=lambda s: s.index)
        return session

    def require_priority(self, *priorities: Priority) -> None:
        """DeviceError for a priority that is not for everybody."""
        for priority in priorities:
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
        if context.opened is not None:
            try:
                context.opened.apply(adapter, [graph.name])
            except HexforgeError as error:
                raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"{graph.label}: {error}") from None
        graph.adapter = adapter
        context.blob = graph.name
        self.device.log.write("adapter", graph=graph.label, adapter=str(adapter))

    # -- registered memory --------------------------------------------------------------------------------------------

    def register(self, context: DeviceContext, descriptors: Sequence[MemDescriptor]) -> list[MemHandle]:
        """Map buffers into the context's session and note which tensors lie in them; all, or on an error none."""
        context.require_alive()
        session = context.session
        assert session is not None
        known = {(h.descriptor.tensor, h.descriptor.buffer.fd, h.descriptor.offset) for h in self._of(context)}
        for d in descriptors:
            if not isinstance(d.buffer, SharedBuffer):
                kind = type(d.buffer).__name__
                raise DeviceError(
                    Code.QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE,
                    f"{context.label}: {d.tensor!r} lies in a {kind}; only a shared buffer (rpcmem_alloc) is mapped",
                )
            key = d.tensor, d.buffer.fd, d.offset
            if key in known:
                raise DeviceError(
                    Code.QNN_MEM_ERROR_ALREADY_REGISTERED, f"{context.label}: {d.tensor!r} has this memory already"
                )
            known.add(key)
            d.buffer.array(d.shape, d.dtype, d.offset)
        need = self.mappings.needs(session, [d.buffer for d in descriptors])
        kept = context.reserved.size if context.reserved is not None else 0
        if need > session.free_bytes + kept:
            self.device.log.write("mapping_failed", context=context.label, session=session.number, bytes=need)
            raise DeviceError(
                Code.QNN_MEM_ERROR_MAPPING,
                f"{context.label}: {need:,} bytes cannot be mapped, its session has {session.free_bytes:,} left; "
                "estimate I/O memory when contexts are created, register a dummy buffer while they are, or create them "
                "as a list with VA optimization",
            )
        self._shrink_reserve(context, need)
        made = []
        for d in descriptors:
            self.mappings.add(session, context.label, d.buffer)
            handle = MemHandle(self.device.next_number(), context, d)
            self.memory[handle.number] = handle
            made.append(handle)
            self.device.log.write("register", context=context.label, tensor=d.tensor, fd=d.buffer.fd, offset=d.offset)
        return made

    def _shrink_reserve(self, context: DeviceContext, need: int) -> None:
        """What was kept for inputs and outputs is used by them."""
        reserved = context.reserved
        if reserved is None or not need:
            return
        self.device.memory.release(reserved)
        left = reserved.size - need
        assert context.session is not None
        context.reserved = context.session.allocate(context.label, "I/O reserved", left) if left > 0 else None

    def deregister(self, handles: Sequence[MemHandle]) -> None:
        """Forget registered tensors; DeviceError, after the others, where one is not registered."""
        strange = [h for h in handles if h.number not in self.memory]
        for handle in handles:
            if handle.number in self.memory:
                self._forget(handle)
        if strange:
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"{strange[0].descriptor.tensor!r}: is not registered")

    def deregister_all(self, context: DeviceContext) -> None:
        """Forget every tensor of a context."""
        for handle in self._of(context):
            self._forget(handle)

    def _forget(self, handle: MemHandle) -> None:
        del self.memory[handle.number]
        handle.live = False
        if handle.context.session is not None:
            gone = self.mappings.remove(handle.context.session, handle.descriptor.buffer)
            if gone is not None:
                self.device.memory.release(gone)
        self.device.log.write("deregister", context=handle.context.label, tensor=handle.descriptor.tensor)

    def _of(self, context: DeviceContext) -> list[MemHandle]:
        return [handle for handle in self.memory.values() if handle.context is context]

    def register_again(self, context: DeviceContext) -> Waits:
        """Map what a context that was loaded again had registered; its handles stay good."""
        yield 0.0
        session = context.session
        if session is None:
            return
        buffers = [handle.descriptor.buffer for handle in self._of(context)]
        if self.mappings.needs(session, buffers) > session.free_bytes:
            raise DeviceError(Code.QNN_MEM_ERROR_MAPPING, f"{context.label}: its buffers cannot be mapped again")
        for buffer in buffers:
            self.mappings.add(session, context.label, buffer)

    # -- performance profile ------------------------------------------------------------------------------------------

    def stage(self, name: str) -> Waits:
        """A stage begins (INIT, INFERENCE, DE-INIT): the profile is voted for unless it holds already."""
        self._busy += 1
        profile = self.profile
        if self._timer is not None:
            self.device.clock.cancel(self._timer)
            self._timer = None
        if profile is not None and profile.votes and self._voted is not profile:
            self._vote(profile, name)
            if profile.after != KEPT:  # a vote that is kept was made before, and not in this call
                yield VOTE_US

    def stage_done(self) -> None:
        """A stage has ended: votes are lowered as the profile says, once nothing of the process runs."""
        self._busy -= 1
        profile = self.profile
        if self._busy or profile is None or not profile.votes or profile.after == KEPT:
            return
        if profile.after == TIMER:
            self._timer = self.device.clock.after(profile.hold_us, self._lower, RELAXED)
        else:
            self._lower(profile.after)

    def vote_now(self) -> None:
        """Vote for the profile outside of any stage, as the execution provider does."""
        if self.profile is not None and self._voted is not self.profile:
            self._vote(self.profile, "now")

    def _lower(self, state: str) -> None:
        self._timer = None
        self._vote(STATES[state], "idle")

    def _vote(self, profile: PerfProfile, stage: str) -> None:
        power = self.device.power
        if not self._power_ids:
            cores = range(len(self.device.cores.cores))
            self._power_ids = [power.create_power_config_id(0, core, self.name) for core in cores]
        if not profile.votes:  # nothing is voted for: what was is taken back
            for number in self._power_ids:
                power.destroy_power_config_id(number)
            self._power_ids = []
        for number in self._power_ids:
            power.set_power_config(number, profile.configs())
        self._voted = profile
        self.device.log.write("power_state", process=self.name, stage=stage, state=profile.name)

    @property
    def lowers_after(self) -> bool:
        """Whether every inference ends with a vote of its own, which takes time."""
        return self.profile is not None and self.profile.votes and self.profile.after not in (KEPT, TIMER)

    # -- the end ------------------------------------------------------------------------------------------------------

    def lose(self, session: CdspSession) -> None:
        """A session has crashed: what is in it is lost."""
        what = f"session {session.index} of {self.name} crashed"
        error = DeviceError(Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, what)
        for context in [c for c in self.contexts.values() if c.session is session]:
            if context.state is State.CREATING:
                task = self.creating.get(context.number)
                if task is not None:
                    task.interrupt(error)
                    continue  # else it is being loaded again, and whoever does that looks
            release(context)
            context.state = State.LOST
            self.device.log.write("lost", context=context.label, process=self.name, embedded=context.binary.embedded)
        self.mappings.forget(session)
        self.sessions.remove(session)
        self.device.memory.close(session)

    def close(self) -> None:
        """The process ends: its contexts, sessions and votes go."""
        for task in list(self.creating.values()):
            task.interrupt(DeviceError(Code.QNN_CONTEXT_ERROR_ABORTED, f"{self.name} ends"))
        for context in list(self.contexts.values()):
            self.deregister_all(context)
            release(context)
            context.state = State.FREED
        self.contexts.clear()
        for session in self.sessions:
            self.device.memory.close(session)
        self.sessions.clear()
        if self._timer is not None:
            self.device.clock.cancel(self._timer)
        for number in self._power_ids:
            self.device.power.destroy_power_config_id(number)
        self._power_ids = []
        self.device.clients.pop(self.name, None)
        self.device.log.write("process_end", process=self.name)
