# SPDX-License-Identifier: Apache-2.0
"""Recording: the QNN calls of a session as a text that people read, and the bytes of its tensors beside it.

`saver_output.c` has a call a line, `Name(argument, …);`, whose arguments are JSON; `"params.bin@offset:bytes"` is a
place in `params.bin`. Lines are written whole, in order, as calls are made, so what a crash leaves can be replayed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hexforge.errors import CallError, FormatError

SCRIPT, PARAMS = "saver_output.c", "params.bin"
VERSION = 1
_HEAD = (
    f"// QNN calls recorded by hexforge, version {VERSION}: arguments are JSON, {PARAMS}@offset:bytes are bytes there."
)
_CALL = re.compile(r"([A-Za-z]+_[A-Za-z]+)\((.*)\);")
_PLACE = re.compile(rf"{re.escape(PARAMS)}@(\d{{1,18}}):(\d{{1,18}})")
_LONGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A call: its name and arguments, and its line."""

    name: str
    arguments: tuple[Any, ...]
    line: int


class Recorder:
    """Writes a recording into a new folder; safe to use from several threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = _new_folder(folder)
        self._lock = threading.Lock()
        self._places: dict[bytes, str] = {}
        self._offset = 0
        self._script = (self.folder / SCRIPT).open("x", encoding="utf-8")
        self._params = (self.folder / PARAMS).open("xb")
        weakref.finalize(self, _close, self._script, self._params)
        self._line(_HEAD)

    def call(self, name: str, *arguments: Any) -> None:
        """Write a call."""
        texts = ", ".join(json.dumps(argument, allow_nan=False) for argument in arguments)
        with self._lock:
            self._line(f"{name}({texts});")

    def put(self, data: bytes) -> str:
        """Keep bytes, the same ones once; where they are."""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        with self._lock:
            if digest not in self._places:
                self._write(self._params, data)
                self._places[digest] = f"{PARAMS}@{self._offset}:{len(data)}"
                self._offset += len(data)
            return self._places[digest]

    def _line(self, text: str) -> None:
        self._write(self._script, text + "\n")

    def _write(self, file: Any, data: Any) -> None:
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            raise CallError(f"{self.folder}: the recording cannot be written: {error.strerror or error}") from None


def _close(*files: IO[Any]) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # whoever wrote last was told of a full disk
            file.close()


def _new_folder(folder: Path) -> Path:
    """The folder, or the first numbered one beside it that is not there yet: no recording is lost."""
    for number in range(10_000):
        free = folder if not number else folder.with_name(f"{folder.name}_{number}")
        try:
            free.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise CallError(f"{free}: cannot be made: {error.strerror or error}") from None
        return free
    raise CallError(f"{folder}: there are too many recordings; remove some")


class Recording:
    """A recording that was opened."""

    def __init__(self, path: Path) -> None:
        self.folder = path if path.is_dir() else path.parent
        self.script = self.folder / SCRIPT if path.is_dir() else path
        for file in (self.script, self.folder / PARAMS):
            if not file.is_file():
                raise CallError(f"{file}: there is no such file; a recording is a folder with {SCRIPT} and {PARAMS}")
        self._size = (self.folder / PARAMS).stat().st_size

    def calls(self) -> Iterator[RecordedCall]:
        """The calls in order; FormatError with the line of what is none. A last line that was cut off is left out."""
        with self.script.open(encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(iter(lambda: file.readline(_LONGEST), ""), 1):
                where = f"{self.script}: line {number}"
                if not text.endswith("\n"):
                    if len(text) >= _LONGEST:
                        raise FormatError(f"{where}: is too long")
                    return
                if number == 1 and text.strip() != _HEAD:
                    raise FormatError(f"{where}: is no recording of hexforge, version {VERSION}")
                if not text.strip() or text.startswith("//"):
                    continue
                yield _parsed(text.strip(), number, where)

    def bytes_at(self, place: Any, call: RecordedCall) -> bytes:
        """The bytes of a place in the file beside it."""
        match = _PLACE.fullmatch(place) if isinstance(place, str) else None
        where = f"{self.script}: line {call.line}"
        if match is None:
            raise FormatError(f"{where}: {place!r} is no place in {PARAMS}")
        offset, size = int(match[1]), int(match[2])
        if offset + size > self._size:
            raise FormatError(f"{where}: {place} is beyond the end of {PARAMS}, which has {self._size:,} bytes")
        with (self.folder / PARAMS).open("rb") as file:
            file.seek(offset)
            return file.read(size)


def _parsed(text: str, number: int, where: str) -> RecordedCall:
    match = _CALL.fullmatch(text)
    if match is None:
        raise FormatError(f"{where}: is no call: {text[:60]!r}")
    try:
        arguments = json.loads(f"[{match[2]}]")
    except (ValueError, RecursionError):
        raise FormatError(f"{where}: the arguments of {match[1]} are no JSON") from None
    return RecordedCall(match[1], tuple(arguments), number)
