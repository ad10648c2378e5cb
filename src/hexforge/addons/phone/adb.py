# SPDX-License-Identifier: Apache-2.0
"""adb, for the virtual phones: the commands, messages and exit codes that people's scripts know."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import BinaryIO

from hexforge.addons.phone.phones import NoPhoneError, Phone, UnpluggedError, attached_lines, choose_phone, list_phones
from hexforge.addons.phone.programs import Streams
from hexforge.addons.phone.protocol.device_services import REFUSED, SAID, change_user
from hexforge.addons.phone.shell import run_shell
from hexforge.addons.phone.transfer import TransferError, Transferred, pull, push

LOST = 255
"""How `adb shell` ends where the phone does not say how its command ended."""
SERIAL = "ANDROID_SERIAL"
_VALUED = ("-s", "-t", "-H", "-P", "-L")
_SETUP = ("-d", "-e", "-a")
_WAIT_S = 0.05
_SERVED = "a server that stays, and a client that speaks to it: `hexforge phone serve`"
_NO_VALUE_OF_PUSH = ("--sync", "-p", "-Z", "-n", "-q")
HELP = """Android Debug Bridge of hexforge's virtual phones: `hexforge phone --help`

 devices [-l]             list connected phones
 push LOCAL... REMOTE     copy files to the phone
 pull [-a] REMOTE... LOCAL  copy files from the phone
 shell [COMMAND...]       run commands on the phone
 exec-out COMMAND...      the same
 get-state, get-serialno, wait-for-device, root, unroot, remount, reboot, version
 -s SERIAL                which phone; else $ANDROID_SERIAL, else the only one
 -H HOST, -P PORT, -L     accepted: phones are on this computer"""


class AdbError(Exception):
    """A message of adb, and the exit code that comes with it."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """adb's command line; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return run(words, sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    except AdbError as error:
        _flush_out()
        sys.stderr.write(f"{error}\n")
        return error.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + 13
    finally:
        _flush_out()


def _flush_out() -> None:
    if not sys.stdout.closed:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run(words: list[str], stdin: BinaryIO, out: BinaryIO, err: BinaryIO) -> int:
    """One call of adb on given streams; AdbError for what adb ends with a message."""
    serial = os.environ.get(SERIAL, "")
    while words and words[0].startswith("-"):
        flag = words.pop(0)
        if flag in _VALUED:
            if not words:
                raise AdbError(f"adb: {flag} requires an argument")
            value = words.pop(0)
            serial = value if flag == "-s" else serial
        elif flag[:2] in _VALUED and len(flag) > 2:
            serial = flag[2:] if flag.startswith("-s") else serial
        elif flag in ("--version", "--help", "-h"):
            words = [flag.lstrip("-").replace("h", "help", 1) if flag == "-h" else flag.lstrip("-")]
            break
        elif flag not in _SETUP:
            raise AdbError(f"adb: unknown option {flag}")
    if not words:
        out.write(f"{HELP}\n".encode())
        return 1
    command, rest = words[0], words[1:]
    if command in _ANYWHERE:
        return _ANYWHERE[command](rest, out)
    if command.startswith("wait-for-"):
        wait(serial, command)
        return run([*(["-s", serial] if serial else []), *rest], stdin, out, err) if rest else 0
    if command in ("push", "pull"):
        return _transfer(command, rest, serial, out)
    if command == "logcat":
        command, rest = "shell", ["logcat", *rest]
    if command in ("shell", "exec-out"):
        return _shell(rest, _chosen(serial, "adb: "), stdin, out, out if command == "exec-out" else err)
    known = _ON_A_PHONE.get(command)
    if known is None:
        raise AdbError(f"adb: unknown command {command}")
    before, answer = known
    return answer(_chosen(serial, before), rest, out)


def _chosen(serial: str, before: str) -> Phone:
    """The phone that is meant; AdbError in adb's words, which begin with `before`, where there is none."""
    try:
        return choose_phone(serial)
    except NoPhoneError as error:
        raise AdbError(f"{before}{error}") from None


def wait(serial: str, command: str) -> None:
    """Wait until a phone is there, or is gone (`wait-for-disconnect`)."""
    gone = command.endswith("disconnect")
    while True:
        plugged = [p for p in list_phones() if p.is_plugged and serial in ("", p.serial)]
        if bool(plugged) != gone:
            return
        time.sleep(_WAIT_S)


def _devices(rest: Sequence[str], out: BinaryIO) -> int:
    out.write(f"List of devices attached\n{attached_lines('-l' in rest)}\n".encode())
    return 0


def _version(rest: Sequence[str], out: BinaryIO) -> int:
    out.write(f"Android Debug Bridge version 1.0.41\nVersion hexforge-{version('hexforge')}\n".encode())
    return 0


def _help(rest: Sequence[str], out: BinaryIO) -> int:
    out.write(f"{HELP}\n".encode())
    return 0


