# SPDX-License-Identifier: Apache-2.0
"""The phone's shell: the real one of `sandbox` where this computer has it, else one of few words.

The few are what scripts that deploy say: commands in a row, variables, quotes, redirects, files, and the phone's
programs. Everything else is refused with what to install.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.programs import CommandCall, Streams, run_program
from hexforge.addons.phone.sandbox import HOME, NoSandboxError, run_sandboxed
from hexforge.addons.phone.storage import NULL

_NOT_FOUND, _NOT_EXECUTABLE, _SYNTAX = 127, 126, 1
_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t]|\\\n)+|\#[^\n]*)|(?P<operator>&&|\|\||;;|[;\n|&()`]|(?P<number>[12]?)(?:>>|>&|>|<<|<))
    |(?P<word>(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|\$\{[^}]*\}|[^\s;&|()<>`'"\\])+)""",
    re.VERBOSE | re.DOTALL,
)
_VALUE = r"\$(?:(?P<name>[A-Za-z_]\w*|[?])|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^${}]*))?\})"
_IN_QUOTES = re.compile(rf"\\(?P<escaped>[$\"\\])|{_VALUE}")
_PIECE = re.compile(
    rf"""\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:\\.|[^"\\])*)"|{_VALUE}|(?P<plain>[^\\'"$]+|\$)""",
    re.DOTALL,
)
_KEYWORDS = frozenset("if then else elif fi for while until do done case esac function { } !".split())
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def run_shell(phone: Phone, text: str | None, streams: Streams) -> int:
    """Run commands on a phone, or what comes in; the exit code. UnpluggedError where it is unplugged before the end."""
    try:
        return run_sandboxed(phone, text, streams)
    except NoSandboxError as error:
        if text is None:
            text = streams.read().decode("utf-8", "surrogateescape")
        return FewWordsShell(phone, str(error)).run(text, streams)


class _RefusedError(Exception):
    """What this shell has no words for."""


class _ExitError(Exception):
    def __init__(self, code: int) -> None:
        self.code = code


@dataclass(frozen=True, slots=True)
class _Command:
    """A command before its words are expanded: what was before it (`&&`, `||` or `;`), its words and its redirects."""

    joint: str
    words: Sequence[str]
    redirects: Sequence[tuple[str, str]]


def _parse(text: str) -> Iterator[_Command]:
    joint, words, redirects, at = ";", [], [], 0  # type: str, list[str], list[tuple[str, str]], int
    expected = ""
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _RefusedError(f"no closing quote, or a character that is none of a command's: {text[at:][:20]!r}")
        at = match.end()
        if match["space"] is not None:
            continue
        if match["word"] is not None:
            if expected:
                redirects.append((expected, match["word"]))
                expected = ""
            elif not words and match["word"] in _KEYWORDS:
                raise _RefusedError(f"`{match['word']}`")
            else:
                words.append(match["word"])
            continue
        operator = match["operator"]
        if expected or operator.lstrip("12") not in (";", "\n", "&&", "||", ">", ">>", "<", ">&"):
            raise _RefusedError(f"`{operator}`")
        if operator.lstrip("12")[0] in "<>":
            expected = operator
        elif words or redirects:
            yield _Command(joint, words, redirects)
            joint, words, redirects = operator, [], []
        elif operator not in (";", "\n"):
            raise _RefusedError(f"`{operator}` without a command before it")
    if expected or (joint in ("&&", "||") and not words):
        raise _RefusedError(f"nothing after `{expected or joint}`")
    if words or redirects:
        yield _Command(joint, words, redirects)


