# SPDX-License-Identifier: Apache-2.0
"""Progress as lines: what a long command does, for a log or a program, where there is no terminal that shows a bar."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from hexforge.cli.say import say

SECONDS = 10.0
"""Between two lines, and before the first: what is done sooner needs none."""
VARIABLE, EVENTS = "HEXFORGE_PROGRESS", "events"
"""The environment variable, and its value, by which a program that started the command asks for progress as JSON."""
_SECONDS_OF_EVENTS = 0.2


class ProgressLines:
    """Says on standard error how far something is, at most once every few seconds."""

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._last = self._begun = clock()
        self._what = ""

    def update(self, what: str, done: int, of: int) -> None:
        """`done` of `of` are done; a line is written where the last is long enough ago."""
        now = self._clock()
        if what != self._what:
            self._what, self._begun = what, now
        if now - self._last < self._seconds:
            return
        self._last = now
        spent = now - self._begun
        left = f", about {_time(spent / done * (of - done))} left" if 0 < done < of and spent > 0 else ""
        say(f"{what}: {done} of {of}{left}", err=True)


class ProgressEvents:
    """Says the same to the program that started this one, each a line of JSON, a few a second."""

    def __init__(self) -> None:
        self._last: tuple[str, float] = ("", 0.0)

    def update(self, what: str, done: int, of: int) -> None:
        """`done` of `of` are done; it is said where the last event is long enough ago or was about something else."""
        now = time.monotonic()
        if (what, True) == (self._last[0], now - self._last[1] < _SECONDS_OF_EVENTS) and done != of:
            return
        self._last = what, now
        say(json.dumps({"progress": what, "done": done, "of": of}), err=True)


def wants_events() -> bool:
    """Whether the program that started this one asked for events."""
    return os.environ.get(VARIABLE) == EVENTS


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
