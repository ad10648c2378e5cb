# SPDX-License-Identifier: Apache-2.0
"""The phone's daemon: packets over one connection that carry many streams, after an exchange of keys."""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import queue
import struct
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from hexforge.addons.phone.phones import Phone, UnpluggedError
from hexforge.addons.phone.protocol.device_services import Service, banner, open_service
from hexforge.addons.phone.protocol.streams import BrokenStreamError, RefusedError, Stream
from hexforge.errors import HexforgeError
from hexforge.formats.files import write_atomically

_WORDS = 64
_BYTES = 4 * _WORDS
_KEY = struct.Struct(f"<II{_BYTES}s{_BYTES}sI")
"""Android's public key: words of the modulus, a factor of Montgomery's, the modulus, another factor, the exponent."""
_EXPONENTS = (3, 65537)
_SHA1 = bytes.fromhex("3021300906052b0e03021a05000414")
"""What stands before a SHA-1 digest in a signature (RFC 8017); a token takes the digest's place."""
_MOST_KEYS = 64
TOKEN_BYTES = 20


class KnownKeys:
    """The keys that may connect to a phone, in a file beside its storage, a line each."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "adb_keys"

    def _lines(self) -> list[str]:
        return self._path.read_text("ascii", "replace").splitlines() if self._path.is_file() else []

    def add(self, key: bytes) -> bool:
        """Remember a key, the oldest of too many forgotten; False where it is none."""
        line = key.rstrip(b"\0").decode("ascii", "replace").strip()
        if _numbers(line) is None or "\n" in line or len(line) > 1024:
            return False
        lines = [known for known in self._lines() if known != line][1 - _MOST_KEYS :]
        write_atomically(self._path, "\n".join([*lines, line, ""]).encode("ascii", "replace"))
        return True

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Whether a key that is known signed a token."""
        if len(signature) != _BYTES:
            return False
        digest = _SHA1 + token
        expected = b"\0\1" + b"\xff" * (_BYTES - len(digest) - 3) + b"\0" + digest
        for numbers in map(_numbers, self._lines()):
            if numbers is None:
                continue
            modulus, exponent = numbers
            opened = pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(_BYTES, "big")
            if hmac.compare_digest(opened, expected):
                return True
        return False


def _numbers(line: str) -> tuple[int, int] | None:
    """The modulus and exponent of a key, whose owner's name may follow it; None where it is none."""
    try:
        words, _, modulus, _, exponent = _KEY.unpack(base64.b64decode(line.split(" ")[0], validate=True))
    except (binascii.Error, struct.error, ValueError):
        return None
    number = int.from_bytes(modulus, "little")
    return (number, exponent) if words == _WORDS and exponent in _EXPONENTS and number % 2 else None


_HEAD = struct.Struct("<4sIIIII")
_VERSION, _VERSION_WITHOUT_SUMS = 0x01000000, 0x01000001
_MOST_DATA = 1 << 18
_LEAST_DATA = 1 << 10
_MOST_STREAMS = 128
_MOST_TRIES = 16
_TOKEN, _SIGNATURE, _PUBLIC_KEY = 1, 2, 3


class Packet(NamedTuple):
    """A command, its two numbers and its data."""

    command: bytes
    first: int
    second: int
    data: bytes = b""

    def encoded(self) -> bytes:
        """The packet as it is sent."""
        inverted = int.from_bytes(self.command, "little") ^ 0xFFFFFFFF
        return _HEAD.pack(
            self.command, self.first, self.second, len(self.data), sum(self.data) & 0xFFFFFFFF, inverted
        ) + self.data  # fmt: skip


def read_packet(stream: Stream, with_sums: bool) -> Packet:
    """The next packet; BrokenStreamError where it is none."""
    command, first, second, size, total, inverted = _HEAD.unpack(stream.read(_HEAD.size))
    if inverted != int.from_bytes(command, "little") ^ 0xFFFFFFFF or size > _MOST_DATA:
        raise BrokenStreamError("a packet's header is none")
    data = stream.read(size)
    if with_sums and total != sum(data) & 0xFFFFFFFF:
        raise BrokenStreamError("a packet's data are not what its sum says")
    return Packet(command, first, second, data)


