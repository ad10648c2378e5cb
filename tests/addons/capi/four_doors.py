# SPDX-License-Identifier: Apache-2.0
"""One scenario through four doors: Python, a shared device, a script, and a program in C.

Steps are made from a seed; each door plays them, and tells each step's code and a digest of what an execution gave.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hexforge
from hexforge.addons.capi.library import include_path, lib_path
from hexforge.addons.device import Binary, CreationConfig, Device, DeviceError, MemDescriptor, Qnn, SharedBuffer
from hexforge.addons.device.power import DcvsV3, PowerConfig, RpcControlLatency, RpcPollingTime
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.addons.device.scenario.steps import feeds_of
from hexforge.chips.power import Corner
from hexforge.chips.priority import Priority
from tests.addons.capi.conftest import environment
from tests.addons.device import tiny
from tests.addons.device.test_shared import served

PROCESS = "app"
STEPS = 200
MOST = 60
"""Contexts, memories and ids of a scenario, each with a number of its own."""
Step = dict[str, Any]
Told = list[tuple[int, str]]
Log = list[dict[str, Any]]
SOURCE = Path(__file__).parent / "scenario.c"


@dataclass(frozen=True)
class Scene:
    """What all doors have: contexts by their graphs' names, and where files lie."""

    folder: Path
    binaries: Mapping[str, Binary]

    @classmethod
    def made(cls, folder: Path) -> Scene:
        models = {"dense": [tiny.dense(1)], "conv": [tiny.conv()], "a+b": [tiny.dense(1, 40), tiny.dense(2, 40)]}
        known = {}
        for name, graphs in models.items():
            request = hexforge.ContextRequest(graph_names=tuple(name.split("+")), weight_sharing=len(graphs) > 1)
            hexforge.compile(graphs, folder / f"{name}.bin", tiny.SOC, request)
            known[name] = Binary.of((folder / f"{name}.bin").read_bytes(), Device(tiny.SOC).soc, name)
        return cls(folder, known)


def steps_of(seed: int, scene: Scene, count: int = STEPS) -> list[Step]:
    """Random steps; some are refused."""
    chance = random.Random(seed)
    contexts: dict[int, str] = {}
    memories: dict[int, int] = {}
    ids: list[int] = []
    steps: list[Step] = []
    ever = {"context": 0, "memory": 0, "id": 0}

    def number(what: str) -> int:
        ever[what] += 1
        return ever[what]

    while len(steps) < count:
        do = chance.choices(
            ("create", "execute", "priority", "register", "deregister", "vote", "sleep", "free", "power_id", "destroy"),
            (6, 40, 6, 5, 3, 12, 12, 4, 3, 2),
        )[0]
        if do == "create" and len(contexts) < 6 and ever["context"] < MOST - 1:
            step: Step = {"do": do, "n": number("context"), "binary": chance.choice(list(scene.binaries)),
                    "priority": chance.choice([0, 100, 100, 200]), "persistent": chance.choice([0, 1]),
                    "limit": chance.choice([0, 0, 1])}  # fmt: skip
            if step["priority"] <= 100 and (step["persistent"] or not step["limit"]):
                contexts[step["n"]] = step["binary"]
        elif do in ("execute", "priority", "register", "free") and contexts:
            n = chance.choice(list(contexts))
            step = {"do": do, "n": n}
            if do == "execute":
                graph = chance.choice(scene.binaries[contexts[n]].graphs)
                step |= {"graph": graph.name, "seed": chance.randrange(5), "batch": chance.choice([1, 1, 2, 3]),
                         "binary": contexts[n]}  # fmt: skip
            elif do == "priority":
                step["priority"] = chance.choice([0, 100, 150, 200])
            elif do == "register" and ever["memory"] < MOST - 1:
                step |= {"memory": number("memory"), "bytes": chance.choice([64, 4096, 100_000])}
                memories[step["memory"]] = n
            elif do == "register":
                continue
            else:
                del contexts[n]
                memories = {memory: owner for memory, owner in memories.items() if owner != n}
        elif do == "deregister" and memories:
            step = {"do": do, "memory": chance.choice(list(memories))}
            del memories[step["memory"]]
        elif do == "power_id" and ever["id"] < MOST - 1:
            step = {"do": do, "id": number("id"), "core": chance.choice([0, 0, 7])}
            if not step["core"]:
                ids.append(step["id"])
        elif do == "destroy" and ids:
            step = {"do": do, "id": ids.pop(chance.randrange(len(ids)))}
        elif do == "vote" and ids:
            corners = [int(corner) for corner in Corner if corner > Corner.DISABLE]
            least, target, most = (chance.choice(corners) for _ in range(3))
            if chance.random() < 0.8:
                least, target, most = sorted((least, target, most))
            step = {"do": do, "id": chance.choice(ids), "corners": [least, target, most],
                    "sleep": chance.choice([40, 1000, 65535, 5]), "rpc": chance.choice([0, 100, 1000]),
                    "polling": chance.choice([0, 0, 9999, 20000])}  # fmt: skip
        elif do == "sleep":
            step = {"do": do, "us": chance.choice([1, 250, 20_000, 1_000_000])}
        else:
            continue
        steps.append(step)
    return [*steps, *({"do": "free", "n": n} for n in contexts)]


