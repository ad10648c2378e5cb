# SPDX-License-Identifier: Apache-2.0
"""Programs of the phone: runners by name, each a command of hexforge in a process of its own, on the phone's chip.

A runner sees this computer's paths: a path of the phone in its arguments, in its input list or in its config file is
given as the way up to the phone's root and down again, and comes back in what the runner prints as the phone has it.

`hexforge phone perf-test` is onnxruntime_perf_test with its flags and lines, `run-model` what run_model of a deployed
folder does.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.storage import PhoneStorage
from hexforge.cli.arguments import pairs
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

HEXFORGE = (sys.executable, "-P", "-m", "hexforge")
"""hexforge's command line, with no code out of the folder that it works in (-P)."""
SOC = "{soc}"
"""In a command: the phone's chip."""
RUNNERS: Mapping[str, tuple[str, ...]] = {
    "qnn-net-run": ("tool", "--soc", SOC, "qnn-net-run"),
    "qnn-throughput-net-run": ("tool", "--soc", SOC, "qnn-throughput-net-run"),
    "qnn-context-binary-generator": ("tool", "--soc", SOC, "qnn-context-binary-generator"),
    "qnn-context-binary-utility": ("tool", "qnn-context-binary-utility"),
    "qnn-profile-viewer": ("tool", "qnn-profile-viewer"),
    "onnxruntime_perf_test": ("phone", "perf-test", "--soc", SOC),
    "run_model": ("phone", "run-model", "--soc", SOC),
    "qnn_executor_runner": ("executor-runner", "--soc", SOC),
    "qnn_llama_runner": ("llm", "llama-runner", "--soc", SOC),
}
"""What runs under a name of the phone, as arguments of hexforge."""
LISTS = frozenset({"--input_list", "--input_list_path"})
"""Flags whose file names other files, one inference a line."""
CONFIGS = frozenset({"--config_file", "--config"})
"""Flags whose JSON file may name other files."""


class Sink(Protocol):
    """Where a command writes."""

    def write(self, data: bytes, /) -> object:
        """Take some bytes."""


@dataclass(slots=True)
class Streams:
    """What a command reads and where it writes."""

    read: Callable[[], bytes]
    out: Sink
    err: Sink
    descriptor: int | None = None
    """What `read` reads, where that is a file of this process."""


