# SPDX-License-Identifier: Apache-2.0
"""Pool: several workers, each replaced where it dies; what it worked on is tried again by whoever is free."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from hexforge.analysis.workers import Worker, WorkerDiedError
from hexforge.errors import HexforgeError

TRIES = 2
"""Workers that may die of one task before it is set aside."""
_PARTS = 16
"""Into so many parts a list is cut whose worker died."""
_STARTS = 5
"""Workers that may die one after the other before they have any work."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Stands for the result of a task whose workers died."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Work:
    """Tasks that wait for a worker, and where their results go."""

    future: Future[list[Any]]
    tasks: Sequence[Any]
    deaths: int = 0


class WorkerPool:
    """A thread for each worker hands it lists of tasks, and puts another in its place when it dies."""

    def __init__(self, start: Callable[[], Worker], count: int) -> None:
        self._start = start
        self._waiting: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._stopping = False
        self._alive = count
        self._workers: set[Worker] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def submit(self, tasks: Sequence[Any]) -> Future[list[Any]]:
        """The results of some tasks, when a worker has them."""
        future: Future[list[Any]] = Future()
        self._waiting.put(_Work(future, tasks))
        return future

    def close(self) -> None:
        """End all workers, at work or not."""
        with self._lock:
            self._stopping = True
            ending = list(self._workers)
        for worker in ending:
            worker.close()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        try:
            while True:
                worker = self._ready_worker()
                while (work := self._waiting.get()) is not None and not self._stopping:
                    if not self._do(worker, work):
                        break
                else:
                    return
        except WorkerDiedError as death:
            self._fail_rest(HexforgeError(f"no worker can be started: {death}"))
        except BaseException as error:
            self._fail_rest(error)

    def _ready_worker(self) -> Worker:
        """A worker that waits for tasks: none is taken for one that may never have a place."""
        for left in reversed(range(_STARTS)):
            worker = self._start()
            with self._lock:
                stopping = self._stopping
                if not stopping:
                    self._workers.add(worker)
            if stopping:
                worker.close()
                raise WorkerDiedError("the work was stopped")
            try:
                worker.wait()
                return worker
            except WorkerDiedError:
                self._lose(worker)
                if self._stopping or not left:
                    raise
        raise AssertionError

    def _lose(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)

    def _do(self, worker: Worker, work: _Work) -> bool:
        """Hand a worker its tasks, and say whether it can take more."""
        try:
            results = worker.run(work.tasks)
        except WorkerDiedError as death:
            self._lose(worker)
            self._again(work, str(death))
            return False
        except BaseException as error:
            work.future.set_exception(error)
        else:
            work.future.set_result(results)
        return True

    def _again(self, work: _Work, reason: str) -> None:
        """Have tasks whose worker died done by others: in ever smaller parts, so that the one that kills is known."""
        if len(work.tasks) == 1:
            if work.deaths + 1 >= TRIES:
                work.future.set_result([SetAside(f"{TRIES} workers died of it; the last was {reason}")])
            else:
                self._waiting.put(_Work(work.future, work.tasks, work.deaths + 1))
            return
        each = -(-len(work.tasks) // _PARTS)
        parts = [_Work(Future(), work.tasks[i : i + each]) for i in range(0, len(work.tasks), each)]
        left = len(parts)

        def joined(_: Future[list[Any]]) -> None:
            nonlocal left
            with self._lock:
                left -= 1
                last = not left
            if last:
                errors = [error for part in parts if (error := part.future.exception()) is not None]
                if errors:
                    work.future.set_exception(errors[0])
                else:
                    work.future.set_result([result for part in parts for result in part.future.result()])

        for part in parts:
            part.future.add_done_callback(joined)
            self._waiting.put(part)

    def _fail_rest(self, error: BaseException) -> None:
        """Where no thread is left, tell everybody who waits."""
        with self._lock:
            self._alive -= 1
            if self._alive or self._stopping:
                return
        while (work := self._waiting.get()) is not None:
            work.future.set_exception(error)
