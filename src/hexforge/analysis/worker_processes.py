# SPDX-License-Identifier: Apache-2.0
"""Processes of this machine as workers: each is a fresh interpreter whose standard error is kept for when it dies."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

from hexforge.analysis.workers import WorkerCode, WorkerDiedError, results_of
from hexforge.errors import HexforgeError

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
