# SPDX-License-Identifier: Apache-2.0
"""Power of a device: votes, the table of profiles, HMX rules, idle states, timers, energy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hexforge.addons.device import Binary, DeclaredTime, Device, DeviceError, GraphSpec, Qnn
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.graph_time import Clocks, SimulatedTime
from hexforge.addons.device.power import (
    PROFILES,
    STATES,
    AdaptivePollingTime,
    DcvsV3,
    HmxV2,
    PowerMode,
    RpcControlLatency,
    RpcPollingTime,
)
from hexforge.analysis.estimate import estimate
from hexforge.backends.htp.timing import Clock
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import RELAXED, RELEASED, Corner, Power, cpu_wake_us
from hexforge.chips.soc import require_chip

MAX, TURBO, NOM, SVS = Corner.MAX_VOLTAGE_CORNER, Corner.TURBO, Corner.NOM, Corner.SVS
TABLE = {
    "burst": (40, False, True, "MAX_VOLTAGE_CORNER MAX_VOLTAGE_CORNER MAX_VOLTAGE_CORNER"),
    "sustained_high_performance": (40, False, False, "MAX_VOLTAGE_CORNER MAX_VOLTAGE_CORNER MAX_VOLTAGE_CORNER"),
    "high_performance": (100, False, False, "TURBO TURBO TURBO"),
    "balanced": (1000, True, False, "NOM_PLUS NOM_PLUS NOM_PLUS"),
    "low_balanced": (1000, True, False, "NOM NOM NOM"),
    "high_power_saver": (1000, True, False, "SVS_PLUS SVS_PLUS SVS_PLUS"),
    "power_saver": (1000, True, False, "SVS SVS SVS"),
    "low_power_saver": (1000, True, False, "SVS2 SVS2 SVS2"),
    "extreme_power_saver": (1000, True, False, "DISABLE DISABLE DISABLE"),
    "RELAXED_POWER_STATE": (2000, True, False, "SVS2 SVS SVS"),
    "RELEASED_POWER_STATE": (65535, True, False, "MIN_VOLTAGE_CORNER MIN_VOLTAGE_CORNER MIN_VOLTAGE_CORNER"),
}
"""sleepLatency, dcvsEnable, RPC polling, min target max of bus and core: the guide's table (lines 1392 to 1632) where
the execution provider's source, which is newer, has the same; where it differs (the corner and latency of
sustained_high_performance, polling in burst alone, DCVS from balanced on) the provider's."""


@pytest.mark.feature("Performance profile table", guide="1392-1632")
@pytest.mark.parametrize("name", TABLE)
def test_the_profiles_are_those_of_the_newest_source(name: str) -> None:
    sleep, dcvs, polling, corners = TABLE[name]
    profile = {**PROFILES, **STATES}[name]
    vote, _, poll = profile.configs()
    assert isinstance(vote, DcvsV3)
    assert isinstance(poll, RpcPollingTime)
    assert (vote.sleepLatency, bool(vote.dcvsEnable), poll.us == 9999) == (sleep, dcvs, polling)
    for unit in ("bus", "core"):
        given = [getattr(vote, f"{unit}VoltageCorner{end}").name for end in ("Min", "Target", "Max")]
        assert " ".join(given) == corners


@pytest.mark.feature("system_settings", guide="1392")
def test_there_are_ten_profiles_and_system_settings_votes_for_nothing() -> None:
    assert len(PROFILES) == 10
    assert PROFILES["system_settings"].configs() == []


def test_a_power_with_corners_of_its_own_is_voted_for() -> None:
    q = qnn()
    q.use_profile(Power("burst", core_corner=TURBO, bus_corner=NOM, hmx_corner=SVS))
    graph(q)
    power = q.client.device.power
    assert (power.corners(0), power.hmx(0)) == ((TURBO, NOM), SVS)


def qnn(soc: str = "SM8650", **more: Any) -> Qnn:
    return Qnn(Device(soc, **more).process("app"))


def graph(q: Qnn, us: float = 1000) -> DeviceGraph:
    made = Binary("m", (GraphSpec("g", 1 << 20, time=DeclaredTime(us, 4, rpc_us=100)),))
    return q.QnnContext_createFromBinary(made).graphs["g"]


