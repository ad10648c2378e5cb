# SPDX-License-Identifier: Apache-2.0
"""Mapped tasks: what a function gives for each of many tasks, in order, whoever works on them and reads them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import chdir
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from hexforge.addon import Hook, hook
from hexforge.analysis.workers import ProcessWorker, SetAside, WorkerCode, WorkerPool, Workers
from hexforge.errors import HexforgeError

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


Result = TypeVar("Result")

_AHEAD = 3
"""Lists of tasks handed out for each worker before the first result is waited for."""


@dataclass(frozen=True, slots=True)
class _ListSize:
    """How much work is handed out at a time, so that handing it out costs little in comparison."""

    seconds: float
    most_tasks: int


_TO_PROCESSES = _ListSize(0.02, 256)


def _to_cluster(workers: int) -> _ListSize:
    """A call of an actor costs this process 1.5 ms: lists are so long that all workers together take half of it."""
    return _ListSize(max(0.2, 0.003 * workers), 4096)


def map_tasks(
    make: Callable[..., Callable[[Task], Result]],
    arguments: tuple[Any, ...],
    tasks: Iterable[Task],
    workers: Workers = Workers(),  # noqa: B008 - it is frozen
) -> Iterator[Result]:
    """What `make(*arguments)` gives for each task, in order.

    Each worker calls `make` once. A worker that dies is replaced; a task that two workers died of is an error. A path
    of a file among arguments and tasks reaches a worker on another machine as that file.
    """
    for number, result in enumerate(try_tasks(make, arguments, tasks, workers)):
        if isinstance(result, SetAside):
            raise HexforgeError(f"task {number}: {result.reason}")
        if isinstance(result, HexforgeError):
            raise result
        yield result


def try_tasks(
    make: Callable[..., Callable[[Task], Result]],
    arguments: tuple[Any, ...],
    tasks: Iterable[Task],
    workers: Workers = Workers(),  # noqa: B008 - it is frozen
    *,
    own_process: bool = False,
) -> Iterator[Result | HexforgeError | SetAside]:
    """As `map_tasks`, for work that goes on where one task fails: its error, or that it was set aside, is its result.

    With `own_process` not even one job runs in this process, which a task that kills its worker would end.
    """
    code = WorkerCode(make, arguments)
    unread: Iterator[Any] | None = None
    if workers.cluster:
        start, count, unread = hook(Hook.CLUSTER_WORKERS)(code, workers, tasks)
    elif workers.jobs == 1 and not own_process:
        yield from _here(code, tasks)
        return
    else:
        start, count = partial(ProcessWorker, code), workers.jobs
    pool = WorkerPool(start, count)
    lists = _lists_of(tasks) if unread is None else _parts_of(unread)
    try:
        yield from _ordered(pool, count, lists, _to_cluster(count) if workers.cluster else _TO_PROCESSES)
    finally:
        pool.close()


def _here(code: WorkerCode, tasks: Iterable[Any]) -> Iterator[Any]:
    function = code.make(*code.arguments)
    for task in tasks:
        try:
            result = function(task)
        except HexforgeError as error:
            result = error
        yield result


def _lists_of(tasks: Iterable[Any]) -> Callable[[int], Sequence[Any]]:
    left = iter(tasks)
    return lambda size: list(islice(left, size))


def _parts_of(unread: Iterator[Any]) -> Callable[[int], Sequence[Any]]:
    """Tasks that are read elsewhere, cut to lists."""
    left: Sequence[Any] = []

    def next_part(size: int) -> Sequence[Any]:
        nonlocal left
        left = left or next(unread, [])
        part, left = left[:size], left[size:]
        return part

    return next_part


def _ordered(
    pool: WorkerPool, count: int, next_list: Callable[[int], Sequence[Any]], wanted: _ListSize
) -> Iterator[Any]:
    """Results in the order of tasks, which are handed out in lists; none is read before workers can soon take it."""
    waiting, size = deque[tuple[Future[list[Any]], _Took]](), 1
    while True:
        while len(waiting) < _AHEAD * count and (some := next_list(size)):
            future, took = pool.submit(some), _Took(len(some))
            future.add_done_callback(took)
            waiting.append((future, took))
        if not waiting:
            return
        future, took = waiting.popleft()
        yield from future.result()
        # so many are handed out that a list is worth its way, unless others would have nothing to do meanwhile
        each_s = took.seconds / (_AHEAD * took.tasks)
        size = max(1, min(wanted.most_tasks, 2 * size, int(wanted.seconds / each_s) if each_s else wanted.most_tasks))


class _Took:
    """How long a list of tasks took from when it was handed out."""

    def __init__(self, tasks: int) -> None:
        self.tasks, self.seconds, self._from = tasks, 0.0, time.monotonic()

    def __call__(self, future: Future[list[Any]]) -> None:
        """The list is done."""
        self.seconds = time.monotonic() - self._from
