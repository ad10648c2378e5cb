# SPDX-License-Identifier: Apache-2.0
"""Workers: what does the work; several of them, each replaced where it dies; processes of this machine as some."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, Protocol

from hexforge.errors import CallError, HexforgeError

_WORKER_BYTES, _MODEL_COPIES = 256 << 20, 4
"""What a process takes without a model, and how often a model is in memory while it is prepared."""
ON_GPU = ("gpu",)
"""Backends whose workers a cluster gives a GPU."""
THIS_MACHINE = "local"
"""The address of a cluster that Ray starts on this machine for as long as it is needed."""


@dataclass(frozen=True, slots=True)
class Workers:
    """What works at the same time: processes of this machine, or those of a Ray cluster."""

    jobs: int = 1
    """Processes on this machine; on a cluster the most that are asked for, where it is above 1."""
    cluster: bool | str = False
    """True for the cluster that RAY_ADDRESS names, or else for Ray on this machine; or the address of one."""
    memory_bytes: int = 0
    """What a worker needs of a machine's memory, for a cluster to place it by; 0 where that is not known."""
    threads: float = 1.0
    """Threads that a worker computes with: a cluster gives it as many processors, or a part of one."""
    gpu: bool = False
    """Whether a worker computes on a GPU: a cluster that has some gives it one."""

    def for_model(self, *models: Path | bytes | None, gpu: bool = False) -> Workers:
        """The same for work on models: a worker needs several times a model's bytes."""
        from hexforge.model.tensors import external_files  # requests hold workers, and are read without models

        sizes = [
            len(model) if isinstance(model, bytes) else sum(p.stat().st_size for p in (model, *external_files(model)))
            for model in models
            if isinstance(model, bytes) or (model is not None and model.is_file())
        ]
        return replace(self, memory_bytes=_WORKER_BYTES + _MODEL_COPIES * max(sizes, default=0), gpu=gpu)

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise CallError(f"jobs {self.jobs}: work is done by at least one process")

    @property
    def several(self) -> bool:
        """Whether more than one may work at the same time."""
        return bool(self.cluster) or self.jobs > 1


@dataclass(frozen=True, slots=True)
class WorkerCode:
    """What a worker makes of tasks: `make(*arguments)` is called once in each, and gives the function of a task."""

    make: Callable[..., Callable[[Any], Any]]
    arguments: tuple[Any, ...]


class WorkerDiedError(Exception):
    """A worker ended in the middle of its work; the text says how."""


class Worker(Protocol):
    """A process somewhere that works on lists of tasks, one list at a time."""

    def wait(self) -> None:
        """Wait until it has its place and can take tasks; WorkerDiedError where it never will."""

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """What the function gives for each task: a HexforgeError stands for a task that a user must mend.

        WorkerDiedError where the process is no more; another exception where it cannot work at all.
        """

    def close(self) -> None:
        """End the process, at work or not."""


def results_of(function: Callable[[Any], Any], tasks: Iterable[Any]) -> list[Any]:
    """What the function gives for each task; a user's mistake is a result, so that the others' are not lost."""
    results: list[Any] = []
    for task in tasks:
        try:
            results.append(function(task))
        except HexforgeError as error:
            results.append(error)
    return results


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


_SIGKILL = 9
"""Windows' `signal` does not name it."""
_LOG_CHARACTERS = 2000
"""Of the end of a dead process's standard error, what its error tells."""
_READY = "ready"


class ProcessWorker:
    """A process that was started for the work and is asked through a pipe."""

    def __init__(self, code: WorkerCode) -> None:
        self._code, self._has_code, self._started, self._closed = code, False, False, False
        self._lock = threading.Lock()  # one thread asks, another may close

    def wait(self) -> None:
        """A process is started when there is work for it."""

    def _start(self) -> None:
        """Start the process and wait until it runs: one that dies before that would die again."""
        context = multiprocessing.get_context("spawn")  # onnxruntime's and our threads do not survive a fork
        with self._lock:
            if self._closed:
                raise WorkerDiedError("the work was stopped")
            self._pipe, far_end = context.Pipe()
            with tempfile.NamedTemporaryFile(prefix="hexforge-worker-", suffix=".log", delete=False) as log:
                self._log = Path(log.name)
            self._process = context.Process(target=_work, args=(far_end, str(self._log)), daemon=True)
            self._process.start()
            self._started = True
        far_end.close()
        try:
            assert self._pipe.recv() == _READY
        except (EOFError, OSError):
            raise HexforgeError(
                f"a worker process could not be started ({self._how_it_died()}); a script that asks for several jobs "
                "needs `if __name__ == '__main__':` around what it does"
            ) from None

    def run(self, tasks: Sequence[Any]) -> list[Any]:
        """The results of some tasks."""
        try:
            if not self._started:
                self._start()
            # not among the process's arguments: one that dies before it has read them would never let the start return
            self._pipe.send((None if self._has_code else self._code, tasks))
            self._has_code = True
            done, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(self._how_it_died()) from None
        if not done:
            raise answer
        return list(answer)

    def _how_it_died(self) -> str:
        said = self._last_words()[-_LOG_CHARACTERS:].strip()
        code = self._process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        if code == -_SIGKILL:
            how += ": out of memory, perhaps; fewer jobs need less"
        return f"{how}; it last said: {said.splitlines()[-1]}" if said else how

    def _last_words(self) -> str:
        """Wait for the process to end, and take what it wrote to standard error; the second who asks gets nothing."""
        with self._lock:
            self._process.join()
            while self._process.exitcode is None:  # another thread that starts a process has just seen this one end
                time.sleep(0.001)
            if not self._log.exists():
                return ""
            said = self._log.read_text(errors="replace")
            self._log.unlink()
        return said

    def close(self) -> None:
        """End the process, and show what it wrote to standard error; who waits for its answer learns of its end."""
        with self._lock:
            self._closed = True
            if not self._started:
                return
            self._process.terminate()
        sys.stderr.write(self._last_words())


def _work(pipe: Connection, log: str) -> None:
    """The process: tasks come, with the code at first, and results go until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them: the one that asked says so
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
    os.dup2(descriptor, 2)
    os.close(descriptor)
    pipe.send(_READY)
    code: WorkerCode | None = None
    function = None
    while True:
        try:
            sent = pipe.recv_bytes()
        except EOFError:
            return
        try:
            first_code, tasks = ForkingPickler.loads(sent)
            code = code or first_code
            if function is None:
                function = code.make(*code.arguments)
            answer: tuple[bool, Any] = True, results_of(function, tasks)
        except Exception as error:
            answer = False, error
        try:
            pipe.send(answer)
        except BrokenPipeError:  # nobody asks for it any more
            return
