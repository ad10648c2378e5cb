# SPDX-License-Identifier: Apache-2.0
"""Devices by number: random scenarios with kills and restarts, and hostile requests to a shared device."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hexforge.addons.device.codes import DeviceError
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig
from hexforge.addons.device.graph_time import DeclaredTime
from hexforge.addons.device.power import PROFILES, DcvsV3
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.addons.device.shared.binaries import binary_to_json, config_to_json
from hexforge.addons.device.shared.messages import packed, to_json, unpacked
from hexforge.addons.device.shared.served_process import ServedProcess
from hexforge.addons.device.simulated_device import Device
from hexforge.errors import HexforgeError
from hexforge.formats.validated import arguments
from hexforge.qnn_api.calls import messages
from tests.addons.device import tiny
from tests.addons.device.log_rules import broken_rules
from tests.addons.device.random_scripts import Undisturbed, lost, random_script

MB = 1 << 20
JUNK: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 7, 10**30, -(10**30), 1.5, 1e300, "", "a", "x" * 1000, "\x00", [], [1], [[]], {}, {"a": 1},
    {"first": 1, "bytes": -5}, "HIGH", "g", -0.0,
)  # fmt: skip
"""What takes the place of what a request should have."""


@cache
def _binaries() -> tuple[tempfile.TemporaryDirectory[str], dict[str, Binary], Undisturbed]:
    folder = tempfile.TemporaryDirectory()
    made = tiny.binaries(Path(folder.name))
    return folder, made, Undisturbed(made)


def device_scenarios(seed: int) -> Sequence[str]:
    """What a random scenario of several processes with kills, restarts and crashes lost, leaked or never ended."""
    _, binaries, undisturbed = _binaries()
    try:
        losses = lost(play(parse_script(random_script(seed, binaries), known=binaries)), undisturbed)
    except HexforgeError as error:
        losses = [str(error)]
    return [f"seed {seed}: {loss}" for loss in losses]


def device_messages(seed: int) -> Sequence[str]:
    """What a process of a shared device does to requests with wrong fields: anything but an error is a fault."""
    chance = random.Random(seed)
    device = Device(tiny.SOC)
    process, calls, faults = ServedProcess(device.process("app", privileged=True)), [1], []
    for _ in range(40):
        request = _request(chance, calls[-1])
        if chance.random() < 0.5:
            request = _spoilt(chance, request)
        try:
            sent = unpacked(packed(request)[4:])
            do = str(sent.pop("do", ""))
            if do == "wait":
                process.waited_for(**arguments(process.waited_for, sent, "request"))
            else:
                answer = process.do(do, sent)
                if isinstance(answer, dict) and "call" in answer:
                    calls.append(answer["call"])
        except DeviceError as error:
            if do in messages() and error.code not in messages()[do].codes:
                faults.append(f"seed {seed}: {do} ends with {error}, which its row does not have")
        except HexforgeError:
            pass
        except Exception as error:
            faults.append(f"seed {seed}: {json.dumps(request)[:500]}: {type(error).__name__}: {error}")
        try:
            device.clock.run(device.clock.now_us + 10 ** chance.uniform(0, 5))
        except Exception as error:
            faults.append(f"seed {seed}: {type(error).__name__} after {json.dumps(request)[:500]}: {error}")
        if chance.random() < 0.03:
            device.restart()
    device.kill(process.client)
    faults += [f"seed {seed}: {rule}" for rule in broken_rules(device.log.entries)]
    return faults


def _request(chance: random.Random, call: int) -> dict[str, Any]:
    """A request that is as it should be, or would be a moment earlier or later."""
    graph = {"context": chance.randint(1, 4), "graph": chance.choice("ab")}
    time = DeclaredTime(chance.choice((100.0, 5000.0)), 5, 100.0)
    binary = Binary("m", tuple(GraphSpec(name, 20 * MB, MB, MB, 4 * MB, time, adapter_bytes=MB) for name in "ab"))
    config = chance.choice((CreationConfig(), CreationConfig(is_persistent_binary=True, memory_limit_hint=1)))
    created = {"binary": binary_to_json(binary), "config": config_to_json(config)}
    rows: tuple[dict[str, Any], ...] = (
        {"do": "create", **created, "signal_us": 1e6},
        {"do": "create_list", "members": [created, created],
         "shared": {"share_resources": True,
                    "share_resources_optimization_type": "SEQUENTIAL_WITHOUT_VA_OPTIMIZATION"}},
        {"do": "execute", **graph, "raw": True, "batch": 1, "recover": True, "shared": []},
        {"do": "execute_in_turn", "graphs": [graph, graph], "raw": False},
        {"do": "free", "context": graph["context"]},
        {"do": "recover", "context": graph["context"]},
        {"do": "set_context", "context": graph["context"], "priority": "LOW"},
        {"do": "set_graph", **graph, "priority": "HIGH"},
        {"do": "apply", **graph, "adapter": "style"},
        {"do": "register", "context": graph["context"],
         "tensors": [{"buffer": 3, "bytes": 4096, "tensor": "x", "offset": 0}]},
        {"do": "deregister", "handles": [chance.randint(1, 9)]},
        {"do": "profile", "profile": to_json(PROFILES["burst"]), "now": True},
        {"do": "create_power_id"},
        {"do": "vote", "power_id": 1, "configs": [{"kind": "DcvsV3", "fields": to_json(DcvsV3())}]},
        {"do": "destroy_power_id", "power_id": 1},
        {"do": "sleep", "us": 100.0},
        {"do": "abort", "call": call},
        {"do": "wait", "call": call},
        {"do": "memory"},
        {"do": "log", "events": ["executed"]},
    )  # fmt: skip
    return chance.choice(rows) if chance.random() < 0.7 else rows[chance.choice((0, 2))]


def _spoilt(chance: random.Random, value: Any) -> Any:
    """The same with something wrong somewhere in it."""
    if isinstance(value, Mapping) and value and chance.random() < 0.9:
        key = chance.choice([*value])
        rest = {name: item for name, item in value.items() if name != key}
        how = chance.random()
        return (
            rest if how < 0.1 else {**value, "more": 1} if how < 0.15 else {**value, key: _spoilt(chance, value[key])}
        )
    if isinstance(value, list) and value and chance.random() < 0.8:
        place = chance.randrange(len(value))
        return [*value[:place], _spoilt(chance, value[place]), *value[place + 1 :]]
    return chance.choice(JUNK)
