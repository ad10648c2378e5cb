# SPDX-License-Identifier: Apache-2.0
"""Any program run under the sanitizer of QNN's C API: its findings, and a recording of what it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.capi.compiler_process import RECORD
from hexforge.addons.capi.library import lib_path
from hexforge.errors import CallError

CALLS = "calls.jsonl"
"""The file of a recording that has a line for each call."""


@dataclass(frozen=True, slots=True)
class Misuse:
    """A misuse of the API: the rule, the call with its arguments, what is wrong and what to do."""

    rule: str
    call: str
    arguments: str
    message: str
    advice: str
    code: int
    process: int
    thread: int

    def as_json(self) -> dict[str, Any]:
        """The finding as an object of JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """How a program ended, and what was found."""

    exit_code: int
    """128 and the signal's number where a signal ended it."""
    findings: tuple[Misuse, ...]


def trace(program: Sequence[str], recording: Path | None = None, quiet: bool = False) -> TracedProgram:
    """Run a program with hexforge's libraries first on its library path; with `quiet` its output goes to stderr.

    `recording` is a new folder for the graphs, executions and calls of the program; `hexforge replay` runs it again.
    """
    if recording is not None and recording.exists():
        raise CallError(f"{recording}: is there already; a recording needs a new folder")
    with tempfile.TemporaryDirectory(prefix="hexforge-trace-") as folder:
        findings, calls = Path(folder, "findings"), Path(folder, "calls")
        paths = [str(lib_path()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        settings = {"LD_LIBRARY_PATH": os.pathsep.join(paths), "HEXFORGE_QNN_CHECK": str(findings)}
        if recording is not None:
            settings |= {RECORD: str(recording.absolute()), "HEXFORGE_QNN_CALLS": str(calls)}
        environment = {"HEXFORGE_PYTHON": sys.executable, **os.environ, **settings}
        try:
            ended = subprocess.run([*program], env=environment, stdout=sys.stderr if quiet else None, check=False)
        except OSError as error:
            raise CallError(f"{program[0]}: cannot be run: {error.strerror or error}") from None
        if recording is not None:
            recording.mkdir(parents=True, exist_ok=True)  # a program that built no graph has calls all the same
            (recording / CALLS).write_bytes(calls.read_bytes() if calls.exists() else b"")
        lines = findings.read_text(encoding="utf-8", errors="replace").splitlines() if findings.exists() else []
    code = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    return TracedProgram(code, tuple(Misuse(**json.loads(line)) for line in lines))