# -- Python, and a shared device --------------------------------------------------------------------------------------


def votes(step: Step) -> list[PowerConfig]:
    """What a step votes for."""
    least, target, most = map(Corner, step["corners"])
    dcvs = DcvsV3(
        setSleepLatency=1, sleepLatency=step["sleep"], setBusParams=1, busVoltageCornerMin=least,
        busVoltageCornerTarget=target, busVoltageCornerMax=most, setCoreParams=1, coreVoltageCornerMin=least,
        coreVoltageCornerTarget=target, coreVoltageCornerMax=most,
    )  # fmt: skip
    return [dcvs, RpcControlLatency(step["rpc"]), RpcPollingTime(step["polling"])]


def by_calls(qnn: Qnn, steps: Sequence[Step], scene: Scene, names: list[str]) -> Told:
    """QNN's calls in Python; `names` are told each step's code by its name."""
    contexts: dict[int, Any] = {}
    memories: dict[int, Any] = {}
    ids: dict[int, int] = {}

    def create(step: Step) -> None:
        config = CreationConfig(
            Priority(step["priority"]), is_persistent_binary=bool(step["persistent"]), memory_limit_hint=step["limit"]
        )
        contexts[step["n"]] = qnn.QnnContext_createFromBinary(scene.binaries[step["binary"]], config)

    def execute(step: Step) -> str:
        graph = qnn.QnnGraph_retrieve(contexts[step["n"]], step["graph"])
        done = qnn.QnnGraph_execute(graph, feeds_of(graph.spec, step["seed"], step["batch"]))
        return fnv(done.outputs["y"].tobytes())

    def register(step: Step) -> None:
        buffer = SharedBuffer(step["bytes"])
        tensor = MemDescriptor(buffer, f"memory {step['memory']}", (step["bytes"],), "uint8")
        memories[step["memory"]] = qnn.QnnMem_register(contexts[step["n"]], [tensor])

    def power_id(step: Step) -> None:
        ids[step["id"]] = qnn.createPowerConfigId(0, step["core"])

    does: dict[str, Callable[[Step], str | None]] = {
        "create": create, "execute": execute, "register": register, "power_id": power_id,
        "priority": lambda step: qnn.QnnContext_setConfig(contexts[step["n"]], priority=Priority(step["priority"])),
        "free": lambda step: qnn.QnnContext_free(contexts[step["n"]]),
        "deregister": lambda step: qnn.QnnMem_deRegister(memories[step["memory"]]),
        "vote": lambda step: qnn.setPowerConfig(ids[step["id"]], votes(step)),
        "destroy": lambda step: qnn.destroyPowerConfigId(ids[step["id"]]),
        "sleep": lambda step: qnn.sleep(step["us"]),
    }  # fmt: skip
    told: Told = []
    for step in steps:
        try:
            told.append((0, does[step["do"]](step) or "-"))
            names.append("")
        except DeviceError as error:
            told.append((error.code or -1, "-"))
            names.append(error.name)
    qnn.client.close()
    return told


