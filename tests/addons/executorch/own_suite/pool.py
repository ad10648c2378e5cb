# SPDX-License-Identifier: Apache-2.0
"""Processes that share ExecuTorch's tests: one that ends, or takes too long for a test, is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from hexforge.addons.capi.library import lib_path
from tests.addons.executorch.own_suite.output_steps import Measured
from tests.addons.executorch.own_suite.worker import SEED, Outcome

WORKER = "tests.addons.executorch.own_suite.worker"
START_SECONDS = 300.0
"""In which a process has to be ready; a test's own limit counts from then."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of tests (of the newer tests a file), and the group that the vendor's count is for."""

    name: str
    module: str
    group: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """How tests are run; what decides their outcomes, but for the limit."""

    limit: float = 900.0
    """Seconds that a test may take."""
    no_skips: bool = False
    seed: int = SEED
    backend: str = "htp"
    adaptor: str = "stand-in"
    """Who answers for PyQnnManagerAdaptor: hexforge's `stand-in`, or the `wheel`'s own over hexforge's libraries."""

    def environment(self) -> dict[str, str]:
        """What a process of these tests has in its environment."""
        if self.adaptor == "stand-in":
            return {}
        return {"LD_LIBRARY_PATH": str(lib_path()), "HEXFORGE_PYTHON": sys.executable}


class Worker:
    """A process that runs tests, in a session and a folder of its own: nothing of it is left when it is ended."""

    def __init__(self, conditions: Conditions, program: str = WORKER) -> None:
        self.conditions, self.program = conditions, program
        self._process: subprocess.Popen[str] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._module = ""
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def tests(self, suite: Suite) -> list[str]:
        """The tests of a class."""
        (names,) = self._ask({"suite": suite.name, "module": suite.module})
        return list(names)

    def run(self, suite: Suite, test: str) -> Iterator[Outcome]:
        """The outcomes of a test: one, or one for each of its parameters."""
        if suite.module != self._module:  # pytest takes one file of several with one name for another
            self.close()
        self._module = suite.module
        start = time.monotonic()
        answered = False
        try:
            for answer in self._ask({"suite": suite.name, "module": suite.module, "test": test}):
                answered = True
                yield outcome(answer)
        except (TimeoutError, EOFError) as error:
            yield Outcome(suite.name, test, "failed", str(error), round(time.monotonic() - start, 1))
        else:
            if not answered:
                yield Outcome(suite.name, test, "failed", "cannot be collected")

    def close(self) -> None:
        """Let the process end; at once where it takes longer than ten seconds."""
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._wait()
        self.kill()

    def _wait(self) -> None:
        """Give a process that is ending the time to do so."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            if self._process is not None:
                self._process.wait(10)

    def kill(self) -> int:
        """End the process and all that it began; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        code = process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.cleanup()
        return code

    def _start(self) -> subprocess.Popen[str]:
        self._folder = tempfile.TemporaryDirectory(prefix="executorch-tests-")
        self._process = subprocess.Popen(
            [sys.executable, "-m", self.program, self.conditions.adaptor], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, **self.conditions.environment(), "TMPDIR": self._folder.name},
        )  # fmt: skip
        self._lines = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
        for _ in self._answers(START_SECONDS):
            pass
        return self._process

    def _ask(self, request: dict[str, Any]) -> Iterator[Any]:
        process = self._process
        if process is None:
            process = self._start()
            request = {**request, "no_skips": self.conditions.no_skips, "backend": self.conditions.backend}
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps({**request, "seed": self.conditions.seed}) + "\n")
            process.stdin.flush()
        yield from self._answers(self.conditions.limit)

    def _answers(self, limit: float) -> Iterator[Any]:
        """What the process answers until its empty line."""
        end = time.monotonic() + limit
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise TimeoutError(f"took longer than {limit:.0f} s") from None
            if line == "\n":
                return
            if not line:
                self._wait()
                raise EOFError(f"its process ended with code {self.kill()}")
            yield json.loads(line)


def _read(stream: Any, lines: queue.SimpleQueue[str]) -> None:
    """Lines as they come, and an empty one at the end."""
    with stream:
        for line in stream:
            lines.put(line)
    lines.put("")


def outcome(row: dict[str, Any]) -> Outcome:
    """An outcome as it was written."""
    known = {f.name for f in fields(Outcome)}
    return Outcome(
        **{**{k: v for k, v in row.items() if k in known}, "measured": [Measured(**m) for m in row.get("measured", ())]}
    )


def shared(
    wanted: Sequence[tuple[Suite, str]], jobs: int, conditions: Conditions, program: str = WORKER
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of tests as they come, from several processes, each with how many tests had begun."""
    left: queue.SimpleQueue[tuple[int, Suite, str]] = queue.SimpleQueue()
    outcomes: queue.SimpleQueue[tuple[int, Outcome] | None] = queue.SimpleQueue()
    for number, item in enumerate(wanted):
        left.put((number + 1, *item))
    workers = [Worker(conditions, program) for _ in range(max(1, min(jobs, len(wanted))))]

    def work(worker: Worker) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                number, suite, test = left.get_nowait()
                for one in worker.run(suite, test):
                    outcomes.put((number, one))
        worker.close()
        outcomes.put(None)

    for worker in workers:
        threading.Thread(target=work, args=(worker,), daemon=True).start()
    running = len(workers)
    try:
        while running:
            if (one := outcomes.get()) is None:
                running -= 1
            else:
                yield one
    finally:  # stopped from outside: nothing goes on behind it
        for worker in workers:
            worker.kill()
