# SPDX-License-Identifier: Apache-2.0
"""Recording: the QNN calls of a session as a program in C, and a file with the bytes of its tensors.

`saver_output.c` is a program of real QNN calls (c_program.py). Above each call a comment has it in one line,
`// Name(argument, …);`, which is what hexforge reads again: an argument is a text, `QNN_JSON("…")`, `QNN_NAMES("…",
NULL)`, `QNN_DATA(offset, bytes)` for a place in `params.bin`, or a type of tensors. Calls are written whole, in order,
as they are made, and the end of the program behind each of them, so what a crash leaves compiles and can be replayed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hexforge.addons.saver.c_program import HEAD, TAIL, CProgram, literal
from hexforge.errors import CallError, FormatError

SCRIPT, PARAMS = "saver_output.c", "params.bin"
VERSION = 3
_FIRST = f"// QNN calls recorded by hexforge, version {VERSION}: a program for any library of QNN's."
_HEAD = f"{_FIRST}\n// cc {SCRIPT} -I$(hexforge lib-path --include) -ldl -o replay && ./replay libQnnHtp.so\n{HEAD}"
_CALL = re.compile(r"  // (Qnn[A-Za-z]+_[A-Za-z]+)\((.*)\);")
_TEXT = r'"(?:[^"\\\n]|\\.)*"'
_ARGUMENT = re.compile(
    rf"(?P<json>QNN_JSON\({_TEXT}\))|(?P<names>QNN_NAMES\((?:{_TEXT}|NULL)(?:, (?:{_TEXT}|NULL))*\))"
    rf"|(?P<text>{_TEXT})|QNN_DATA\((?P<offset>\d{{1,18}}), (?P<size>\d{{1,18}})\)|(?P<word>QNN_[A-Z_]+)"
)
_ESCAPE = re.compile(rb'\\([0-3][0-7]{2}|["\\])')
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
        self.program = CProgram(self.put)
        self.numbers = itertools.count()
        """Of the graphs."""
        self._offset = 0
        self._script = (self.folder / SCRIPT).open("xb")
        self._params = (self.folder / PARAMS).open("xb")
        weakref.finalize(self, _close, self._script, self._params)
        self._end = 0
        """Where the next call goes: there the end of the program begins."""
        self._line(_HEAD)

    def call(self, name: str, *arguments: Any, code: str = "") -> None:
        """Write a call, and what makes it again in C."""
        texts = ", ".join(_argument(name, argument) for argument in arguments)
        if name == TENSOR and len(arguments) == 4:
            texts += ", QNN_NO_DATA"
        with self._lock:
            self._line(f"  // {name}({texts});\n{code}")

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
        """Write what is ASCII by now, and the end of the program behind it, over the end that is there."""
        self._script.seek(self._end)
        self._write(self._script, (text + TAIL).encode())
        self._end += len(text)

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
    """The folder, or the first of that name with a number that is not there yet: no recording is lost."""
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
                if number == 1 and text.strip() != _FIRST:
                    raise FormatError(f"{where}: is no recording of hexforge, version {VERSION}")
                if text.startswith("  // Qnn"):
                    yield _parsed(text.rstrip("\n"), number, where)

    def bytes_at(self, place: Any, call: RecordedCall) -> bytes:
        """The bytes of a place in the file of tensors."""
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


TENSOR = "QnnTensor_createGraphTensor"


def _argument(call: str, argument: Any) -> str:
    """An argument of a call as C has it."""
    if isinstance(argument, str):
        place = _PLACE.fullmatch(argument)
        if place is not None:
            return f"QNN_DATA({place[1]}, {place[2]})"
        return argument if call == TENSOR and argument.startswith("QNN_TENSOR_TYPE_") else literal(argument)
    if isinstance(argument, list):
        names = ["NULL" if name is None else literal(name) for name in argument]
        return f"QNN_NAMES({', '.join(names)})" if names else "QNN_NO_NAMES"
    return f"QNN_JSON({literal(json.dumps(argument, allow_nan=False))})"


def _from_c(literal: str) -> str:
    """The text of a literal."""

    def one(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        return escaped if escaped in (b'"', b"\\") else bytes([int(escaped, 8)])

    return _ESCAPE.sub(one, literal[1:-1].encode()).decode("utf-8", "surrogatepass")


def _parsed(text: str, number: int, where: str) -> RecordedCall:
    match = _CALL.fullmatch(text)
    if match is None:
        raise FormatError(f"{where}: is no call: {text[:60]!r}")
    arguments: list[Any] = []
    at, rest = 0, match[2]
    try:
        while at < len(rest):
            argument = _ARGUMENT.match(rest, at)
            if argument is None:
                raise ValueError(rest[at:])
            arguments += _value(argument)
            at = argument.end()
            if at < len(rest):
                if not rest.startswith(", ", at):
                    raise ValueError(rest[at:])
                at += 2
    except (ValueError, RecursionError):
        raise FormatError(f"{where}: the arguments of {match[1]} are not those of a recording") from None
    return RecordedCall(match[1], tuple(arguments), number)


def _value(match: re.Match[str]) -> list[Any]:
    """An argument that was read; none for data that are not there."""
    if match["text"] is not None:
        return [_from_c(match["text"])]
    if match["json"] is not None:
        return [json.loads(_from_c(match["json"][len("QNN_JSON(") : -1]))]
    if match["names"] is not None:
        names = re.findall(rf"{_TEXT}|NULL", match["names"][len("QNN_NAMES(") : -1])
        return [[None if name == "NULL" else _from_c(name) for name in names]]
    if match["offset"] is not None:
        return [f"{PARAMS}@{match['offset']}:{match['size']}"]
    if match["word"] == "QNN_NO_DATA":
        return []
    return [[]] if match["word"] == "QNN_NO_NAMES" else [match["word"]]