def log_of(device: Device) -> Log:
    """A device's log; file descriptors, which are each program's own, by the order in which they came."""
    seen: dict[int, int] = {}
    entries = [dict(entry) for entry in device.log.entries]
    for entry in entries:
        if "fd" in entry:
            entry["fd"] = seen.setdefault(entry["fd"], len(seen))
    return entries


def fnv(data: bytes) -> str:
    """A digest that a few lines of C can make, too."""
    made = 1469598103934665603
    for byte in data:
        made = (made ^ byte) * 1099511628211 & (1 << 64) - 1
    return f"{made:016x}"


# -- a script ---------------------------------------------------------------------------------------------------------


def by_script(steps: Sequence[Step], scene: Scene, codes: Sequence[str]) -> Log:
    """The log of the same as a scenario; `codes` are what steps end with."""
    rows = []
    for step, code in zip(steps, codes, strict=True):
        row: dict[str, Any] = {"do": step["do"], **({"expect": code} if code else {})}
        if step["do"] == "create":
            row |= {"context": f"c{step['n']}", "binary": scene.binaries[step["binary"]].name, "config": {
                "priority": Priority(step["priority"]).name, "is_persistent_binary": bool(step["persistent"]),
                "memory_limit_hint": step["limit"]}}  # fmt: skip
        elif step["do"] == "execute":
            row |= {"graph": f"c{step['n']}/{step['graph']}", "seed": step["seed"], "batch": step["batch"]}
        elif step["do"] == "priority":
            row |= {"context": f"c{step['n']}", "priority": Priority(step["priority"]).name}
        elif step["do"] == "register":
            row |= {"context": f"c{step['n']}", "buffer": f"memory {step['memory']}", "size_bytes": step["bytes"]}
        elif step["do"] == "deregister":
            row |= {"buffer": f"memory {step['memory']}"}
        elif step["do"] == "free":
            row |= {"context": f"c{step['n']}"}
        elif step["do"] == "power_id":
            row |= {"do": "create_power_id", "power_id": f"p{step['id']}", "core_id": step["core"]}
        elif step["do"] == "destroy":
            row |= {"do": "destroy_power_id", "power_id": f"p{step['id']}"}
        elif step["do"] == "vote":
            configs = [{"kind": type(vote).__name__, "fields": fields_of(vote)} for vote in votes(step)]
            row |= {"power_id": f"p{step['id']}", "configs": configs}
        else:
            row["us"] = step["us"]
        rows.append(row)
    data = {"soc": tiny.SOC, "processes": [{"name": PROCESS, "threads": [rows]}]}
    played = play(parse_script(data, known={binary.name: binary for binary in scene.binaries.values()}))
    played.device.clients[PROCESS].close()
    assert [outcome.code for outcome in played.steps] == list(codes)
    return log_of(played.device)


def fields_of(vote: PowerConfig) -> dict[str, int]:
    """A vote's fields as numbers."""
    return {name: int(getattr(vote, name)) for name in vote.__dataclass_fields__}


# -- C ----------------------------------------------------------------------------------------------------------------


