# SPDX-License-Identifier: Apache-2.0
"""DeviceAddress: where a shared device is served, and the token that lets a program in.

    unix:/run/user/1000/hexforge/device.sock
    tcp:127.0.0.1:4580?token_file=/run/user/1000/hexforge/device-4580.token

The token lies in a file that only its owner can read; for a socket that is `<socket>.token` unless the address says
otherwise.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hexforge.errors import CallError

VARIABLE = "HEXFORGE_DEVICE"
"""The environment variable with the address of the device that programs use instead of one of their own."""
PRIVATE_FOLDER, PRIVATE_FILE = 0o700, 0o600
MOST_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True)
class DeviceAddress:
    """A Unix socket (`path`), or a port of the loopback."""

    path: Path | None = None
    host: str = ""
    port: int = 0
    token_file: Path | None = None

    def __str__(self) -> str:
        own = f"?token_file={self.token_file}" if self.token_file is not None else ""
        if self.path is not None:
            return f"unix:{self.path}{own if self.token_file != self.token_path else ''}"
        return f"tcp:{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}{own}"

    @property
    def token_path(self) -> Path:
        """The file with the token."""
        if self.token_file is not None:
            return self.token_file
        if self.path is not None:
            return self.path.with_name(f"{self.path.name}.token")
        return runtime_folder() / f"device-{self.port}.token"

    @classmethod
    def parse(cls, text: str) -> DeviceAddress:
        """`unix:PATH` or `tcp:HOST:PORT`, either with `?token_file=PATH`; CallError for anything else."""
        kind, colon, rest = text.partition(":")
        where, _, query = rest.partition("?")
        key, _, value = query.partition("=")
        if query and (key != "token_file" or not value):
            raise CallError(f"device address {text!r}: after ? comes token_file=PATH")
        token = Path(value) if value else None
        if colon and kind == "unix" and where:
            if "\0" in where:
                raise CallError(f"device address {text!r}: is no path")
            return cls(path=Path(where), token_file=token)
        host, _, port = where.rpartition(":")
        if kind == "tcp" and port.isascii() and port.isdigit() and int(port) < 1 << 16:
            return cls(host=loopback(host.strip("[]")), port=int(port), token_file=token)
        raise CallError(f"device address {text!r}: expected unix:PATH or tcp:127.0.0.1:PORT")


def loopback(host: str) -> str:
    """A host that is this computer alone; CallError for every other: a device is not served to a network."""
    name = "127.0.0.1" if host in ("", "localhost") else host
    try:
        is_loopback = ipaddress.ip_address(name).is_loopback
    except ValueError:
        is_loopback = False
    if not is_loopback:
        raise CallError(f"host {host!r}: a device is served on the loopback alone: 127.0.0.1 or ::1")
    return name


def runtime_folder() -> Path:
    """The folder for sockets and tokens, which nobody else can look into; CallError where somebody else could."""
    if sys.platform == "win32":
        raise CallError(
            "a device of this computer has a Unix socket; give HEXFORGE_DEVICE=tcp:127.0.0.1:PORT on Windows"
        )
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(base) / "hexforge" if base else Path(tempfile.gettempdir()) / f"hexforge-{os.getuid()}"
    folder.mkdir(mode=PRIVATE_FOLDER, parents=False, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise CallError(f"{folder}: is not a folder of this user alone (mode 0700); remove it, or set XDG_RUNTIME_DIR")
    return folder


def default_address() -> DeviceAddress:
    """The address in the environment, or the socket in this user's folder."""
    given = os.environ.get(VARIABLE, "")
    return DeviceAddress.parse(given) if given else DeviceAddress(path=runtime_folder() / "device.sock")


def write_token(path: Path) -> str:
    """A new token, in a file that only this user can read."""
    token = secrets.token_hex(32)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(token)
    return token


def read_token(path: Path) -> str:
    """The token of a device; CallError where there is none, or everybody could read it."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        with path.open("rb") as file:
            token = file.read(MOST_TOKEN_BYTES).decode("ascii").strip()
    except FileNotFoundError:
        raise CallError(f"{path}: there is no token: no device is served there; `hexforge device serve`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CallError(f"{path}: the token cannot be read: {error}") from None
    if mode & 0o077:
        raise CallError(f"{path}: others can read the token (mode {mode:04o}); it must be 0600")
    return token
