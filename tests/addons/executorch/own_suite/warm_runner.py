# SPDX-License-Identifier: Apache-2.0
"""A runner for many runs: a process that has imported it forks one for each.

`WarmRunner(folder, adaptor).script` is a program that takes the runner's flags, writes its output and ends with its
exit code: `hexforge executor-runner` behind the stand-in, the wheel's own runtime behind the wheel's own adaptor.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

_CLIENT = """#!{python} -ISB
import os, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({address!r})
words = [os.getcwd(), *sys.argv[1:]]
line.sendall(b"\\0".join(os.fsencode(w) for w in words) + b"\\0\\0")
said = b"".join(iter(lambda: line.recv(65536), b""))
sys.stdout.buffer.write(said[:-1])
sys.exit(said[-1] if said else 1)
"""


class WarmRunner:
    """A process that forks a runner for each call of `script`; ends with the one that made it."""

    def __init__(self, folder: Path, adaptor: str) -> None:
        self.script = folder / "qnn_executor_runner"
        address = folder / "runner.socket"
        self.script.write_text(_CLIENT.format(python=sys.executable, address=str(address)))
        self.script.chmod(0o755)
        self._process = subprocess.Popen([sys.executable, __file__, str(address), adaptor], stdin=subprocess.PIPE,
                                         stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": _path()})  # fmt: skip
        assert self._process.stdout is not None
        self._process.stdout.readline()  # it listens

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.terminate()
        self._process.wait()


def _path() -> str:
    return os.pathsep.join(p for p in sys.path if p)


def _own_runner() -> Callable[[Sequence[str]], None]:
    """`hexforge executor-runner`, with what a run imports."""
    from hexforge.cli import main
    from hexforge.runtime import registry

    with contextlib.suppress(ImportError):
        import torch  # noqa: F401 - what leftover operators run with
    registry.backend()  # what a run imports is imported once, for all: that backend, and what reads its flags
    silent = io.StringIO()
    with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent), contextlib.suppress(SystemExit):
        main(["executor-runner", "--model_path", os.devnull, "--input_list_path", os.devnull])
    return lambda words: main(["executor-runner", *words])


def _stock_runner() -> Callable[[Sequence[str]], None]:
    """The wheel's runtime; a QNN library is opened by the run itself."""
    import executorch.exir.tensor
    import executorch.extension.pybindings.portable_lib  # noqa: F401

    from tests.addons.executorch.own_suite.stock_runner import main

    return main


def serve(address: str, adaptor: str) -> None:
    """Take calls, one after the other, until the parent ends this process."""
    run = _own_runner() if adaptor == "stand-in" else _stock_runner()
    gc.freeze()  # what is there by now, no run need look through for garbage

    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    print("listening", flush=True)
    while True:
        line, _ = listening.accept()
        sent = b""
        while not sent.endswith(b"\0\0"):
            sent += line.recv(65536)
        here, *words = (os.fsdecode(word) for word in sent[:-2].split(b"\0"))
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            line.sendall(bytes([os.waitstatus_to_exitcode(status) & 0xFF]))
            line.close()
            continue
        os.chdir(here)
        for stream in (1, 2):
            os.dup2(line.fileno(), stream)
        code = 0
        try:
            run(words)
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            if isinstance(stop.code, str):
                print(stop.code)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
