# SPDX-License-Identifier: Apache-2.0
"""Commands of the phone's shell that are about the shell and the phone itself."""

from __future__ import annotations

import posixpath
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from hexforge.addons.phone.file_commands import FILE_COMMANDS, split_flags
from hexforge.addons.phone.phones import pause
from hexforge.addons.phone.protocol.streams import SocketStream, listening
from hexforge.addons.phone.shell import CommandCall, CommandFunction, Streams

_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "r": "\r", "0": "\0", "a": "\a", "b": "\b"}
_NUMBER = re.compile(r"-?\d+")
_LONGEST_SLEEP_S = 3600.0
_LOOK_S = 0.05
_FILE_TESTS: dict[str, Callable[[Path], bool]] = {
    "-e": Path.exists, "-r": Path.exists, "-w": Path.exists, "-f": Path.is_file, "-d": Path.is_dir,
    "-L": Path.is_symlink, "-s": lambda path: path.is_file() and path.stat().st_size > 0,
    "-x": lambda path: path.exists() and bool(path.stat().st_mode & 0o111),
}  # fmt: skip


def cd(call: CommandCall) -> int:
    """Go to a folder."""
    shell = call.shell
    path = call.arguments[0] if call.arguments else shell.variables.get("HOME", "/")
    path = shell.variables.get("OLDPWD", "/") if path == "-" else path
    host = shell.host(path)
    if not host.is_dir():
        reason = "Not a directory" if host.exists() else "No such file or directory"
        call.streams.err.write(f"/system/bin/sh: cd: {path}: {reason}\n".encode("utf-8", "surrogateescape"))
        return 2
    shell.variables["OLDPWD"] = shell.working
    shell.working = shell.variables["PWD"] = shell.phone.storage.absolute(path, shell.working)
    return 0


def pwd(call: CommandCall) -> int:
    """Where the shell is."""
    call.print(call.shell.working)
    return 0


def _escaped(text: str) -> str:
    return re.sub(r"\\([ntr\\0ab])", lambda m: _ESCAPES[m[1]], text)


def echo(call: CommandCall) -> int:
    """Write the arguments: -n without an end of line, -e with escapes."""
    words, end, escapes = list(call.arguments), "\n", False
    while words and re.fullmatch(r"-[neE]+", words[0]):
        flag = words.pop(0)
        end, escapes = ("" if "n" in flag else end), (escapes or "e" in flag)
    text = " ".join(words)
    call.streams.out.write(((_escaped(text) if escapes else text) + end).encode("utf-8", "surrogateescape"))
    return 0


def printf(call: CommandCall) -> int:
    """Write arguments by a format of %s and %d."""
    if not call.arguments:
        return call.fail("Needs 1 argument")
    form, values = _escaped(call.arguments[0]), list(call.arguments[1:])
    slots = len(re.findall(r"%[sdi]", form))
    written = ""
    while True:
        taken, values = values[:slots], values[slots:]
        left = iter(taken)
        written += re.sub(r"%([sdi%])", lambda m: "%" if m[1] == "%" else next(left, "" if m[1] == "s" else "0"), form)  # noqa: B023
        if not values or not slots:
            break
    call.streams.out.write(written.encode("utf-8", "surrogateescape"))
    return 0


def export(call: CommandCall) -> int:
    """Set variables."""
    for word in call.arguments:
        name, given, value = word.partition("=")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            return call.fail(f"{word}: is not an identifier")
        if given:
            call.shell.variables[name] = value
    return 0 if call.arguments else env(call)


def unset(call: CommandCall) -> int:
    """Forget variables."""
    for name in call.arguments:
        call.shell.variables.pop(name, None)
    return 0


def env(call: CommandCall) -> int:
    """Write the variables, or run a command with others."""
    words = list(call.arguments)
    shell = call.shell.copy()
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        shell.variables[name] = value
    if words:
        return shell.call(words, call.streams)
    for name, value in sorted(shell.variables.items()):
        if name.isidentifier():
            call.print(f"{name}={value}")
    return 0