def by_program(program: Path, libraries: Path, address: str, steps: Sequence[Step], scene: Scene) -> Told:
    """A program in C over libQnnHtp.so."""
    lines = []
    for step in steps:
        if step["do"] == "create":
            file = scene.folder / f"{step['binary']}.bin"
            words = [step["n"], file, step["priority"], step["persistent"], step["limit"]]
        elif step["do"] == "execute":
            spec = scene.binaries[step["binary"]].graph(step["graph"])
            [(_, given)], [(_, made)] = spec.inputs, spec.outputs
            feed = np.ascontiguousarray(feeds_of(spec, step["seed"], step["batch"])["x"])
            file = scene.folder / f"{step['binary']}-{step['graph']}-{step['seed']}-{step['batch']}.raw"
            file.write_bytes(feed.tobytes())
            shapes = [[shape[0] * step["batch"], *shape[1:]] for shape in (given.shape, made.shape)]
            out_bytes = made.size * made.dtype.numpy.itemsize * step["batch"]
            words = [step["n"], step["graph"], file, *(",".join(map(str, shape)) for shape in shapes), out_bytes]
        elif step["do"] == "register":
            words = [step["memory"], step["n"], step["bytes"]]
        elif step["do"] == "vote":
            words = [step["id"], *step["corners"], step["sleep"], step["rpc"], step["polling"]]
        else:
            words = [step[key] for key in ("n", "memory", "id", "us", "priority", "core") if key in step]
        lines.append(" ".join(map(str, [step["do"], *words])))
    file = scene.folder / "steps.txt"
    file.write_text("\n".join(lines) + "\n")
    variables = environment(HEXFORGE_DEVICE=address, HEXFORGE_PROCESS=PROCESS)
    ran = subprocess.run([program, libraries, file], capture_output=True, text=True, check=False, env=variables)
    assert ran.returncode == 0, ran.stderr
    return [(int(code), said) for code, said in (line.split() for line in ran.stdout.splitlines())]


# -- all four ---------------------------------------------------------------------------------------------------------


def differences(seed: int, scene: Scene, program: Path, libraries: Path, folder: Path) -> list[str]:
    """What is not as through the first door, for each of the others: codes, numbers, the log."""
    steps = steps_of(seed, scene)
    device = Device(tiny.SOC)
    names: list[str] = []
    told = by_calls(Qnn(device.process(PROCESS)), steps, scene, names)
    log = log_of(device)
    found = []
    with served(folder) as where:
        shared = by_calls(where.remote.qnn(PROCESS), steps, scene, [])
        where.stop()
        found += _differing(seed, "device serve", (shared, log_of(where.device)), (told, log))
    with served(folder) as where:
        c = by_program(program, libraries, str(where.address), steps, scene)
        where.stop()
        found += _differing(seed, "C", (c, log_of(where.device)), (told, log))
    return found + _differing(seed, "script", (told, by_script(steps, scene, names)), (told, log))


def _differing(seed: int, door: str, got: tuple[Told, Log], wanted: tuple[Told, Log]) -> list[str]:
    found = []
    pairs: list[tuple[str, Sequence[Any], Sequence[Any]]] = [("step", got[0], wanted[0]), ("event", got[1], wanted[1])]
    for what, own, other in pairs:
        first = next((i for i, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1]), None)
        if first is not None or len(own) != len(other):
            first = min(len(own), len(other)) if first is None else first
            found.append(
                f"seed {seed}, {door}: {what} {first}: {own[first : first + 1]}, not {other[first : first + 1]}"
            )
    return found


def main() -> None:
    """Play the scenarios of the first seeds, so many as the argument says."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    failed = steps = 0
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "scenario")
        subprocess.run(["cc", "-std=c11", "-O1", f"-I{include_path()}", SOURCE, "-o", program, "-ldl"], check=True)
        scene = Scene.made(Path(folder))
        for seed in range(count):
            found = differences(seed, scene, program, lib_path(), Path(folder))
            failed += bool(found)
            steps += len(steps_of(seed, scene))
            print("\n".join(found), end="\n" if found else "", flush=True)
    print(f"{count} scenarios, {steps} steps, through Python, device serve, C and a script: {failed} differ")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
