# SPDX-License-Identifier: Apache-2.0
"""adb's server: which phones there are, which one is meant, and forwarded ports, as a table of services."""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from hexforge.addons.phone.phones import (
    NoPhoneError,
    Phone,
    UnpluggedError,
    attached_lines,
    choose_phone,
    list_phones,
    transport_id,
)
from hexforge.addons.phone.protocol.device_services import FEATURES, open_service
from hexforge.addons.phone.protocol.streams import KINDS, BrokenStreamError, Listener, RefusedError, SocketStream
from hexforge.errors import HexforgeError

_VERSION = 41
"""The protocol of adb's server, 1.0.41; a client of another version would replace the server."""
_OKAY, _FAIL = b"OKAY", b"FAIL"
_MOST_FORWARDS = 64
_LOOK_S = 0.1
_LENGTH = re.compile(rb"[0-9A-Fa-f]{4}")


@dataclass(frozen=True, slots=True)
class Forward:
    """A loopback port of this computer that leads to a port of a phone."""

    serial: str
    local: str
    remote: str
    listener: Listener


@dataclass(frozen=True, slots=True)
class HostRequest:
    """A service of the server as a client asks for it: the phone that is meant, by name or number, and an argument."""

    server: AdbServer
    stream: SocketStream
    serial: str
    number: str
    argument: str

    def phone(self) -> Phone:
        """The phone that is meant; RefusedError where there is none, or more than one."""
        serial = self.serial
        if self.number:
            serial = next((p.serial for p in list_phones() if str(transport_id(p)) == self.number), "")
            if not serial:
                raise RefusedError(f"no device with transport id '{self.number[:20]}'")
        try:
            return choose_phone(serial)
        except NoPhoneError as error:
            raise RefusedError(str(error)) from None

    def meaning(self, *, serial: str = "", number: str = "") -> HostRequest:
        """The same request for another phone."""
        return HostRequest(self.server, self.stream, serial, number, "")

    def answer(self, text: str) -> None:
        """Say yes, and a text."""
        self.stream.write(_OKAY + block(text))


def block(text: str) -> bytes:
    """A text with its length before it, as the protocol has it; what is longer than a length can say is cut."""
    encoded = text.encode("utf-8", "surrogateescape")[:0xFFFF]
    return f"{len(encoded):04x}".encode() + encoded


def read_request(stream: SocketStream) -> str:
    """The next request of a client."""
    size = stream.read(4)
    if not _LENGTH.fullmatch(size):
        raise BrokenStreamError("a request does not begin with its length")
    return stream.read(int(size, 16)).decode("utf-8", "surrogateescape")


@dataclass(slots=True)
class AdbServer:
    """adb's server over the phones of this user."""

    ended: threading.Event = field(default_factory=threading.Event)
    forwards: dict[str, Forward] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, stream: SocketStream) -> None:
        """Answer one client: a service of the server, or the choice of a phone and a service of that."""
        phone: Phone | None = None
        try:
            while (request := read_request(stream)).startswith("host"):
                phone = self._serve(request, stream, phone)
                if phone is None:
                    return
            if phone is None:
                raise RefusedError("device offline (no transport): choose a phone before its services")
            service = open_service(phone, request)
            stream.write(_OKAY)
            service(stream)
        except (RefusedError, HexforgeError) as refused:
            stream.write(_FAIL + block(str(refused)))
        except UnpluggedError:
            return

    def _serve(self, request: str, stream: SocketStream, chosen: Phone | None) -> Phone | None:
        """Serve what is no phone's; the phone that the next request is for, where one was chosen."""
        which, _, rest = request.partition(":")
        serial, number = chosen.serial if chosen is not None else "", ""
        if which == "host-serial":
            known = [p.serial for p in list_phones() if rest.startswith(f"{p.serial}:")]
            serial = max(known, key=len) if known else rest.partition(":")[0]
            rest = rest[len(serial) + 1 :]
        elif which == "host-transport-id":
            number, _, rest = rest.partition(":")
        elif which not in ("host", "host-usb", "host-local"):
            raise RefusedError(f"unknown host service '{which[:100]}'")
        name, _, argument = rest.partition(":")
        service = wait_for if name.startswith("wait-for-") else HOST_SERVICES.get(name)
        if service is None:
            raise RefusedError(f"unknown host service '{name[:100]}'")
        argument = name if service is wait_for else argument
        return service(HostRequest(self, stream, serial, number, argument))

    def stop(self) -> None:
        """Close the forwarded ports."""
        with self.lock:
            for forward in self.forwards.values():
                forward.listener.stop()
            self.forwards.clear()


# -- phones ------------------------------------------------------------------------------------------------------------


def _says(text: Callable[[HostRequest], str]) -> Callable[[HostRequest], None]:
    return lambda request: request.answer(text(request))


def _kill(request: HostRequest) -> None:
    request.stream.write(_OKAY)
    request.server.ended.set()