def vote(target: Corner = MAX, **more: Any) -> DcvsV3:
    given = {
        "setCoreParams": 1, "coreVoltageCornerMin": target, "coreVoltageCornerTarget": target,
        "coreVoltageCornerMax": target, "setBusParams": 1, "busVoltageCornerMin": target,
        "busVoltageCornerTarget": target, "busVoltageCornerMax": target, "setSleepLatency": 1, "sleepLatency": 40,
    }  # fmt: skip
    return DcvsV3(**{**given, **more})


def hmx(target: Corner, **more: Any) -> HmxV2:
    return HmxV2(hmxVoltageCornerMin=target, hmxVoltageCornerTarget=target, hmxVoltageCornerMax=target, **more)


# -- HMX: the validity table, and the eight rules ---------------------------------------------------------------------


@pytest.mark.feature("HMX votes", guide="832-962")
def test_hvx_vote_and_hmx_vote_are_valid() -> None:
    q = qnn()
    number = q.createPowerConfigId()
    q.setPowerConfig(number, [vote(NOM), hmx(TURBO)])
    assert q.client.device.power.hmx(0) is TURBO
    assert not q.client.device.power.hmx_is_default(number)


@pytest.mark.feature("HMX votes", guide="832-962")
def test_hmx_vote_without_hvx_vote_is_invalid_input() -> None:
    q = qnn()
    number = q.createPowerConfigId()
    with pytest.raises(DeviceError, match="HVX vote") as error:
        q.setPowerConfig(number, [hmx(TURBO)])
    assert (error.value.name, error.value.code) == ("QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT", 13001)
    assert not q.client.device.power.has_vote(number)


def test_hvx_vote_alone_scales_hmx() -> None:
    q = qnn()
    number = q.createPowerConfigId()
    q.setPowerConfig(number, [vote(SVS)])
    assert q.client.device.power.hmx(0) is SVS
    assert q.client.device.power.hmx_is_default(number)


def test_removing_the_id_removes_both_votes() -> None:
    q = qnn()
    number = q.createPowerConfigId()
    q.setPowerConfig(number, [vote(SVS), hmx(MAX)])
    q.destroyPowerConfigId(number)
    assert q.client.device.power.corners(0)[0] is q.client.device.power.hmx(0) is NOM
    with pytest.raises(DeviceError) as error:
        q.setPowerConfig(number, [vote()])
    assert error.value.code == 13001


@pytest.mark.feature("HMX votes", guide="832-962")
def test_hmx_votes_need_v75() -> None:
    q = qnn("SM8550")
    with pytest.raises(DeviceError, match="v75") as error:
        q.setPowerConfig(q.createPowerConfigId(), [vote(), hmx(MAX)])
    assert error.value.code == 13002


def test_an_hmx_vote_may_come_in_a_later_call_and_stays_until_default_is_picked() -> None:
    q = qnn()
    power, number = q.client.device.power, q.createPowerConfigId()
    q.setPowerConfig(number, [vote(NOM)])
    q.setPowerConfig(number, [hmx(MAX)])
    q.setPowerConfig(number, [vote(SVS)])
    assert (power.corners(0)[0], power.hmx(0)) == (SVS, MAX)
    q.setPowerConfig(number, [HmxV2(hmxPickDefault=1)])
    assert power.hmx(0) is SVS
    other = q.createPowerConfigId()
    with pytest.raises(DeviceError):
        q.setPowerConfig(other, [HmxV2(hmxPickDefault=1)])


# -- fields -----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("DCVS v3 payload", guide="575-607")
@pytest.mark.parametrize(
    "config",
    [
        vote(sleepLatency=9),
        vote(sleepLatency=65536),
        vote(coreVoltageCornerMin=MAX, coreVoltageCornerTarget=NOM, coreVoltageCornerMax=NOM),
        vote(busVoltageCornerMax=SVS),
        RpcPollingTime(10_001),
        RpcControlLatency(-1),
        AdaptivePollingTime(1000),
    ],
)
def test_fields_out_of_range_are_invalid_input(config: Any) -> None:
    q = qnn()
    with pytest.raises(DeviceError) as error:
        q.setPowerConfig(q.createPowerConfigId(), [config])
    assert error.value.code == 13001


