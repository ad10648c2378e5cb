# SPDX-License-Identifier: Apache-2.0
"""The thread pool: the same bits however many threads and runs there are, also after a fork; no CPU time when idle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

from hexforge import _native

COUNT = 1 << 18
ROOM = _native.step_rooms()["table_u8"]
GIVEN = np.arange(COUNT + ROOM).astype(np.uint8)
STEPS = 12


def program() -> _native.Program:
    """Table after table, each worth several threads."""
    made = _native.Program(2 * (COUNT + 64))
    tables = np.random.default_rng(1).permuted(np.tile(np.arange(256, dtype=np.uint8), (STEPS, 1)), axis=1)
    ends = made.input_tensor(COUNT, ROOM), made.output_tensor(COUNT)
    arena = made.arena_tensor(0, COUNT), made.arena_tensor(COUNT + 64, COUNT)
    places = [ends[0], *(arena[i % 2] for i in range(STEPS - 1)), ends[1]]
    for i in range(STEPS):
        made.step("table_u8", [places[i]], [places[i + 1]], {"count": COUNT, "table": tables[i]})
    return made


def result(of: _native.Program, threads: int, **spinning: int) -> np.ndarray:
    """What one run gives."""
    out = np.zeros(COUNT, np.uint8)
    of.run([GIVEN], [out], threads, **spinning)
    return out


@pytest.mark.parametrize("threads", [2, 3, 5, 16, 64])
def test_every_number_of_threads_gives_the_same_bits(threads: int) -> None:
    made = program()
    want = result(made, 1)
    for _ in range(20):
        np.testing.assert_array_equal(result(made, threads), want)


def test_timed_steps_compute_what_a_run_does_and_say_what_would_be_split() -> None:
    made, out = program(), np.zeros(COUNT, np.uint8)
    steps = made.time_steps([GIVEN], [out], 8)
    np.testing.assert_array_equal(out, result(made, 1))
    assert len(steps) == STEPS
    assert all(loops == 1 and 0 < shared < alone for alone, shared, loops in steps)
    alone = made.time_steps([GIVEN], [out], 1)
    assert all(loops == 0 and one == shared for one, shared, loops in alone)


@pytest.mark.parametrize("spinning", [{"spin_us": 0, "spin_after_us": 0}, {"spin_us": 5, "spin_after_us": 0}])
def test_workers_that_sleep_between_loops_lose_none(spinning: dict[str, int]) -> None:
    made = program()
    want = result(made, 1)
    for _ in range(200):
        np.testing.assert_array_equal(result(made, 3, **spinning), want)


def test_runs_of_many_threads_share_the_workers() -> None:
    made = program()
    want = result(made, 1)
    wrong: list[int] = []

    def run(threads: int) -> None:
        for i in range(60):
            if not np.array_equal(result(made, threads, spin_us=i % 3 * 50), want):
                wrong.append(threads)

    runners = [threading.Thread(target=run, args=(1 + i % 4,)) for i in range(8)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_fork_while_threads_run_leaves_a_child_that_works() -> None:
    made = program()
    want = result(made, 4)
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            result(made, 3)

    runners = [threading.Thread(target=run) for _ in range(3)]
    for runner in runners:
        runner.start()
    try:
        for _ in range(25):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python's own advice against what is tested here
                child = os.fork()
            if child == 0:
                signal.alarm(60)  # a deadlock ends, too
                same = all(np.array_equal(result(made, threads), want) for threads in (2, 1, 4))
                os._exit(0 if same else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        for runner in runners:
            runner.join()
    np.testing.assert_array_equal(result(made, 4), want)


_IDLE = """
import time
from tests.native import test_parallel as t
made = t.program()
for _ in range(50):
    t.result(made, 4)
time.sleep(0.05)
start = time.process_time()
time.sleep(0.5)
print(time.process_time() - start)
"""


def test_idle_workers_use_no_cpu() -> None:
    done = subprocess.run([sys.executable, "-c", _IDLE], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 0.005  # of half a second


def test_a_worker_that_may_not_spin_sleeps_after_the_run() -> None:
    made = program()
    for _ in range(20):
        result(made, 2, spin_us=0, spin_after_us=0)
    start = time.process_time()
    time.sleep(0.2)
    assert time.process_time() - start < 0.05
