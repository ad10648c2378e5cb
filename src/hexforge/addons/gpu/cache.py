# SPDX-License-Identifier: Apache-2.0
"""The cache on disk: compiled kernels and measured tiles of each device. What cannot be trusted is made again.

One file per device and driver: a line of JSON with version and key, a checksum of what follows, and the entries.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

from hexforge.errors import HexforgeError
from hexforge.formats.files import write_atomically

VERSION = 2
_MAGIC = b"hexforge-gpu-cache\n"
VARIABLE = "HEXFORGE_GPU_CACHE"
"""The environment variable with the folder of the cache; empty: no cache on disk."""
MOST_BYTES = 256 << 20
"""A cache that grew beyond this is begun anew."""


def folder() -> Path | None:
    """Where the cache lies, or None where there is to be none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(home) if home else Path.home() / ".cache") / "hexforge" / "gpu"
    except RuntimeError:  # nobody has a home here
        return None


class DeviceCache:
    """Binaries of kernels and measured choices of one device, in memory and on disk."""

    def __init__(self, device: str, driver: str) -> None:
        self.key = f"{device} | {driver}"
        self._lock = threading.Lock()
        self._binaries: dict[str, bytes] = {}
        self._choices: dict[str, str] = {}
        self._changed = False
        at = folder()
        name = hashlib.blake2b(self.key.encode(), digest_size=12).hexdigest()
        self.path = None if at is None else at / f"{name}.cache"
        self._read()

    def binary(self, key: str) -> bytes | None:
        """A compiled kernel."""
        return self._binaries.get(key)

    def choice(self, key: str) -> str | None:
        """What measuring chose."""
        return self._choices.get(key)

    def add(self, key: str, binary: bytes) -> None:
        """Remember a compiled kernel."""
        with self._lock:
            self._binaries[key] = binary
            self._changed = True

    def drop(self, key: str) -> None:
        """Forget a kernel that the driver does not take."""
        with self._lock:
            self._changed = self._binaries.pop(key, None) is not None or self._changed

    def choose(self, key: str, choice: str) -> None:
        """Remember what measuring chose."""
        with self._lock:
            self._choices[key] = choice
            self._changed = True

    def _read(self) -> None:
        if self.path is None or not self.path.is_file():
            return
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            self._binaries, self._choices = parse(self.path.read_bytes(), self.key)

    def flush(self) -> None:
        """Write what is new; a cache that cannot be written is no reason to fail."""
        if self.path is None:
            return
        with self._lock:
            if not self._changed:
                return
            self._changed = False
            mine = dict(self._binaries), dict(self._choices)
        with contextlib.suppress(OSError, HexforgeError):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            kept: tuple[dict[str, bytes], dict[str, str]] = ({}, {})
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                kept = parse(self.path.read_bytes(), self.key)  # what another process has added
            binaries = {**kept[0], **mine[0]}
            if sum(map(len, binaries.values())) > MOST_BYTES:
                binaries = mine[0]
            write_atomically(self.path, cache_bytes(self.key, binaries, {**kept[1], **mine[1]}))


def cache_bytes(key: str, binaries: dict[str, bytes], choices: dict[str, str]) -> bytes:
    """A cache as bytes."""
    table: dict[str, Any] = {"choices": choices, "binaries": {k: len(v) for k, v in binaries.items()}}
    body = json.dumps(table).encode() + b"\n" + b"".join(binaries.values())
    head = {"version": VERSION, "key": key, "bytes": len(body), "blake2b": hashlib.blake2b(body).hexdigest()}
    return _MAGIC + json.dumps(head).encode() + b"\n" + body


def parse(data: bytes, key: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """The entries of a cache; ValueError where it is damaged, of another version or another device."""
    if not data.startswith(_MAGIC):
        raise ValueError("is no cache")
    head_line, _, body = data[len(_MAGIC) :].partition(b"\n")
    head = json.loads(head_line)
    if head["version"] != VERSION or head["key"] != key or head["bytes"] != len(body):
        raise ValueError("is another cache")
    if hashlib.blake2b(body).hexdigest() != head["blake2b"]:
        raise ValueError("is damaged")
    table_line, _, rest = body.partition(b"\n")
    table = json.loads(table_line)
    binaries, at = {}, 0
    for name, size in table["binaries"].items():
        binaries[str(name)] = rest[at : at + int(size)]
        at += int(size)
    return binaries, {str(k): str(v) for k, v in table["choices"].items()}
