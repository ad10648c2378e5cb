# SPDX-License-Identifier: Apache-2.0
"""Ranged tasks: tasks that are read range by range, by the process that asks or by a cluster's own readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")


@dataclass(frozen=True, slots=True)
class RangedTasks(Generic[Task]):
    """Tasks in order: what `read` gives for one range after the other."""

    ranges: Sequence[Any]
    read: Callable[[Any], Iterable[Task]]
    travels: bool
    """Whether `read` may run in another process, which then opens the files."""
    anywhere: bool = False
    """Whether every machine can read them; else only this one can."""

    def __iter__(self) -> Iterator[Task]:
        for some in self.ranges:
            yield from self.read(some)
