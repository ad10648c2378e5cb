# SPDX-License-Identifier: Apache-2.0
"""Ports of a virtual phone: sockets in its own folder, so that nothing of this computer's network is reached by them.

A program that serves on the phone's port 8080 listens on `/dev/socket/tcp_8080` of the phone's folder.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hexforge.addons.phone.storage import PhoneStorage

FOLDER = "/dev/socket"
KINDS = ("tcp", "localabstract", "localreserved", "localfilesystem")
"""The first words of addresses on a phone: `tcp:8080`, `localabstract:name`, `localfilesystem:/path`."""


def port_path(kind: str, name: str) -> str:
    """Where on the phone the socket of an address is; OSError where the address is none."""
    if kind == "localfilesystem":
        return name
    if kind == "tcp":
        name = name.removeprefix("localhost:").removeprefix("127.0.0.1:")
        if not (name.isascii() and name.isdecimal() and 0 < int(name[:6]) < 1 << 16):
            raise OSError(22, "Invalid argument", name)
        return f"{FOLDER}/tcp_{int(name[:6])}"
    if not name or "/" in name or name in (".", ".."):
        raise OSError(22, "Invalid argument", name)
    return f"{FOLDER}/{name}"


def connect_port(storage: PhoneStorage, kind: str, name: str) -> socket.socket:
    """A connection to what serves on a port of the phone; OSError where nothing does."""
    host = Path(os.path.realpath(storage.host(port_path(kind, name))))
    if not stat.S_ISSOCK(host.lstat().st_mode):
        raise ConnectionRefusedError(111, "Connection refused", name)
    return _at(host, socket.socket.connect)


@contextmanager
def listening(storage: PhoneStorage, port: str) -> Iterator[socket.socket]:
    """A socket that serves on a TCP port of the phone; OSError where something serves there."""
    host = storage.host(port_path("tcp", port))
    host.parent.mkdir(parents=True, exist_ok=True)
    server = _at(host, socket.socket.bind)
    try:
        server.listen()
        yield server
    finally:
        server.close()
        host.unlink(missing_ok=True)


def _at(host: Path, act: Callable[[socket.socket, str], None]) -> socket.socket:
    """A socket by a path of any length: a socket's own name has room for about a hundred characters."""
    if not hasattr(socket, "AF_UNIX"):
        raise OSError(95, "a virtual phone has no ports on this system")
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = os.open(host.parent, os.O_RDONLY)
    try:
        act(made, f"/proc/self/fd/{folder}/{host.name}" if Path("/proc/self/fd").is_dir() else str(host))
    except OSError:
        made.close()
        raise
    finally:
        os.close(folder)
    return made
