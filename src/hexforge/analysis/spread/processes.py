# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine as workers: each is a fresh interpreter whose standard error is kept for when it dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from hexforge.analysis.spread.workers import WorkerCode, WorkerDiedError, results_of
from hexforge.errors import HexforgeError

_LOG_BYTES = 2000
"""Of the end of a dead process's standard error, what its error tells."""
_READY = "ready"


class ProcessWorker:
    """A process that was started for the work and is asked through a pipe."""

    def __init__(self, code: WorkerCode) -> None:
        self._code, self._started = code, False

    def wait(self) -> None:
        """A process is started when there is work for it."""

    def _start(self) -> None:
        """Start the process and wait until it runs: one that dies before that would die again."""
        context = multiprocessing.get_context("spawn")  # onnxruntime's and our threads do not survive a fork
        self._pipe, far_end = context.Pipe()
        with tempfile.NamedTemporaryFile(prefix="hexforge-worker-", suffix=".log", delete=False) as log:
            self._log = Path(log.name)
        self._process = context.Process(target=_work, args=(far_end, self._code, str(self._log)), daemon=True)
        self._process.start()
        far_end.close()
        self._started = True
        try:
            assert self._pipe.recv() == _READY
        except (EOFError, OSError):
            raise HexforgeError(
                f"a worker process could not be started ({self._how_it_died()}); a script that asks for several jobs "
                "needs `if __name__ == '__main__':` around what it does"
            ) from None

    def run(self, tasks: list[Any]) -> list[Any]:
        """The results of some tasks."""
        try:
            if not self._started:
                self._start()
            self._pipe.send(tasks)
            done, answer = self._pipe.recv()
        except (EOFError, OSError):
            raise WorkerDiedError(self._how_it_died()) from None
        if not done:
            raise answer
        return list(answer)

    def _how_it_died(self) -> str:
        self._process.join()
        code = self._process.exitcode or 0
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
        if code == -signal.SIGKILL:
            how += ": out of memory, perhaps; fewer jobs need less"
        said = self._log.read_bytes()[-_LOG_BYTES:].decode(errors="replace").strip() if self._log.exists() else ""
        self._log.unlink(missing_ok=True)
        return f"{how}; it last said: {said.splitlines()[-1]}" if said else how

    def close(self) -> None:
        """End the process, and show what it wrote to standard error."""
        if not self._started:
            return
        self._pipe.close()
        self._process.terminate()
        self._process.join()
        if self._log.exists():
            sys.stderr.write(self._log.read_text(errors="replace"))
            self._log.unlink()


def _work(pipe: Connection, code: WorkerCode, log: str) -> None:
    """The process: tasks come and results go until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all of them: the one that asked says so
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    pipe.send(_READY)
    function = None
    while True:
        try:
            tasks = pipe.recv()
        except EOFError:
            return
        try:
            if function is None:
                function = code.make(*code.arguments)
            answer: tuple[bool, Any] = True, results_of(function, tasks)
        except Exception as error:
            answer = False, error
        try:
            pipe.send(answer)
        except BrokenPipeError:  # nobody asks for it any more
            return
