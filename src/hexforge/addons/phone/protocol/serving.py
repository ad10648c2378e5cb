# SPDX-License-Identifier: Apache-2.0
"""All that is served at once: adb's server, and each phone on a port of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hexforge.addons.phone.phones import Phone, list_phones
from hexforge.addons.phone.protocol.host_services import AdbServer
from hexforge.addons.phone.protocol.packets import DaemonConnection, KnownKeys
from hexforge.addons.phone.protocol.streams import LOOPBACK, Listener, SocketStream
from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class Served:
    """The addresses that are served, HOST:PORT each, and the event that ends it."""

    server: str
    phones: Mapping[str, str]
    ended: threading.Event

    def wait(self) -> None:
        """Wait until a client ends the server."""
        self.ended.wait()


@contextmanager
def serving(port: int, device_port: int, *, ask_keys: bool = False) -> Iterator[Served]:
    """Serve the phones of this user; those that are there now get ports of their own, two apart as emulators have."""
    server = AdbServer()
    with ExitStack() as opened:
        opened.callback(server.stop)
        listener = _listen(port, server.answer, opened, "`adb kill-server`, or another --port")
        phones: dict[str, str] = {}
        for number, phone in enumerate(list_phones()):
            wanted = device_port + 2 * number if device_port else 0
            own = _listen(wanted, _daemon(phone, ask_keys), opened, "another --device-port")
            phones[phone.serial] = f"{LOOPBACK}:{own.port}"
        opened.callback(server.ended.set)
        yield Served(f"{LOOPBACK}:{listener.port}", phones, server.ended)


def _daemon(phone: Phone, ask_keys: bool) -> Callable[[SocketStream], None]:
    keys = KnownKeys(phone.folder) if ask_keys else None
    return lambda stream: DaemonConnection(phone, stream, keys).serve()


def _listen(port: int, answer: Callable[[SocketStream], None], opened: ExitStack, advice: str) -> Listener:
    try:
        listener = Listener(port, answer)
    except (OSError, OverflowError) as error:
        raise CallError(f"port {port}: {getattr(error, 'strerror', None) or error}; {advice}") from None
    listener.start()
    opened.callback(listener.stop)
    return listener