class CallingShell(Protocol):
    """The shell that calls a command, as a command sees it."""

    phone: Phone
    working: str
    variables: dict[str, str]
    status: int

    def host(self, path: str, *, follow: bool = True) -> Path:
        """Where a path of the phone lies on this computer."""


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command as it is run: its name and arguments, its streams, and the shell that runs it."""

    name: str
    arguments: Sequence[str]
    streams: Streams
    shell: CallingShell

    def print(self, line: str) -> None:
        """Write a line."""
        self.streams.out.write(line.encode("utf-8", "surrogateescape") + b"\n")

    def fail(self, message: str, code: int = 1) -> int:
        """Write a line of error; the exit code."""
        self.streams.err.write(f"{self.name}: {message}\n".encode("utf-8", "surrogateescape"))
        return code


_MOST_LIST_BYTES = 64 << 20
_WAIT_S = 0.05
_SEPARATORS = re.compile(r"(:=|[,:|= ])")


def run_program(call: CommandCall) -> int | None:
    """Run a runner; None where a name is none. UnpluggedError where the phone is unplugged before it ends."""
    command = RUNNERS.get(call.name)
    if command is None:
        return None
    shell = call.shell
    with tempfile.TemporaryDirectory(prefix="hexforge-phone-") as folder:
        translated = Translated(shell.phone.storage, shell.working, Path(folder))
        arguments = translated.arguments(call.arguments)
        words = [shell.phone.soc.name if word == SOC else word for word in command]
        process = subprocess.Popen(
            [*HEXFORGE, *words, *arguments],
            cwd=shell.host("."),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=program_environment(),
        )
        code = _follow(call, process, translated)
    return 128 - code if code < 0 else code


def program_environment() -> dict[str, str]:
    """This process's variables for a program of the phone, whose folder is none of Python's paths."""
    paths = os.environ.get("PYTHONPATH", "")
    whole = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))  # noqa: PTH100 - "" is this folder
    return {**os.environ, "PYTHONPATH": whole if paths else "", "NO_COLOR": "1", "COLUMNS": "1000"}


def _follow(call: CommandCall, process: subprocess.Popen[bytes], translated: Translated) -> int:
    """Hand on what a process prints until it ends; an unplugged phone, an interrupt or an error ends it."""
    readers = [
        threading.Thread(target=_copy, args=(stream, sink, translated), daemon=True)
        for stream, sink in ((process.stdout, call.streams.out), (process.stderr, call.streams.err))
    ]
    try:
        for reader in readers:
            reader.start()
        while True:
            try:
                code = process.wait(_WAIT_S)
                break
            except subprocess.TimeoutExpired:
                call.shell.phone.require_plugged()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        for reader in readers:
            reader.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return code


def _copy(stream: Any, sink: Sink, translated: Translated) -> None:
    for line in stream:
        sink.write(translated.shown(line))


@dataclass(frozen=True, slots=True)
class Translated:
    """Paths of the phone for a program of this computer that runs in a folder of the phone."""

    storage: PhoneStorage
    working: str
    scratch: Path

    def arguments(self, words: Sequence[str]) -> list[str]:
        """Arguments with the phone's paths as this computer has them."""
        given: list[str] = []
        before = ""
        for word in words:
            flag, equals, value = word.partition("=")
            flag = flag if flag.startswith("-") and equals else ""
            value = value if flag else word
            named = flag or before
            if named in LISTS and not value.startswith("-"):
                value = ",".join(self._list(path, number) for number, path in enumerate(value.split(",")))
            elif named in CONFIGS and not value.startswith("-"):
                value = self._config(value)
            else:
                value = self.text(value)
            given.append(f"{flag}={value}" if flag else value)
            before = word if word.startswith("-") else ""
        return given

    def text(self, text: str) -> str:
        """A text with the paths in it as this computer has them; a name without folder stays as it is."""
        return "".join(self._path(part) if "/" in part or part == ".." else part for part in _SEPARATORS.split(text))

    def shown(self, text: bytes) -> bytes:
        """What a program prints, with paths as the phone has them."""
        root = os.fsencode(self.storage.folder)
        up = self.storage.way_up(self.working).encode()
        text = text.replace(root + b"/", b"/").replace(root, b"/")
        return text if up == b"." else text.replace(up + b"/", b"/")

    def _path(self, path: str) -> str:
        host = self.storage.host(path, self.working)
        return self.storage.way_up(self.working) + self.storage.phone_path(host)

    def _list(self, path: str, number: int) -> str:
        """An input list whose paths are this computer's; the list itself where it has none to change."""
        host = self.storage.host(path, self.working)
        if not host.is_file() or host.stat().st_size > _MOST_LIST_BYTES:
            return self.text(path)
        before = host.read_bytes().decode("utf-8", "surrogateescape")
        after = "".join(
            line if line.startswith(("#", "%")) else self.text(line) for line in before.splitlines(keepends=True)
        )
        return self.text(path) if after == before else self._written(f"list_{number}_{host.name}", after)

    def _config(self, path: str) -> str:
        """A config file whose paths are this computer's, and so of the config file that it names."""
        host = self.storage.host(path, self.working)
        try:
            before = json.loads(host.read_text("utf-8")) if host.stat().st_size <= _MOST_LIST_BYTES else None
        except (OSError, ValueError, RecursionError):
            return self.text(path)
        after = self._value(before)
        if after != before:
            _keep_reference(after, host.parent, self.storage.host(".", self.working))
        return self.text(path) if after == before else self._written(host.name, json.dumps(after))

    def _value(self, value: Any) -> Any:
        """A value of a config file, its paths as this computer has them."""
        if isinstance(value, list):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {key: self._value(item) for key, item in value.items()}
        if not isinstance(value, str) or not (value.startswith("/") or ".." in value.split("/")):
            return value
        return str(self.storage.host(value, self.working))

    def _written(self, name: str, text: str) -> str:
        path = self.scratch / name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        return str(path)


def _keep_reference(config: Any, folder: Path, working: Path) -> None:
    """Let a config file that is copied elsewhere still name the one that lay in its folder."""
    section: Any = config.get("backend_extensions") if isinstance(config, dict) else None
    named = section.get("config_file_path") if isinstance(section, dict) else None
    if isinstance(named, str) and named and not Path(named).is_absolute() and not (working / named).is_file():
        section["config_file_path"] = str(folder / named)


MOST_REQUESTS = 20_000
"""A test by duration ends after so many runs, however short they are."""


@dataclass(frozen=True, slots=True)
class PerfTestFlags:
    """What onnxruntime_perf_test is called with, and the chip."""

    model: Path = argument("The ONNX model, or a model with a context.")
    result_file: Path | None = argument("The time of each run is written there, as CSV.", default=None)
    provider: str = option("qnn", "The execution provider: qnn.", "-e")
    keys: str = option("", "Provider options: key|value pairs, spaces between.", "-i")
    session_keys: str = option("", "Session config entries; they change nothing here.", "-C")
    mode: str = option("duration", "duration or times.", "-m")
    repeat: int = option(1000, "Runs, with -m times.", "-r", min=1)
    seconds: float = option(600.0, "Seconds of the device, with -m duration.", "-t", min=0.0)
    generated: bool = option(False, "Inputs are generated; they always are here.", "-I")
    statistics: bool = option(False, "Print percentiles.", "-s")
    verbose: bool = option(False, "Accepted.", "-v")
    soc: str = option("", "The chip of the device.")