def _track(is_long: bool) -> Callable[[HostRequest], None]:
    def track(request: HostRequest) -> None:
        """Say which phones there are, and again whenever that changes."""
        request.stream.write(_OKAY)
        said = None
        while not request.server.ended.is_set():
            now = attached_lines(is_long)
            if now != said:
                request.stream.write(block(now))
            said = now
            if request.stream.has_ended(_LOOK_S):
                return

    return track


def wait_for(request: HostRequest) -> None:
    """Wait until a phone is there, or is gone (`wait-for-any-disconnect`)."""
    request.stream.write(_OKAY)
    wants_gone = request.argument.endswith("disconnect")
    while not request.server.ended.is_set():
        there = any(p.is_plugged and request.serial in ("", p.serial) for p in list_phones())
        if there != wants_gone:
            request.stream.write(_OKAY)
            return
        if request.stream.has_ended(_LOOK_S):
            return


def _transport(request: HostRequest) -> Phone:
    phone = request.meaning(serial=request.argument).phone()
    request.stream.write(_OKAY)
    return phone


def _transport_id(request: HostRequest) -> Phone:
    phone = request.meaning(number=request.argument or "0").phone()
    request.stream.write(_OKAY)
    return phone


def _tport(request: HostRequest) -> Phone:
    """Choose a phone and say its number."""
    kind, _, serial = request.argument.partition(":")
    phone = request.meaning(serial=serial if kind == "serial" else request.serial).phone()
    request.stream.write(_OKAY + struct.pack("<Q", transport_id(phone)))
    return phone


# -- forwarded ports ---------------------------------------------------------------------------------------------------


def _forward(request: HostRequest) -> None:
    """Lead a loopback port of this computer to a port of the phone: `tcp:8080;tcp:80`, `tcp:0` chooses one."""
    phone = request.phone()
    wanted = request.argument.removeprefix("norebind:")
    local, _, remote = wanted.partition(";")
    kind, _, port = local.partition(":")
    if kind != "tcp" or not (port.isascii() and port.isdecimal() and len(port) < 6 and int(port) < 1 << 16):
        raise RefusedError(f"cannot listen on '{local[:100]}': a port of this computer is tcp:PORT")
    if remote.partition(":")[0] not in KINDS or ":" not in remote or len(remote) > 512:
        raise RefusedError(f"cannot forward to '{remote[:100]}': a port of a phone is {', '.join(KINDS)}")

    def answer(stream: SocketStream) -> None:
        """Carry one connection to the phone."""
        try:
            open_service(phone, remote)(stream)
        except RefusedError:
            stream.close()

    server = request.server
    with server.lock:
        before = server.forwards.get(local)
        if before is not None and wanted != request.argument:
            raise RefusedError(f"cannot rebind existing socket {local}")
        if before is None and len(server.forwards) >= _MOST_FORWARDS:
            raise RefusedError("too many forwarded ports; `adb forward --remove-all`")
        if before is not None:
            before.listener.stop()
        try:
            listener = Listener(int(port), answer)
        except OSError as error:
            raise RefusedError(f"cannot bind listener: {error.strerror or error}") from None
        listener.start()
        name = f"tcp:{listener.port}"
        server.forwards[name] = Forward(phone.serial, name, remote, listener)
    request.stream.write(_OKAY + _OKAY + (block(str(listener.port)) if port == "0" else b""))


def _end_forward(request: HostRequest) -> None:
    server = request.server
    with server.lock:
        forward = server.forwards.pop(request.argument, None)
    if forward is None:
        raise RefusedError(f"listener '{request.argument[:100]}' not found")
    forward.listener.stop()
    request.stream.write(_OKAY + _OKAY)


def _end_forwards(request: HostRequest) -> None:
    request.server.stop()
    request.stream.write(_OKAY + _OKAY)


def _list_forwards(request: HostRequest) -> str:
    with request.server.lock:
        return "".join(f"{f.serial} {f.local} {f.remote}\n" for f in request.server.forwards.values())


def _features(request: HostRequest) -> str:
    return ",".join(FEATURES)


HOST_SERVICES: Mapping[str, Callable[[HostRequest], Phone | None]] = {
    "version": _says(lambda request: f"{_VERSION:04x}"),
    "kill": _kill,
    "devices": _says(lambda request: attached_lines(False)),
    "devices-l": _says(lambda request: attached_lines(True)),
    "track-devices": _track(False),
    "track-devices-l": _track(True),
    "host-features": _says(_features),
    "features": _says(_features),
    "get-state": _says(lambda request: "device" if request.phone() else ""),
    "get-serialno": _says(lambda request: request.phone().serial),
    "get-devpath": _says(lambda request: f"hexforge:{request.phone().serial}"),
    "transport": _transport,
    "transport-any": _transport,
    "transport-usb": _transport,
    "transport-local": _transport,
    "transport-id": _transport_id,
    "tport": _tport,
    "forward": _forward,
    "killforward": _end_forward,
    "killforward-all": _end_forwards,
    "list-forward": _says(_list_forwards),
}
"""What the server serves, by the word after `host:`, `host-serial:SERIAL:` or `host-transport-id:N:`."""
