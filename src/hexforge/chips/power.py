# SPDX-License-Identifier: Apache-2.0
"""Power: voltage corners, the performance modes by QNN's names, and what a call to the HTP waits for under them.

This is the one place where a mode becomes clocks and waits: sessions, tools, devices, profiles and estimates read it.
The modes are published (the QNN execution provider's DCVS_V3 settings and what it votes for around each run, which are
newer than the table of the HTP backend's guide, see docs/compatibility.md); waits without a source are marked assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from hexforge.errors import CallError
from hexforge.qnn_api.enumerations import value_of


class Corner(IntEnum):
    """QnnHtpPerfInfrastructure_VoltageCorner_t, slowest first."""

    DISABLE = value_of("DCVS_VOLTAGE_CORNER_DISABLE")
    MIN_VOLTAGE_CORNER = value_of("DCVS_VOLTAGE_VCORNER_MIN_VOLTAGE_CORNER")
    SVS2 = value_of("DCVS_VOLTAGE_VCORNER_SVS2")
    SVS = value_of("DCVS_VOLTAGE_VCORNER_SVS")
    SVS_PLUS = value_of("DCVS_VOLTAGE_VCORNER_SVS_PLUS")
    NOM = value_of("DCVS_VOLTAGE_VCORNER_NOM")
    NOM_PLUS = value_of("DCVS_VOLTAGE_VCORNER_NOM_PLUS")
    TURBO = value_of("DCVS_VOLTAGE_VCORNER_TURBO")
    TURBO_PLUS = value_of("DCVS_VOLTAGE_VCORNER_TURBO_PLUS")
    TURBO_L2 = value_of("DCVS_VOLTAGE_VCORNER_TURBO_L2")
    TURBO_L3 = value_of("DCVS_VOLTAGE_VCORNER_TURBO_L3")
    MAX_VOLTAGE_CORNER = value_of("DCVS_VOLTAGE_VCORNER_MAX_VOLTAGE_CORNER")


TIMER, RELAXED, RELEASED, KEPT = "timer", "RELAXED_POWER_STATE", "RELEASED_POWER_STATE", "kept"
"""What becomes of a vote after an inference: held by a timer, lowered to a state by a vote of its own, or kept."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A performance mode: core and bus run at its corner (min, target and max are the same)."""

    name: str
    corner: Corner
    sleep_latency_us: int
    dcvs: bool
    """Whether clocks may follow the load; with min = max there is nothing to follow, so it costs no time here."""
    after: str
    """What becomes of the vote after an inference."""
    rpc_polling_us: int = 0
    """How long the CPU polls for the result before it sleeps."""


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("burst", Corner.MAX_VOLTAGE_CORNER, 40, False, TIMER, rpc_polling_us=9999),
        Mode("sustained_high_performance", Corner.MAX_VOLTAGE_CORNER, 40, False, TIMER),
        Mode("high_performance", Corner.TURBO, 100, False, RELAXED),
        Mode("balanced", Corner.NOM_PLUS, 1000, True, RELAXED),
        Mode("low_balanced", Corner.NOM, 1000, True, RELAXED),
        Mode("high_power_saver", Corner.SVS_PLUS, 1000, True, RELEASED),
        Mode("power_saver", Corner.SVS, 1000, True, RELEASED),
        Mode("low_power_saver", Corner.SVS2, 1000, True, RELEASED),
        Mode("extreme_power_saver", Corner.DISABLE, 1000, True, RELEASED),
        # nothing is voted: the governor decides. Assumed to settle at the nominal corner under load.
        Mode("default", Corner.NOM, 1000, True, KEPT),
    )
}
"""Fastest first; default is as low_balanced."""