@pytest.mark.feature("Adaptive polling", guide="764-803, 1324-1326")
def test_adaptive_polling_goes_with_polling_and_none_of_it_with_qnx() -> None:
    q = qnn()
    q.setPowerConfig(q.createPowerConfigId(), [RpcPollingTime(10_000), AdaptivePollingTime(1000)])
    assert q.client.device.power.polling_us("app") == (9999, 1000, 0)
    q = qnn(platform="qnx")
    number = q.createPowerConfigId()
    for config in (RpcPollingTime(), RpcControlLatency(), AdaptivePollingTime()):
        with pytest.raises(DeviceError):
            q.setPowerConfig(number, [config])


@pytest.mark.feature("Power config ids", guide="609-760")
def test_ids_are_of_cores_that_exist() -> None:
    assert qnn("SA8775P", cores=2).createPowerConfigId(0, 1)
    with pytest.raises(DeviceError):
        qnn().createPowerConfigId(0, 1)
    with pytest.raises(DeviceError):
        qnn().createPowerConfigId(1, 0)


# -- what votes do ----------------------------------------------------------------------------------------------------


def test_votes_change_the_time_and_the_highest_holds() -> None:
    q = qnn()
    made, number, other = graph(q), q.createPowerConfigId(), q.createPowerConfigId()

    def took() -> float:
        return q.QnnGraph_execute(made).accelerator_us

    times = {}
    for corner in (SVS, NOM, TURBO, MAX):
        q.setPowerConfig(number, [vote(corner)])
        times[corner] = took()
    assert times[SVS] > times[NOM] > times[TURBO] > times[MAX] == pytest.approx(1000)
    q.setPowerConfig(number, [vote(SVS)])
    q.setPowerConfig(other, [vote(TURBO)])
    assert took() == times[TURBO]


@pytest.mark.feature("RPC polling", guide="747-760, 1315-1318")
@pytest.mark.feature("RPC control latency", guide="565-567, 736-745, 1311-1313")
def test_polling_and_control_latency_change_the_return() -> None:
    q = qnn()
    made, number = graph(q), q.createPowerConfigId()
    q.setPowerConfig(number, [vote()])
    assert q.QnnGraph_execute(made).wake_us == 1000 / 4  # a quarter of what it sleeps
    q.setPowerConfig(number, [RpcControlLatency(40)])
    assert q.QnnGraph_execute(made).wake_us == 40
    q.setPowerConfig(number, [RpcPollingTime(500)])
    assert q.QnnGraph_execute(made).wake_us == 40  # it is not done after 500 us
    q.setPowerConfig(number, [AdaptivePollingTime(1000)])
    assert q.QnnGraph_execute(made).wake_us == 0
    q.setPowerConfig(number, [RpcPollingTime(9999)])
    assert q.QnnGraph_execute(made).wake_us == 0


def test_sleep_latency_is_paid_after_idling_unless_sleep_is_forbidden() -> None:
    q = qnn()
    made, number = graph(q), q.createPowerConfigId()
    clock = q.client.device.clock

    def after_idling(**more: Any) -> float:
        q.setPowerConfig(number, [vote(**more)])
        clock.run(clock.now_us + 100_000)
        return q.QnnGraph_execute(made).latency_us

    quick, slow = after_idling(), after_idling(sleepLatency=2000)
    assert slow - quick == pytest.approx(1960)
    assert after_idling(sleepLatency=2000, setSleepDisable=1, sleepDisable=1) == pytest.approx(quick)


@pytest.mark.feature("DCVS v3 payload", guide="575-607")
def test_dcvs_follows_the_load_within_its_limits() -> None:
    power = Device("SM8650").power
    number = power.create_power_config_id()
    wide = vote(
        setDcvsEnable=1, dcvsEnable=1, powerMode=PowerMode.ADJUST_UP_DOWN, coreVoltageCornerMin=SVS,
        coreVoltageCornerTarget=NOM, coreVoltageCornerMax=TURBO,
    )  # fmt: skip
    power.set_power_config(number, [wide])
    found = [power.corners(0, load / 10)[0] for load in range(11)]
    assert found == sorted(found)
    assert (found[0], found[-1]) == (SVS, TURBO)
    power.set_power_config(number, [replace(wide, powerMode=PowerMode.ADJUST_ONLY_UP)])
    assert power.corners(0, 0.0)[0] is NOM
    power.set_power_config(number, [replace(wide, dcvsEnable=0)])
    assert {power.corners(0, load / 10)[0] for load in range(11)} == {NOM}


