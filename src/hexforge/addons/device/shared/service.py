# SPDX-License-Identifier: Apache-2.0
"""DeviceService: one simulated device for several programs, in lockstep.

The service has the clock. A program is in a call, and waits, or it works by itself, which takes no time of the device.
Time passes only while every program waits; of those that do not, the one that attached first is heard first, however
fast each is. So the same programs give the same events. A program that neither asks nor waits for longer than
`patience_s` of real time is passed over until it asks again. One whose connection ends without a word was killed.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from hexforge.addons.device.scheduling.clock import Pending
from hexforge.addons.device.shared.address import PRIVATE_FILE, DeviceAddress, write_token
from hexforge.addons.device.shared.messages import (
    LENGTH,
    MOST_BYTES,
    MOST_HELLO_BYTES,
    VERSION,
    Message,
    error_to_json,
    length_of,
    packed,
    unpacked,
)
from hexforge.addons.device.shared.served_process import Answer, ServedProcess
from hexforge.addons.device.simulated_device import Client, Device, Fault
from hexforge.chips.priority import Priority
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.validated import Count, arguments, validated

HELLO_S = 5.0
"""How long a connection may take to say who it is."""
MOST_PROCESSES = 64
MOST_QUEUED = 64
"""Requests of one program that are read and not yet heard."""
MOST_UNREAD_BYTES = 2 * MOST_BYTES
"""Answers that a program does not read."""
STEPS_AT_ONCE = 2000
"""Events of the device until connections are looked at again."""
LOG_EVENTS = 100_000
"""What the device's log keeps."""
CONTROLS = ("status", "fault", "stop")


@dataclass(frozen=True, slots=True)
class _Hello:
    """Who connects, and for what."""

    hexforge: int
    token: str
    role: Literal["process", "control"]
    program: str = ""
    pid: Count = 0
    name: str = ""
    signed: bool = False
    privileged: bool = False