AWAKE_US = MODES["burst"].sleep_latency_us
"""A wake-up that the fitted call includes already."""
CPU_WAKE_US, UNVOTED_WAKE_US, DEEPEST_CPU_WAKE_US = 100.0, 200.0, 1000.0
"""Assumed: a CPU that polled for too short wakes in the first; one that does not poll sleeps, the longer the deeper,
from the second to the third, unless a control latency is voted for. The second is published: the guide has votes below
200 us for what is critical, and no vote as one of more."""
SLEEP_PER_WAKE = 4.0
"""Assumed: how many times as long as waking from it takes a CPU must sleep to choose a state; between 2 and 10 in the
idle states that the Linux kernel's device trees list (min-residency against exit latency)."""
VOTE_US = 35.0
"""Assumed: one setPowerConfig around an inference."""
HOLD_US = 300_000
"""Assumed: how long a timer holds a vote after an inference; hmx_timeout_us's default."""
CONTROL_LATENCY_US = 100
"""The wake-up of the CPU that the tools' backend extensions tolerate unless told otherwise."""
SYSTEM_SETTINGS = "system_settings"
"""The tools' profile that votes for nothing: the mode default of the execution provider."""
MAX_POLLING_US = 9999
VOTES = ("mode", "sustained", "every_inference")


@dataclass(frozen=True, slots=True)
class Power:
    """How the device is driven while a graph runs."""

    performance_mode: str = "burst"
    core_corner: Corner | None = None
    """The corner that the core runs at; None: as the mode has it."""
    bus_corner: Corner | None = None
    """The corner of the bus to DRAM; None: the core's."""
    hmx_corner: Corner | None = None
    """An HMX vote of its own (v75 and newer); None: HMX scales with the mode."""
    rpc_polling_us: int | None = None
    """None: as the mode has it."""
    rpc_control_latency_us: int | None = None
    """The longest wake-up of the CPU that is tolerated; 0: no vote. None: as what calls the HTP has it, which is 100 in
    QNN's tools (qnn_dlc) and no vote in the execution provider (onnx)."""
    adaptive_polling_us: int = 0
    """Inferences at least this long are polled for only around their end; 0: off. Needs polling."""
    vote: str = "mode"
    """mode: as the mode has it; sustained: it is kept between inferences; every_inference: voted for before each,
    lowered after."""
    hold_us: int = HOLD_US
    """How long a timer holds a vote after an inference, in modes that have one (hmx_timeout_us)."""
    interval_us: float = 0.0
    """From the start of one inference to the next; 0: the next follows at once."""

    def __post_init__(self) -> None:
        if self.performance_mode not in MODES:
            raise CallError(
                f"htp_performance_mode {self.performance_mode!r} is not known; it is one of {', '.join(MODES)}"
            )
        if self.rpc_polling_us is not None and not 0 <= self.rpc_polling_us <= MAX_POLLING_US:
            raise CallError(f"rpc_polling_us {self.rpc_polling_us} is not between 0 and {MAX_POLLING_US}")
        waits = (self.control_latency_us, self.adaptive_polling_us, self.hold_us, self.interval_us)
        if not all(0 <= us < math.inf for us in waits):
            named = "rpc_control_latency_us, adaptive_polling_us, hold_us and interval_us"
            raise CallError(f"{named} are finite and not below 0")
        if self.adaptive_polling_us and not self.polling_us:
            raise CallError("adaptive polling needs RPC polling: choose burst, or give rpc_polling_us")
        if self.vote not in VOTES:
            raise CallError(f"vote {self.vote!r} is not known; it is one of {', '.join(VOTES)}")

    @property
    def mode(self) -> Mode:
        """Its performance mode."""
        return MODES[self.performance_mode]

    @property
    def corner(self) -> Corner:
        """The corner that the core runs at."""
        return self.mode.corner if self.core_corner is None else self.core_corner

    @property
    def polling_us(self) -> int:
        """How long the CPU polls."""
        return self.mode.rpc_polling_us if self.rpc_polling_us is None else self.rpc_polling_us

    @property
    def control_latency_us(self) -> int:
        """The longest wake-up of the CPU that is tolerated; 0: no vote."""
        return self.rpc_control_latency_us or 0

    def through(self, runtime: str) -> Power:
        """The same with the control latency that a runtime asks for, where none is given."""
        if self.rpc_control_latency_us is not None:
            return self
        return replace(self, rpc_control_latency_us=0 if runtime == "onnx" else CONTROL_LATENCY_US)

    @property
    def after(self) -> str:
        """What becomes of the vote after an inference."""
        if self.vote == "mode":
            return self.mode.after
        lowered = self.mode.after if self.mode.after in (RELAXED, RELEASED) else RELAXED
        return lowered if self.vote == "every_inference" else KEPT

    @property
    def vote_us(self) -> float:
        """A vote before an inference, and another after it."""
        return VOTE_US if self.after in (RELAXED, RELEASED) else 0.0

    def in_mode(self, name: str) -> Power:
        """The same in another performance mode, which brings its own polling."""
        return replace(self, performance_mode=name, rpc_polling_us=None, adaptive_polling_us=0)

    def cpu_wake_us(self, accelerator_us: float) -> float:
        """What the CPU takes to wake up for the result of an inference."""
        return cpu_wake_us(accelerator_us, self.polling_us, self.adaptive_polling_us, self.control_latency_us)

    def core_wake_us(self, idle_us: float) -> float:
        """What the HTP takes to wake after it was idle so long."""
        return core_wake_us(idle_us, self.mode.sleep_latency_us)

    def return_us(self, accelerator_us: float, call_us: float) -> float:
        """From the end of the HTP's work for a call to the moment when the caller goes on."""
        return call_us / 2 + self.cpu_wake_us(accelerator_us) + self.vote_us

    def wait_us(self, accelerator_us: float, call_us: float) -> float:
        """What a call waits for beyond the fitted call, which was measured in burst: wake-ups and votes.

        It is called again and again: at once, or after the interval.
        """
        return self.waits_us([(accelerator_us, call_us)])[0]

    def waits_us(self, calls: Sequence[tuple[float, float]]) -> list[float]:
        """The same of several calls that follow each other in turn, each by its accelerator_us and call_us."""
        idle = [self.return_us(*calls[i - 1]) + self.vote_us + call / 2 for i, (_, call) in enumerate(calls)]
        wakes = [self.core_wake_us(us) for us in idle]
        waits = [2 * self.vote_us + self.cpu_wake_us(us) for us, _ in calls]
        pause = self.interval_us - sum(us + call for us, call in calls) - sum(waits) - sum(wakes)
        if pause > 0:
            apart = idle[0] + wakes[0] + pause  # of the HTP: from its last work to that of the next inference
            wakes[0] = self.core_wake_us(_idle_part_us(apart, self.mode.sleep_latency_us))
            waits[0] += VOTE_US if self.after == TIMER and pause > self.hold_us else 0.0
        return [wait + wake for wait, wake in zip(waits, wakes, strict=True)]


