# SPDX-License-Identifier: Apache-2.0
"""adb's protocol by a small client of the tests' own, and mutated frames: nothing falls, nothing leaves the phone."""

from __future__ import annotations

import os
import random
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from hexforge.addons.phone.phones import Phone, add_phone, unplug
from hexforge.addons.phone.protocol.host_services import AdbServer
from hexforge.addons.phone.protocol.packets import DaemonConnection, KnownKeys, Packet, read_packet
from hexforge.addons.phone.protocol.serving import Served, serving
from hexforge.addons.phone.protocol.streams import SocketStream
from hexforge.errors import CallError

MUTATED = 10_000


@pytest.fixture
def served(phone: Phone) -> Iterator[Served]:
    add_phone("two", "SM8750")
    with serving(0, 0) as both:
        yield both
    while Client.opened:
        Client.opened.pop().close()


class Client:
    """One connection to the server, closed after the test."""

    opened: ClassVar[list[socket.socket]] = []

    def __init__(self, served: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", int(served.server.rpartition(":")[2])), 20)
        self.opened.append(self.socket)

    def ask(self, *requests: str) -> bytes:
        """What the last of some requests is answered with, OKAY or FAIL."""
        for request in requests:
            self.socket.sendall(f"{len(request.encode()):04x}{request}".encode())
            status = self.read(4)
        return status

    def read(self, size: int) -> bytes:
        """So many bytes."""
        return self.socket.recv(size, socket.MSG_WAITALL)

    def text(self) -> str:
        """A text with its length before it."""
        return self.read(int(self.read(4), 16)).decode()

    def rest(self) -> bytes:
        """All that comes."""
        return b"".join(iter(lambda: self.socket.recv(1 << 16), b""))

    def frames(self) -> list[tuple[int, bytes]]:
        """What comes in frames of the shell."""
        frames, left = [], self.rest()
        while left:
            kind, size = struct.unpack_from("<BI", left)
            frames.append((kind, left[5 : 5 + size]))
            left = left[5 + size :]
        return frames


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ("host:version", "0029"),
        ("host:devices", "one\tdevice\ntwo\tdevice\n"),
        ("host-serial:two:get-state", "device"),
        ("host-transport-id:2:get-serialno", "two"),
        ("host-serial:one:get-devpath", "hexforge:one"),
        ("host:list-forward", ""),
    ],
)
def test_services_of_the_server(served: Served, request_: str, answer: str) -> None:
    client = Client(served)
    assert client.ask(request_) == b"OKAY"
    assert client.text() == answer


@pytest.mark.parametrize(
    ("requests", "reason"),
    [
        (["host:transport-any"], "more than one device/emulator"),
        (["host:transport:three"], "device 'three' not found"),
        (["host:nothing"], "unknown host service"),
        (["shell:ls"], "choose a phone"),
        (["host:transport:one", "reverse:forward:tcp:1;tcp:2"], "reaches no port"),
        (["host:transport:one", "framebuffer:"], "no screen"),
        (["host:transport:one", "tcp:22"], "cannot connect to tcp:22"),
        (["host:transport:one", "localfilesystem:/../../x"], "cannot connect"),
        (["host-serial:one:forward:tcp:0;vsock:1"], "cannot forward"),
        (["host-serial:one:forward:localabstract:x;tcp:1"], "cannot listen"),
    ],
)
def test_what_is_refused_says_why(served: Served, requests: list[str], reason: str) -> None:
    client = Client(served)
    assert client.ask(*requests) == b"FAIL"
    assert reason in client.text()


@pytest.mark.usefixtures("sandbox")
def test_shells_of_both_versions(served: Served) -> None:
    client = Client(served)
    assert client.ask("host:transport:one", "shell:echo out; echo err >&2; exit 3") == b"OKAY"
    assert client.rest() == b"out\nerr\n"
    client = Client(served)
    assert client.ask("host:tport:serial:two") == b"OKAY"
    assert client.read(8) == struct.pack("<Q", 2)
    assert client.ask("shell,v2,raw:cat; getprop ro.soc.model; nothing") == b"OKAY"
    client.socket.sendall(struct.pack("<BI", 0, 3) + b"in\n" + struct.pack("<BI", 4, 0))
    frames = client.frames()
    assert b"".join(data for kind, data in frames if kind == 1) == b"in\nSM8750\n"
    assert frames[-1] == (3, bytes([127]))


