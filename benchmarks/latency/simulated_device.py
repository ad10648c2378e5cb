# SPDX-License-Identifier: Apache-2.0
"""The device: its speed, random scenarios that must lose nothing, and the tables of the HTP backend's guide.

    python -m benchmarks.latency.simulated_device [--scenarios 10000] [--first 0] [--seed N]

Exits 1 where one is missed. `--seed N` plays one random scenario, prints its script and what it lost.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.models.architectures import resnet50
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    DeclaredTime,
    Device,
    DeviceError,
    GraphSpec,
    GroupRegistration,
    ListConfig,
    MemDescriptor,
    Qnn,
    SimulatedTime,
    audit,
)
from hexforge.addons.device.contexts.configs import thread_priorities
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.memory import AddressRange
from hexforge.addons.device.power import PROFILES, STATES, DcvsV3, HmxV2, PowerConfig, RpcPollingTime
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import parse_script
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import cost
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import Corner
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.errors import HexforgeError
from tests.addons.device import tiny
from tests.addons.device.random_scripts import Undisturbed, lost, random_script

GB, MB = 1 << 30, 1 << 20
EVENTS_PER_MINUTE = 1_000_000
FAULT_WORDS = {"kill": "processes killed", "ssr": "restarts (SSR)", "pd": "crashes of a process domain"}
Row = tuple[str, str, str]
"""What, as it is here, as the guide has it."""


def _qnn(soc: str = "SM8650") -> Qnn:
    return Qnn(Device(soc).process("app", privileged=True))


def _binary(name: str, gb: float, **more: int) -> Binary:
    return Binary(name, (GraphSpec("g", round(gb * GB), **more),))  # type: ignore[arg-type]


def _sessions(contexts: list[DeviceContext]) -> str:
    return ",".join(str(c.session.index) for c in contexts if c.session)


def _try(call: Callable[[], object]) -> str:
    try:
        call()
    except DeviceError as error:
        return f"{error.name} {error.code}"
    return "ok"


def tables() -> Iterator[Row]:
    """Every row of the guide's tables."""
    q = _qnn()
    made = [q.QnnContext_createFromBinary(_binary(f"m{i}", gb)) for i, gb in enumerate((1.5, 1.5, 1, 1, 0.25))]
    yield "sessions of 1.5, 1.5, 1, 1, 0.25 GB", _sessions(made), "0,0,1,1,0"
    free = " and ".join(f"{s.free_bytes / GB:g}" for s in q.client.sessions)
    yield "GB left in them", free, "0.5 and 1.75"

    q, sizes = _qnn(), (16_252_928, 37_224_448)
    one = q.QnnContext_createFromBinary(
        _binary("a", 0.1, spill_fill_bytes=sizes[0]),
        CreationConfig(register_multi_contexts=GroupRegistration(None, max(sizes))),
    )
    q.QnnContext_createFromBinary(
        _binary("b", 0.1, spill_fill_bytes=sizes[1]), CreationConfig(register_multi_contexts=GroupRegistration(one))
    )
    yield "spill-fill of a group", str(q.client.sessions[0].by_kind()["group spill-fill"]), str(max(sizes))

    abcd = Binary("m", tuple(GraphSpec(name, round(1.8 * GB)) for name in "ABCD"))
    for order, loads, plain in (("ABAB", 0, 3), ("ABCD", 2, 3), ("ABCABD", 3, 5)):
        counts = []
        for retained in (("A", "B"), ()):
            q = _qnn()
            config = CreationConfig(is_persistent_binary=True, memory_limit_hint=1, graph_retention_order=retained)
            context = q.QnnContext_createFromBinary(abcd, config)
            for name in order:
                q.QnnGraph_execute(context.graphs[name])
            counts.append(context.switches)
        yield f"loads of {order}, retained and not", f"{counts[0]} and {counts[1]}", f"{loads} and {plain}"

    threads = {"LOW": "0xc5 0xc6", "NORMAL": "0xc0 0xc1", "NORMAL_HIGH": "0xbd 0xbe", "HIGH": "0xbb 0xbc"}
    for name, wanted in threads.items():
        yield f"threads of {name}", " ".join(map(hex, thread_priorities(Priority[name]))), wanted
    yield from _profiles()
    yield from _hmx()
    yield from _io()


def _profiles() -> Iterator[Row]:
    newest = {  # the guide's table, and the execution provider's where that is newer and differs
        "burst": "40 F on MAX_VOLTAGE_CORNER", "sustained_high_performance": "40 F off MAX_VOLTAGE_CORNER",
        "high_performance": "100 F off TURBO", "balanced": "1000 T off NOM_PLUS", "low_balanced": "1000 T off NOM",
        "high_power_saver": "1000 T off SVS_PLUS", "power_saver": "1000 T off SVS",
        "low_power_saver": "1000 T off SVS2",
        "extreme_power_saver": "1000 T off DISABLE", "RELAXED_POWER_STATE": "2000 T off SVS2/SVS/SVS",
        "RELEASED_POWER_STATE": "65535 T off MIN_VOLTAGE_CORNER",
    }  # fmt: skip
    for name, wanted in newest.items():
        vote, _, polling = {**PROFILES, **STATES}[name].configs()
        assert isinstance(vote, DcvsV3)
        assert isinstance(polling, RpcPollingTime)
        corners = [
            getattr(vote, f"{unit}VoltageCorner{end}") for unit in ("core", "bus") for end in ("Min", "Target", "Max")
        ]
        names = list(dict.fromkeys(c.name for c in corners))
        text = names[0] if len(names) == 1 else "/".join(c.name for c in corners[:3])
        dcvs = "T" if vote.dcvsEnable else "F"
        yield name, f"{vote.sleepLatency} {dcvs} {'on' if polling.us else 'off'} {text}", wanted


