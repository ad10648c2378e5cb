# SPDX-License-Identifier: Apache-2.0
"""Groups: contexts that share a spill-fill buffer, and on v81 VTCM backup buffers by priority."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hexforge.backends.htp.time.concurrent import Priority
from hexforge.device.clock import Pending
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.configs import GroupRegistration, SharingType
from hexforge.device.memory import CdspSession, Need, SessionMemory

if TYPE_CHECKING:
    from hexforge.device.contexts.handles import DeviceContext

Key = tuple[int, Priority | None]
"""A session, and a priority where buffers are by priority."""


@dataclass(slots=True, eq=False)
class Group:
    """Contexts that share buffers: one of each kind in each session that has a member, by priority where concurrent."""

    max_spill_fill: int
    concurrent: bool = False
    sharing: SharingType | None = None
    """Set where the group is a list that shares resources."""
    priority: Priority | None = None
    """The one of all members, of a registered concurrent group."""
    max_vtcm: int = 0
    members: list[DeviceContext] = field(default_factory=list)
    buffers: dict[Key, list[SessionMemory]] = field(default_factory=dict)
    turn: Pending = field(default_factory=Pending)
    """Resolved when a member's graph has run."""

    def next_turn(self) -> None:
        """A member's graph has run: others may."""
        ended, self.turn = self.turn, Pending()
        ended.resolve()

    @property
    def sequential(self) -> bool:
        """Whether its graphs must not run at the same time."""
        return not self.concurrent

    def needs(self, context: DeviceContext, session: CdspSession | None) -> list[Need]:
        """What a member adds to a session."""
        own = [] if self.concurrent else [("VTCM backup", max((s.vtcm_bytes for s in context.specs()), default=0))]
        if session is not None and self._key(context, session) in self.buffers:
            return own
        shared = [("group spill-fill", self.max_spill_fill)]
        if self.concurrent:
            shared.append(("group VTCM backup", self.max_vtcm))
        return [*own, *((what, size) for what, size in shared if size)]

    def join(self, context: DeviceContext, session: CdspSession, shared: list[SessionMemory]) -> None:
        """A member is in; what it allocated for all is the group's."""
        self.members.append(context)
        key = self._key(context, session)
        if key not in self.buffers:
            self.buffers[key] = shared

    def leave(self, context: DeviceContext) -> list[SessionMemory]:
        """A member goes; the buffers that nobody of the group needs any more."""
        if context not in self.members:
            return []
        self.members.remove(context)
        assert context.session is not None
        key = self._key(context, context.session)
        others = [m for m in self.members if m.session is context.session and self._key(m, context.session) == key]
        return [] if others else self.buffers.pop(key, [])

    def _key(self, context: DeviceContext, session: CdspSession) -> Key:
        return session.number, context.config.priority if self.concurrent else None

    def busy(self, context: DeviceContext) -> bool:
        """Whether another member's graph runs."""
        return any(g.executing for m in self.members if m is not context for g in m.graphs.values())


def registered(context: DeviceContext, given: GroupRegistration, *, concurrent: bool) -> Group:
    """The group that a context registers with; DeviceError where it does not go with it."""
    specs = context.specs()
    first = given.first_group_handle
    if first is None:
        group = Group(given.max_spill_fill_buffer, concurrent, priority=context.config.priority if concurrent else None)
        group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    else:
        first.require_alive()
        if first.group is None or first.group.concurrent != concurrent or first.client is not context.client:
            raise _invalid(f"{context.label}: firstGroupHandle {first.label} began no such group of this process")
        group = first.group
        if given.max_spill_fill_buffer not in (0, group.max_spill_fill):
            raise _invalid(
                f"{context.label}: maxSpillFillBuffer {given.max_spill_fill_buffer:,} differs from the group's "
                f"{group.max_spill_fill:,}; give the same, or none"
            )
        if concurrent and context.config.priority is not group.priority:
            raise _invalid(f"{context.label}: contexts of a concurrent group have one priority, {group.priority!r}")
        if concurrent and max((s.vtcm_bytes for s in specs), default=0) > group.max_vtcm:
            raise _invalid(f"{context.label}: needs more VTCM than the group's first context, whose backup it shares")
    if concurrent and any(p is not context.config.priority for p in context.config.graph_priorities.values()):
        raise _invalid(f"{context.label}: graphs of a concurrent group have the context's priority")
    for spec in specs:
        if spec.spill_fill_bytes > group.max_spill_fill:
            raise _invalid(
                f"{context.label}: graph {spec.name!r} needs {spec.spill_fill_bytes:,} bytes of spill-fill, the group "
                f"has {group.max_spill_fill:,}; give the largest of all contexts"
            )
    return group


def list_group(contexts: list[DeviceContext], sharing: SharingType) -> Group:
    """What a list of contexts shares: buffers as large as the largest asks for."""
    specs = [spec for context in contexts for spec in context.specs()]
    concurrent = sharing is SharingType.CONCURRENT_OPTIMIZATION
    group = Group(max((s.spill_fill_bytes for s in specs), default=0), concurrent, sharing)
    group.max_vtcm = max((s.vtcm_bytes for s in specs), default=0)
    return group


def _invalid(message: str) -> DeviceError:
    return DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_CONFIG, message)