def test_a_command_ends_with_its_client(served: Served, phone: Phone) -> None:
    client = Client(served)
    client.ask("host:transport:one", "shell:touch /sdcard/begun; sleep 60; touch /sdcard/ended")
    while not (phone.storage.folder / "sdcard/begun").exists():
        time.sleep(0.01)
    before = threading.active_count()
    client.socket.close()
    while threading.active_count() >= before:
        time.sleep(0.01)
    assert not (phone.storage.folder / "sdcard/ended").exists()


def test_files_in_both_versions(served: Served, phone: Phone) -> None:
    client = Client(served)
    assert client.ask("host:transport:one", "sync:") == b"OKAY"
    content = os.urandom(100_000)
    parts = [content[:65536], content[65536:]]
    data = b"".join(b"DATA" + struct.pack("<I", len(part)) + part for part in parts) + b"DONE" + struct.pack("<I", 1000)

    def ask(name: bytes, path: str) -> None:
        client.socket.sendall(name + struct.pack("<I", len(path)) + path.encode())

    for name, path, setup in (
        (b"SEND", "/sdcard/a/x,33261", b""),
        (b"SND2", "/sdcard/a/y", struct.pack("<4sII", b"SND2", 0o100755, 0)),
    ):
        ask(name, path)
        client.socket.sendall(setup + data)
        assert client.read(8) == b"OKAY\0\0\0\0"
        made = phone.storage.folder / path.partition(",")[0].lstrip("/")
        assert (made.read_bytes(), made.stat().st_mtime, made.stat().st_mode) == (content, 1000.0, 0o100755)
    ask(b"SEND", "/sdcard/link,41471")
    client.socket.sendall(data)
    status, size = struct.unpack("<4sI", client.read(8))
    assert status == b"FAIL"
    assert b"only plain files" in client.read(size)
    ask(b"STAT", "/sdcard/a/x")
    assert struct.unpack("<4sIII", client.read(16)) == (b"STAT", 0o100755, 100_000, 1000)
    ask(b"STA2", "/sdcard/none")
    assert struct.unpack_from("<4sI", client.read(72)) == (b"STA2", 2)
    ask(b"LIST", "/sdcard/a")
    for name in (b"x", b"y"):
        assert struct.unpack("<4sIIII", client.read(20)) == (b"DENT", 0o100755, 100_000, 1000, 1)
        assert client.read(1) == name
    assert client.read(20) == b"DONE" + bytes(16)
    ask(b"LIS2", "/sdcard/none")
    assert client.read(76) == b"DONE" + bytes(72)
    ask(b"RCV2", "/sdcard/a/y")
    client.socket.sendall(struct.pack("<4sI", b"RCV2", 0))
    taken = b""
    while True:
        status, size = struct.unpack("<4sI", client.read(8))
        if status == b"DONE":
            break
        taken += client.read(size)
    assert taken == content


def test_waiting_and_watching(served: Served, phone: Phone) -> None:
    watching = Client(served)
    assert watching.ask("host:track-devices") == b"OKAY"
    assert watching.text() == "one\tdevice\ntwo\tdevice\n"
    waiting = Client(served)
    assert waiting.ask("host-serial:one:wait-for-any-disconnect") == b"OKAY"
    unplug(phone)
    assert waiting.read(4) == b"OKAY"
    assert watching.text() == "two\tdevice\n"


@pytest.mark.usefixtures("sandbox")
def test_a_forwarded_port(served: Served, phone: Phone) -> None:
    client = Client(served)
    assert client.ask("host-serial:one:forward:tcp:0;tcp:80") == b"OKAY"
    assert client.read(4) == b"OKAY"
    port = client.text()
    shell = Client(served)
    assert shell.ask("host:transport:one", "exec:nc -l -p 80 echo from the phone") == b"OKAY"
    while not (phone.storage.folder / "dev/socket/tcp_80").exists():
        time.sleep(0.01)
    with socket.create_connection(("127.0.0.1", int(port)), 20) as connection:
        assert connection.recv(100, socket.MSG_WAITALL) == b"from the phone\n"
    assert Client(served).ask(f"host-serial:one:forward:norebind:tcp:{port};tcp:81") == b"FAIL"
    assert Client(served).ask(f"host-serial:one:killforward:tcp:{port}") == b"OKAY"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(port)), 20)


def test_one_server_at_a_port_and_its_end(served: Served) -> None:
    port = int(served.server.rpartition(":")[2])
    with pytest.raises(CallError, match="another --port"), serving(port, 0):
        pass
    assert Client(served).ask("host:kill") == b"OKAY"
    assert served.ended.wait(10)


# -- mutated frames ----------------------------------------------------------------------------------------------------


