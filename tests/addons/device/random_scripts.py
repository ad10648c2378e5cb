# SPDX-License-Identifier: Apache-2.0
"""Random scripts: contexts, switches, priorities, faults and cancellations by a seed, and what must be true after."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from hexforge.addons.device.codes import Code
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import SharingType
from hexforge.addons.device.log import audit
from hexforge.addons.device.scenario.play import PlayedScenario, StepOutcome
from hexforge.addons.device.scenario.steps import digest, feeds_of
from hexforge.errors import FormatError
from tests.addons.device.log_rules import broken_rules

PRIORITIES = ("LOW", "NORMAL", "NORMAL_HIGH", "HIGH")
CRASHED = Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION.name
SEQUENTIAL = SharingType.SEQUENTIAL_WITHOUT_VA_OPTIMIZATION.value
TWO_CORES = "SA8775P"
"""A chip with two NSP cores."""
LONG: dict[str, Any] = {
    "long": {"graphs": [{"name": "g", "weights_mb": 3, "spill_fill_mb": 1, "io_mb": 1, "vtcm_mb": 4, "us": 8000,
                         "tasks": 16, "rpc_us": 100, "io_us": 50}]},
    "wide": {"graphs": [{"name": n, "weights_mb": 20, "vtcm_mb": 2, "us": 3000, "tasks": 5} for n in "ab"]},
}  # fmt: skip
"""Binaries of figures alone, whose graphs take so long that faults come while they run."""
ABORTED = {
    Code.QNN_GRAPH_ERROR_ABORTED.name,
    Code.QNN_GRAPH_ERROR_TIMED_OUT.name,
    Code.QNN_CONTEXT_ERROR_ABORTED.name,
    Code.QNN_CONTEXT_ERROR_TIMED_OUT.name,
}


def random_script(seed: int, binaries: Mapping[str, Binary]) -> dict[str, Any]:
    """A scenario as JSON data over some binaries; the same seed gives the same one."""
    chance = random.Random(seed)
    graphs = {name: [graph.name for graph in binaries[name].graphs] for name in sorted(binaries)}
    graphs |= {name: [graph["name"] for graph in binary["graphs"]] for name, binary in LONG.items()}
    processes = []
    for p in range(chance.randint(2, 4)):
        threads = [_thread(chance, f"p{p}t{t}", graphs) for t in range(chance.choice((1, 1, 2, 3)))]
        profile = chance.choice(("", "burst", "high_performance", "balanced", "power_saver"))
        processes.append({"name": f"p{p}", "privileged": True, "profile": profile, "threads": threads})
    faults = []
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        process = chance.choice(processes)["name"]
        at = round(10 ** chance.uniform(3.0, 5.3), 1)
        faults.append({"at_us": at, "kind": chance.choice(("ssr", "pd")), "process": process, "session": 0})
    for _ in range(chance.choice((0, 1, 1, 2))):
        at = round(10 ** (chance.uniform(4.3, 5.0) if chance.random() < 0.8 else chance.uniform(0.0, 6.0)), 1)
        faults.append({"at_us": at, "kind": "kill", "process": chance.choice(processes)["name"]})
    chip, cores = chance.choice(("SM8550", "SM8650", "SM8750", "SM8850")), chance.choice((1, 1, 2))
    return {
        "about": f"random scenario {seed}",
        "soc": chip if cores == 1 else TWO_CORES,
        "cores": cores,
        "binaries": LONG,
        "processes": processes,
        "faults": faults,
    }


def _thread(chance: random.Random, prefix: str, binaries: Mapping[str, list[str]]) -> list[Any]:
    names = list(binaries)
    steps: list[Any] = []
    made: list[tuple[str, str]] = []
    if chance.random() < 0.1:
        listed = [(f"{prefix}l{i}", chance.choice(names)) for i in range(2)]
        rows = [{"context": context, "binary": binary} for context, binary in listed]
        steps.append({"do": "create_list", "contexts": rows, "share_resources": True, "optimization_type": SEQUENTIAL})
        made += listed
    first = ""
    for i in range(chance.randint(1, 2)):
        context, binary = f"{prefix}c{i}", chance.choice(names)
        config: dict[str, Any] = {"priority": chance.choice(PRIORITIES)}
        graphs = binaries[binary]
        if len(graphs) > 1 and chance.random() < 0.5:
            config |= {"is_persistent_binary": True, "memory_limit_hint": 1}
            if chance.random() < 0.5:
                config["graph_retention_order"] = chance.sample(graphs, chance.randint(1, len(graphs)))
        elif chance.random() < 0.3:
            config["register_multi_contexts"] = {"first": first} if first else {"max_spill_fill_bytes": 1 << 20}
            first = context
        step: dict[str, Any] = {"do": "create", "context": context, "binary": binary, "config": config}
        if chance.random() < 0.1:  # a creation that is cancelled, and then one that is not
            steps.append({**step, "abort_us": round(chance.uniform(1, 30_000), 1)})
            steps.append({"do": "free", "context": context})
        steps.append(step)
        made.append((context, binary))
    for _ in range(chance.randint(2, 6)):
        context, binary = chance.choice(made)
        graph = f"{context}/{chance.choice(binaries[binary])}"
        kind = chance.random()
        if kind < 0.15:
            steps.append({"do": "priority", "graph": graph, "priority": chance.choice(PRIORITIES)})
            continue
        if kind < 0.25:
            steps.append({"do": "sleep", "us": round(10 ** chance.uniform(1, 5), 1)})
            continue
        if kind < 0.29:  # another thread has VTCM for a while
            pause = {"do": "sleep", "us": round(10 ** chance.uniform(1, 4), 1)}
            steps += [{"do": "reserve_vtcm", "size_mb": 1}, pause, {"do": "release_vtcm", "size_mb": 1}]
            continue
        if kind < 0.295:
            steps.append({"do": "fault", "kind": "kill"})
            continue
        step = {"do": "execute", "graph": graph, "seed": chance.randrange(50), "recover": True}
        if chance.random() < 0.2:
            step["batch"] = chance.randint(2, 3)
        if chance.random() < 0.3:
            step["times"] = chance.randint(2, 3)
        if chance.random() < 0.1:
            step["abort_us"] = round(10 ** chance.uniform(0, 3), 1)
        elif chance.random() < 0.1:
            step["timeout_us"] = round(10 ** chance.uniform(1, 3), 1)
        if chance.random() < 0.25 and "batch" not in step:
            buffer = f"{prefix}b{len(steps)}"
            steps.append({"do": "register", "graph": graph, "buffer": buffer})
            steps.append({**step, "shared": buffer})
            steps.append({"do": "deregister", "buffer": buffer})
        else:
            steps.append(step)
    return steps + [{"do": "free", "context": context} for context, _ in made]


class Undisturbed:
    """What graphs compute with nobody else on the device: each binary opened once, and run as it is."""

    def __init__(self, binaries: Mapping[str, Binary]) -> None:
        self._binaries = binaries
        self._programs: dict[tuple[str, str], Any] = {}
        self._known: dict[tuple[str, str, int, int], str] = {}

    def digest(self, binary: str, graph: str, seed: int, batch: int) -> str:
        """Of the outputs for the inputs of a seed."""
        key = binary, graph, seed, batch
        if key not in self._known:
            program = self._programs.get((binary, graph))
            if program is None:
                context = self._binaries[binary].open()
                assert context is not None
                program = self._programs[binary, graph] = context.program(graph)
            feeds = feeds_of(self._binaries[binary].graph(graph), seed, batch)
            rows = {name: len(array) // batch for name, array in feeds.items()}
            parts = [
                program.run({n: a[k * rows[n] : (k + 1) * rows[n]] for n, a in feeds.items()}) for k in range(batch)
            ]
            self._known[key] = digest({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        return self._known[key]


def lost(played: PlayedScenario, undisturbed: Undisturbed) -> list[str]:
    """What a random scenario must not have: other bits, errors without a cause, calls without an end, leaks.

    All processes are ended for it. What the log must tell is `broken_rules`', which asks nothing of the device.
    """
    problems = _unended(played)
    crashes = played.device.log.of("fault")
    owner: dict[str, str] = {}
    for outcome in played.steps:
        if outcome.step.do in ("create", "create_list"):
            rows = outcome.step.fields.get("contexts", [outcome.step.fields])
            owner |= {row["context"]: row["binary"] for row in rows}
    embedded = {name for name, binary in undisturbed._binaries.items() if binary.embedded}
    unmade: set[str] = set()
    for outcome in played.steps:
        fields = outcome.step.fields
        if outcome.step.do in ("create", "register"):
            name = fields["context" if outcome.step.do == "create" else "buffer"]
            unmade = unmade | {name} if outcome.code else unmade - {name}
        if outcome.step.do == "create_list" and outcome.code:
            unmade = unmade | {row["context"] for row in fields["contexts"]}
        names = {*fields.get("graph", "").split("/"), fields.get("context"), fields.get("buffer"), fields.get("shared")}
        names.add(fields.get("config", {}).get("register_multi_contexts", {}).get("first"))
        felt = [f for f in crashes if f["kind"] == "ssr" or (f["kind"], f["process"]) == ("pd", outcome.process)]
        faults = [fault["at_us"] for fault in felt]
        missing = outcome.code.endswith("INVALID_HANDLE") and names & unmade
        if outcome.code and not missing and not _excused(outcome, faults, embedded, owner):
            problems.append(f"{outcome.process}.{outcome.thread} {outcome.step.do} {fields}: {outcome.message}")
        if outcome.step.do == "execute":
            context, _, graph = fields["graph"].partition("/")
            for k, own in enumerate(outcome.digests):
                right = undisturbed.digest(owner[context], graph, fields.get("seed", 0) + k, fields.get("batch", 1))
                if own != right:
                    problems.append(f"{outcome.process}.{outcome.thread} {fields}: run {k} has other bits")
    try:
        audit(played.device.log.entries)
    except FormatError as error:
        problems.append(str(error))
    for client in list(played.device.clients.values()):
        problems += [f"{c.label}: is left, {c.state}" for c in client.contexts.values() if c.state != "lost"]
        problems += [f"{client.name}: memory stays registered"] if client.memory else []
        problems += [f"{client.name}: {client.heap_bytes} bytes are left"] if client.heap_bytes else []
        client.close()
    problems += broken_rules(json.loads(line) for line in played.device.log.lines())
    left = audit(played.device.log.entries)
    problems += [f"{left} bytes leak"] if left or played.device.memory.used_bytes else []
    problems += ["a core is left busy"] if any(core.job or core.helps for core in played.device.cores.cores) else []
    problems += ["executions are left"] if played.device.owners else []
    return problems


def _unended(played: PlayedScenario) -> list[str]:
    """Threads that did not come to their end: to the last step, or, where their process was killed, to that moment."""
    killed = {f["process"]: f["at_us"] for f in played.device.log.of("fault") if f["kind"] == "kill"}
    problems = []
    for process in played.script.processes:
        for number, steps in enumerate(process.threads):
            done = [s for s in played.steps if (s.process, s.thread) == (process.name, number)]
            where = f"{process.name}.{number}"
            if [s.step for s in done] != list(steps[: len(done)]):
                problems.append(f"{where}: steps are not in their order")
            if process.name not in killed and len(done) < len(steps):
                problems.append(f"{where}: ends after {len(done)} of {len(steps)} steps, and nobody killed it")
            if process.name in killed and done and round(done[-1].end_us, 3) > killed[process.name]:
                problems.append(f"{where}: goes on after it was killed")
    return problems


def _excused(outcome: StepOutcome, faults: list[float], embedded: set[str], owner: Mapping[str, str]) -> bool:
    """Whether a script asked for what went wrong: a cancellation, or a crash that could not be recovered from."""
    fields = outcome.step.fields
    if outcome.code in ABORTED:
        return "abort_us" in fields or "timeout_us" in fields
    during = sum(outcome.start_us <= at <= outcome.end_us for at in faults)
    context = fields.get("context") or fields.get("graph", "").partition("/")[0]
    binary = owner.get(context, "")
    if outcome.code != CRASHED:
        return False
    if outcome.step.do in ("create", "create_list", "priority", "register"):
        return any(at <= outcome.end_us for at in faults)
    if outcome.step.do == "execute":  # a context is loaded again once in a call, unless it is embedded
        before = any(at < outcome.start_us for at in faults)
        return bool(during > 1 or (during and before) or (faults and binary in embedded))
    return False
