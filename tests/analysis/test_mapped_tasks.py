# SPDX-License-Identifier: Apache-2.0
"""Work on several processes: results in order, and nothing lost where a worker dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hexforge.analysis.mapped_tasks import map_tasks, try_tasks
from hexforge.analysis.workers import ProcessWorker, SetAside, WorkerCode, WorkerDiedError, WorkerPool, Workers
from hexforge.errors import CallError, HexforgeError, ModelError


class Doubles:
    """Doubles a number; what else it does is by the number and what has been done before, noted in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, number: int) -> int:
        begun = len(list(self.folder.glob(f"{number}.*")))
        (self.folder / f"{number}.{begun}").touch()
        if number == 13 or (number == 7 and begun == 0):
            print("about to die", file=__import__("sys").stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 11:
            raise ModelError("eleven: is not a model")
        return 2 * number


def refuses(reason: str) -> Callable[[int], int]:
    """Raises where the work would begin."""
    raise CallError(reason)


def tries_of(folder: Path, number: int) -> int:
    """How often a task was begun."""
    return len(list(folder.glob(f"{number}.*")))


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    """40 tasks on two processes, one of which kills its worker once, and one always."""
    folder = tmp_path_factory.mktemp("tasks")
    return list(try_tasks(Doubles, (folder,), range(40), Workers(2))), folder


def test_a_task_whose_worker_died_is_done_by_another(survived: tuple[list[Any], Path]) -> None:
    results, folder = survived
    assert results[7] == 14
    assert tries_of(folder, 7) >= 2


def test_a_task_that_kills_two_workers_is_set_aside_with_what_was_last_said(survived: tuple[list[Any], Path]) -> None:
    results, _ = survived
    assert isinstance(results[13], SetAside)
    assert "SIGKILL" in results[13].reason
    assert "about to die" in results[13].reason


def test_the_others_are_in_order_and_a_mistake_is_a_result(survived: tuple[list[Any], Path]) -> None:
    results, _ = survived
    assert isinstance(results[11], ModelError)
    assert [r for i, r in enumerate(results) if i not in (11, 13)] == [2 * i for i in range(40) if i not in (11, 13)]


def test_where_all_are_needed_a_task_that_kills_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HexforgeError, match="task 1: 2 workers died of it"):
        list(map_tasks(Doubles, (tmp_path,), [1, 13, 2], Workers(2)))


def test_what_cannot_begin_says_why_once(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="no such thing"):
        list(map_tasks(refuses, ("no such thing",), [1, 2], Workers(2)))


def test_no_process_is_left_when_the_results_are_not_read_to_the_end(tmp_path: Path) -> None:
    before = threading.active_count()
    results = map_tasks(Doubles, (tmp_path,), iter(range(100, 10_000)), Workers(2))
    assert next(results) == 200
    results.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert len(list(tmp_path.iterdir())) < 1000, "tasks were read far ahead of the results"


class FakeWorker:
    """Doubles numbers in lists, and dies as often as it is told to, at lists that hold a number."""

    deaths: dict[int, int]
    lists: list[list[int]]

    def wait(self) -> None:
        """It has its place at once."""

    def run(self, tasks: list[int]) -> list[int]:
        self.lists.append(tasks)
        for task in tasks:
            if self.deaths.get(task, 0):
                self.deaths[task] -= 1
                raise WorkerDiedError("killed")
        return [2 * task for task in tasks]

    def close(self) -> None:
        """Nothing to end."""


@pytest.fixture
def pool_of() -> Iterator[Callable[[dict[int, int]], tuple[WorkerPool, list[list[int]]]]]:
    """Makes a pool of one worker that dies as often as given at some tasks."""
    pools: list[WorkerPool] = []

    def make(deaths: dict[int, int]) -> tuple[WorkerPool, list[list[int]]]:
        kind = type("Dying", (FakeWorker,), {"deaths": deaths, "lists": []})
        pools.append(WorkerPool(kind, 1))
        return pools[-1], kind.lists  # type: ignore[attr-defined]

    yield make
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("deaths", [0, 1, 2, 3, 5])
def test_of_a_list_only_the_task_that_kills_is_set_aside(pool_of: Any, deaths: int) -> None:
    pool, lists = pool_of({2: deaths})
    first, second, third = pool.submit([1, 2, 3]).result()
    assert (first, third) == (2, 6)
    assert (second == 4) if deaths <= 2 else isinstance(second, SetAside)
    assert len(lists) <= 6


def test_of_a_long_list_the_task_that_kills_is_found_in_few_tries(pool_of: Any) -> None:
    pool, lists = pool_of({777: 100})
    results = pool.submit(list(range(1000))).result()
    assert isinstance(results[777], SetAside)
    assert [r for i, r in enumerate(results) if i != 777] == [2 * i for i in range(1000) if i != 777]
    assert len(lists) <= 1 + 3 * 16 + 1


NO_GUARD = """
from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.workers import Workers
def keeps(content):
    return lambda task: task
print(list(map_tasks(keeps, (bytes(1 << 20),), [1, 2, 3], Workers(2))))
"""


def test_a_script_that_cannot_be_imported_says_so_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(NO_GUARD)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 1
    assert "a worker process could not be started" in ran.stderr
    assert "needs `if __name__ == '__main__':`" in ran.stderr


def test_a_worker_process_says_how_it_ended(tmp_path: Path) -> None:
    worker = ProcessWorker(WorkerCode(Doubles, (tmp_path,)))
    try:
        assert worker.run([1, 2]) == [2, 4]
        with pytest.raises(WorkerDiedError, match=r"killed by SIGKILL.*about to die"):
            worker.run([13])
    finally:
        worker.close()