def _hmx() -> Iterator[Row]:
    hvx = DcvsV3(setCoreParams=1, coreVoltageCornerMin=Corner.NOM, coreVoltageCornerTarget=Corner.NOM,
                 coreVoltageCornerMax=Corner.NOM)  # fmt: skip
    hmx = HmxV2(hmxVoltageCornerMin=Corner.TURBO, hmxVoltageCornerTarget=Corner.TURBO, hmxVoltageCornerMax=Corner.TURBO)

    def voted(configs: list[PowerConfig], remove: bool = False) -> str:
        q = _qnn()
        number = q.createPowerConfigId()
        said = _try(lambda: q.setPowerConfig(number, configs))
        if said != "ok":
            return f"invalid: {said}"
        if remove:
            q.destroyPowerConfigId(number)
        default = remove or q.client.device.power.hmx_is_default(number)
        return f"valid, HMX {'default' if default else 'voted'}"

    invalid = "invalid: QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT 13001"
    yield "HVX vote, HMX vote", voted([hvx, hmx]), "valid, HMX voted"
    yield "no HVX vote, HMX vote", voted([hmx]), invalid
    yield "HVX vote, no HMX vote", voted([hvx]), "valid, HMX default"
    yield "both removed", voted([hvx, hmx], remove=True), "valid, HMX default"