@dataclass(slots=True)
class FewWordsShell:
    """A shell without loops, pipes and substitutions, whose commands are those of `_COMMANDS`."""

    phone: Phone
    why: str
    """Why there is no other."""
    working: str = HOME
    variables: dict[str, str] = field(default_factory=lambda: {"HOME": HOME, "TMPDIR": "/data/local/tmp"})
    status: int = 0

    def host(self, path: str, *, follow: bool = True) -> Path:
        """Where a path of the phone, seen from the shell's folder, lies on this computer."""
        return self.phone.storage.host(path, self.working, follow=follow)

    def run(self, text: str, streams: Streams) -> int:
        """Run commands; the exit code of the last one."""
        try:
            for command in list(_parse(text)):
                if (command.joint == "&&" and self.status) or (command.joint == "||" and not self.status):
                    continue
                self.phone.require_plugged()
                self.status = self._command(command, streams)
            return self.status
        except _RefusedError as error:
            streams.err.write(
                f"/system/bin/sh: {error}: this computer has no sandbox for a phone's whole shell: {self.why}. Without "
                f"it there are commands one after another, variables, redirects, and {', '.join(sorted(_COMMANDS))}\n"
                .encode("utf-8", "surrogateescape")
            )  # fmt: skip
            return _SYNTAX
        except _ExitError as ended:
            return ended.code

    def _command(self, command: _Command, streams: Streams) -> int:
        words = list(command.words)
        given: dict[str, str] = {}
        while words and (match := _ASSIGNMENT.fullmatch(words[0])):
            given[match[1]] = self._expanded(match[2])
            words.pop(0)
        words = [expanded for word in words if (expanded := self._expanded(word)) or word[:1] in "'\""]
        with ExitStack() as opened:
            try:
                inner = self._redirected(command.redirects, streams, opened)
            except OSError as error:
                return self._said(streams, f"can't open {error.filename}: {error.strerror}", 1)
            if not words:
                self.variables.update(given)
                return 0
            return self._call(CommandCall(words[0], words[1:], inner, self))

    def _call(self, call: CommandCall) -> int:
        name = call.name.rsplit("/", 1)[-1]
        try:
            if "/" in call.name:
                host = self.host(call.name)
                if not host.exists():
                    return self._said(call.streams, f"{call.name}: inaccessible or not found", _NOT_FOUND)
                if host.is_dir() or not os.access(host, os.X_OK):
                    return self._said(call.streams, f"{call.name}: can't execute: Permission denied", _NOT_EXECUTABLE)
            elif name in _COMMANDS:
                return _COMMANDS[name](call)
            code = run_program(CommandCall(name, call.arguments, call.streams, self))
        except OSError as error:
            return call.fail(f"{call.arguments[-1] if call.arguments else ''}: {error.strerror}")
        if code is None:
            raise _RefusedError(f"`{call.name}`")
        return code

    def _said(self, streams: Streams, message: str, code: int) -> int:
        streams.err.write(f"/system/bin/sh: {message}\n".encode("utf-8", "surrogateescape"))
        return code

    def _expanded(self, word: str) -> str:
        text = ""
        for match in _PIECE.finditer(word):
            if match["double"] is not None:
                if re.search(r"`|\$\(", match["double"]):
                    raise _RefusedError(f"`{word}`")
                text += _IN_QUOTES.sub(lambda inner: inner["escaped"] or self._value(inner), match["double"])
            elif match["name"] is not None or match["braced"] is not None:
                value = self._value(match)
                if re.search(r"[\s*?\[]", value):
                    raise _RefusedError(f"`{word}`, whose value is several words or a pattern")
                text += value
            elif match["plain"] is not None and (match["plain"] == "$" or re.search(r"[*?\[]", match["plain"])):
                if word != "[":
                    raise _RefusedError(f"`{word}`")
                text += word
            else:
                text += match["escaped"] or match["single"] or match["plain"] or ""
        return text

    def _value(self, match: re.Match[str]) -> str:
        name = match["name"] or match["braced"]
        value = str(self.status) if name == "?" else self.variables.get(name, "")
        return value or match["default"] or ""

    def _redirected(self, redirects: Sequence[tuple[str, str]], streams: Streams, opened: ExitStack) -> Streams:
        inner = Streams(streams.read, streams.out, streams.err)
        for operator, word in redirects:
            target, kind = self._expanded(word), operator.lstrip("12")
            if kind == ">&":
                if target not in ("1", "2"):
                    raise _RefusedError(f"`{operator}{target}`")
                sink = inner.out if target == "1" else inner.err
            elif self.phone.storage.absolute(target, self.working) == NULL:
                sink = io.BytesIO()
            elif kind == "<":
                inner.read = self.host(target).read_bytes
                continue
            else:
                try:
                    sink = opened.enter_context(self.host(target).open("ab" if kind == ">>" else "wb"))
                except OSError as error:
                    raise OSError(error.errno, error.strerror, target) from None
            if operator.startswith("2"):
                inner.err = sink
            else:
                inner.out = sink
        return inner


# -- its commands ------------------------------------------------------------------------------------------------------

CommandFunction = Callable[[CommandCall], int]


def _split(call: CommandCall, known: str) -> tuple[str, list[str]]:
    """The letters of flags, of those that are known, and the other arguments."""
    flags = "".join(word[1:] for word in call.arguments if word.startswith("-") and len(word) > 1)
    if unknown := flags.translate({ord(letter): None for letter in known}):
        raise _RefusedError(f"`{call.name} -{unknown}`")
    return flags, [word for word in call.arguments if not word.startswith("-") or word == "-"]


