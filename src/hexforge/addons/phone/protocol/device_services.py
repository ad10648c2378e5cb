# SPDX-License-Identifier: Apache-2.0
"""What a client may open on a phone, as a table: a shell, files, ports, and what is refused by name."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hexforge.addons.phone.phones import Phone, UnpluggedError
from hexforge.addons.phone.programs import Streams
from hexforge.addons.phone.protocol.file_sync import serve_files
from hexforge.addons.phone.protocol.streams import (
    KINDS,
    BrokenStreamError,
    RefusedError,
    SocketStream,
    Stream,
    connect_port,
    join_streams,
)
from hexforge.addons.phone.shell import run_shell

FEATURES = ("shell_v2", "stat_v2", "ls_v2", "fixed_push_mkdir", "sendrecv_v2")
"""What clients may use beside the first version of everything."""
SAID: Mapping[str, str] = {
    "remount": "remount succeeded\n",
    "disable-verity": "Verity is already disabled\n",
    "enable-verity": "Verity is already disabled\n",
    "reboot": "",
}
"""Services that change nothing on a virtual phone, and what they say."""
USERS: Mapping[str, bool] = {"root": True, "unroot": False}
"""Services that make the next shells root's, or no longer."""
REFUSED: Mapping[str, str] = {
    "reverse": "a virtual phone reaches no port of this computer",
    "framebuffer": "a virtual phone has no screen",
    "jdwp": "a virtual phone runs no apps",
    "track-jdwp": "a virtual phone runs no apps",
    "track-app": "a virtual phone runs no apps",
    "abb": "a virtual phone runs no apps",
    "abb_exec": "a virtual phone runs no apps",
    "dev": "a virtual phone has no devices to open",
    "log": "a virtual phone keeps no logs",
    "backup": "a virtual phone is a folder of this computer: copy it",
    "restore": "a virtual phone is a folder of this computer: copy it",
    "sideload": "a virtual phone has no system to replace",
    "usb": "a virtual phone has no cable",
    "tcpip": "`hexforge phone serve` says the ports of virtual phones",
}
"""Services that a virtual phone does not give, and why."""
_FRAME = struct.Struct("<BI")
_STDIN, _STDOUT, _STDERR, _EXIT, _CLOSE_STDIN = range(5)
"""The kinds of frames of the shell's second protocol."""
_MOST_FRAME = 1 << 20
_MOST_INPUT = 256 << 20
_PIECE = 1 << 16

