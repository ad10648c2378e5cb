# SPDX-License-Identifier: Apache-2.0
"""Compiling: OpenCL C becomes a device's binary, here and in other processes.

NVIDIA's driver compiles one kernel at a time in a process, however many threads ask: on an H200 75 kernels of a network
take 10 s, with 8 threads 7 s, in 8 processes 1.6 s once they are up. So where many kernels are missing, some processes
are started that take kernels from the same queue as this one's threads do, until none is left. They are new processes
of this Python (nothing is forked), get sources and give binaries back line by line, and end with their standard input.
What one does not give back is compiled here.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from multiprocessing import spawn
from pathlib import Path
from typing import IO, Any, cast

from hexforge.addons.gpu.device import ClDevice, devices, opencl
from hexforge.backend import processors

FEWEST = 20
"""Missing kernels that processes are started for: they take 1.5 s, in which this one compiles nearly as many."""
MOST = 8
_HERE = 2
"""Kernels that this process itself compiles at a time: a driver that takes turns gains nothing from more."""
_MEMORY_EACH = 4 << 30
"""Bytes of the device for each process: a context takes 0.5 GiB on an H200, and an eighth of all memory is spared."""


class _Silence:
    """While any thread is inside, nobody hears what a driver says about kernels that it compiled all the same.

    `warnings.catch_warnings` is for one thread: the first to leave would bring back the others' warnings.
    """

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._filter: Any = None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._filter not in warnings.filters:
                warnings.filterwarnings("ignore", category=opencl().CompilerWarning)
                self._filter = warnings.filters[0]

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and self._filter in warnings.filters:
                cast("list[Any]", warnings.filters).remove(self._filter)


silence = _Silence()


def compiled_program(device: ClDevice, source: str, options: str) -> Any:
    """A program compiled from its source in this process; OpenCL's error where that fails."""
    with silence:
        return opencl().Program(device.context, source).build(options, [device.handle], cache_dir=False)


def binary_of(program: Any) -> bytes:
    """What a program was compiled to."""
    return bytes(program.get_info(opencl().program_info.BINARIES)[0])


def helpful_processes(device: ClDevice, missing: int) -> int:
    """How many processes to start for so many missing kernels; 0 where threads of this one do as well."""
    if device.platform != "NVIDIA CUDA" or missing < FEWEST:
        return 0
    count = min(MOST, processors() - 1, device.memory_bytes // _MEMORY_EACH, missing // 2)
    return count if count > 1 and _python() else 0


def _python() -> str:
    """The command of this Python, or nothing in a program that Python is only a part of."""
    command = os.fsdecode(spawn.get_executable() or "")
    return command if Path(command).name.lower().startswith(("python", "pypy")) else ""


class CompilerProcess:
    """A process that compiles for one device; it is up once it has said so."""

    def __init__(self, device: ClDevice, options: str) -> None:
        command = [_python(), "-P", "-m", __name__, str(devices().index(device)), device.name, device.driver, options]
        path = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": path}, encoding="utf-8",
        )  # fmt: skip

    def is_up(self) -> bool:
        """Wait until it is ready; False where it is not going to be."""
        assert self._process.stdout is not None
        return self._process.stdout.readline() == "ready\n"

    def compiled(self, source: str) -> bytes | None:
        """The binary of a source; None where it did not compile or the process is gone."""
        given, taken = self._process.stdin, self._process.stdout
        assert given is not None
        assert taken is not None
        try:
            given.write(json.dumps(source) + "\n")
            given.flush()
            return base64.b64decode(taken.readline().strip(), validate=True) or None
        except (OSError, ValueError, binascii.Error):
            return None

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked again."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it now: what it was doing is of no use any more."""
        self._process.kill()

    def end(self) -> None:
        """End it, and wait for that."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


class Compilers:
    """Who compiles: threads of this process, and some others as soon as they are up."""

    def __init__(self, device: ClDevice, options: str, count: int) -> None:
        self.count = count
        self._device, self._options = device, options
        self._free: queue.SimpleQueue[CompilerProcess | None] = queue.SimpleQueue()
        self._processes: list[CompilerProcess] = []
        self._lock, self._done = threading.Lock(), threading.Event()
        for _ in range(_HERE):
            self._free.put(None)

    @property
    def threads(self) -> int:
        """Kernels that are compiled at a time."""
        return self.count + _HERE

    def __enter__(self) -> Compilers:
        for _ in range(self.count):
            threading.Thread(target=self._attend, name="hexforge-gpu-compiler").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        with self._lock:
            for process in self._processes:
                process.kill()

    def _attend(self) -> None:
        """Start a process, let it be asked, and see it off when all is done: who waits for kernels need not."""
        try:
            with self._lock:
                if self._done.is_set():
                    return
                process = CompilerProcess(self._device, self._options)
                self._processes.append(process)
        except OSError:  # no more processes, or no memory for one
            return
        try:
            if process.is_up():
                self._free.put(process)
            self._done.wait()
        finally:
            process.end()

    @contextlib.contextmanager
    def turn(self) -> Iterator[CompilerProcess | None]:
        """A process that is free, or None for a turn in this one."""
        process = self._free.get() if self.count else None
        try:
            yield process
        finally:
            if process is None or process.is_alive:
                self._free.put(process)


def main(given: IO[str], wanted: tuple[str, str, str, str]) -> None:
    """Compile what comes in, one source in a line, for the device of that number if it is the one that is meant."""
    number, name, driver, options = wanted
    lines = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a driver prints is no binary
    device = devices()[int(number)]
    if (device.name, device.driver) != (name, driver):
        return
    device.context  # noqa: B018 - made now, while nobody waits
    print("ready", file=lines, flush=True)
    for line in given:
        try:
            binary = binary_of(compiled_program(device, json.loads(line), options))
        except (opencl().Error, RuntimeError):
            binary = b""  # who asked finds out why
        print(base64.b64encode(binary).decode(), file=lines, flush=True)


if __name__ == "__main__":
    main(sys.stdin, (sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]))