def _request(text: str) -> bytes:
    return f"{len(text):04x}{text}".encode()


def _sync(*parts: tuple[bytes, bytes]) -> bytes:
    return b"".join(name + struct.pack("<I", len(data)) + data for name, data in parts)


def conversations() -> list[bytes]:
    """What clients say, among it what tries to leave the phone."""
    files = _sync(
        (b"STAT", b"/sdcard/x"), (b"SEND", b"/sdcard/x,33188"), (b"DATA", b"content"), (b"DONE", b""),
        (b"SEND", b"/../../../escaped,33188"), (b"DATA", b"content"), (b"DONE", b""),
        (b"LIST", b"/.."), (b"STA2", b"/sdcard/x"), (b"RECV", b"/../../phone.json"), (b"QUIT", b""),
    )  # fmt: skip
    shell = "shell,v2,raw:cat > ../../../escaped; ls -l ..; cp /sdcard/x ../../../../escaped; mv x ../../phone.json"
    over_packets = [
        Packet(b"CNXN", 0x01000001, 1 << 18, b"host::features=shell_v2\0"),
        Packet(b"OPEN", 1, 0, b"sync:\0"),
        Packet(b"WRTE", 1, 1, files),
        Packet(b"OKAY", 1, 1),
        Packet(b"OPEN", 2, 0, b"shell:echo x > /../../escaped\0"),
        Packet(b"OKAY", 2, 2),
        Packet(b"CLSE", 1, 1),
    ]
    return [
        b"".join(packet.encoded() for packet in over_packets),
        _request("host:transport:one") + _request("sync:") + files,
        _request("host:tport:serial:one") + _request(shell) + b"\0\3\0\0\0abc\4\0\0\0\0",
        _request("host:transport-any") + _request("localfilesystem:/../../x"),
        _request("host-serial:one:wait-for-any-device"),
        _request("host-transport-id:1:get-state"),
        _request("host:track-devices-l"),
        _request("host-serial:one:killforward:tcp:1"),
    ]


def mutated(random_: random.Random, said: bytes) -> bytes:
    """A conversation with bytes changed, left out, doubled, or cut."""
    changed = bytearray(said)
    for _ in range(random_.randint(1, 4)):
        at = random_.randrange(len(changed) + 1)
        kind = random_.randrange(5)
        if kind == 0 and at < len(changed):
            changed[at] = random_.randrange(256)
        elif kind == 1 and at < len(changed):
            changed[at] ^= 1 << random_.randrange(8)
        elif kind == 2:
            del changed[at : at + random_.randint(1, 8)]
        elif kind == 3:
            changed[at:at] = changed[at : at + random_.randint(1, 32)]
        else:
            changed[at:at] = random_.choice([b"\xff\xff\xff\xff", b"\0", b"/../../", b"ffff", b"\0\0\0\0", b";"])
    return bytes(changed)


def test_mutated_frames_leave_the_server_and_the_computer_as_they_are(phone: Phone, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("kept")
    facts = (phone.folder / "phone.json").read_bytes()

    def around() -> list[Path]:
        return sorted(path for path in tmp_path.rglob("*") if not path.is_relative_to(phone.storage.folder))

    before = around()
    server, said, random_ = AdbServer(), conversations(), random.Random(46)
    for number in range(MUTATED):
        if number % 200 == 0:  # a phone full of files would say more than fits into a socket that nobody reads
            shutil.rmtree(phone.storage.folder, ignore_errors=True)
            phone.storage.create()
            (phone.storage.folder / "sdcard/x").write_text("x")
        which = number % 2 and 1 + number // 2 % (len(said) - 1)
        here, there = socket.socketpair()
        with here, there:
            here.sendall(mutated(random_, said[which]))
            here.shutdown(socket.SHUT_WR)
            there.settimeout(20)
            stream = SocketStream(there)
            try:
                if which:
                    server.answer(stream)
                else:
                    DaemonConnection(phone, stream, KnownKeys(phone.folder) if number % 100 == 0 else None).serve()
            except TimeoutError:
                raise
            except OSError:
                pass  # how a hostile client's connection ends
    server.stop()
    assert around() == before
    assert (tmp_path / "outside").read_text() == "kept"
    assert (phone.folder / "phone.json").read_bytes() == facts


def test_a_packet_is_read_as_it_was_written() -> None:
    here, there = socket.socketpair()
    with here, there:
        packet = Packet(b"WRTE", 1, 2, b"data")
        here.sendall(packet.encoded())
        assert read_packet(SocketStream(there), with_sums=True) == packet
