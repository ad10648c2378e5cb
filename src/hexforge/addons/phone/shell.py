# SPDX-License-Identifier: Apache-2.0
"""The phone's shell: expands words and runs commands, all of them inside the phone's folder.

No shell and no program of this computer is run for it: commands are functions of `commands`, programs are the runners
of `programs`, and a text file that is executable is a script of this shell.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.shell_syntax import (
    BracketedCommands,
    Choice,
    Loop,
    Piece,
    Pipeline,
    Redirect,
    Script,
    ShellCommand,
    ShellSyntaxError,
    Simple,
    Substitution,
    Text,
    Variable,
    Word,
    parse,
)
from hexforge.addons.phone.storage import NULL

NOT_FOUND, NOT_EXECUTABLE, SYNTAX = 127, 126, 1
HOME = "/"
_MOST_CALLS = 16
"""How deep scripts may call each other."""
_MOST_TEXT = 1 << 20
_GLOB = re.compile(r"[*?[]")


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


@dataclass(frozen=True, slots=True)
class CommandCall:
    """A command as it is run: its name and arguments, its streams, and the shell that runs it."""

    name: str
    arguments: Sequence[str]
    streams: Streams
    shell: Shell

    def print(self, line: str) -> None:
        """Write a line."""
        self.streams.out.write(line.encode("utf-8", "surrogateescape") + b"\n")

    def fail(self, message: str, code: int = 1) -> int:
        """Write a line of error; the exit code."""
        self.streams.err.write(f"{self.name}: {message}\n".encode("utf-8", "surrogateescape"))
        return code

    def host(self, path: str) -> Path:
        """Where a path of the phone lies on this computer."""
        return self.shell.host(path)


CommandFunction = Callable[[CommandCall], int]
Programs = Callable[[CommandCall], int | None]
"""Runs a program by its name; None where there is none of that name."""


class _ExitError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(slots=True)
class Shell:
    """A shell on a phone: its folder, its variables, and what the last command ended with."""

    phone: Phone
    commands: Mapping[str, CommandFunction]
    programs: Programs
    working: str = HOME
    variables: dict[str, str] = field(default_factory=dict)
    status: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        defaults = {
            "HOME": HOME, "PATH": "/system/bin:/vendor/bin", "PWD": self.working, "TMPDIR": "/data/local/tmp",
            "ANDROID_ROOT": "/system", "ANDROID_DATA": "/data", "EXTERNAL_STORAGE": "/sdcard", "USER": "shell",
        }  # fmt: skip
        self.variables = {**defaults, **self.variables}

    def host(self, path: str) -> Path:
        """Where a path of the phone, seen from the shell's folder, lies on this computer."""
        return self.phone.storage.host(path, self.working)

    def run(self, text: str, streams: Streams) -> int:
        """Run commands; the exit code of the last one."""
        try:
            return self._script(parse(text), streams)
        except ShellSyntaxError as error:
            streams.err.write(f"/system/bin/sh: {error}\n".encode("utf-8", "surrogateescape"))
            return SYNTAX
        except _ExitError as ended:
            return ended.code

    def exit(self, code: int) -> int:
        """End the shell."""
        raise _ExitError(code)

    # -- commands ------------------------------------------------------------------------------------------------------

    def _script(self, script: Script, streams: Streams) -> int:
        for step in script:
            if (step.operator == "&&" and self.status) or (step.operator == "||" and not self.status):
                continue
            self.status = self._pipeline(step.pipeline, streams)
        return self.status

    def _pipeline(self, pipeline: Pipeline, streams: Streams) -> int:
        read = streams.read
        for command in pipeline.commands[:-1]:
            written = io.BytesIO()
            self.copy()._command(command, Streams(read, written, streams.err))
            read = _given(written.getvalue())
        last = self if len(pipeline.commands) == 1 else self.copy()
        code = last._command(pipeline.commands[-1], Streams(read, streams.out, streams.err))
        return int(not code) if pipeline.negated else code

    def copy(self) -> Shell:
        """A shell that begins as this one is, and changes nothing of it."""
        return Shell(
            self.phone, self.commands, self.programs, self.working, dict(self.variables), self.status, self.depth
        )

    def _command(self, command: ShellCommand, streams: Streams) -> int:
        self.phone.require_plugged()
        if isinstance(command, Simple):
            return self._simple(command, streams)
        if isinstance(command, Choice):
            for condition, then in command.branches:
                if not self._script(condition, streams):
                    return self._script(then, streams) if then else 0
            return self._script(command.otherwise, streams) if command.otherwise else 0
        if isinstance(command, Loop):
            code = 0
            for value in self._words(command.words, streams):
                self.variables[command.name] = value
                code = self._script(command.body, streams)
            return code
        assert isinstance(command, BracketedCommands)
        with ExitStack() as opened:
            try:
                inner = self._redirected(command.redirects, streams, opened)
            except OSError as error:
                return self._cannot(error, streams)
            if not command.own_state:
                return self._script(command.script, inner)
            shell = self.copy()
            try:
                return shell._script(command.script, inner)
            except _ExitError as ended:
                return ended.code

    def _simple(self, command: Simple, streams: Streams) -> int:
        with ExitStack() as opened:
            try:
                words = self._words(command.words, streams)
                given = {name: "".join(self._plain(word, streams)) for name, word in command.assignments}
                inner = self._redirected(command.redirects, streams, opened)
            except OSError as error:
                return self._cannot(error, streams)
            if not words:
                self.variables.update(given)
                return self.status if _substitutes(command) else 0
            before = dict(self.variables)
            self.variables.update(given)
            try:
                return self.call(words, inner)
            finally:
                for name in given:
                    if name in before:
                        self.variables[name] = before[name]
                    else:
                        self.variables.pop(name, None)

    def call(self, words: Sequence[str], streams: Streams) -> int:
        """Run one command with its arguments."""
        call = CommandCall(words[0], words[1:], streams, self)
        try:
            if "/" not in call.name:
                known = self.commands.get(call.name)
                code = known(call) if known is not None else self.programs(call)
                return self._found_on_path(call) if code is None else code
            return self._file(call, self.host(call.name))
        except OSError as error:
            return call.fail(f"{self._shown(error)}{error.strerror or error}")

    def _found_on_path(self, call: CommandCall) -> int:
        for folder in self.variables.get("PATH", "").split(":"):
            host = self.host(f"{folder or '.'}/{call.name}")
            if host.is_file():
                return self._file(call, host)
        call.streams.err.write(
            f"/system/bin/sh: {call.name}: inaccessible or not found\n".encode("utf-8", "surrogateescape")
        )
        return NOT_FOUND

    def _file(self, call: CommandCall, host: Path) -> int:
        """Run a file: a command or runner of that name, or a script of this shell."""

        def refuse(reason: str, code: int) -> int:
            call.streams.err.write(f"/system/bin/sh: {call.name}: {reason}\n".encode("utf-8", "surrogateescape"))
            return code

        name = call.name.rsplit("/", 1)[-1]
        if not host.exists():
            known = self.commands.get(name) if call.name == f"/system/bin/{name}" else None
            if known is not None:
                return known(CommandCall(name, call.arguments, call.streams, self))
            return refuse("inaccessible or not found", NOT_FOUND)
        if host.is_dir() or not host.stat().st_mode & 0o111:
            return refuse("can't execute: " + ("Is a directory" if host.is_dir() else "Permission denied"), 126)
        code = self.programs(CommandCall(name, call.arguments, call.streams, self))
        if code is not None:
            return code
        with host.open("rb") as file:
            text = file.read(_MOST_TEXT + 1)
        if len(text) > _MOST_TEXT or b"\0" in text:
            return refuse("not executable: this virtual phone runs scripts of its shell, and runners by name: "
                          "`hexforge phone --help`", NOT_EXECUTABLE)  # fmt: skip
        return self.script(text.decode("utf-8", "surrogateescape"), call.arguments, call.streams)

    def script(self, text: str, arguments: Sequence[str], streams: Streams) -> int:
        """Run a script in a shell of its own."""
        shell = self.copy()
        shell.depth += 1
        if shell.depth > _MOST_CALLS:
            streams.err.write(b"/system/bin/sh: scripts call each other too deeply\n")
            return NOT_EXECUTABLE
        shell.variables.update({str(i): value for i, value in enumerate(arguments, 1)})
        shell.variables |= {"#": str(len(arguments)), "@": " ".join(arguments)}
        return shell.run(text, streams)

    # -- words ---------------------------------------------------------------------------------------------------------

    def _words(self, words: Sequence[Word], streams: Streams) -> list[str]:
        expanded: list[str] = []
        for word in words:
            for pattern in self._fields(word, streams):
                plain = re.sub(r"\x01(.)", r"\1", pattern, flags=re.DOTALL)
                matches = self._matches(pattern) if _GLOB.search(re.sub(r"\x01.", "", pattern)) else []
                expanded.extend(matches or [plain])
        return expanded

    def _fields(self, word: Word, streams: Streams) -> Iterator[str]:
        """The words that a word becomes; a quoted character has a \\x01 before it."""
        fields: list[str] = []
        current: str | None = None
        for piece in word:
            text, quoted = self._piece(piece, streams), piece.quoted
            if isinstance(piece, Text) or quoted:
                marked = "".join(f"\x01{c}" for c in text) if quoted else text
                current = (current or "") + marked
                continue
            parts = text.split()
            if text[:1].isspace() and current is not None:
                fields.append(current)
                current = None
            for number, part in enumerate(parts):
                if number and current is not None:
                    fields.append(current)
                    current = None
                current = (current or "") + part
            if parts and text[-1:].isspace() and current is not None:
                fields.append(current)
                current = None
        if current is not None:
            fields.append(current)
        yield from fields

    def _plain(self, word: Word, streams: Streams) -> Iterator[str]:
        """The parts of a word that is neither split nor a pattern."""
        for piece in word:
            yield self._piece(piece, streams)

    def _piece(self, piece: Piece, streams: Streams) -> str:
        if isinstance(piece, Text):
            return piece.text.replace("\x01", "")
        if isinstance(piece, Variable):
            if piece.name in "?$":
                return str(self.status if piece.name == "?" else os.getpid())
            value = self.variables.get(piece.name, "")
            return (value or piece.default).replace("\x01", "")
        assert isinstance(piece, Substitution)
        written = io.BytesIO()
        self.status = self.copy()._script(piece.script, Streams(streams.read, written, streams.err))
        return written.getvalue().decode("utf-8", "surrogateescape").rstrip("\n").replace("\x01", "")

    def _matches(self, pattern: str) -> list[str]:
        """Paths that fit a pattern, sorted; folder by folder."""
        parts = pattern.split("/")
        starts = [""]
        for number, part in enumerate(parts):
            last = number == len(parts) - 1
            plain = re.sub(r"\x01(.)", r"\1", part)
            reached: list[str] = []
            for start in starts:
                if not _GLOB.search(re.sub(r"\x01.", "", part)):
                    reached.append(start + plain + ("" if last else "/"))
                    continue
                names = re.sub(r"\x01(.)", lambda m: f"[{m[1]}]" if m[1] in "*?[" else m[1], part)
                folder = self.host(start or ".")
                entries = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
                chosen = [n for n in entries if fnmatch.fnmatchcase(n, names)]
                chosen = [n for n in chosen if not n.startswith(".") or part.startswith(".")]
                reached += [start + name + ("" if last else "/") for name in chosen]
            starts = reached
        return [path for path in starts if self.host(path).exists()]

    # -- redirects -----------------------------------------------------------------------------------------------------

    def _redirected(self, redirects: Sequence[Redirect], streams: Streams, opened: ExitStack) -> Streams:
        inner = Streams(streams.read, streams.out, streams.err)
        for redirect in redirects:
            target = "".join(self._plain(redirect.target, streams))
            if redirect.kind == ">&":
                source = {"1": inner.out, "2": inner.err}.get(target)
                if source is None:
                    raise OSError(9, "Bad file descriptor", target)
                _set(inner, redirect.stream, source)
            elif redirect.kind == "<":
                data = b"" if self._is_null(target) else self.host(target).read_bytes()
                inner.read = _given(data)
            elif self._is_null(target):
                _set(inner, redirect.stream, io.BytesIO())
            else:
                mode = "ab" if redirect.kind == ">>" else "wb"
                file = opened.enter_context(self.host(target).open(mode))
                _set(inner, redirect.stream, file)
        return inner

    def _is_null(self, path: str) -> bool:
        return self.phone.storage.absolute(path, self.working) == NULL

    def _cannot(self, error: OSError, streams: Streams) -> int:
        text = f"/system/bin/sh: can't open {self._shown(error)}{error.strerror or error}\n"
        streams.err.write(text.encode("utf-8", "surrogateescape"))
        return 1

    def _shown(self, error: OSError) -> str:
        """The path of an error as the phone has it."""
        if not error.filename:
            return ""
        path = Path(os.fsdecode(error.filename))
        inside = path.is_absolute() and path.is_relative_to(self.phone.storage.folder)
        return f"{self.phone.storage.phone_path(path) if inside else path}: "


def _given(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def _set(streams: Streams, number: int, sink: Sink) -> None:
    if number == 2:
        streams.err = sink
    else:
        streams.out = sink


def _substitutes(command: Simple) -> bool:
    return any(isinstance(piece, Substitution) for _, word in command.assignments for piece in word)
