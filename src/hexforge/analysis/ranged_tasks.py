# SPDX-License-Identifier: Apache-2.0
"""Ranged tasks: tasks that are read range by range, by the process that asks or by a cluster's own readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

Task = TypeVar("Task")


class TaskRange(Protocol):
    """Some tasks that are read one after another; a part of them is a range too."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: slice, /) -> TaskRange: ...


@dataclass(frozen=True, slots=True)
class RangedTasks(Generic[Task]):
    """Tasks in order: what `read` gives for one range after the other."""

    ranges: Sequence[TaskRange]
    read: Callable[[Any], Iterable[Task]]
    travels: bool
    """Whether `read` may run in another process, which then opens the files."""
    anywhere: bool = False
    """Whether every machine can read them; else only this one can."""
    short: bool = False
    """Whether any part of a range is read at once, so that who works on it may read it."""

    def __iter__(self) -> Iterator[Task]:
        for some in self.ranges:
            yield from self.read(some)

    def from_here(self) -> RangedTasks[Task]:
        """The same for other processes of this machine, which may have been started in another folder."""
        return self if self.anywhere else replace(self, read=_ReadFrom(str(Path.cwd()), self.read))


@dataclass(frozen=True, slots=True)
class _ReadFrom(Generic[Task]):
    """Reads in a folder, which relative names begin at."""

    folder: str
    read: Callable[[Any], Iterable[Task]]

    def __call__(self, some: Any) -> Iterator[Task]:
        with chdir(self.folder):
            yield from self.read(some)