class _PacketStream(Stream):
    """One stream of a connection; each side sends a packet and waits until the other has taken it."""

    def __init__(self, connection: DaemonConnection, number: int, remote: int) -> None:
        super().__init__()
        self._connection, self._number, self.remote = connection, number, remote
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._taken = threading.Event()
        self._closed = threading.Event()
        self._writing = threading.Lock()
        self._untaken = False

    def receive(self) -> bytes:
        """The data of the next packet; the other side is told that it may send another."""
        data = self._came.get()
        if not data:
            self._came.put(b"")
            return b""
        self._untaken = False
        self._connection.send(Packet(b"OKAY", self._number, self.remote))
        return data

    def write(self, data: bytes, /) -> None:
        """Send bytes, packet by packet."""
        with self._writing:
            for start in range(0, len(data), self._connection.most_data):
                self._taken.wait()
                if self._closed.is_set():
                    raise BrokenStreamError("the stream is closed")
                self._taken.clear()
                piece = data[start : start + self._connection.most_data]
                self._connection.send(Packet(b"WRTE", self._number, self.remote, piece))

    def close(self) -> None:
        """End the stream, and say so once."""
        if not self._closed.is_set():
            self.end()
            self._connection.forget(self._number)
            self._connection.send(Packet(b"CLSE", self._number, self.remote))

    def end(self) -> None:
        """Let who reads or writes see that the stream has ended."""
        self._closed.set()
        self._taken.set()
        self._came.put(b"")

    def may_write(self) -> None:
        """The other side has taken the last packet."""
        self._taken.set()

    def came(self, data: bytes) -> None:
        """A packet's data came; BrokenStreamError where the one before it was not taken yet."""
        if self._untaken:
            raise BrokenStreamError("a packet came before the last one was taken")
        if data:
            self._untaken = True
            self._came.put(data)
        else:
            self._connection.send(Packet(b"OKAY", self._number, self.remote))


class DaemonConnection:
    """A client's connection to a phone's daemon; `keys` are those that may connect, None lets everyone."""

    def __init__(self, phone: Phone, line: Stream, keys: KnownKeys | None = None) -> None:
        self._phone, self._line, self._keys = phone, line, keys
        self._streams: dict[int, _PacketStream] = {}
        self._next = 1
        self.most_data = _MOST_DATA

    def send(self, packet: Packet) -> None:
        """Send a packet."""
        self._line.write(packet.encoded())

    def forget(self, number: int) -> None:
        """A stream has ended."""
        self._streams.pop(number, None)

    def serve(self) -> None:
        """Answer packets until the client or the phone is gone."""
        hello = read_packet(self._line, with_sums=False)
        if hello.command != b"CNXN" or hello.second < _LEAST_DATA:
            return
        version = min(hello.first, _VERSION_WITHOUT_SUMS)
        self.most_data = min(hello.second, _MOST_DATA)
        if self._keys is not None and not self._knows_client(self._keys):
            return
        self.send(Packet(b"CNXN", max(version, _VERSION), _MOST_DATA, banner(self._phone)))
        try:
            while self._phone.is_plugged:
                packet = read_packet(self._line, with_sums=version < _VERSION_WITHOUT_SUMS)
                answer = _PACKETS.get(packet.command)
                if answer is None:
                    return
                answer(self, packet)
        finally:
            for stream in list(self._streams.values()):
                stream.end()

    def _knows_client(self, keys: KnownKeys) -> bool:
        """Whether the client signs with a key that is known, or gives one: a virtual phone's owner always allows it."""
        for _ in range(_MOST_TRIES):
            token = os.urandom(TOKEN_BYTES)
            self.send(Packet(b"AUTH", _TOKEN, 0, token))
            packet = read_packet(self._line, with_sums=False)
            if packet.command != b"AUTH":
                return False
            if packet.first == _PUBLIC_KEY:
                return keys.add(packet.data)
            if packet.first == _SIGNATURE and keys.signed(token, packet.data):
                return True
        return False

    def open(self, packet: Packet) -> None:
        """Open a service in a thread of its own, or close what was asked for."""
        try:
            if not packet.first or len(self._streams) >= _MOST_STREAMS:
                raise RefusedError("no stream of this number")
            service = open_service(self._phone, packet.data.rstrip(b"\0").decode("utf-8", "surrogateescape"))
        except RefusedError:
            self.send(Packet(b"CLSE", 0, packet.first))
            return
        number, self._next = self._next, self._next % 0xFFFFFFFF + 1
        stream = self._streams[number] = _PacketStream(self, number, packet.first)
        stream.may_write()
        self.send(Packet(b"OKAY", number, packet.first))
        threading.Thread(target=_serve, args=(service, stream), daemon=True).start()

    def taken(self, packet: Packet) -> None:
        """The client has taken a packet of a stream."""
        if (stream := self._streams.get(packet.second)) is not None:
            stream.may_write()

    def came(self, packet: Packet) -> None:
        """Data of a stream; one that is closed is said to be so."""
        stream = self._streams.get(packet.second)
        if stream is None:
            self.send(Packet(b"CLSE", 0, packet.first))
        else:
            stream.came(packet.data)

    def closed(self, packet: Packet) -> None:
        """The client has closed a stream."""
        if (stream := self._streams.get(packet.second)) is not None:
            stream.close()


def _serve(service: Service, stream: Stream) -> None:
    try:
        service(stream)
    except (OSError, UnpluggedError):
        pass  # the client, or the phone, is gone
    except HexforgeError as error:
        sys.stderr.write(f"hexforge phone serve: a client's stream ended: {error}\n")
    finally:
        with suppress(OSError):
            stream.close()


_PACKETS: Mapping[bytes, Callable[[DaemonConnection, Packet], None]] = {
    b"OPEN": DaemonConnection.open,
    b"OKAY": DaemonConnection.taken,
    b"WRTE": DaemonConnection.came,
    b"CLSE": DaemonConnection.closed,
}
"""What a client may send after its first packet."""