class _Program:
    """A program that is attached, with all of its processes: they work, or wait, together."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.processes: list[_Attached] = []
        self.waits: dict[Pending, None] = {}
        """Calls that it waits for."""
        self.passed_over = False

    @property
    def works(self) -> bool:
        """Whether it works by itself, and is to be heard before time passes."""
        return bool(self.processes) and not self.waits and not self.passed_over

    @property
    def asks(self) -> bool:
        """Whether it has asked for something and was not heard yet."""
        return any(not process.queue.empty() for process in self.processes)


class _Attached:
    """A process of a program, and its connection."""

    def __init__(self, program: _Program, process: ServedProcess, writer: asyncio.StreamWriter) -> None:
        self.program, self.process, self.writer = program, process, writer
        self.queue: asyncio.Queue[Message] = asyncio.Queue(MOST_QUEUED)

    def send(self, message: Message) -> None:
        """Send an answer, unless nobody reads there."""
        transport = self.writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > MOST_UNREAD_BYTES:
            transport.abort()
            return
        try:
            data = packed(message)
        except (HexforgeError, ValueError) as error:  # an answer that no message can hold ends itself alone
            refused = HexforgeError(f"the answer could not be sent: {error}")
            data = packed({"id": message.get("id"), "error": error_to_json(refused)})
        self.writer.write(data)


class DeviceService:
    """A device, and the programs that are attached to it."""

    def __init__(self, device: Device, *, patience_s: float = 1.0, wait_for: int = 0) -> None:
        """`wait_for`: time does not pass until so many programs have attached."""
        if not patience_s > 0 or wait_for < 0:
            raise CallError("patience is more than 0 seconds, and the programs to wait for are 0 or more")
        self.device, self._patience_s, self._wait_for = device, patience_s, wait_for
        device.log.keeps = LOG_EVENTS
        self._token = ""
        self._programs: dict[str, _Program] = {}
        """By what they call themselves, in the order in which they attached."""
        self._connections: dict[asyncio.Task[Any], asyncio.StreamWriter] = {}
        self._stopping = False
        self._ever = 0
        self._answered = False
        self._changed, self._stopped = asyncio.Event(), asyncio.Event()

    async def serve(self, address: DeviceAddress, ready: Callable[[DeviceAddress], None]) -> None:
        """Serve until it is told to stop; `ready` is told the address, with the port where one was chosen."""
        if address.path is not None:
            await _require_free(address)
            before = os.umask(0o777 & ~PRIVATE_FILE)
            try:
                server = await asyncio.start_unix_server(self._connect, address.path)
            finally:
                os.umask(before)
        else:
            server = await asyncio.start_server(self._connect, address.host, address.port)
            port = server.sockets[0].getsockname()[1]
            address = DeviceAddress(host=address.host, port=port, token_file=address.token_file)
            address = DeviceAddress(host=address.host, port=port, token_file=address.token_path)
        token_path = address.token_path
        self._token = write_token(token_path)
        moving = asyncio.create_task(self._move())
        try:
            ready(address)
            stopped = asyncio.create_task(self._stopped.wait())
            await asyncio.wait({moving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            if moving.done():
                moving.result()
        finally:
            moving.cancel()
            server.close()
            for writer in self._connections.values():
                writer.transport.abort()
            if self._connections:
                await asyncio.wait(self._connections, timeout=HELLO_S)
            token_path.unlink(missing_ok=True)
            if address.path is not None:
                address.path.unlink(missing_ok=True)

    def end(self) -> None:
        """Stop serving, as `stop` of a connection does."""
        self._stopped.set()

    # -- connections --------------------------------------------------------------------------------------------------

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            try:
                hello = await asyncio.wait_for(_read(reader, MOST_HELLO_BYTES), HELLO_S)
                self._require_known(hello or {})
                given = validated(_Hello, hello, "hello")
                if given.role == "process":
                    await self._attend(given, reader, writer)
                else:
                    writer.write(packed({"ok": self._facts()}))
                    await self._control(reader, writer)
            except HexforgeError as error:
                writer.write(packed({"error": error_to_json(error)}))
            await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass  # nobody is there any more
        finally:
            del self._connections[task]
            writer.close()
            if self._stopping:
                self._stopped.set()

    def _require_known(self, hello: Message) -> None:
        """CallError unless the other side speaks these messages and knows the token."""
        version, token = hello.get("hexforge"), str(hello.get("token", ""))
        if not hmac.compare_digest(token.encode(), self._token.encode()):
            raise CallError("the token is not this device's; HEXFORGE_DEVICE and the token's file belong together")
        if version != VERSION:
            raise CallError(f"messages of version {version!r}; this device has version {VERSION}: use one hexforge")

    async def _attend(self, hello: _Hello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A program: its requests are queued until it is heard; with its connection its process ends."""
        if len(self.device.clients) >= MOST_PROCESSES:
            raise CallError(f"{MOST_PROCESSES} processes are attached, which is all that a device takes")
        name, client = hello.program, self._client(hello)
        if name not in self._programs:
            self._programs[name] = _Program(hello.pid)
            self._ever += 1
        program = self._programs[name]
        attached = _Attached(program, ServedProcess(client), writer)
        program.processes.append(attached)
        try:
            attached.send({"ok": {**self._facts(), "process": client.name}})
            self._changed.set()
            while (message := await _read(reader)) is not None:
                await attached.queue.put(message)
                self._changed.set()
        except FormatError as error:  # where messages begin is not known any more
            attached.send({"error": error_to_json(error)})
        finally:
            program.processes.remove(attached)
            if not program.processes and self._programs.get(name) is program:
                del self._programs[name]
            self.device.kill(client)  # nothing where it has said that it ends
            self._changed.set()

    def _client(self, hello: _Hello) -> Client:
        if not 0 < len(hello.name) <= 200:
            raise CallError("a process has a name of 1 to 200 characters")
        return self.device.process(hello.name, signed=hello.signed, privileged=hello.privileged)

    # -- time ---------------------------------------------------------------------------------------------------------

    async def _move(self) -> None:
        """Hear programs, and let time pass while all of them wait."""
        while True:
            self._changed.clear()
            working = self._hear()
            waiting = any(program.waits for program in self._programs.values())
            if working is None and waiting and self._ever >= self._wait_for:
                self._pass_time()
                await asyncio.sleep(0)
                continue
            held_up = working is not None and (waiting or any(p.asks for p in self._programs.values()))
            try:
                await asyncio.wait_for(self._changed.wait(), self._patience_s if held_up else None)
            except TimeoutError:
                if working is not None and not working.asks:
                    working.passed_over = True

    def _hear(self) -> _Program | None:
        """Hear what programs ask, the first first; the one whose next request is to come before time passes."""
        while True:
            for program in self._programs.values():
                attached = next((a for a in program.processes if not a.queue.empty()), None)
                if attached is not None:
                    program.passed_over = False
                    self._answer(attached, attached.queue.get_nowait())
                    break
                if program.works:
                    return program
            else:
                return None

    def _answer(self, attached: _Attached, message: Message) -> None:
        number = message.pop("id", None)
        try:
            do = str(message.pop("do", ""))
            if do == "wait":
                waited_for = attached.process.waited_for
                self._wait(attached, number, *waited_for(**arguments(waited_for, message, "request wait")))
                return
            if do == "close":
                attached.process.client.close()
                answer: Any = {}
            else:
                answer = attached.process.do(do, message)
        except HexforgeError as error:
            attached.send({"id": number, "error": error_to_json(error)})
        except Exception as error:  # a request that nobody thought of ends itself, and not the device of all
            refused = HexforgeError(f"the request could not be done: {type(error).__name__}: {error}")
            attached.send({"id": number, "error": error_to_json(refused)})
        else:
            attached.send({"id": number, "ok": answer})

    def _wait(self, attached: _Attached, number: Any, call: Pending, answer: Answer) -> None:
        """Answer when a call is over; until then the program waits."""
        program = attached.program
        program.waits[call] = None

        def over(_: Pending) -> None:
            del program.waits[call]
            self._answered = True
            try:
                attached.send({"id": number, "ok": answer(call.result())})
            except HexforgeError as error:
                attached.send({"id": number, "error": error_to_json(error)})

        call.then(over)

    def _pass_time(self) -> None:
        """Let the device's events happen until a call is over."""
        self._answered = False
        try:
            for _ in range(STEPS_AT_ONCE):
                if not self.device.clock.step():
                    raise HexforgeError("the device waits for something that never comes: nothing is left to happen")
                if self._answered:
                    return
        except Exception as error:  # whoever waits is told, and the device goes on
            failed = HexforgeError(f"the device failed: {type(error).__name__}: {error}")
            for call in [call for program in self._programs.values() for call in program.waits]:
                call.fail(failed)

    # -- control ------------------------------------------------------------------------------------------------------

    async def _control(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests about the device itself, heard at once."""
        while (message := await _read(reader, MOST_HELLO_BYTES)) is not None:
            number = message.pop("id", None)
            try:
                do = str(message.pop("do", ""))
                if do not in CONTROLS:
                    raise CallError(f"request: do is {do!r}; it is one of {', '.join(CONTROLS)}")
                step = getattr(self, f"_{do}")
                answer = step(**arguments(step, message, f"request {do}"))
            except HexforgeError as error:
                writer.write(packed({"id": number, "error": error_to_json(error)}))
            else:
                writer.write(packed({"id": number, "ok": answer}))
            await writer.drain()
            if self._stopping:
                return

    def _stop(self) -> Message:
        self._stopping = True
        return {}

    def _fault(self, *, kind: Fault, process: str = "", session: Count = 0) -> Message:
        """A fault at this moment of the device's clock."""
        client = self.device.clients.get(process)
        if kind is not Fault.SSR and client is None:
            raise CallError(f"the device has no process {process!r}; it has {', '.join(self.device.clients) or 'none'}")
        self.device.fault(kind, client, session)
        self._changed.set()
        return {"now_us": self.device.clock.now_us}

    def _facts(self) -> Message:
        device = self.device
        return {
            "soc": device.soc.name, "soc_model": device.soc.soc_model, "cores": len(device.cores.cores),
            "platform": device.facts.platform, "ram_bytes": device.memory.ram_bytes,
            "signed_image": device.signed_image, "version": VERSION,
        }  # fmt: skip

    def _status(self) -> Message:
        """Who is on the device, its memory, its cores and what waits for them, and the votes."""
        device, log = self.device, self.device.log
        programs = {a.process.client.name: p for p in self._programs.values() for a in p.processes}
        return {
            **self._facts(),
            "now_us": round(device.clock.now_us, 3),
            "used_bytes": device.memory.used_bytes,
            "peak_bytes": log.peak_bytes,
            "reserved_vtcm_bytes": device.cores.reserved_bytes,
            "processes": [
                {
                    "name": client.name, "pid": programs[client.name].pid if client.name in programs else 0,
                    "waits": client.name in programs and bool(programs[client.name].waits),
                    "passed_over": client.name in programs and programs[client.name].passed_over,
                    "bytes": client.heap_bytes, "sessions": len(client.sessions), "calls": len(client.tasks),
                    "contexts": [{"context": c.label, "state": str(c.state)} for c in client.contexts.values()],
                    "profile": client.votes.profile.name if client.votes.profile is not None else "",
                }
                for client in device.clients.values()
            ],
            "running": [
                {"core": core.number, "graph": core.job.name, "priority": Priority(-core.job.rank).name}
                for core in device.cores.cores
                if core.job is not None
            ],
            "queue": [{"graph": job.name, "priority": Priority(-job.rank).name} for job in device.cores.waiting],
            "votes": device.power.facts(),
            "faults": [{key: e.get(key, "") for key in ("at_us", "kind", "process")} for e in log.of("fault")],
        }  # fmt: skip


async def _require_free(address: DeviceAddress) -> None:
    """Remove a socket that nobody listens at; CallError where a device is served there."""
    assert address.path is not None
    try:
        _, writer = await asyncio.open_unix_connection(address.path)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        address.path.unlink(missing_ok=True)
        return
    except OSError as error:
        raise CallError(f"{address.path}: no socket can be made there: {error}") from None
    writer.close()
    raise CallError(f"{address}: a device is served there already; `hexforge device stop` ends it")


async def _read(reader: asyncio.StreamReader, most: int = MOST_BYTES) -> Message | None:
    """The next message; None at the end of the connection."""
    try:
        size = length_of(await reader.readexactly(LENGTH.size), most)
        return unpacked(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
