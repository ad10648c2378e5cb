# SPDX-License-Identifier: Apache-2.0
"""Runs a command that can touch files below some folders alone: `python -m hexforge.cli.confinement FOLDER -- COMMAND`.

Linux itself keeps to that (Landlock, since 5.13), libraries in C included, and lets the command reach no network.
Elsewhere Python's own opening of files is watched. What Python, its packages and the system's libraries are made of can
be read.
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, by the same numbers on every processor."""
_ASK_VERSION = 1
_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_FOLDER = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_OF_FIRST = (1 << 13) - 1
"""The rights over files that Landlock's first version knows."""
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_CONNECT_AND_BIND = 0b11
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/bin",
    "/opt",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/sys/devices/system",
)
_PROCESS = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/sys/vm")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/shm")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def confine(roots: list[Path]) -> None:
    """Let this process, and what it starts, read and write below these folders alone."""
    scratch = Path(tempfile.gettempdir())
    readable = [Path(p) for p in (*_SYSTEM, *_PROCESS, sys.prefix, sys.base_prefix, *sys.path) if p]
    readable.append(Path(__file__).parents[1])
    writable = [*roots, scratch, *map(Path, _DEVICES)]
    if not _landlock(readable, writable):
        _watch([*readable, *writable], writable)


def _landlock(readable: list[Path], writable: list[Path]) -> bool:
    """Have Linux keep to it; False where it cannot."""
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    if version < 1:
        return False
    handled = _ALL_OF_FIRST | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    rules = _Ruleset(handled, _CONNECT_AND_BIND)
    size = ctypes.sizeof(rules) if version >= 4 else ctypes.sizeof(ctypes.c_uint64)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return False
    for paths, rights in ((readable, _EXECUTE | _READ_FILE | _READ_FOLDER), (writable, handled & ~_EXECUTE)):
        for path in paths:
            _allow(libc, ruleset, path, rights)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    confined = bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    os.close(ruleset)
    return confined


def _allow(libc: Any, ruleset: int, path: Path, rights: int) -> None:
    assert sys.platform == "linux"
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:  # not on this machine
        return
    try:
        if not path.is_dir():
            rights &= _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
        libc.syscall(_ADD_RULE, ruleset, _BENEATH, ctypes.byref(_Beneath(rights, opened)), 0)
    finally:
        os.close(opened)


def _watch(readable: list[Path], writable: list[Path]) -> None:
    """Refuse what Python itself opens elsewhere."""
    may_read = tuple(path.resolve() for path in readable)
    may_write = tuple(path.resolve() for path in writable)

    def watched(event: str, given: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(given[0], str | bytes):
            return
        path, mode, flags = given
        writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR)) or bool(set(mode or "") & set("wax+"))
        real = Path(os.fsdecode(path)).resolve()
        if not any(real.is_relative_to(folder) for folder in (may_write if writes else may_read)):
            raise PermissionError(13, "outside of the folders that this command may touch", os.fsdecode(path))

    sys.addaudithook(watched)


def _run(arguments: list[str]) -> None:
    """Confine this process to the folders before `--`, and run the command behind it."""
    end = arguments.index("--")
    confine([Path(folder) for folder in arguments[:end]])
    from hexforge.cli import main

    main(arguments[end + 1 :])


if __name__ == "__main__":
    _run(sys.argv[1:])