Service = Callable[[Stream], None]


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A service as a client asks for it: `shell,v2,raw:ls` is the kind shell with two options and an argument."""

    phone: Phone
    kind: str
    options: tuple[str, ...]
    argument: str


def open_service(phone: Phone, request: str) -> Service:
    """What serves a request on a stream; RefusedError where there is no such service."""
    name, _, argument = request.partition(":")
    kind, *options = name.split(",")
    opening = DEVICE_SERVICES.get(kind)
    if not phone.is_plugged:
        raise RefusedError(f"device '{phone.serial}' not found")
    if opening is None:
        raise RefusedError(f"unknown service '{kind[:100]}'; a virtual phone has {', '.join(sorted(DEVICE_SERVICES))}")
    return opening(ServiceRequest(phone, kind, tuple(options), argument))


# -- the shell ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeldPhone(Phone):
    """A phone as a client holds it: for what runs there it is unplugged, too, when the client is gone."""

    gone: threading.Event = field(default_factory=threading.Event)

    @property
    def is_plugged(self) -> bool:
        """Whether the phone and the client are there."""
        return super().is_plugged and not self.gone.is_set()


class _Input:
    """What a client types into a command, collected until it says that there is no more."""

    def __init__(self, stream: Stream, in_frames: bool) -> None:
        self._stream, self._in_frames = stream, in_frames
        self._typed = bytearray()
        self._ended = threading.Event()

    def collect(self, gone: threading.Event | None) -> None:
        """Take what comes until the client is gone, which is said to `gone`."""
        try:
            while self._in_frames or not self._ended.is_set():
                kind, data = self._frame() if self._in_frames else (_STDIN, self._stream.read_some())
                if kind == _CLOSE_STDIN or not (self._in_frames or data):
                    self._ended.set()
                elif kind == _STDIN and not self._ended.is_set():
                    self._typed += data
                if len(self._typed) > _MOST_INPUT:
                    raise BrokenStreamError("more input than a virtual phone's command may have")
        except OSError:
            pass
        finally:
            if gone is not None:
                gone.set()
            self._ended.set()

    def _frame(self) -> tuple[int, bytes]:
        kind, size = _FRAME.unpack(self._stream.read(_FRAME.size))
        if size > _MOST_FRAME:
            raise BrokenStreamError("a frame of the shell is too long")
        return kind, self._stream.read(size)

    def read(self) -> bytes:
        """All that was typed, once; it waits for the end."""
        self._ended.wait()
        typed, self._typed = bytes(self._typed), bytearray()
        return typed


class _Output:
    """Where a command writes: the stream itself, or frames of a kind."""

    def __init__(self, stream: Stream, kind: int | None) -> None:
        self._stream, self._kind = stream, kind

    def write(self, data: bytes, /) -> None:
        """Send some bytes."""
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            header = b"" if self._kind is None else _FRAME.pack(self._kind, len(piece))
            self._stream.write(header + piece)


def _shell(request: ServiceRequest) -> Service:
    in_frames = "v2" in request.options

    def run(stream: Stream) -> None:
        """Run the commands that are asked for; without any, those that come in."""
        phone = HeldPhone(request.phone.serial, request.phone.soc, request.phone.folder)
        typed = _Input(stream, in_frames)
        # What `exec` runs goes on without its client, as on a phone: a client of `exec-in` leaves after its last byte.
        gone = phone.gone if request.kind == "shell" else None
        threading.Thread(target=typed.collect, args=(gone,), daemon=True).start()
        out = _Output(stream, _STDOUT if in_frames else None)
        err = _Output(stream, _STDERR) if in_frames else out
        try:
            code = run_shell(phone, request.argument or None, Streams(typed.read, out, err))
        except UnpluggedError:
            return
        if in_frames:
            stream.write(_FRAME.pack(_EXIT, 1) + bytes([code & 0xFF]))

    return run


# -- the others --------------------------------------------------------------------------------------------------------


def _files(request: ServiceRequest) -> Service:
    return lambda stream: serve_files(request.phone, stream)


def _port(request: ServiceRequest) -> Service:
    try:
        connection = connect_port(request.phone.storage, request.kind, request.argument)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "Invalid argument"
        raise RefusedError(f"cannot connect to {request.kind}:{request.argument[:100]}: {reason}") from None

    def run(stream: Stream) -> None:
        """Carry bytes between the client and what serves on the port."""
        with connection:
            join_streams(stream, SocketStream(connection))

    return run


def change_user(phone: Phone, service: str) -> str:
    """Do what a service of USERS does; what adb's daemon says of it."""
    is_root = USERS[service]
    if phone.is_root == is_root:
        return "adbd is already running as root\n" if is_root else "adbd not running as root\n"
    phone.set_root(is_root)
    return f"restarting adbd as {'root' if is_root else 'non root'}\n"


def _changes_user(request: ServiceRequest) -> Service:
    return lambda stream: stream.write(change_user(request.phone, request.kind).encode())


def _says(request: ServiceRequest) -> Service:
    return lambda stream: stream.write(SAID[request.kind].encode())


def _refuses(request: ServiceRequest) -> Service:
    raise RefusedError(f"{request.kind}: {REFUSED[request.kind]}")


DEVICE_SERVICES: Mapping[str, Callable[[ServiceRequest], Service]] = {
    "shell": _shell,
    "exec": _shell,
    "sync": _files,
    **dict.fromkeys(KINDS, _port),
    **dict.fromkeys(SAID, _says),
    **dict.fromkeys(USERS, _changes_user),
    **dict.fromkeys(REFUSED, _refuses),
}
"""What a phone serves, by the first word of the request."""


def banner(phone: Phone) -> bytes:
    """How a phone presents itself."""
    facts = {
        "ro.product.name": phone.soc.name.lower(), "ro.product.model": phone.model,
        "ro.product.device": phone.soc.name.lower(), "features": ",".join(FEATURES),
    }  # fmt: skip
    return os.fsencode("device::" + ";".join(f"{name}={value}" for name, value in facts.items()))
