# SPDX-License-Identifier: Apache-2.0
"""Finished work: the results of tasks in a file that grows by a checked line each, so that a job can go on."""

from __future__ import annotations

import json
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from hexforge.errors import CallError, FormatError

_KIND = "hexforge finished work 1"


_LOCKED_BYTE = 1 << 40
"""Windows locks bytes and not files; this one is behind any that is written."""


def _lock(file: BinaryIO) -> None:
    """Take a file's lock, which ends with its process; BlockingIOError where another process has it."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(_LOCKED_BYTE)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            raise BlockingIOError from None
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _line(key: str, result: Any) -> bytes:
    """A result as a line of the file, its checksum first."""
    text = json.dumps([key, result]).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


class FinishedWork(Mapping[str, Any]):
    """Results by the key of their task; adding one writes it to the disk before it counts."""

    def __init__(self, path: str | Path, job: str) -> None:
        """Open or begin the file of a job; `job` says all that results depend on, and is the same when it goes on."""
        self.path, self._results = Path(path), dict[str, Any]()
        try:
            self._file = self.path.open("a+b")
            _lock(self._file)
        except BlockingIOError:
            self._file.close()
            raise CallError(f"{self.path}: another process works on this job; wait for it or name another") from None
        except OSError as error:
            raise CallError(f"{self.path}: cannot be written: {error.strerror}") from None
        try:
            self._read(job)
        except BaseException:
            self.close()
            raise

    def _read(self, job: str) -> None:
        self._file.seek(0)
        whole = 0
        *lines, unfinished = self._file.read().split(b"\n")
        if not lines and not _line(_KIND, job).startswith(unfinished):
            raise FormatError(f"{self.path}: is no file of finished work; name another, which is made")
        for number, line in enumerate(lines):
            key, result = self._parsed(line, number)
            if number == 0 and (key, result) != (_KIND, job):
                raise CallError(
                    f"{self.path}: is of another job (models, options or version differ); name another file, or remove "
                    "this one to begin again"
                )
            if number:
                self._results[key] = result
            whole += len(line) + 1
        self._file.truncate(whole)
        if not whole:
            self._write(_KIND, job)

    def _parsed(self, line: bytes, number: int) -> tuple[str, Any]:
        try:
            check, _, text = line.partition(b" ")
            if int(check, 16) != zlib.crc32(text):
                raise ValueError
            key, result = json.loads(text)
            return str(key), result
        except ValueError:
            raise FormatError(
                f"{self.path}: line {number + 1} is damaged; remove it and all after it, or the file to begin again"
            ) from None

    def _write(self, key: str, result: Any) -> None:
        try:
            self._file.write(_line(key, result))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise CallError(f"{self.path}: cannot be written: {error.strerror}") from None

    def add(self, key: str, result: Any) -> None:
        """Keep the result of a task, which is plain JSON."""
        self._write(key, result)
        self._results[key] = result

    def __getitem__(self, key: str) -> Any:
        return self._results[key]

    def __iter__(self) -> Any:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)

    def close(self) -> None:
        """Let others have the file."""
        self._file.close()

    def __enter__(self) -> FinishedWork:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
