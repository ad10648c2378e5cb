# SPDX-License-Identifier: Apache-2.0
"""WorkerPool: several workers, each replaced where it dies; what it worked on is tried once more."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from hexforge.analysis.spread.workers import Worker, WorkerDiedError

TRIES = 2
"""Workers that may die of one task before it is set aside."""


@dataclass(frozen=True, slots=True)
class SetAside:
    """Stands for the result of a task whose workers died."""

    reason: str


class WorkerPool:
    """A thread for each worker hands it lists of tasks, and puts another in its place when it dies."""

    def __init__(self, start: Callable[[], Worker], count: int) -> None:
        self._start = start
        self._waiting: queue.SimpleQueue[tuple[Future[list[Any]], list[Any]] | None] = queue.SimpleQueue()
        self._stopping = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        self._at_work: set[Worker] = set()
        self._lock = threading.Lock()
        for thread in self._threads:
            thread.start()

    def submit(self, tasks: list[Any]) -> Future[list[Any]]:
        """The results of some tasks, when a worker has them."""
        future: Future[list[Any]] = Future()
        self._waiting.put((future, tasks))
        return future

    def close(self) -> None:
        """End all workers, at work or not."""
        with self._lock:
            self._stopping = True
            for worker in self._at_work:
                worker.close()
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        worker: Worker | None = None
        while not self._stopping and (item := self._waiting.get()) is not None:
            future, tasks = item
            try:
                worker, results = self._results(worker, tasks)
            except BaseException as error:
                worker = None
                future.set_exception(error)
            else:
                future.set_result(results)

    def _results(self, worker: Worker | None, tasks: list[Any]) -> tuple[Worker | None, list[Any]]:
        """The worker that is left, and the results; tasks whose worker died are tried again one by one."""
        try:
            worker = worker or self._started()
            return worker, worker.run(tasks)
        except WorkerDiedError as death:
            self._gone(worker)
            if self._stopping:
                raise
            if len(tasks) == 1:
                return self._last_tries(tasks, str(death))
        results: list[Any] = []
        worker = None
        for task in tasks:
            worker, of_one = self._results(worker, [task])
            results += of_one
        return worker, results

    def _last_tries(self, tasks: list[Any], reason: str) -> tuple[Worker | None, list[Any]]:
        for _ in range(TRIES - 1):
            worker = self._started()
            try:
                return worker, worker.run(tasks)
            except WorkerDiedError as death:
                self._gone(worker)
                if self._stopping:
                    raise
                reason = str(death)
        return None, [SetAside(f"{TRIES} workers died of it; the last was {reason}")]

    def _started(self) -> Worker:
        worker = self._start()
        with self._lock:
            if self._stopping:
                worker.close()
                raise WorkerDiedError("it was stopped")
            self._at_work.add(worker)
        return worker

    def _gone(self, worker: Worker | None) -> None:
        with self._lock:
            if worker in self._at_work:
                self._at_work.discard(worker)