def cpu_wake_us(accelerator_us: float, polling_us: float, adaptive_us: float, control_latency_us: float) -> float:
    """What the CPU takes to wake up for the result, unless it polls that long; a control latency of 0 is no vote."""
    polled = polling_us >= accelerator_us or 0 < adaptive_us <= accelerator_us
    if polled and polling_us:
        return 0.0
    deep = CPU_WAKE_US  # whoever polls keeps the CPU from deep sleep, too
    if not polling_us:
        deep = min(DEEPEST_CPU_WAKE_US, max(UNVOTED_WAKE_US, accelerator_us / SLEEP_PER_WAKE))
    return min(deep, control_latency_us) if control_latency_us else deep


def core_wake_us(idle_us: float, sleep_latency_us: float) -> float:
    """What an idle core takes to wake beyond the fitted call: it sleeps as deep as the latency it may take to wake."""
    slept = idle_us if idle_us < sleep_latency_us else sleep_latency_us
    return slept - AWAKE_US if slept > AWAKE_US else 0.0


def _idle_part_us(apart_us: float, sleep_latency_us: float) -> float:
    """How much of the time between two runs a core is idle, the rest being its wake-up."""
    deepest = max(0.0, sleep_latency_us - AWAKE_US)
    if apart_us - deepest >= sleep_latency_us:
        return apart_us - deepest
    return apart_us if apart_us <= AWAKE_US else (apart_us + AWAKE_US) / 2


BURST = Power()
"""As fast as the chip can: what times are for where nothing else is asked for."""
