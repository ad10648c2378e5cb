# SPDX-License-Identifier: Apache-2.0
"""Streams of bytes between a client and a phone, and the loopback ports and sockets where they come in.

A program that serves on the phone's port 8080 listens on `/dev/socket/tcp_8080` of the phone's folder.
"""

from __future__ import annotations

import os
import socket
import socketserver
import stat
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

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


LOOPBACK = "127.0.0.1"
"""The one address that is listened on: nobody outside this computer reaches a phone."""
_CHUNK = 1 << 16
_MOST_CONNECTIONS = 256
_GOODBYE_S = 1.0


class BrokenStreamError(OSError):
    """The other side is gone, or sent what no frame of the protocol is."""


class RefusedError(Exception):
    """A service that is not given: what the client is told."""


class Stream(ABC):
    """Bytes in order, both ways."""

    def __init__(self) -> None:
        self._pending = b""

    @abstractmethod
    def receive(self) -> bytes:
        """The bytes that came next; none where the other side has ended."""

    @abstractmethod
    def write(self, data: bytes, /) -> None:
        """Send bytes; BrokenStreamError or another OSError where the other side is gone."""

    @abstractmethod
    def close(self) -> None:
        """End the stream both ways; who waits for it sees its end."""

    def read_some(self, most: int = _CHUNK) -> bytes:
        """Some bytes, at least one; none where the other side has ended."""
        chunk = self._pending or self.receive()
        self._pending = chunk[most:]
        return chunk[:most]

    def read(self, size: int) -> bytes:
        """Exactly so many bytes; BrokenStreamError where the stream ends before."""
        whole = bytearray()
        while len(whole) < size:
            chunk = self.read_some(size - len(whole))
            if not chunk:
                raise BrokenStreamError("the stream ended inside a frame")
            whole += chunk
        return bytes(whole)


class SocketStream(Stream):
    """A stream over a socket of this computer."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._socket = connection
        self._writing = threading.Lock()

    def receive(self) -> bytes:
        """The bytes that came next."""
        return self._socket.recv(_CHUNK)

    def write(self, data: bytes, /) -> None:
        """Send bytes, those of one call together."""
        with self._writing:
            self._socket.sendall(data)

    def close(self) -> None:
        """End the stream both ways."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def has_ended(self, wait_s: float) -> bool:
        """Whether the other side has ended, after waiting so long for it; what it says instead is not heard."""
        before = self._socket.gettimeout()
        self._socket.settimeout(wait_s)
        try:
            return not self._socket.recv(_CHUNK)
        except TimeoutError:
            return False
        finally:
            self._socket.settimeout(before)

    def end_writing(self) -> None:
        """Say that nothing more comes."""
        self._socket.shutdown(socket.SHUT_WR)

    def finish(self) -> None:
        """Say that nothing more comes, and let the other side read it: an early close would take answers away."""
        end = time.monotonic() + _GOODBYE_S
        with suppress(OSError):
            self.end_writing()
            self._socket.settimeout(_GOODBYE_S)
            while self._socket.recv(_CHUNK) and time.monotonic() < end:
                pass


class Listener(socketserver.ThreadingTCPServer):
    """A loopback port; each client is answered in a thread of its own, and what goes wrong there ends that client."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name != "nt"
    request_queue_size = 64

    def __init__(self, port: int, answer: Callable[[SocketStream], None]) -> None:
        self._answer = answer
        self._streams: set[SocketStream] = set()
        super().__init__((LOOPBACK, port), socketserver.BaseRequestHandler)

    @property
    def port(self) -> int:
        """The port's number; one that was asked for as 0 has been chosen."""
        return int(self.server_address[1])

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether there is room for one more client."""
        return len(self._streams) < _MOST_CONNECTIONS

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one client."""
        stream = SocketStream(request)
        self._streams.add(stream)
        try:
            self._answer(stream)
            stream.finish()
        except OSError:
            pass  # the client is gone
        finally:
            self._streams.discard(stream)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in a line what went wrong with one client."""
        sys.stderr.write(f"hexforge phone serve: a client's connection ended: {sys.exc_info()[1]!r}\n")

    def start(self) -> None:
        """Answer clients until `stop`."""
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and end its clients."""
        self.shutdown()
        self.server_close()
        for stream in list(self._streams):
            stream.close()


def join_streams(one: Stream, other: Stream) -> None:
    """Carry bytes both ways until either side ends."""
    back = threading.Thread(target=_carry, args=(other, one), daemon=True)
    back.start()
    _carry(one, other)
    back.join()


def _carry(source: Stream, target: Stream) -> None:
    try:
        while chunk := source.read_some():
            target.write(chunk)
    except OSError:
        pass
    finally:
        source.close()
        target.close()