def test_a_later_vote_keeps_what_it_does_not_set() -> None:
    power = Device("SM8650").power
    number = power.create_power_config_id()
    power.set_power_config(number, [vote(TURBO)])
    power.set_power_config(number, [DcvsV3(setSleepLatency=1, sleepLatency=2000)])
    assert power.corners(0) == (TURBO, TURBO)
    assert power.sleep_latency_us(0) == 2000


# -- stages -----------------------------------------------------------------------------------------------------------


def states(q: Qnn) -> list[tuple[str, str]]:
    return [(e["stage"], e["state"]) for e in q.client.device.log.of("power_state")]


@pytest.mark.feature("RELAXED and RELEASED power states, stages", guide="1414-1416, 1634-1642")
@pytest.mark.parametrize(
    ("profile", "after"), [("high_performance", RELAXED), ("power_saver", RELEASED), ("low_power_saver", RELEASED)]
)
def test_votes_are_lowered_after_each_stage(profile: str, after: str) -> None:
    q = qnn()
    q.use_profile(PROFILES[profile])
    made = graph(q)
    q.QnnGraph_execute(made)
    q.QnnContext_free(made.context)
    assert states(q) == [
        ("INIT", profile), ("idle", after), ("INFERENCE", profile), ("idle", after), ("DE-INIT", profile),
        ("idle", after),
    ]  # fmt: skip


@pytest.mark.feature("Vote every inference / sustain by timer", guide="964-972")
def test_burst_holds_its_vote_by_a_timer() -> None:
    q = qnn()
    q.use_profile(PROFILES["burst"])
    made, clock = graph(q), q.client.device.clock
    for _ in range(3):
        q.QnnGraph_execute(made)
        clock.run(clock.now_us + 100_000)
    assert states(q) == [("INIT", "burst")]
    clock.run(clock.now_us + 300_000)
    assert states(q) == [("INIT", "burst"), ("idle", RELAXED)]
    q.QnnGraph_execute(made)
    assert states(q)[-1] == ("INFERENCE", "burst")


def test_profiles_sort_by_latency() -> None:
    found = []
    for name in PROFILES:
        if name == "system_settings":
            continue
        q = qnn()
        q.use_profile(PROFILES[name])
        made = graph(q)
        q.QnnGraph_execute(made)
        found.append(q.QnnGraph_execute(made).latency_us)
    assert found == sorted(found)
    assert found[0] < found[1] < found[2] < found[3]


# -- energy -----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("A8 < A16 < FP16 in accuracy, power, energy", guide="2656")
def test_energy_orders_precisions_and_falls_with_the_voltage() -> None:
    soc, net = require_chip("SM8650"), _network()
    spent = [
        Clock(soc, GraphConfig(), Power()).timing(net, precision, "qnn_dlc").timeline.energy_uj
        for precision in ("w8a8", "w8a16", "float")
    ]
    assert 0 < spent[0] < spent[1] < spent[2]
    time = SimulatedTime(net, soc, GraphConfig())
    slow = time.inference(Clocks(SVS, SVS, SVS))
    assert slow.energy_uj < time.inference(Clocks()).energy_uj


def _energies(precision: str, powers: list[Power]) -> list[float]:
    clocks = [Clock(require_chip("SM8650"), GraphConfig(), power) for power in powers]
    return [clock.timing(_network(), precision, "qnn_dlc").timeline.energy_uj for clock in clocks]


@pytest.mark.parametrize("precision", ["w8a8", "w8a16", "float"])
@pytest.mark.parametrize("unit", ["hmx_corner", "core_corner", "bus_corner"])
def test_a_lower_corner_never_costs_more_energy(unit: str, precision: str) -> None:
    given: list[dict[str, Any]] = [{unit: corner} for corner in Corner]
    if unit == "core_corner":
        given = [{"core_corner": corner, "bus_corner": MAX, "hmx_corner": MAX} for corner in Corner]
    energies = _energies(precision, [Power(**one) for one in given])
    assert energies == sorted(energies)
    assert energies[0] < energies[-1]


