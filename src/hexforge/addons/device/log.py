# SPDX-License-Identifier: Apache-2.0
"""DeviceLog: everything that happens on a device, one JSON object for each event; at every event memory adds up.

An event has `at_us`, `event` and the bytes that all sessions have in use then (`memory_bytes`); what else it has
depends on its kind. Profiles are made from it: `listen` is told of every event as it happens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hexforge.addons.device.scheduling.clock import VirtualClock
from hexforge.errors import FormatError

Entry = dict[str, Any]


class DeviceLog:
    """What happened, in order."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.entries: list[Entry] = []
        self.memory_bytes = 0
        """What all sessions have in use."""
        self.peak_bytes = 0
        """The most that all sessions had in use."""
        self.keeps = 0
        """How many of the last events are kept, at least; 0: all of them."""
        self._listeners: list[Callable[[Entry], None]] = []

    def write(self, event: str, **fields: Any) -> None:
        """One event."""
        entry = {"at_us": round(self._clock.now_us, 3), "event": event, **fields, "memory_bytes": self.memory_bytes}
        self.entries.append(entry)
        self.peak_bytes = max(self.peak_bytes, self.memory_bytes)
        if self.keeps and len(self.entries) > 2 * self.keeps:
            del self.entries[: -self.keeps]
        for listener in self._listeners:
            listener(entry)

    def listen(self, listener: Callable[[Entry], None]) -> None:
        """Have something told of every event from now on."""
        self._listeners.append(listener)

    def of(self, *events: str) -> list[Entry]:
        """The events of some kinds."""
        return [entry for entry in self.entries if entry["event"] in events]

    def lines(self) -> Iterator[str]:
        """The log as JSON lines."""
        return (json.dumps(entry, ensure_ascii=False) for entry in self.entries)


def audit(entries: Iterable[Mapping[str, Any]]) -> int:
    """Replay the memory of a log; FormatError at the first event where it does not add up. The bytes left in use."""
    held: dict[int, tuple[int, int]] = {}
    rooms: dict[int, tuple[int, int]] = {}
    last_us = 0.0
    for number, entry in enumerate(entries, 1):
        kind, wrong = entry["event"], ""
        if entry["at_us"] < last_us:
            wrong = "time runs backwards"
        last_us = entry["at_us"]
        if kind == "session_open":
            rooms[entry["session"]] = 0, entry["capacity_bytes"]
        elif kind == "session_close":
            left, _ = rooms.pop(entry["session"], (0, 0))
            wrong = wrong or (f"session {entry['session']} closes with {left} bytes in use" if left else "")
        elif kind == "allocate":
            used, capacity = rooms.get(entry["session"], (0, -1))
            rooms[entry["session"]] = used + entry["bytes"], capacity
            wrong = wrong or ("an allocation has a number twice" if entry["allocation"] in held else "")
            held[entry["allocation"]] = entry["session"], entry["bytes"]
            if used + entry["bytes"] > capacity:
                wrong = wrong or f"{used + entry['bytes']} of {capacity} bytes"
        elif kind == "release":
            session, size = held.pop(entry["allocation"], (-1, -1))
            if (session, size) != (entry["session"], entry["bytes"]):
                wrong = wrong or "releases what was not allocated"
            elif session in rooms:
                rooms[session] = rooms[session][0] - size, rooms[session][1]
        if (
            not wrong
            and kind in ("allocate", "release")
            and rooms.get(entry["session"], (-1, 0))[0] != entry["used_bytes"]
        ):
            wrong = f"session {entry['session']} says {entry['used_bytes']} bytes in use"
        if not wrong and entry["memory_bytes"] != sum(used for used, _ in rooms.values()):
            wrong = f"says {entry['memory_bytes']} bytes in use, {sum(used for used, _ in rooms.values())} are"
        if wrong:
            raise FormatError(f"event {number} ({kind}): {wrong}")
    return sum(size for _, size in held.values())
