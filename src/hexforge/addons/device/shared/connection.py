# SPDX-License-Identifier: Apache-2.0
"""DeviceConnection: a program's side of the messages with a shared device, for any number of its threads."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from typing import Any

from hexforge.addons.device.codes import ProcessEndedError
from hexforge.addons.device.shared.address import DeviceAddress, read_token
from hexforge.addons.device.shared.messages import (
    LENGTH,
    MOST_HELLO_BYTES,
    VERSION,
    Message,
    error_from_json,
    length_of,
    packed,
    unpacked,
)
from hexforge.errors import CallError, FormatError, HexforgeError

CONNECT_S = 10.0
"""How long the device may take to say that it is there."""


class DeviceConnection:
    """A connection, from its first message on; `welcome` is what the device said to that."""

    def __init__(self, address: DeviceAddress, role: str, **about: Any) -> None:
        token = read_token(address.token_path)
        self._socket = _open(address)
        self._send_lock, self._lock = threading.Lock(), threading.Lock()
        self._numbers = itertools.count(1)
        self._answers: dict[int, _Answer] = {}
        self._over = ""
        try:
            hello = {"hexforge": VERSION, "token": token, "role": role, **about}
            self._socket.sendall(packed(hello, MOST_HELLO_BYTES))
            self.welcome = _result(self._read())
        except OSError as error:
            self._socket.close()
            raise CallError(f"{address}: the device does not answer: {error}") from None
        except HexforgeError:
            self._socket.close()
            raise
        self._socket.settimeout(None)
        self._reader = threading.Thread(target=self._read_answers, name="hexforge device", daemon=True)
        self._reader.start()

    def request(self, do: str, **fields: Any) -> Any:
        """What the device answers to a request; its error raised."""
        number, answer = next(self._numbers), _Answer()
        message = packed({"id": number, "do": do, **fields})
        with self._lock:
            if self._over:
                raise ProcessEndedError(self._over)
            self._answers[number] = answer
        try:
            with self._send_lock:
                self._socket.sendall(message)
        except OSError:
            self._end("the shared device is gone: its connection was closed")
        return answer.wait()

    def close(self) -> None:
        """End the connection; a process that has not said that it ends is killed by that."""
        self._end("the connection to the shared device was closed here")
        with contextlib.suppress(OSError):  # it was closed from the other side
            self._socket.shutdown(socket.SHUT_RDWR)
        if threading.current_thread() is not self._reader:
            self._reader.join(CONNECT_S)
        self._socket.close()

    def _read(self) -> Message | None:
        head = self._read_exactly(LENGTH.size)
        body = None if head is None else self._read_exactly(length_of(head))
        return None if body is None else unpacked(body)

    def _read_exactly(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _read_answers(self) -> None:
        """Give every answer to the thread that waits for it, until the connection ends."""
        why = "the shared device is gone, or has ended this process"
        try:
            while (message := self._read()) is not None:
                with self._lock:
                    answer = self._answers.pop(message.get("id", 0), None)
                if answer is not None:
                    answer.give(message)
                elif "error" in message:  # not an answer to a request: the connection ends
                    why = str(error_from_json(message["error"]))
        except (OSError, FormatError):
            pass  # it was closed, here or there
        self._end(why)

    def _end(self, why: str) -> None:
        with self._lock:
            self._over = self._over or why
            left, self._answers = self._answers, {}
        for answer in left.values():
            answer.give({"error": {"kind": "ended", "message": self._over}})


class _Answer:
    """An answer that comes later."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._message: Message = {}

    def give(self, message: Message) -> None:
        """It is there."""
        self._message = message
        self._there.set()

    def wait(self) -> Any:
        """Wait until it is there."""
        self._there.wait()
        return _result(self._message)


def _result(message: Message | None) -> Any:
    if message is None:
        raise CallError("the shared device closed the connection")
    if "error" in message:
        raise error_from_json(message["error"])
    return message["ok"]


def _open(address: DeviceAddress) -> socket.socket:
    try:
        if address.path is not None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(CONNECT_S)
            made.connect(str(address.path))
            return made
        made = socket.create_connection((address.host, address.port), CONNECT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made
    except OSError as error:
        raise CallError(f"{address}: no device is served there ({error}); `hexforge device serve` serves one") from None