def _done(rest: Sequence[str], out: BinaryIO) -> int:
    return 0


def _says(text: str) -> Callable[[Phone, Sequence[str], BinaryIO], int]:
    def answer(phone: Phone, rest: Sequence[str], out: BinaryIO) -> int:
        out.write(text.encode())
        return 0

    return answer


def _changes_user(service: str) -> Callable[[Phone, Sequence[str], BinaryIO], int]:
    def answer(phone: Phone, rest: Sequence[str], out: BinaryIO) -> int:
        out.write(change_user(phone, service).encode())
        return 0

    return answer


def _serial(phone: Phone, rest: Sequence[str], out: BinaryIO) -> int:
    out.write(f"{phone.serial}\n".encode())
    return 0


def _refuses(what: str) -> Callable[[Phone, Sequence[str], BinaryIO], int]:
    def answer(phone: Phone, rest: Sequence[str], out: BinaryIO) -> int:
        raise AdbError(f"adb: {what}")

    return answer


_ANYWHERE: dict[str, Callable[[Sequence[str], BinaryIO], int]] = {
    "devices": _devices, "version": _version, "help": _help, "start-server": _done, "kill-server": _done,
    "reconnect": _done,
}  # fmt: skip
_ON_A_PHONE: dict[str, tuple[str, Callable[[Phone, Sequence[str], BinaryIO], int]]] = {
    "get-state": ("error: ", _says("device\n")),
    "get-serialno": ("error: ", _serial),
    "root": ("adb: unable to connect for root: ", _changes_user("root")),
    "unroot": ("adb: unable to connect for unroot: ", _changes_user("unroot")),
    "remount": ("adb: ", _says(SAID["remount"])),
    "disable-verity": ("adb: ", _says(SAID["disable-verity"])),
    "reboot": ("error: ", _says(SAID["reboot"])),
    "install": ("adb: ", _refuses("failed to install: a virtual phone runs no apps; push what runs in its shell")),
    "uninstall": ("adb: ", _refuses("failed to uninstall: a virtual phone has no apps")),
    "forward": ("adb: ", _refuses(f"error: forwarding needs {_SERVED}")),
    "reverse": ("adb: ", _refuses(f"error: {REFUSED['reverse']}")),
}


def _transfer(command: str, rest: Sequence[str], serial: str, out: BinaryIO) -> int:
    paths: list[str] = []
    left, keep_times, quiet = list(rest), False, False
    while left:
        word = left.pop(0)
        if word == "--":
            paths += left
            break
        if word == "-z" and left:
            left.pop(0)
        elif word == "-a" and command == "pull":
            keep_times = True
        elif word in _NO_VALUE_OF_PUSH:
            quiet |= word == "-q"
        elif word.startswith("-") and len(word) > 1:
            raise AdbError(f"adb: unrecognized option '{word}'")
        else:
            paths.append(word)
    if command == "push" and len(paths) == 1:
        raise AdbError("adb: push requires <source> and <destination> arguments")
    if not paths:
        raise AdbError(f"adb: {command} requires an argument")
    phone = _chosen(serial, "adb: error: failed to get feature set: ")
    whole: Transferred | None = None
    try:
        if command == "push":
            done = push(phone, paths[:-1], paths[-1])
        else:
            sources, target = (paths, ".") if len(paths) == 1 else (paths[:-1], paths[-1])
            done = pull(phone, sources, target, keep_times=keep_times)
        count = 0
        for source, copied in done:
            count += 1
            whole = copied if whole is None else whole + copied
            if not quiet:
                out.write(f"{source}: {copied.line(f'{command}ed')}\n".encode("utf-8", "surrogateescape"))
    except TransferError as error:
        raise AdbError(f"adb: error: {error}") from None
    except UnpluggedError:
        raise AdbError(f"adb: error: device '{phone.serial}' not found") from None
    if whole is not None and count > 1 and not quiet:
        out.write(f"{whole.line(f'{command}ed')}\n".encode())
    return 0


class _Flushed:
    """Writes at once, so that what a runner says is seen while it runs."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, data: bytes, /) -> None:
        self._stream.write(data)
        self._stream.flush()


def _shell(rest: Sequence[str], phone: Phone, stdin: BinaryIO, out: BinaryIO, err: BinaryIO) -> int:
    words = list(rest)
    while words and words[0] in ("-n", "-T", "-t", "-tt", "-x", "-e"):
        if words.pop(0) == "-e" and words:
            words.pop(0)
    try:
        descriptor = stdin.fileno()
    except OSError:
        descriptor = None
    try:
        flushed = _Flushed(out)
        streams = Streams(stdin.read, flushed, flushed if err is out else _Flushed(err), descriptor)
        return run_shell(phone, " ".join(words) or None, streams)
    except UnpluggedError:
        return LOST


if __name__ == "__main__":
    sys.exit(main())
