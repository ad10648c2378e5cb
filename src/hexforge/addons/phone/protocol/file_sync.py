# SPDX-License-Identifier: Apache-2.0
"""The service `sync`: files to and from a phone, in both versions of its requests."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.phone.phones import Phone
from hexforge.addons.phone.program_files import head_of, open_own, own_size
from hexforge.addons.phone.protocol.streams import BrokenStreamError, Stream
from hexforge.addons.phone.transfer import staged

_HEAD = struct.Struct("<4sI")
_FACTS = struct.Struct("<III")
"""Of a file, first version: mode, size, time of change."""
_FACTS_V2 = struct.Struct("<IQQIIIIQqqq")
"""Second version: error, device, inode, mode, links, user, group, size, times of access, change and status."""
_SETUP_OF_SEND = struct.Struct("<4sII")
_MOST_PATH = 1024
_MOST_CHUNK = 1 << 16
_PLAIN = 0
"""No compression: the flags that are taken."""


@dataclass(frozen=True, slots=True)
class _Request:
    phone: Phone
    stream: Stream
    name: bytes
    path: str

    def host(self, path: str = "", *, follow: bool = True) -> Path:
        """Where the file lies on this computer; links lead where they do on the phone."""
        return self.phone.storage.host(path or self.path, follow=follow)

    def fail(self, error: OSError, done: str) -> None:
        reason = f"{done} failed: {error.strerror or error}".encode("utf-8", "surrogateescape")
        self.stream.write(_HEAD.pack(b"FAIL", len(reason)) + reason)


def serve_files(phone: Phone, stream: Stream) -> None:
    """Answer requests for files until the client has no more."""
    while True:
        name, size = _HEAD.unpack(stream.read(_HEAD.size))
        answer = _REQUESTS.get(name)
        if name == b"QUIT":
            return
        if answer is None or size > _MOST_PATH:
            reason = b"unknown request" if answer is None else b"path is too long"
            stream.write(_HEAD.pack(b"FAIL", len(reason)) + reason)
            raise BrokenStreamError(reason.decode())
        phone.require_plugged()
        answer(_Request(phone, stream, name, os.fsdecode(stream.read(size))))


def _facts(path: Path, found: os.stat_result) -> bytes:
    return _FACTS.pack(found.st_mode, own_size(path, found) & 0xFFFFFFFF, int(found.st_mtime) & 0xFFFFFFFF)


def _facts_v2(path: Path, found: os.stat_result) -> bytes:
    times = (int(found.st_atime), int(found.st_mtime), int(found.st_ctime))
    inode = found.st_ino & 0xFFFFFFFFFFFFFFFF
    return _FACTS_V2.pack(0, found.st_dev, inode, found.st_mode, found.st_nlink, 0, 0, own_size(path, found), *times)


def _stat(request: _Request) -> None:
    try:
        host = request.host(follow=False)
        found = _facts(host, host.lstat())
    except OSError:
        found = bytes(_FACTS.size)
    request.stream.write(request.name + found)


def _stat_v2(request: _Request) -> None:
    try:
        host = request.host(follow=request.name != b"LST2")
        found = _facts_v2(host, host.lstat())
    except OSError as error:
        found = _FACTS_V2.pack(error.errno or 5, *[0] * 10)
    request.stream.write(request.name + found)


def _list(request: _Request) -> None:
    entry, facts = (b"DNT2", _facts_v2) if request.name == b"LIS2" else (b"DENT", _facts)
    try:
        paths = sorted(request.host().iterdir())
    except OSError:
        paths = []
    for path in paths:
        try:
            found = facts(path, path.lstat())
        except OSError:
            continue  # removed meanwhile
        encoded = os.fsencode(path.name)
        request.stream.write(entry + found + struct.pack("<I", len(encoded)) + encoded)
    size = _FACTS_V2.size if request.name == b"LIS2" else _FACTS.size
    request.stream.write(b"DONE" + bytes(size + 4))


def _take_flags(request: _Request, flags: int) -> None:
    if flags != _PLAIN:
        raise BrokenStreamError("a virtual phone takes no compressed files")


def _send(request: _Request) -> None:
    path, _, mode = request.path.rpartition(",")
    if path and mode.isascii() and mode.isdecimal() and len(mode) < 12:
        _take_file(request, path, int(mode))
    else:
        _take_file(request, request.path, 0o644)


def _send_v2(request: _Request) -> None:
    _, mode, flags = _SETUP_OF_SEND.unpack(request.stream.read(_SETUP_OF_SEND.size))
    _take_flags(request, flags)
    _take_file(request, request.path, mode)


class _Chunks:
    """The parts of a file that a client sends, and the time that it gives the file at their end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.time_s: int | None = None

    def __iter__(self) -> Iterator[bytes]:
        while self.time_s is None:
            name, size = _HEAD.unpack(self._stream.read(_HEAD.size))
            if name == b"DONE":
                self.time_s = size
            elif name == b"DATA" and size <= _MOST_CHUNK:
                yield self._stream.read(size)
            else:
                raise BrokenStreamError("a part of a file is none")


def _take_file(request: _Request, path: str, mode: int) -> None:
    """Write a file whole or not at all; a client hears of an error when all its parts are taken."""
    chunks = _Chunks(request.stream)
    try:
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            raise OSError(95, "a virtual phone keeps only plain files and folders", path)
        target = request.host(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged(target) as place:
            with place.open("xb") as file:
                file.write(head_of(target.name))
                for chunk in chunks:
                    request.phone.require_plugged()
                    file.write(chunk)
            place.chmod((mode & 0o777) | 0o600)
            if chunks.time_s:
                os.utime(place, (chunks.time_s, chunks.time_s))
    except BrokenStreamError:
        raise
    except OSError as error:
        for _ in chunks:
            pass
        request.fail(error, "write")
    else:
        request.stream.write(_HEAD.pack(b"OKAY", 0))


def _receive(request: _Request) -> None:
    if request.name == b"RCV2":
        _take_flags(request, _HEAD.unpack(request.stream.read(_HEAD.size))[1])
    try:
        host = request.host()
        if not host.is_file():
            raise OSError(21, "Is a directory") if host.is_dir() else FileNotFoundError(2, "No such file or directory")
        file = open_own(host)
    except OSError as error:
        request.fail(error, "open")
        return
    with file:
        while chunk := file.read(_MOST_CHUNK):
            request.phone.require_plugged()
            request.stream.write(_HEAD.pack(b"DATA", len(chunk)) + chunk)
    request.stream.write(_HEAD.pack(b"DONE", 0))


_REQUESTS: Mapping[bytes, Callable[[_Request], None]] = {
    b"STAT": _stat, b"LST2": _stat_v2, b"STA2": _stat_v2, b"LIST": _list, b"LIS2": _list,
    b"SEND": _send, b"SND2": _send_v2, b"RECV": _receive, b"RCV2": _receive,
}  # fmt: skip
