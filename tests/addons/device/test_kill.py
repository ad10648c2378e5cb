# SPDX-License-Identifier: Apache-2.0
"""Kills: a process dies at any moment, what it had is free, others go on; the rules of a log see where it is not so."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DeclaredTime,
    Device,
    DeviceSignal,
    GraphSpec,
    GroupRegistration,
    ListConfig,
    MemDescriptor,
    Qnn,
    SharingType,
)
from hexforge.addons.device.codes import ProcessEndedError
from hexforge.addons.device.cores import Cores
from hexforge.addons.device.memory import DeviceMemory
from hexforge.addons.device.power import PROFILES
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.addons.device.scheduling.clock import ClockTask, Waits
from hexforge.addons.device.simulated_device import Client
from hexforge.addons.device.votes import PowerVotes
from hexforge.chips.priority import Priority
from tests.addons.device import tiny
from tests.addons.device.log_rules import broken_rules
from tests.addons.device.random_scripts import Undisturbed, lost, random_script

MB = 1 << 20
SEQUENTIAL = SharingType.SEQUENTIAL_WITHOUT_VA_OPTIMIZATION


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Binary]:
    return tiny.binaries(tmp_path_factory.mktemp("contexts"))


def busy(us: float = 10_000.0, tasks: int = 10) -> Binary:
    time = DeclaredTime(us, tasks, rpc_us=100, vtcm_bytes=8 * MB)
    return Binary("m", (GraphSpec("g", 50 * MB, MB, MB, 8 * MB, time),))


def process(device: Device, name: str, profile: str = "burst") -> Qnn:
    qnn = Qnn(device.process(name, privileged=True))
    qnn.use_profile(PROFILES[profile])
    return qnn


def rules(device: Device) -> list[str]:
    for client in list(device.clients.values()):
        client.close()
    return broken_rules(json.loads(line) for line in device.log.lines())


@pytest.mark.parametrize("profile", ["burst", "balanced", "power_saver"])
@pytest.mark.parametrize("after_us", [0.0, 10.0, 60.0, 500.0, 3_000.0, 19_000.0, 60_000.0])
def test_a_killed_process_leaves_nothing_and_others_go_on(profile: str, after_us: float) -> None:
    device = Device("SM8650")
    victim, other = process(device, "victim", profile), process(device, "other")
    mine = victim.QnnContext_createFromBinary(busy()).graphs["g"]
    theirs = other.QnnContext_createFromBinary(busy(1000.0)).graphs["g"]
    alone_us = other.QnnGraph_execute(theirs).latency_us
    left = device.memory.used_bytes - victim.client.heap_bytes
    victim.createPowerConfigId()
    victim.QnnMem_register(mine.context, [MemDescriptor(victim.rpcmem_alloc(MB), "x", (MB,), "uint8")])
    calls = [victim.QnnGraph_executeAsync(mine, signal=DeviceSignal(1e6)) for _ in range(3)]
    calls.append(victim.client.start(iter_of(victim, calls)))
    device.reserve_vtcm(MB, victim.client)
    device.clock.after(after_us, device.kill, victim.client)
    waiting = other.QnnGraph_executeAsync(theirs)
    done = other.wait(waiting)
    device.clock.run(device.clock.now_us + 200_000)
    assert victim.client.ended
    assert all(isinstance(call.error, ProcessEndedError) for call in calls)
    assert (device.memory.used_bytes, device.cores.reserved_bytes, device.owners) == (left, 0, {})
    assert not any(core.job or core.kept for core in device.cores.cores)
    assert done.latency_us > after_us  # it waited for the VTCM that the dead one held
    assert other.QnnGraph_execute(theirs).latency_us == pytest.approx(alone_us)
    with pytest.raises(ProcessEndedError, match="make another one"):
        victim.QnnContext_createFromBinary(busy())
    again = process(device, "victim")  # the name is free
    again.QnnContext_createFromBinary(busy())
    again.client.close()
    entries = [e for e in device.log.entries if e["event"] not in ("session_open",)]
    assert sum(e["event"] == "process_end" for e in entries) == 2


def iter_of(qnn: Qnn, calls: list[ClockTask]) -> Waits:
    """A thread that waits for a call of its process."""
    yield calls[0]
    raise AssertionError("a thread of a killed process goes on")


def test_groups_lists_and_creations_on_their_way_are_freed() -> None:
    device = Device("SM8650")
    victim, other = process(device, "victim"), process(device, "other")
    other.QnnContext_createFromBinary(busy())
    left = device.memory.used_bytes
    first = victim.QnnContext_createFromBinary(
        busy(), CreationConfig(register_multi_contexts=GroupRegistration(None, 2 * MB))
    )
    second = victim.QnnContext_createFromBinary(
        busy(), CreationConfig(register_multi_contexts=GroupRegistration(first))
    )
    told: list[object] = []
    members = [(busy(), CreationConfig()) for _ in range(3)]
    listed = victim.QnnContext_createFromBinaryListAsync(members, ListConfig(True, SEQUENTIAL), told.append)
    for context in (first, second):  # the second waits for its turn
        victim.QnnGraph_executeAsync(context.graphs["g"])
    device.clock.run(device.clock.now_us + 5000)
    assert device.memory.used_bytes > left
    device.kill(victim.client)
    device.clock.run(device.clock.now_us + 1e6)
    assert device.memory.used_bytes == left
    assert told == []  # nobody is there to be told
    assert all(isinstance(task.error, ProcessEndedError) for task in listed)
    assert not victim.client.tasks
    assert rules(device) == []


def test_a_low_priority_that_gave_way_dies_with_its_vtcm() -> None:
    device = Device("SM8650")
    low, high = process(device, "low"), process(device, "high")
    lows = low.QnnContext_createFromBinary(busy(), CreationConfig(priority=Priority.LOW)).graphs["g"]
    highs = high.QnnContext_createFromBinary(busy(3000.0), CreationConfig(priority=Priority.HIGH)).graphs["g"]
    low.QnnGraph_executeAsync(lows)
    device.clock.run(device.clock.now_us + 2500)
    running = high.QnnGraph_executeAsync(highs)
    for event in ("yield", "restore"):  # while it is saved, and while it is brought back
        while not device.log.of(event):
            device.clock.step()
        if event == "yield":
            continue
        device.kill(low.client)
    high.wait(running)
    assert rules(device) == []


def test_a_process_that_kills_itself_or_is_killed_twice_is_played() -> None:
    kill = {"do": "fault", "kind": "kill"}
    threads = [[{"do": "create", "context": "c", "binary": "m"}, kill, {"do": "execute", "graph": "c/g"}]]
    script = {
        "binaries": {"m": {"graphs": [{"name": "g", "weights_mb": 10, "us": 500}]}},
        "processes": [{"name": "a", "threads": threads}, {"name": "b", "threads": [threads[0][:1]]}],
        "faults": [{"at_us": 90_000, "kind": "kill", "process": "a"}],
    }
    played = play(parse_script(script))
    assert [(s.process, s.step.do) for s in played.steps] == [("a", "create"), ("b", "create")]
    assert [e["process"] for e in played.device.log.of("fault")] == ["a"]
    assert len(played.device.log.of("fault_missed")) == 1
    assert set(played.device.clients) == {"b"}
    assert rules(played.device) == []


@pytest.mark.feature("SubSystem Restart", guide="2729-2731")
def test_random_kills_and_restarts_lose_nothing(binaries: dict[str, Binary]) -> None:
    undisturbed, kinds = Undisturbed(binaries), []
    for seed in range(40):
        played = play(parse_script(random_script(seed, binaries), known=binaries))
        kinds += [entry["kind"] for entry in played.device.log.of("fault")]
        assert lost(played, undisturbed) == [], seed
    assert {"kill", "ssr", "pd"} <= set(kinds)


def _nothing(*given: Any) -> None:
    return None


MUTATIONS: dict[str, tuple[type, str, Callable[..., Any]]] = {
    "votes stay": (PowerVotes, "withdraw_votes", _nothing),
    "calls go on": (Client, "_end_tasks", _nothing),
    "jobs stay on their core": (Cores, "withdraw", _nothing),
    "memory stays": (DeviceMemory, "release", _nothing),
    "VTCM stays": (Cores, "release_vtcm", _nothing),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_what_is_forgotten_is_seen(name: str, binaries: dict[str, Binary], monkeypatch: pytest.MonkeyPatch) -> None:
    undisturbed = Undisturbed(binaries)
    scripts = [parse_script(random_script(seed, binaries), known=binaries) for seed in range(12)]
    monkeypatch.setattr(*MUTATIONS[name])
    seen = 0
    for script in scripts:
        try:
            seen += bool(lost(play(script), undisturbed))
        except Exception:
            seen += 1
    assert seen


def test_the_rules_of_a_log_name_the_event() -> None:
    device = Device("SM8650")
    qnn = process(device, "app")
    qnn.QnnGraph_execute(qnn.QnnContext_createFromBinary(busy()).graphs["g"])
    assert rules(device) == []
    entries = device.log.entries
    gone = [e for e in entries if e["event"] != "execute_end"]
    assert any("jobs" in line for line in broken_rules(gone))
    twice = [*entries, next(e for e in entries if e["event"] == "session_close")]
    assert "was not open" in " ".join(broken_rules(twice))
    late = [*entries, {**entries[-1], "event": "executed", "graph": "m#1/g"}]
    assert "has ended before" in " ".join(broken_rules(late))
