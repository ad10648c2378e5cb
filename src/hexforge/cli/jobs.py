# SPDX-License-Identifier: Apache-2.0
"""Jobs: commands that run in processes of their own, confined to folders, with progress, an end and what they printed.

A model that kills its process kills a job and nothing else; a job that is cancelled ends with everything it started.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hexforge.cli.command_forms import CommandForm, Folders
from hexforge.cli.progress_lines import EVENTS, VARIABLE

_MOST_OUTPUT = 16 << 20
"""Bytes that a command may print; what prints more is ended."""
_KEPT_ERRORS = 20
"""Lines of standard error that are kept, the last ones."""
_LINE = 1 << 16

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended."""

    code: int
    """The exit code; below 0 the signal that ended it."""
    data: Any
    """What it printed as JSON; None where it prints none."""
    text: str
    """What it printed, where that is no JSON."""
    said: str
    """The last lines of what it said beside, an error among them."""

    @property
    def failed(self) -> bool:
        """True where it gave no result: a gate that is not passed (exit code 1) gives one."""
        return self.code not in (0, 1) or (self.code == 1 and self.data is None)


async def run_job(
    form: CommandForm,
    given: Mapping[str, Any],
    folders: Folders,
    progress: Progress = lambda what, done, of: None,
    seconds: float = 3600.0,
) -> JobOutcome:
    """Run a command and wait for its end, or end it where the waiting is cancelled or takes too long.

    CallError where what is given does not fit the command, or names a file elsewhere.
    """
    typed = form.arguments(given, folders)
    with tempfile.TemporaryDirectory(prefix="hexforge-job-") as scratch:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "hexforge.cli.confinement", *map(str, folders.roots), "--", *typed,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            cwd=folders.roots[0], env=_environment(scratch), start_new_session=True, limit=_LINE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(seconds):
                printed, said = await asyncio.gather(_printed(process), _said(process, progress))
                code = await process.wait()
        except TimeoutError:
            return JobOutcome(-1, None, "", f"hexforge: took more than {seconds:g} s and was ended")
        finally:
            _end(process)
            await process.wait()
    try:
        data = json.loads(printed) if form.prints_json else None
    except ValueError:
        data = None
    text = "" if data is not None else printed.decode(errors="replace")
    if code < 0 and not said:
        said = f"hexforge: its process was ended by signal {-code}"
    return JobOutcome(code, data, text, said)


def _environment(scratch: str) -> dict[str, str]:
    """The environment of a job: nothing of this program's secrets, and a folder of its own for scratch files."""
    kept = {name: value for name in ("PATH", "LANG", "LC_ALL", "SYSTEMROOT", "VIRTUAL_ENV", "LD_LIBRARY_PATH")
            if (value := os.environ.get(name))}  # fmt: skip
    return kept | {"HOME": scratch, "TMPDIR": scratch, "TEMP": scratch, "NO_COLOR": "1", VARIABLE: EVENTS}


async def _printed(process: asyncio.subprocess.Process) -> bytes:
    assert process.stdout is not None
    data = b""
    while piece := await process.stdout.read(_LINE):
        data += piece
        if len(data) > _MOST_OUTPUT:
            _end(process)
            return b""
    return data


async def _said(process: asyncio.subprocess.Process, progress: Progress) -> str:
    """The last lines of standard error; those that are progress are told."""
    assert process.stderr is not None
    lines: list[str] = []
    rest = b""
    while piece := await process.stderr.read(_LINE):
        *whole, rest = (rest + piece).split(b"\n")
        rest = rest[-_LINE:]
        for line in whole:
            if not _told(line, progress):
                lines = [*lines[1 - _KEPT_ERRORS :], line.decode(errors="replace")]
    return "\n".join([*lines, rest.decode(errors="replace")]).strip()


def _told(line: bytes, progress: Progress) -> bool:
    """Tell the progress that a line is about; False where it is none."""
    if not line.startswith(b'{"progress":'):
        return False
    try:
        event = json.loads(line)
        progress(str(event["progress"]), int(event["done"]), int(event["of"]))
    except (ValueError, KeyError, TypeError):
        return False
    return True


def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and everything that it started."""
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