def perf_test(flags: PerfTestFlags) -> None:
    """Time a model as onnxruntime_perf_test does, with its flags and its lines, on the simulated device of a chip."""
    from hexforge.formats.files import write_atomically

    if flags.provider.lower() != "qnn":
        raise CallError(
            f"-e {flags.provider}: only the QNN execution provider has a device that is simulated; give -e qnn"
        )
    if flags.mode not in ("duration", "times"):
        raise CallError(f"-m {flags.mode}: is duration or times")
    session = _session(flags.model, flags.keys, flags.soc)
    times_us: list[float] = []
    while len(times_us) < (flags.repeat if flags.mode == "times" else MOST_REQUESTS):
        times_us.append(session.simulated.run().latency_us)
        if flags.mode == "duration" and sum(times_us) >= flags.seconds * 1e6:
            break
    total_s = sum(times_us) / 1e6
    say("Session creation time cost: 0 s (the simulated device does not time it)")
    say(f"First inference time cost: {times_us[0] / 1e3:.3f} ms")
    say(f"Total inference time cost: {total_s:.6f} s")
    say(f"Total inference requests: {len(times_us)}")
    say(f"Average inference time cost: {1e3 * total_s / len(times_us):.6f} ms")
    say(f"Total inference run time: {total_s:.6f} s")
    say(f"Number of inferences per second: {len(times_us) / total_s:.4f}")
    if flags.statistics:
        ordered = sorted(times_us)
        for part in (50, 90, 95, 99, 99.9):
            rank = min(len(ordered) - 1, int(len(ordered) * part / 100))
            say(f"P{part} Latency: {ordered[rank] / 1e6:.9f} s")
    if flags.result_file is not None:
        rows = "".join(f"{flags.model.name},{us / 1e6:.9f}\n" for us in times_us)
        write_atomically(flags.result_file, rows.encode())


def _session(model: Path, keys: str, soc: str) -> Any:
    """A session whose numbers were computed once, so that a model that does not run is no result."""
    from hexforge.cli.runnable import feeds_for

    options: dict[str, str] = {}
    for pair in keys.split():
        key, bar, value = pair.partition("|")
        if not bar:
            raise CallError(f"-i {pair!r}: provider options are key|value pairs with spaces between")
        options[key] = value
    session = session_on_chip(model, options, soc)
    session.run(None, feeds_for(session.get_inputs(), {}))
    return session


def session_on_chip(model: Path, options: Mapping[str, str], soc: str) -> Any:
    """A session with a phone's provider options, on the simulated device of the phone's chip."""
    from hexforge.ort import InferenceSession

    chip = soc or options.get("soc_model", "")
    if not chip:
        raise CallError("--soc is missing; on a virtual phone it is the phone's chip")
    given = {"backend_path": "libQnnHtp.so", **options, "soc_model": chip}
    return InferenceSession(str(model), providers=["QNNExecutionProvider"], provider_options=[given])


def run_model(
    model: Path = argument("The ONNX model.", exists=True, dir_okay=False),
    inputs: Path = argument("Folder with SAMPLE/NUMBER.raw files.", exists=True, file_okay=False),
    outputs: Path = argument("Folder for the same of the outputs."),
    times: int = argument("Runs that are timed.", default=100, min=1),
    option: list[str] | None = argument("Provider options: KEY=VALUE.", default=None),
    soc: str = option("", "The chip of the device."),
) -> None:
    """Run a model on files of raw inputs, write files of raw outputs, and time it on the simulated device of a chip."""
    import numpy as np

    session = session_on_chip(model, pairs(option, "provider option"), soc)
    count = 0
    while (inputs / str(count)).is_dir():
        feeds = {}
        for number, value in enumerate(session.get_inputs()):
            path, dtype = inputs / str(count) / f"{number}.raw", value.dtype
            data = path.read_bytes() if path.is_file() else b""
            if dtype is None or len(data) != dtype.itemsize * int(np.prod(value.shape)):
                raise CallError(f"{path}: has {len(data)} bytes; {value.name} is {value.type} of {value.shape}")
            feeds[value.name] = np.frombuffer(data, dtype).reshape(value.shape)
        (outputs / str(count)).mkdir(parents=True, exist_ok=True)
        for number, result in enumerate(session.run(None, feeds)):
            (outputs / str(count) / f"{number}.raw").write_bytes(np.ascontiguousarray(result).tobytes())
        count += 1
    times_us = [session.simulated.run().latency_us for _ in range(times)]
    say(f"{count} samples were run")
    say(f"Average inference time cost: {sum(times_us) / 1e3 / times:.6f} ms")
