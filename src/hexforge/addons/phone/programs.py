# SPDX-License-Identifier: Apache-2.0
"""Programs of the phone: runners by name, each a command of hexforge in a process of its own, on the phone's chip.

A runner sees this computer's paths: a path of the phone in its arguments, in its input list or in its config file is
given as the way up to the phone's root and down again, and comes back in what the runner prints as the phone has it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.phone.shell import CommandCall, Sink
from hexforge.addons.phone.storage import PhoneStorage

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
            env={**_environment(), "NO_COLOR": "1", "COLUMNS": "1000"},
        )
        code = _follow(call, process, translated)
    return 128 - code if code < 0 else code


def _environment() -> dict[str, str]:
    """This process's variables; no folder among Python's paths is where a runner works, which is the phone's."""
    paths = os.environ.get("PYTHONPATH", "")
    whole = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))  # noqa: PTH100 - "" is this folder
    return {**os.environ, "PYTHONPATH": whole if paths else ""}


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
        self.storage.host(path, self.working)  # OSError where a link leads out
        return self.storage.way_up(self.working) + self.storage.absolute(path, self.working)

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