def _each(known: str, act: Callable[[CommandCall, str, str], None]) -> CommandFunction:
    """A command that does something with each path, and goes on after one that cannot be."""

    def run(call: CommandCall) -> int:
        flags, paths = _split(call, known)
        code = 0
        for path in paths:
            try:
                act(call, flags, path)
            except OSError as error:
                code = call.fail(f"{path}: {error.strerror}")
        return code if paths else call.fail("Needs 1 argument")

    return run


def _cat(call: CommandCall) -> int:
    if not call.arguments:
        call.streams.out.write(call.streams.read())
        return 0
    return _each("", _cat_file)(call)


def _cat_file(call: CommandCall, flags: str, path: str) -> None:
    with call.shell.host(path).open("rb") as file:
        for chunk in iter(lambda: file.read(1 << 20), b""):
            call.shell.phone.require_plugged()
            call.streams.out.write(chunk)


def _mkdir(call: CommandCall, flags: str, path: str) -> None:
    call.shell.host(path).mkdir(parents="p" in flags, exist_ok="p" in flags)


def _rm(call: CommandCall, flags: str, path: str) -> None:
    host = call.shell.host(path, follow=False)
    if host == call.shell.phone.storage.folder:
        raise OSError(16, "Device or resource busy")
    if "f" in flags and not os.path.lexists(host):
        return
    if host.is_dir() and not host.is_symlink() and {"r", "R"} & set(flags):
        shutil.rmtree(host)
    else:
        host.unlink()


def _ls(call: CommandCall) -> int:
    _, paths = _split(call, "1a")
    for path in paths or ["."]:
        host = call.shell.host(path)
        if not host.exists():
            return call.fail(f"{path}: No such file or directory")
        names = sorted(p.name for p in host.iterdir() if not p.name.startswith(".")) if host.is_dir() else [path]
        for name in names:
            call.print(name)
    return 0


def _chmod(call: CommandCall) -> int:
    words = [word for word in call.arguments if word != "-R"]
    if len(words) < 2 or not re.fullmatch(r"0?[0-7]{3}|[ugoa]*\+[rwx]+", words[0]):
        raise _RefusedError(f"`chmod {' '.join(words)}`")
    runs = "x" in words[0] if "+" in words[0] else int(words[0], 8) & 0o100
    for path in words[1:]:
        host = call.shell.host(path)
        for file in [host, *(host.rglob("*") if host.is_dir() and "-R" in call.arguments else ())]:
            if not file.is_symlink() and not file.is_dir():
                file.chmod(0o755 if runs else 0o644)
    return 0


def _cd(call: CommandCall) -> int:
    path = call.arguments[0] if call.arguments else HOME
    if not call.shell.host(path).is_dir():
        call.streams.err.write(f"/system/bin/sh: cd: {path}: No such file or directory\n".encode())
        return 2
    call.shell.working = call.shell.phone.storage.absolute(path, call.shell.working)
    call.shell.variables["PWD"] = call.shell.working
    return 0


def _echo(call: CommandCall) -> int:
    words = list(call.arguments)
    end = b"" if words[:1] == ["-n"] else b"\n"
    call.streams.out.write(" ".join(words[len(end) == 0 :]).encode("utf-8", "surrogateescape") + end)
    return 0


def _export(call: CommandCall) -> int:
    for word in call.arguments:
        name, given, value = word.partition("=")
        if given:
            call.shell.variables[name] = value
    return 0


def _getprop(call: CommandCall) -> int:
    known = call.shell.phone.properties
    if call.arguments:
        call.print(known.get(call.arguments[0], "".join(call.arguments[1:2])))
    else:
        for name, value in known.items():
            call.print(f"[{name}]: [{value}]")
    return 0


def _exit(call: CommandCall) -> int:
    given = call.arguments[0] if call.arguments else str(call.shell.status)
    raise _ExitError(int(given) & 0xFF if given.isdecimal() else 2)


def _pwd(call: CommandCall) -> int:
    call.print(call.shell.working)
    return 0


_COMMANDS: Mapping[str, CommandFunction] = {
    "cat": _cat, "cd": _cd, "chmod": _chmod, "echo": _echo, "exit": _exit, "export": _export,
    "false": lambda call: 1, "getprop": _getprop, "ls": _ls, "mkdir": _each("p", _mkdir), "pwd": _pwd,
    "rm": _each("rRf", _rm), "touch": _each("", lambda call, flags, path: call.shell.host(path).touch()),
    "true": lambda call: 0,
}  # fmt: skip
"""What the shell of few words knows, beside the phone's programs."""
