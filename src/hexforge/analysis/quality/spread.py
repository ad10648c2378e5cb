# SPDX-License-Identifier: Apache-2.0
"""Spread: one function over many inputs on several processes, results in order, memory independent of their number."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from hexforge.errors import CallError, HexforgeError

Task = TypeVar("Task")
Result = TypeVar("Result")

_AHEAD = 3
"""Tasks handed out for each process before the first result is waited for."""

_function: Callable[[Any], Any] | None = None


def spread(
    make: Callable[..., Callable[[Task], Result]],
    arguments: tuple[Any, ...],
    tasks: Iterable[Task],
    jobs: int = 1,
    *,
    cluster: bool = False,
) -> Iterator[Result]:
    """What `make(*arguments)` gives for each task, in order.

    With several jobs each process calls `make` once, and `make`, arguments, tasks and results travel as pickles. On a
    `cluster` the processes are Ray's actors, one for each of its processors; files named in arguments must be there.
    """
    if cluster:
        yield from _on_cluster(make, arguments, tasks)
        return
    if jobs < 1:
        raise CallError(f"jobs {jobs}: work is done by at least one process")
    if jobs == 1:
        yield from map(make(*arguments), tasks)
        return
    context = multiprocessing.get_context("spawn")  # onnxruntime's and our threads do not survive a fork
    pool = ProcessPoolExecutor(jobs, context, _start_process, (make, arguments))
    try:
        waiting: deque[Future[Any]] = deque()
        for task in tasks:
            waiting.append(pool.submit(_work, task))
            if len(waiting) >= _AHEAD * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise HexforgeError(
            "a worker process ended before its work was done: out of memory, perhaps (fewer jobs need less), or the "
            "script that asked for several jobs has no `if __name__ == '__main__':`"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _on_cluster(
    make: Callable[..., Callable[[Task], Result]], arguments: tuple[Any, ...], tasks: Iterable[Task]
) -> Iterator[Result]:
    """Spread tasks over the machines of a Ray cluster, or over this one where there is no cluster."""
    try:
        import ray
        from ray.util import ActorPool
    except ImportError:
        raise CallError("a cluster needs Ray: pip install 'hexforge[cluster]'") from None
    waiting = list(tasks)
    if not waiting:
        return
    if not ray.is_initialized():
        ray.init(logging_level="error", log_to_driver=False, include_dashboard=False)
    actor = ray.remote(num_cpus=1)(_Actor)
    count = min(len(waiting), max(1, int(ray.cluster_resources().get("CPU", 1))))
    pool = ActorPool([actor.remote(make, arguments) for _ in range(count)])
    for result in pool.map(lambda worker, task: worker.work.remote(task), waiting):
        if isinstance(result, HexforgeError):
            raise result
        yield result


class _Actor:
    """A worker of a cluster; a user's mistake comes back as a value, since Ray wraps what is raised."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
        _start(make, arguments)

    def work(self, task: Any) -> Any:
        """The function of one task."""
        try:
            return _work(task)
        except HexforgeError as error:
            return error


def _start(make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    global _function
    try:
        _function = make(*arguments)
    except Exception as error:  # told with the first task: an initializer that raises only breaks the pool
        _function = _Raises(error)


def _start_process(make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them: the one that asked says so
    _start(make, arguments)


def _work(task: Any) -> Any:
    assert _function is not None
    return _function(task)


class _Raises:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __call__(self, task: Any) -> Any:
        raise self.error