def _io() -> Iterator[Row]:
    size = round(0.1 * GB)
    five = [_binary(f"m{i}", 0.9, io_bytes=size) for i in range(5)]

    def register(q: Qnn, context: DeviceContext, name: str = "io", amount: int = size) -> list[object]:
        return list(q.QnnMem_register(context, [MemDescriptor(AddressRange(amount), name, (amount,), "uint8")]))

    q = _qnn()
    made = [q.QnnContext_createFromBinary(b) for b in five]
    register(q, made[0])
    yield "I/O of five contexts, four in session 0", _try(lambda: register(q, made[1])), "QNN_MEM_ERROR_MAPPING 8003"
    q, made = _qnn(), []
    for binary in five:
        made.append(q.QnnContext_createFromBinary(binary, CreationConfig(io_mem_estimation=True)))
        register(q, made[-1])
    yield "with I/O memory estimation", _sessions(made), "0,0,0,1,1"
    q = _qnn()
    made = [q.QnnContext_createFromBinary(b) for b in five[:3]]
    dummy = q.QnnMem_register(made[0], [MemDescriptor(AddressRange(GB // 2), "dummy", (GB // 2,), "uint8")])
    made += [q.QnnContext_createFromBinary(b) for b in five[3:]]
    q.QnnMem_deRegister(dummy)
    said = [_try(lambda c=c: register(q, c)) for c in made]  # type: ignore[misc]
    yield "with a dummy registration", ",".join(said), "ok,ok,ok,ok,ok"
    q = _qnn()
    members = [(b, CreationConfig()) for b in five]
    tasks = q.QnnContext_createFromBinaryListAsync(members, ListConfig(True), lambda _: None)
    made = [q.wait(task) for task in tasks]
    said = [_try(lambda c=c: register(q, c)) for c in made]  # type: ignore[misc]
    yield "with a list and VA optimization", ",".join(said), "ok,ok,ok,ok,ok"


class _Caller:
    """A thread that calls a graph again as soon as it returns."""

    def __init__(self, q: Qnn, graph: DeviceGraph, batch: int = 1) -> None:
        self.q, self.graph, self.batch, self.done = q, graph, batch, 0
        self.again()

    def again(self, ended: object = None) -> None:
        """Count what ended, and call."""
        self.done += ended is not None
        self.q.QnnGraph_executeAsync(self.graph, batch=self.batch).then(self.again)


def events_per_minute() -> float:
    """Device events of busy processes that yield, share and log, by the processor's time."""
    device = Device("SM8650")
    for p, priority in enumerate((Priority.LOW, Priority.NORMAL, Priority.HIGH)):
        q = Qnn(device.process(f"p{p}", privileged=True))
        q.use_profile(PROFILES["burst"])
        time_of = DeclaredTime(500.0 / (p + 1), 20, rpc_us=150, vtcm_bytes=8 * MB)
        made = Binary("m", (GraphSpec("g", MB, vtcm_bytes=8 * MB, time=time_of),))
        _Caller(q, q.QnnContext_createFromBinary(made, CreationConfig(priority=priority)).graphs["g"])
    before, start = device.clock.count, time.process_time()
    while device.clock.count - before < 200_000:
        device.clock.step()
    took = time.process_time() - start
    audit(device.log.entries)
    return (device.clock.count - before) / took * 60


def concurrency() -> Iterator[Row]:
    """What sharing the accelerator must come to."""
    device = Device("SM8650")
    q = Qnn(device.process("app", privileged=True))
    q.use_profile(PROFILES["burst"])

    def graph(name: str, us: float, tasks: int, priority: Priority) -> DeviceGraph:
        time_of = DeclaredTime(us, tasks, rpc_us=100, vtcm_bytes=8 * MB)
        made = Binary(name, (GraphSpec("g", MB, vtcm_bytes=8 * MB, time=time_of),))
        return q.QnnContext_createFromBinary(made, CreationConfig(priority=priority)).graphs["g"]

    low, other = (graph(name, 2000, 20, Priority.LOW) for name in "ab")
    callers = [_Caller(q, low), _Caller(q, other)]
    device.clock.run(device.clock.now_us + 1_000_000)
    yield "equal graphs of one priority, runs", str(abs(callers[0].done - callers[1].done) <= 1), "True"
    high = graph("c", 300, 6, Priority.HIGH)
    most = 100 + 8 * cost.costs(device.soc).dram_us(MB)  # one task of the others, and VTCM saved
    slowest = 0.0
    for _ in range(500):
        device.clock.run(device.clock.now_us + 1237)
        slowest = max(slowest, q.QnnGraph_execute(high).latency_us - 300 - 100)
    yield f"a high priority waits for {slowest:.0f} us, at most {most:.0f}", str(slowest <= most + 1e-6), "True"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "resnet50.onnx"
        resnet50(path)
        soc = require_chip("SM8550")
        net = graph_of(str(path), Deployment("SM8550", "w8a8"))
        time_of = SimulatedTime(net, soc, GraphConfig(), precision="w8a8")
        rates = []
        for threads, batch in ((1, 1), (2, 5)):
            one = Qnn(Device("SM8550").process("app"))
            one.use_profile(PROFILES["burst"])
            made = Binary("resnet50", (GraphSpec("g", 25 * MB, vtcm_bytes=8 * MB, time=time_of),))
            called = one.QnnContext_createFromBinary(made).graphs["g"]
            busy = [_Caller(one, called, batch) for _ in range(threads)]
            start = one.client.device.clock.now_us
            one.client.device.clock.run(start + 1_000_000)
            rates.append(sum(caller.done for caller in busy) * batch)
    text = f"ResNet50, SM8550: {rates[0]} a second, batch 5 and 2 threads {rates[1]}, {rates[1] / rates[0]:.2f}x"
    yield f"{text}, about 1.8x", str(1.7 <= rates[1] / rates[0] <= 2.0), "True"


def scenarios(first: int, count: int) -> tuple[int, Counter[str], list[int], float]:
    """Executions, faults by kind, seeds that lost something or came to no end, seconds."""
    start, runs, faults = time.process_time(), 0, Counter[str]()
    failed: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        binaries = tiny.binaries(Path(folder))
        undisturbed = Undisturbed(binaries)
        for seed in range(first, first + count):
            try:
                played = play(parse_script(random_script(seed, binaries), known=binaries))
            except HexforgeError:  # a thread waits for something that never comes
                failed.append(seed)
                continue
            runs += sum(map(len, played.executed.values()))
            faults.update(entry["kind"] for entry in played.device.log.of("fault"))
            if lost(played, undisturbed):
                failed.append(seed)
    return runs, faults, failed, time.process_time() - start


def replay(seed: int) -> int:
    """One random scenario: its script, and what it lost."""
    with tempfile.TemporaryDirectory() as folder:
        binaries = tiny.binaries(Path(folder))
        script = random_script(seed, binaries)
        print(json.dumps(script, indent=1))
        losses = lost(play(parse_script(script, known=binaries)), Undisturbed(binaries))
    print("\n".join(losses) or "nothing is lost")
    return int(bool(losses))


def main() -> int:
    """Everything; 1 where something is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    if given.seed is not None:
        return replay(given.seed)
    missed = 0
    for what, here, guide in (*tables(), *concurrency()):
        same = here == guide
        missed += not same
        print(f"{'  ' if same else '! '}{what:42} {here}{'' if same else f'   the guide: {guide}'}")
    rate = events_per_minute()
    missed += rate < EVENTS_PER_MINUTE
    print(
        f"\n{rate:,.0f} device events a minute on one core ({rate / EVENTS_PER_MINUTE:.1f} times {EVENTS_PER_MINUTE:,})"
    )
    runs, faults, failed, took = scenarios(given.first, given.scenarios)
    missed += bool(failed)
    again = f" (--seed {failed[0]})" if failed else ""
    kinds = ", ".join(f"{faults[kind]:,} {words}" for kind, words in FAULT_WORDS.items())
    print(
        f"{given.scenarios:,} random scenarios of several processes in {took:.0f} s: {runs:,} executions, {kinds}; "
        f"{len(failed)} lost something, leaked or came to no end{again}"
    )
    print("all as it must be" if not missed else f"{missed} missed")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
