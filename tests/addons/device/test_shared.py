# SPDX-License-Identifier: Apache-2.0
"""Shared devices: real programs on one simulated device see each other's priority, memory, restarts and deaths."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fuzz.device_rounds import device_messages
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DeclaredTime,
    Device,
    DeviceError,
    DeviceSignal,
    GraphSpec,
    GroupRegistration,
    ListConfig,
    MemDescriptor,
    Qnn,
    SharedBuffer,
    SharingType,
)
from hexforge.addons.device.codes import ProcessEndedError
from hexforge.addons.device.shared.address import VARIABLE, DeviceAddress, read_token, write_token
from hexforge.addons.device.shared.messages import LENGTH, MOST_BYTES, packed, unpacked
from hexforge.addons.device.shared.remote import SharedDevice, SharedQnn, connect
from hexforge.addons.device.shared.service import DeviceService
from hexforge.chips.priority import Priority
from hexforge.cli import app
from hexforge.errors import CallError, HexforgeError
from tests import ROOT
from tests.addons.device import tiny
from tests.addons.device.log_rules import broken_rules

MB = 1 << 20
X = np.random.default_rng(3).standard_normal((1, 8)).astype(np.float32)
WAIT_S = 30.0


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Binary]:
    return tiny.binaries(tmp_path_factory.mktemp("contexts"))


class Served:
    """A device that a thread of the tests serves."""

    def __init__(self, device: Device, address: DeviceAddress, **more: Any) -> None:
        self.device, self._there = device, threading.Event()
        self._service = DeviceService(device, **more)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._service.serve(address, self._ready)))
        self._thread.start()
        assert self._there.wait(WAIT_S)

    def _ready(self, address: DeviceAddress) -> None:
        self.address = address
        self._there.set()

    @property
    def remote(self) -> SharedDevice:
        return connect(str(self.address))

    def stop(self) -> None:
        if self._thread.is_alive():
            self.remote.stop()
            self._thread.join(WAIT_S)

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds."""
        pause = threading.Event()
        for _ in range(int(WAIT_S / 0.02)):
            if holds():
                return
            pause.wait(0.02)
        raise AssertionError("it never came to hold")


@contextmanager
def served(folder: Path, soc: str = tiny.SOC, **more: Any) -> Iterator[Served]:
    made = Served(Device(soc), DeviceAddress(path=folder / "d.sock"), **more)
    try:
        yield made
    finally:
        made.stop()


def program(where: Served, *arguments: object) -> subprocess.Popen[str]:
    """A real program on the device, from the moment when it is attached."""
    command = [sys.executable, "-m", "tests.addons.device.shared_program", *map(str, arguments)]
    environment = os.environ | {VARIABLE: str(where.address)}
    made = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    assert made.stdout.readline() == "attached\n"
    return made


