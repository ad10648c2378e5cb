# SPDX-License-Identifier: Apache-2.0
"""Groups: contexts that share a spill-fill buffer, and on v81 VTCM backup buffers by priority."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hexforge.addons.device.contexts.binary import GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig, SharingType
from hexforge.addons.device.memory import CdspSession, Need, SessionMemory
from hexforge.addons.device.scheduling.clock import Pending
from hexforge.chips.priority import Priority


class GroupMember(Protocol):
    """A context, as far as it shares buffers."""

    config: CreationConfig
    session: CdspSession | None

    def specs(self) -> tuple[GraphSpec, ...]:
        """The graphs that are enabled."""
        ...

    @property
    def runs(self) -> bool:
        """Whether a graph of it is being executed."""
        ...


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
    members: list[GroupMember] = field(default_factory=list)
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

    def needs(self, context: GroupMember, session: CdspSession | None) -> list[Need]:
        """What a member adds to a session."""
        own = [] if self.concurrent else [("VTCM backup", max((s.vtcm_bytes for s in context.specs()), default=0))]
        if session is not None and self._key(context, session) in self.buffers:
            return own
        shared = [("group spill-fill", self.max_spill_fill)]
        if self.concurrent:
            shared.append(("group VTCM backup", self.max_vtcm))
        return [*own, *((what, size) for what, size in shared if size)]

    def join(self, context: GroupMember, session: CdspSession, shared: list[SessionMemory]) -> None:
        """A member is in; what it allocated for all is the group's."""
        self.members.append(context)
        key = self._key(context, session)
        if key not in self.buffers:
            self.buffers[key] = shared

    def leave(self, context: GroupMember) -> list[SessionMemory]:
        """A member goes; the buffers that nobody of the group needs any more."""
        if context not in self.members:
            return []
        self.members.remove(context)
        assert context.session is not None
        key = self._key(context, context.session)
        others = [m for m in self.members if m.session is context.session and self._key(m, context.session) == key]
        return [] if others else self.buffers.pop(key, [])

    def _key(self, context: GroupMember, session: CdspSession) -> Key:
        return session.number, context.config.priority if self.concurrent else None

    def busy(self, context: GroupMember) -> bool:
        """Whether another member's graph runs."""
        return any(m.runs for m in self.members if m is not context)