@pytest.mark.parametrize("precision", ["w8a8", "float"])
def test_several_cores_are_faster_and_do_not_save_energy(precision: str) -> None:
    clocks = [Clock(require_chip("SA8775P"), GraphConfig(num_cores=n), Power()) for n in (1, 2)]
    one, two = (clock.timing(_network(), precision, "qnn_dlc").timeline for clock in clocks)
    assert two.accelerator_us < one.accelerator_us
    assert one.energy_uj <= two.energy_uj < 1.5 * one.energy_uj


def test_more_work_wake_ups_and_idling_cost_more_energy() -> None:
    soc, net = require_chip("SM8650"), _network()
    clock = Clock(soc, GraphConfig(), Power())
    once, twice = (clock.timing(net, "w8a8", "qnn_dlc", batch).timeline.energy_uj for batch in (1, 2))
    assert once < twice <= 2 * once

    def spent(**power: Any) -> float:
        energy = estimate(net, Deployment("SM8650", power=Power("balanced", **power))).energy_uj
        assert energy is not None
        return energy

    at_once = spent(vote="sustained")
    assert at_once > estimate(net, Deployment("SM8650", power=Power("balanced"))).timeline.energy_uj
    assert at_once < spent() < spent(interval_us=50_000.0) < spent(interval_us=1_000_000.0)


def _network() -> Any:
    from tests.backends.htp.time.test_time import graph as timed_graph

    return timed_graph()


@pytest.mark.feature("DCVS v3 payload", guide="575-607")
def test_a_vote_names_the_id_that_it_is_made_with() -> None:
    q = qnn()
    one, two = q.createPowerConfigId(), q.createPowerConfigId()
    q.setPowerConfig(one, [DcvsV3(contextId=one, setSleepLatency=1, sleepLatency=40)])
    q.setPowerConfig(two, [DcvsV3(setSleepLatency=1, sleepLatency=40)])  # 0: not said
    for wrong in (two, 99, -1):
        with pytest.raises(DeviceError, match=f"contextId {wrong} is not the power config id") as error:
            q.setPowerConfig(one, [DcvsV3(contextId=wrong)])
        assert error.value.name == "QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT"


@pytest.mark.feature("RPC control latency", guide="565-567, 736-745")
def test_control_latencies_between_100_and_1000_us_act() -> None:
    def executed(us: int) -> tuple[float, float]:
        q = qnn()
        made = graph(q, 20_000)
        q.setPowerConfig(q.createPowerConfigId(), [RpcControlLatency(us)])
        done = q.QnnGraph_execute(made)
        return done.wake_us, done.latency_us - done.waited_us  # a CPU that wakes later lets the HTP sleep longer, too

    latencies = [executed(us)[1] for us in (0, 1000, 500, 200, 100, 50)]
    assert [executed(us)[0] for us in (0, 1000, 500, 200, 100, 50)] == [1000, 1000, 500, 200, 100, 50]
    assert latencies == sorted(latencies, reverse=True)
    assert latencies[1] - latencies[2] == pytest.approx(500)


@pytest.mark.feature("RPC control latency", guide="565-567, 736-745, 1311-1313")
def test_a_short_graph_returns_sooner_by_a_vote_below_what_no_vote_allows() -> None:
    """No vote is as one of more than 200 us; votes below act on graphs of any length (the guide's three cases)."""
    wakes = {us: cpu_wake_us(212.4, 0, 0, us) for us in (0, 50, 100, 150, 200, 400, 1000)}
    assert wakes == {0: 200, 50: 50, 100: 100, 150: 150, 200: 200, 400: 200, 1000: 200}


def test_a_cpu_sleeps_as_deep_as_pays_and_a_vote_allows() -> None:
    wakes = [cpu_wake_us(us, 0, 0, 0) for us in (10, 400, 1000, 2000, 4000, 10**6)]
    assert wakes == [200, 200, 250, 500, 1000, 1000]
    assert [cpu_wake_us(2000, 0, 0, vote) for vote in (50, 100, 300, 500, 1000)] == [50, 100, 300, 500, 500]
    assert (cpu_wake_us(2000, 9999, 0, 0), cpu_wake_us(20_000, 9999, 0, 0)) == (0, 100)
