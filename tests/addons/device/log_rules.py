# SPDX-License-Identifier: Apache-2.0
"""Log rules: what must hold in the log of any device, read from its events alone.

Nothing of the device is asked: a log from a file is checked as well as one that was just written. Memory, cores, votes,
VTCM, registered tensors and contexts are followed event by event; whatever a process had is gone when it ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

ROUNDING_US = 0.002
"""Times in the log have three digits."""
Entry = Mapping[str, Any]


def broken_rules(entries: Iterable[Entry], *, ended: bool = True) -> list[str]:
    """What does not hold, by event; `ended`: the log goes on until every process has ended, so that nothing is left."""
    replay = _Replay()
    for number, entry in enumerate(entries, 1):
        replay.follow(number, entry)
    if ended:
        replay.check_end()
    return replay.broken


class _Replay:
    """The device as its log tells of it."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self._at = ""
        self._now_us = 0.0
        self._ended: set[str] = set()
        self._sessions: dict[int, str] = {}
        """The process of each that is open."""
        self._used: Counter[int] = Counter()
        self._held: dict[int, tuple[int, int]] = {}
        """Of each allocation its session and bytes."""
        self._owner: dict[str, str] = {}
        """The process of each context."""
        self._ready: set[str] = set()
        """Contexts whose graphs may run."""
        self._tensors: Counter[tuple[str, str]] = Counter()
        self._ids: dict[int, str] = {}
        self._vtcm: Counter[str] = Counter()
        self._jobs: dict[int, str] = {}
        """Of each that has begun and not ended its graph."""
        self._over: set[int] = set()
        self._cores: dict[int, tuple[int, float]] = {}
        """The job on each, and when the core is free again where it only saves that job's VTCM."""
        self._killed: dict[str, float] = {}

    def follow(self, number: int, entry: Entry) -> None:
        """One event."""
        kind = entry["event"]
        self._at = f"event {number} ({kind} at {entry['at_us']} us)"
        self._require(entry["at_us"] >= self._now_us, "time runs backwards")
        self._now_us = entry["at_us"]
        process = self._process_of(entry)
        self._require(process not in self._ended or kind == "fault_missed", f"{process} has ended before")
        step = getattr(self, f"_{kind}", None)
        if step is not None:
            step(entry)
        self._require(entry["memory_bytes"] == sum(self._used.values()), "memory does not add up")

    def check_end(self) -> None:
        """Every process has ended: nothing is left of anything."""
        self._at = "the end"
        for what, left in (
            ("sessions", self._sessions), ("allocations", self._held), ("power config ids", self._ids),
            ("jobs", self._jobs), ("contexts", self._ready), ("VTCM", +self._vtcm), ("tensors", +self._tensors),
        ):  # fmt: skip
            self._require(not left, f"{what} are left: {left}")

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            self.broken.append(f"{self._at}: {message}")

    def _process_of(self, entry: Entry) -> str:
        if "process" in entry:
            return str(entry["process"])
        label = str(entry.get("context") or entry.get("graph") or entry.get("owner") or "")
        return self._owner.get(label.partition("/")[0], "")

    # -- processes and faults -----------------------------------------------------------------------------------------

    def _fault(self, entry: Entry) -> None:
        if entry["kind"] == "kill":
            self._killed[entry["process"]] = entry["at_us"]

    def _process_end(self, entry: Entry) -> None:
        name = entry["process"]
        killed_us = self._killed.get(name, entry["at_us"])
        self._require(entry["at_us"] == killed_us, f"{name} was killed at {killed_us} us and ends later")
        self._ended.add(name)
        for what, left in (
            ("sessions", [n for n, owner in self._sessions.items() if owner == name]),
            ("power config ids", [n for n, owner in self._ids.items() if owner == name]),
            ("jobs", [n for n, graph in self._jobs.items() if self._owner.get(graph.partition("/")[0]) == name]),
            ("tensors", [key for key in +self._tensors if self._owner.get(key[0]) == name]),
            ("bytes of VTCM", self._vtcm[name]),
        ):
            self._require(not left, f"{name} ends and has {what}: {left}")
        self._ready = {label for label in self._ready if self._owner[label] != name}

    # -- memory -------------------------------------------------------------------------------------------------------

    def _session_open(self, entry: Entry) -> None:
        self._require(entry["session"] not in self._sessions, "is open already")
        self._sessions[entry["session"]] = entry["process"]

    def _session_close(self, entry: Entry) -> None:
        self._require(self._sessions.pop(entry["session"], None) == entry["process"], "was not open")
        self._require(not self._used.pop(entry["session"], 0), "memory is left in it")

    def _allocate(self, entry: Entry) -> None:
        number, session = entry["allocation"], entry["session"]
        self._require(session in self._sessions, "in no open session")
        self._require(number not in self._held, "the same number twice")
        self._held[number] = session, entry["bytes"]
        self._used[session] += entry["bytes"]
        self._require(self._used[session] == entry["used_bytes"], "the session says another sum")

    def _release(self, entry: Entry) -> None:
        what = self._held.pop(entry["allocation"], None)
        self._require(what == (entry["session"], entry["bytes"]), "of what was not allocated")
        self._used[entry["session"]] -= entry["bytes"]

    def _vtcm_reserve(self, entry: Entry) -> None:
        self._vtcm[entry["process"]] += entry["bytes"]
        self._require(sum(self._vtcm.values()) == entry["reserved_bytes"], "VTCM does not add up")

    def _vtcm_release(self, entry: Entry) -> None:
        self._vtcm[entry["process"]] -= entry["bytes"]
        self._require(self._vtcm[entry["process"]] >= 0, "more than was reserved")
        self._require(sum(self._vtcm.values()) == entry["reserved_bytes"], "VTCM does not add up")

    # -- contexts -----------------------------------------------------------------------------------------------------

    def _create(self, entry: Entry) -> None:
        self._require(entry["context"] not in self._owner, "the same label twice")
        self._owner[entry["context"]] = entry["process"]

    def _created(self, entry: Entry) -> None:
        self._require(entry["context"] not in self._ready, "is there already")
        self._require(self._sessions.get(entry["session"]) == entry["process"], "in no session of its process")
        self._ready.add(entry["context"])

    def _recovered(self, entry: Entry) -> None:
        self._created(entry)

    def _lost(self, entry: Entry) -> None:
        self._ready.discard(entry["context"])

    def _free(self, entry: Entry) -> None:
        self._ready.discard(entry["context"])

    def _register(self, entry: Entry) -> None:
        self._tensors[entry["context"], entry["tensor"]] += 1

    def _deregister(self, entry: Entry) -> None:
        self._tensors[entry["context"], entry["tensor"]] -= 1
        self._require(self._tensors[entry["context"], entry["tensor"]] >= 0, "was not registered")

    # -- votes --------------------------------------------------------------------------------------------------------

    def _power_config_id(self, entry: Entry) -> None:
        self._require(entry["id"] not in self._ids, "the same number twice")
        self._ids[entry["id"]] = entry["process"]

    def _power_config_id_destroyed(self, entry: Entry) -> None:
        self._require(self._ids.pop(entry["id"], None) is not None, "there was none")

    def _power_vote(self, entry: Entry) -> None:
        self._require(entry["id"] in self._ids, "a vote of nobody")

    # -- cores --------------------------------------------------------------------------------------------------------

    def _execute_start(self, entry: Entry) -> None:
        self._require(entry["job"] not in self._jobs and entry["job"] not in self._over, "began before")
        self._require(entry["graph"].partition("/")[0] in self._ready, "its context is not there")
        self._jobs[entry["job"]] = entry["graph"]
        self._occupy(entry)

    def _restore(self, entry: Entry) -> None:
        self._require(entry["job"] in self._jobs, "is not on its way")
        self._occupy(entry)

    def _save(self, entry: Entry) -> None:
        self._require(entry["job"] in self._jobs, "is not on its way")
        self._occupy(entry)
        self._cores[entry["core"]] = entry["job"], entry["at_us"] + entry["us"]

    def _yield(self, entry: Entry) -> None:
        self._require(self._cores.get(entry["core"], (-1, 0.0))[0] == entry["job"], "gives way and does not run")
        self._cores[entry["core"]] = entry["job"], entry["at_us"] + entry["us"]

    def _execute_end(self, entry: Entry) -> None:
        job = entry["job"]
        begun = self._jobs.pop(job, None) is not None
        self._require(begun or not entry["ok"], "ends and never began")
        self._require(job not in self._over, "ends twice")
        self._over.add(job)
        for core in [core for core, (other, _) in self._cores.items() if other == job]:
            del self._cores[core]

    def _occupy(self, entry: Entry) -> None:
        other, free_us = self._cores.get(entry["core"], (-1, 0.0))
        self._require(free_us <= entry["at_us"] + ROUNDING_US, f"core {entry['core']} still runs job {other}")
        self._cores[entry["core"]] = entry["job"], float("inf")