def test(call: CommandCall) -> int:
    """Whether files are there and texts and numbers alike: `test` and `[`."""
    words = list(call.arguments)
    if call.name == "[" and (not words or words.pop() != "]"):
        return call.fail("missing ']'", 2)
    for joint, combine in (("-o", any), ("-a", all)):
        if joint in words[1:]:
            at = words.index(joint, 1)
            sides = (words[:at], words[at + 1 :])
            return int(not combine([not test(CommandCall("test", side, call.streams, call.shell)) for side in sides]))
    if words[:1] == ["!"]:
        return int(not test(CommandCall("test", words[1:], call.streams, call.shell)))
    if len(words) == 1:
        return int(not words[0])
    if len(words) == 2 and words[0] in ("-n", "-z"):
        return int(bool(words[1]) == (words[0] == "-z"))
    if len(words) == 2 and words[0] in _FILE_TESTS:
        return int(not _FILE_TESTS[words[0]](call.host(words[1])))
    if len(words) == 3:
        left, operator, right = words
        if operator in ("=", "==", "!="):
            return int((left == right) == (operator == "!="))
        numbers = {"-eq": "__eq__", "-ne": "__ne__", "-lt": "__lt__", "-le": "__le__", "-gt": "__gt__", "-ge": "__ge__"}
        if operator in numbers:
            if not _NUMBER.fullmatch(left) or not _NUMBER.fullmatch(right):
                return call.fail(f"bad number in '{left} {operator} {right}'", 2)
            return int(not getattr(int(left), numbers[operator])(int(right)))
    return 1 if not words else call.fail(f"'{' '.join(words)}': unexpected operator", 2)


def sleep(call: CommandCall) -> int:
    """Wait so many seconds, of this computer."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)([smh]?)", call.arguments[0] if call.arguments else "")
    if match is None:
        return call.fail("Needs a number of seconds")
    seconds = float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]
    pause(call.shell.phone, min(seconds, _LONGEST_SLEEP_S))
    return 0


def getprop(call: CommandCall) -> int:
    """Properties of the phone: all, or one."""
    known = call.shell.phone.properties
    if call.arguments:
        call.print(known.get(call.arguments[0], call.arguments[1] if len(call.arguments) > 1 else ""))
        return 0
    for name, value in known.items():
        call.print(f"[{name}]: [{value}]")
    return 0


def uname(call: CommandCall) -> int:
    """What the phone is."""
    facts = {"s": "Linux", "n": "localhost", "r": "6.1.0-hexforge", "v": "#1", "m": "aarch64"}
    flags = split_flags(call.arguments)[0]
    chosen = facts if "a" in flags else {k: facts[k] for k in facts if k in flags} or {"s": "Linux"}
    call.print(" ".join(chosen.values()))
    return 0


def date(call: CommandCall) -> int:
    """The time, of this computer: +FORMAT."""
    form = next((word[1:] for word in call.arguments if word.startswith("+")), "%a %b %e %H:%M:%S UTC %Y")
    call.print(time.strftime(form, time.gmtime()).replace("%N", f"{time.time_ns() % 10**9:09}"))
    return 0


def which(call: CommandCall) -> int:
    """Where a command is."""
    code = 0
    for name in call.arguments:
        if name in COMMANDS_OF_THE_SHELL:
            call.print(f"/system/bin/{name}")
        else:
            code = 1
    return code


def sh(call: CommandCall) -> int:
    """Run a script, `-c` commands, or what comes in."""
    words = list(call.arguments)
    while words and words[0] in ("-e", "-x", "-u", "-ex"):
        words.pop(0)
    if words[:1] == ["-c"]:
        return call.shell.script(words[1] if len(words) > 1 else "", words[3:], call.streams)
    if not words:
        return call.shell.script(call.streams.read().decode("utf-8", "surrogateescape"), (), call.streams)
    text = call.host(words[0]).read_bytes().decode("utf-8", "surrogateescape")
    return call.shell.script(text, words[1:], call.streams)


def source(call: CommandCall) -> int:
    """Run a script in this shell."""
    if not call.arguments:
        return call.fail("Needs 1 argument")
    text = call.host(call.arguments[0]).read_bytes().decode("utf-8", "surrogateescape")
    return call.shell.run(text, call.streams)


def su(call: CommandCall) -> int:
    """Run commands as another user, which on this phone changes nothing: `su -c COMMANDS`, `su 0 COMMAND`."""
    words = [word for word in call.arguments if word not in ("root", "0", "-", "shell")]
    if words[:1] == ["-c"]:
        return call.shell.script(" ".join(words[1:]), (), call.streams)
    return call.shell.copy().call(words, call.streams) if words else 0


def prefixed(skipped: int) -> CommandFunction:
    """A command that runs the command after so many of its own arguments."""

    def run(call: CommandCall) -> int:
        """Run the command that is named after it."""
        words = list(call.arguments)
        while words and words[0].startswith("-"):
            words.pop(0)
        words = words[skipped:]
        return call.shell.call(words, call.streams) if words else 0

    return run


def nc(call: CommandCall) -> int:
    """Serve one connection to a port of the phone: `nc -l -p PORT`, with what is read or with a command's output."""
    flags, words = split_flags(call.arguments, "psw")
    if "l" not in flags or "p" not in flags:
        return call.fail("only `nc -l -p PORT [COMMAND]`: a virtual phone has no network to connect to")
    with listening(call.shell.phone.storage, flags["p"]) as server:
        server.settimeout(_LOOK_S)
        while True:
            call.shell.phone.require_plugged()
            try:
                connection = server.accept()[0]
                break
            except TimeoutError:
                pass
    with connection:
        connection.settimeout(_LONGEST_SLEEP_S)
        came = SocketStream(connection)
        if words:
            return call.shell.call(words, Streams(lambda: b"".join(iter(came.read_some, b"")), came, call.streams.err))
        threading.Thread(target=_send_to_port, args=(call.streams.read, came), daemon=True).start()
        while chunk := came.read_some():
            call.streams.out.write(chunk)
    return 0