def result(made: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = made.communicate(timeout=WAIT_S)
    assert made.returncode == 0
    found: dict[str, Any] = json.loads(said)
    return found


def rules(where: Served) -> list[str]:
    where.stop()
    return broken_rules(json.loads(line) for line in where.device.log.lines())


# -- real programs ----------------------------------------------------------------------------------------------------


def test_a_high_priority_program_is_not_held_up_by_another_and_time_is_the_same_again(tmp_path: Path) -> None:
    found = []
    for number in range(2):
        with served(tmp_path, wait_for=2) as where:
            low = program(where, "low", "LOW", 10_000, 20, 12, 0)
            high = program(where, "high", "HIGH", 1000, 5, 12, 1700)
            found.append((result(high), result(low)))
            assert rules(where) == [], number
    highs, lows = found[0]
    assert found[0] == found[1]  # whatever the programs' speed: the service has the clock
    latencies = [us for us, _ in highs["runs"]]
    move_us = Device(tiny.SOC).cores._us_per_mb * 8
    assert max(latencies) <= 1100 + 10_000 / 20 + move_us + 1e-3  # one task of the other, and its VTCM saved
    assert sum(yields for _, yields in lows["runs"]) >= 8
    assert max(us for us, _ in lows["runs"]) > 10_100 + 1000


def test_a_restart_is_seen_by_both_programs_and_a_killed_ones_memory_is_back(tmp_path: Path) -> None:
    with served(tmp_path, wait_for=2) as where:
        one = program(where, "one", "NORMAL", 3000, 3, 100_000, 0)
        other = program(where, "other", "NORMAL", 3000, 3, 100_000, 0)
        where.until(lambda: len(where.device.log.of("created")) == 2)
        whole = where.device.memory.used_bytes
        invoked = CliRunner().invoke(app, ["device", "fault", "ssr", "--address", str(where.address)])
        assert invoked.exit_code == 0, invoked.output
        where.until(lambda: len(where.device.log.of("recovered")) == 2)
        assert {entry["process"] for entry in where.device.log.of("recovered")} == {"one", "other"}
        one.send_signal(signal.SIGKILL)
        one.communicate(timeout=WAIT_S)
        where.until(lambda: list(where.device.clients) == ["other"])
        shown = json.loads(
            CliRunner().invoke(app, ["device", "status", "--json", "--address", str(where.address)]).output
        )
        assert shown["used_bytes"] == whole / 2
        assert [process["name"] for process in shown["processes"]] == ["other"]
        assert [fault["kind"] for fault in shown["faults"]] == ["ssr", "kill"]
        assert {vote["process"] for vote in shown["votes"]} == {"other"}
        before = len(where.device.log.of("executed"))
        where.until(lambda: len(where.device.log.of("executed")) > before + 3)  # who is left goes on
        other.kill()
        other.communicate(timeout=WAIT_S)
        where.until(lambda: not where.device.clients)
        assert where.device.memory.used_bytes == 0
        assert rules(where) == []


def test_the_commands_serve_show_and_stop(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "hexforge", "device", "serve", "--soc", "SM8650", "--log", str(tmp_path / "log")]
    service = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    address = service.stdout.readline().strip().removeprefix(f"{VARIABLE}=")
    path = tmp_path / "hexforge" / "device.sock"
    assert address == f"unix:{path}"
    assert [oct(p.stat().st_mode & 0o777) for p in (path.parent, path, DeviceAddress.parse(address).token_path)] == [
        "0o700",
        "0o600",
        "0o600",
    ]
    invoke = CliRunner().invoke
    qnn = connect(address).qnn("shown")
    qnn.QnnContext_createFromBinary(figures())
    shown = invoke(app, ["device", "status", "--address", address]).output
    assert "SM8650" in shown
    assert "shown" in shown
    said = invoke(app, ["device", "fault", "pd", "nobody", "--address", address])
    assert "it has shown" in str(said.exception)
    assert invoke(app, ["device", "stop", "--address", address]).exit_code == 0
    assert service.wait(WAIT_S) == 0
    service.stdout.close()
    with pytest.raises(ProcessEndedError, match="gone"):
        qnn.memory_facts()
    assert sorted(p.name for p in (tmp_path / "hexforge").iterdir()) == []
    assert broken_rules(map(json.loads, (tmp_path / "log").read_text("utf-8").splitlines())) == []


def test_sigterm_leaves_no_socket_and_no_token(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "hexforge", "device", "serve", "--soc", "SM8650"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        assert service.stdout.readline().startswith(VARIABLE)
        service.terminate()
        assert service.wait(WAIT_S) == 0
    assert sorted(p.name for p in (tmp_path / "hexforge").iterdir()) == []


# -- the same as on a device of one's own -----------------------------------------------------------------------------


def figures(name: str = "m", us: float = 2000.0) -> Binary:
    time = DeclaredTime(us, 10, rpc_us=100, io_us=40, vtcm_bytes=4 * MB)
    return Binary(name, tuple(GraphSpec(g, 30 * MB, MB, 2 * MB, 4 * MB, time, adapter_bytes=MB) for g in "ab"))


def calls(qnn: Qnn, binaries: dict[str, Binary]) -> list[Any]:
    """Many calls, and what came of them."""
    found: list[Any] = []
    told: list[Any] = []
    qnn.use_profile("high_performance")
    dense = qnn.QnnContext_createFromBinary(binaries["dense"], CreationConfig(io_mem_estimation=True))
    graph = next(iter(dense.graphs.values()))
    for batch in (1, 3):
        done = qnn.QnnGraph_execute(graph, {"x": np.repeat(X, batch, 0)}, batch=batch)
        found += [done.outputs["y"].tobytes(), done.latency_us, done.energy_uj, done.clocks]
    (inside,) = qnn.QnnMem_register(dense, [MemDescriptor(SharedBuffer(64), "x", (1, 8), "float32")])
    (outside,) = qnn.QnnMem_register(dense, [MemDescriptor(SharedBuffer(64), "y", (1, 8), "float32")])
    inside.array()[...] = X
    done = qnn.QnnGraph_execute(graph, {"x": inside}, {"y": outside})
    found += [outside.array().tobytes(), done.latency_us]
    qnn.QnnMem_deRegister([inside, outside])
    first = qnn.QnnContext_createFromBinary(
        figures(), CreationConfig(register_multi_contexts=GroupRegistration(None, 2 * MB))
    )
    second = qnn.QnnContext_createFromBinary(
        figures(), CreationConfig(register_multi_contexts=GroupRegistration(first))
    )
    sharing = ListConfig(True, SharingType.SEQUENTIAL_WITHOUT_VA_OPTIMIZATION)
    tasks = qnn.QnnContext_createFromBinaryListAsync([(figures("l"), CreationConfig())] * 2, sharing, told.append)
    listed = [qnn.wait(task) for task in tasks]
    found.append(len(told))
    switched = qnn.QnnContext_createFromBinary(
        figures("s"), CreationConfig(is_persistent_binary=True, memory_limit_hint=1)
    )
    running = [qnn.QnnGraph_executeAsync(context.graphs["a"]) for context in (first, second)]
    found += [qnn.wait(call).latency_us for call in running]
    found += [qnn.QnnGraph_execute(switched.graphs[name]).loaded for name in "abab"]
    done_in_turn, took = qnn.wait(qnn.execute_in_turn([first.graphs["a"], second.graphs["b"]]))
    found += [took, [d.latency_us for d in done_in_turn], qnn.memory_facts()]
    with pytest.raises(DeviceError, match="timeout") as error:
        qnn.QnnGraph_execute(first.graphs["a"], signal=DeviceSignal(500.0))
    found += [str(error.value)]
    number = qnn.createPowerConfigId()
    qnn.setPowerConfig(number, [])
    with pytest.raises(DeviceError) as wrong:
        qnn.destroyPowerConfigId(number + 7)
    found += [str(wrong.value)]
    qnn.QnnContext_applyBinarySection(first.graphs["a"], "style")
    qnn.sleep(250.0)
    qnn.QnnContext_setConfig(second, priority=Priority.LOW)
    qnn.QnnGraph_setConfig(second.graphs["b"], priority=Priority.NORMAL)
    qnn.use_profile("balanced", now=True)
    for context in (dense, first, second, *listed, switched):
        qnn.QnnContext_free(context)
    with pytest.raises(DeviceError) as freed:
        qnn.QnnGraph_execute(first.graphs["a"])
    return [*found, freed.value.name.endswith("INVALID_HANDLE"), qnn.memory_facts()]


def events(device: Device) -> list[dict[str, Any]]:
    return [{**entry, "fd": 0} for entry in device.log.entries]  # descriptors are counted over the whole program


def test_a_program_alone_has_the_numbers_the_times_and_the_log_of_a_device_of_its_own(
    tmp_path: Path, binaries: dict[str, Binary]
) -> None:
    own = Device(tiny.SOC)
    right = calls(Qnn(own.process("app", privileged=True)), binaries)
    with served(tmp_path) as where:
        qnn = where.remote.qnn("app", privileged=True)
        assert calls(qnn, binaries) == right
        assert events(where.device) == events(own)
        qnn.client.close()
        assert rules(where) == []


def test_a_signal_aborts_and_a_restart_is_recovered_from(tmp_path: Path) -> None:
    with served(tmp_path) as where:
        qnn, idle = where.remote.qnn("app"), where.remote.qnn("idle")
        context = qnn.QnnContext_createFromBinary(figures())  # the idle one is of the same program
        ended = DeviceSignal()
        call = qnn.QnnGraph_executeAsync(context.graphs["a"], signal=ended)
        ended.abort()
        with pytest.raises(DeviceError, match="aborted"):
            qnn.wait(call)
        where.remote.restart()
        with pytest.raises(DeviceError, match="load it again"):
            qnn.QnnGraph_execute(context.graphs["a"])
        assert qnn.QnnGraph_execute(context.graphs["a"], recover=True).latency_us > 300_000
        where.remote.fault("kill", "app")
        with pytest.raises(ProcessEndedError, match="ended"):
            qnn.QnnGraph_execute(context.graphs["a"])
        assert idle.memory_facts()["bytes"] == 0


def test_a_session_is_on_the_device_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hexforge.ort

    def session(soc: str = tiny.SOC) -> Any:
        options = [{"backend_type": "htp", "soc_model": soc}]
        return hexforge.ort.InferenceSession(tiny.conv(), providers=["QNNExecutionProvider"], provider_options=options)

    feeds = {"x": np.zeros((1, 3, 8, 8), np.float32)}
    alone = session()
    own_us, own_bytes = alone.simulated.latency_us, alone.simulated.memory_bytes
    with served(tmp_path) as where:
        monkeypatch.setenv(VARIABLE, str(where.address))
        attached, other = session(), session()
        states = [c["state"] for p in where.remote.status()["processes"] for c in p["contexts"]]
        assert states == ["alive", "alive"]
        for _ in range(3):  # in turn: sessions of one program do not wait for each other
            attached.run(None, feeds)
            other.run(None, feeds)
        assert other.simulated.latency_us == pytest.approx(own_us, rel=1e-9)
        assert attached.simulated.memory_bytes == own_bytes > 0
        where.remote.restart()
        with pytest.raises(Exception, match="SSR detected"):
            attached.run(None, feeds)
        with pytest.raises(Exception, match="shared device is SM8550"):
            session("SM8650")
        del attached, other
        gc.collect()
        where.until(lambda: not where.device.clients)
        assert rules(where) == []


def test_a_tool_has_the_time_of_a_device_of_its_own_on_a_shared_one(
    tmp_path: Path, binaries: dict[str, Binary], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = tmp_path / "x.raw"
    X.tofile(raw)
    (tmp_path / "list.txt").write_text(f"x:={raw}\n")
    arguments = [
        "tool",
        "qnn-net-run",
        "--backend",
        "libQnnHtp.so",
        "--retrieve_context",
        str(binaries["dense"].source),
    ]
    arguments += ["--input_list", str(tmp_path / "list.txt"), "--log_level", "verbose", "--shared_buffer"]
    arguments += ["--output_dir", str(tmp_path / "out")]
    own = CliRunner().invoke(app, arguments)
    right = next(tmp_path.glob("out/**/*.raw")).read_bytes()
    with served(tmp_path, "SM8650") as where:
        monkeypatch.setenv(VARIABLE, str(where.address))
        shared = CliRunner().invoke(app, arguments)
        assert [entry["process"] for entry in where.device.log.of("executed")] == [f"qnn-net-run {os.getpid()}"]
        gc.collect()
        where.until(lambda: not where.device.clients)
        assert rules(where) == []
    lines = [[line for line in found.output.splitlines() if "device" in line] for found in (own, shared)]
    assert lines[0] == lines[1] != []  # time, energy and memory
    assert next(tmp_path.glob("out/**/*.raw")).read_bytes() == right


# -- who is let in, and what is refused -------------------------------------------------------------------------------


def raw_socket(where: Served) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.settimeout(WAIT_S)
    made.connect(str(where.address.path))
    return made


def said(connection: socket.socket) -> dict[str, Any] | None:
    head = connection.recv(LENGTH.size, socket.MSG_WAITALL)
    return unpacked(connection.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL)) if head else None


def test_hostile_messages_are_refused_and_nobody_else_loses_anything(tmp_path: Path) -> None:
    with served(tmp_path) as where:
        token = read_token(where.address.token_path)
        good: SharedQnn = where.remote.qnn("good")
        graph = good.QnnContext_createFromBinary(figures()).graphs["a"]
        latency_us = good.QnnGraph_execute(graph).latency_us
        hello = {"hexforge": 1, "token": token, "role": "process", "program": "p", "name": "bad"}
        hello |= {"signed": False, "privileged": False, "pid": 1}
        for first, reason in (
            (packed({**hello, "token": "0" * 64}), "token"),
            (packed({**hello, "token": "é"}), "token"),
            (packed({**hello, "hexforge": 2}), "version 2"),
            (packed({**hello, "role": "root"}), "role"),
            (packed({**hello, "name": ""}), "name"),
            (packed({**hello, "name": "good"}), "already"),
            (packed({**hello, "more": 1}), "more"),
            (LENGTH.pack(5) + b"[1,2]", "not an object"),
            (LENGTH.pack(3) + b"\xff{}", "no JSON"),
            (LENGTH.pack(MOST_BYTES), "bytes"),
            (LENGTH.pack(0), "bytes"),
        ):
            with raw_socket(where) as connection:
                connection.sendall(first)
                answer = said(connection)
                assert answer is not None
                assert reason in answer["error"]["message"], first
                assert connection.recv(1) == b""
        with raw_socket(where) as connection:
            connection.sendall(packed(hello))
            assert "ok" in (said(connection) or {})
            config, binary = {"priority": "HIGH"}, {"name": "b", "graphs": []}
            requests: tuple[dict[str, Any], ...] = (
                {}, {"do": 5}, {"do": "__init__"}, {"do": "_create"}, {"do": "wait", "call": 1}, {"do": "free"},
                {"do": "create", "binary": binary, "config": config}, {"do": "execute", "context": 1, "graph": "a"},
                {"do": "create", "binary": [], "config": []}, {"do": "register", "context": 1, "tensors": [1]},
                {"do": "sleep", "us": -1}, {"do": "profile", "profile": {"name": "x"}, "now": True},
                {"do": "destroy_power_id", "power_id": 1}, {"do": "sleep", "us": 1, "more": 2},
                {"do": "create", "config": {}, "binary": timed("graph")},
                {"do": "create", "config": {"graph_priorities": {"a": "NONE"}}, "binary": timed("graph")},
            )  # fmt: skip
            for number, request in enumerate(requests):
                connection.sendall(packed({"id": number, **request}))
                answer = said(connection)
                assert answer is not None
                assert (answer["id"], "error" in answer) == (number, True), request
            connection.sendall(LENGTH.pack(4) + b"null")
            assert "not an object" in (said(connection) or {})["error"]["message"]
        where.until(lambda: list(where.device.clients) == ["good"])
        assert good.QnnGraph_execute(graph).latency_us == pytest.approx(latency_us)
        good.client.close()
        assert rules(where) == []


@pytest.mark.parametrize("message", [b'{"id":"\\ud800","do":"status"}', b'{"id":1,"do":"status","\\udfff":1}'])
def test_half_a_character_ends_its_sender_and_nobody_else(tmp_path: Path, message: bytes) -> None:
    with served(tmp_path) as where:
        good: SharedQnn = where.remote.qnn("good")
        hello = {"hexforge": 1, "token": read_token(where.address.token_path), "role": "process", "program": "p"}
        hello |= {"name": "bad", "signed": False, "privileged": False, "pid": 1}
        for _ in range(2):  # the name is free again
            with raw_socket(where) as connection:
                connection.sendall(packed(hello))
                assert "ok" in (said(connection) or {})
                connection.sendall(LENGTH.pack(len(message)) + message)
                assert "no JSON" in (said(connection) or {})["error"]["message"]
            where.until(lambda: list(where.device.clients) == ["good"])
        assert good.QnnContext_createFromBinary(figures()).graphs
        good.client.close()


def test_whole_characters_by_their_halves_are_text() -> None:
    assert unpacked(b'{"id":"\\ud83d\\ude00"}') == {"id": "\U0001f600"}


def test_an_answer_that_no_message_holds_ends_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Qnn, "memory_facts", lambda self: {"bytes": float("nan")})
    with served(tmp_path) as where:
        good: SharedQnn = where.remote.qnn("good")
        with pytest.raises(HexforgeError, match="could not be sent"):
            good.memory_facts()
        assert good.QnnContext_createFromBinary(figures()).graphs
        good.client.close()


def test_requests_with_wrong_fields_are_errors_and_leave_nothing() -> None:
    assert [fault for seed in range(25) for fault in device_messages(seed)] == []


def timed(text: str) -> dict[str, Any]:
    sizes = dict.fromkeys(("weights_bytes", "spill_fill_bytes", "io_bytes", "vtcm_bytes", "adapter_bytes"), 0)
    time = {"graph": text, "config": {}, "runtime": "qnn_dlc", "precision": "as is"}
    flags = dict.fromkeys(("embedded", "udma64", "secure", "lora_weight_sharing", "dlbc"), False)
    graphs = [{"name": "a", "num_cores": 1, **sizes, "time": time}]
    return {"name": "b", "shared_bytes": 0, "shared_end": 0, **flags, "graphs": graphs}


def test_the_loopback_and_no_other_host_is_served(tmp_path: Path) -> None:
    for text in ("tcp:0.0.0.0:1", "tcp:192.168.0.1:80", "tcp:example.com:80", "tcp::99999", "http://x", "unix:", "x"):
        with pytest.raises(CallError, match=r"expected unix:PATH|loopback alone"):
            DeviceAddress.parse(text)
    with pytest.raises(CallError, match="token_file"):
        DeviceAddress.parse("unix:/x?token=1")
    where = Served(Device(), DeviceAddress.parse(f"tcp:localhost:0?token_file={tmp_path / 't'}"))
    try:
        assert str(where.address).startswith("tcp:127.0.0.1:")
        assert where.remote.qnn("app").memory_facts()["bytes"] == 0
        with pytest.raises(CallError, match=r"no device is served there|no token"):
            connect(f"unix:{tmp_path / 'none.sock'}")
        write_token(tmp_path / "wrong")
        with pytest.raises(CallError, match="is not this device's"):
            connect(f"tcp:127.0.0.1:{where.address.port}?token_file={tmp_path / 'wrong'}")
        (tmp_path / "wrong").chmod(0o644)
        with pytest.raises(CallError, match="others can read"):
            read_token(tmp_path / "wrong")
    finally:
        where.stop()


def test_a_second_service_and_a_folder_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(tmp_path) as where, pytest.raises(CallError, match="served there already"):
        asyncio.run(DeviceService(Device()).serve(where.address, print))
    (tmp_path / "hexforge").mkdir()
    (tmp_path / "hexforge").chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(CallError, match="this user alone"):
        connect()


@pytest.mark.parametrize("kind", ["model.onnx", "dense.bin"])
def test_run_is_on_the_device_that_the_environment_names(
    tmp_path: Path, binaries: dict[str, Binary], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / kind
    model.write_bytes(tiny.dense(1) if kind == "model.onnx" else Path(str(binaries["dense"].source)).read_bytes())
    arguments = ["run", str(model), "--soc", tiny.SOC, "--json"]
    own = json.loads(CliRunner().invoke(app, arguments).output)
    with served(tmp_path) as where:
        monkeypatch.setenv(VARIABLE, str(where.address))
        found = json.loads(CliRunner().invoke(app, arguments).output)
        (executed,) = where.device.log.of("executed")
        assert found["shared_device_ms"] == pytest.approx(executed["latency_us"] / 1e3, rel=1e-5)
        assert found["outputs"] == own["outputs"]
        gc.collect()
        where.until(lambda: not where.device.clients)
        assert rules(where) == []