def _send_to_port(read: Callable[[], bytes], stream: SocketStream) -> None:
    with suppress(OSError):
        stream.write(read())
        stream.end_writing()


def exit_shell(call: CommandCall) -> int:
    """End the shell."""
    given = call.arguments[0] if call.arguments else str(call.shell.status)
    return call.shell.exit(int(given) & 0xFF if _NUMBER.fullmatch(given) else 2)


def basename(call: CommandCall) -> int:
    """The last part of a path, without an ending."""
    if not call.arguments:
        return call.fail("Needs 1 argument")
    name = posixpath.basename(call.arguments[0].rstrip("/")) or "/"
    call.print(name.removesuffix(call.arguments[1]) if len(call.arguments) > 1 else name)
    return 0


def dirname(call: CommandCall) -> int:
    """A path without its last part."""
    if not call.arguments:
        return call.fail("Needs 1 argument")
    call.print(posixpath.dirname(call.arguments[0].rstrip("/")) or ".")
    return 0


def _says(text: str) -> CommandFunction:
    def say_it(call: CommandCall) -> int:
        """Write what is always the same."""
        call.print(text)
        return 0

    return say_it


def _nothing(code: int = 0) -> CommandFunction:
    def nothing(call: CommandCall) -> int:
        """Do nothing: on this phone there is nothing to do for it."""
        return code

    return nothing


COMMANDS_OF_THE_SHELL: dict[str, CommandFunction] = {
    **FILE_COMMANDS,
    "[": test, "test": test, "cd": cd, "pwd": pwd, "echo": echo, "printf": printf, "export": export, "unset": unset,
    "env": env, "printenv": env, "sleep": sleep, "getprop": getprop, "uname": uname, "date": date, "which": which,
    "sh": sh, ".": source, "source": source, "su": su, "exit": exit_shell, "basename": basename, "dirname": dirname,
    "nohup": prefixed(0), "exec": prefixed(0), "time": prefixed(0), "timeout": prefixed(1), "taskset": prefixed(1),
    "whoami": _says("shell"), "id": _says("uid=2000(shell) gid=2000(shell) groups=2000(shell)"),
    "true": _nothing(), ":": _nothing(), "false": _nothing(1), "sync": _nothing(), "setprop": _nothing(),
    "setenforce": _nothing(), "ulimit": _nothing(), "logcat": _nothing(), "wait": _nothing(), "set": _nothing(),
    "nc": nc, "stop": _nothing(), "start": _nothing(), "svc": _nothing(), "settings": _nothing(), "pkill": _nothing(1),
}  # fmt: skip
"""By name: what deployment scripts use, and what does nothing here and is accepted."""
