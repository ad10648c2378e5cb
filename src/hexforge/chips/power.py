# SPDX-License-Identifier: Apache-2.0
"""Power: voltage corners, the performance modes by QNN's names, and what a call to the HTP waits for under them.

The modes are published (the QNN execution provider's DCVS_V3 settings); waits without a source are marked assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from hexforge.errors import CallError


class Corner(IntEnum):
    """DCVS_VOLTAGE_VCORNER_* with the numbers of QnnHtpPerfInfrastructure.h, slowest first."""

    DISABLE = 0x10
    MIN_VOLTAGE_CORNER = 0x20
    SVS2 = 0x30
    SVS = 0x40
    SVS_PLUS = 0x50
    NOM = 0x60
    NOM_PLUS = 0x70
    TURBO = 0x80
    TURBO_PLUS = 0x90
    TURBO_L2 = 0x92
    TURBO_L3 = 0x93
    MAX_VOLTAGE_CORNER = 0xA0


@dataclass(frozen=True, slots=True)
class Mode:
    """A performance mode: core and bus run at its corner (min, target and max are the same)."""

    name: str
    corner: Corner
    sleep_latency_us: int
    dcvs: bool
    """Whether clocks may follow the load; with min = max there is nothing to follow, so it costs no time here."""
    rpc_polling_us: int = 0
    """How long the CPU polls for the result before it sleeps."""


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("burst", Corner.MAX_VOLTAGE_CORNER, 40, dcvs=False, rpc_polling_us=9999),
        Mode("sustained_high_performance", Corner.MAX_VOLTAGE_CORNER, 40, dcvs=False),
        Mode("high_performance", Corner.TURBO, 100, dcvs=False),
        Mode("balanced", Corner.NOM_PLUS, 1000, dcvs=True),
        Mode("low_balanced", Corner.NOM, 1000, dcvs=True),
        Mode("high_power_saver", Corner.SVS_PLUS, 1000, dcvs=True),
        Mode("power_saver", Corner.SVS, 1000, dcvs=True),
        Mode("low_power_saver", Corner.SVS2, 1000, dcvs=True),
        Mode("extreme_power_saver", Corner.DISABLE, 1000, dcvs=True),
        # nothing is voted: the governor decides. Assumed to settle at the nominal corner under load.
        Mode("default", Corner.NOM, 1000, dcvs=True),
    )
}
"""Fastest first; default is as low_balanced."""

AWAKE_US = MODES["burst"].sleep_latency_us
"""A wake-up that the fitted call includes already."""
CPU_WAKE_US, DEEPEST_CPU_WAKE_US = 100.0, 1000.0
"""Assumed: a CPU that does not poll sleeps, and wakes in this time; the longer it sleeps the deeper, up to the second,
unless a control latency is voted for."""
SLEEP_PER_WAKE = 4.0
"""Assumed: how many times as long as waking from it takes a CPU must sleep to choose a state; between 2 and 10 in the
idle states that the Linux kernel's device trees list (min-residency against exit latency)."""
VOTE_US = 35.0
"""Assumed: one setPowerConfig around an inference."""
MAX_POLLING_US = 9999
VOTES = ("sustained", "every_inference")


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
    rpc_control_latency_us: int = 0
    """The longest wake-up of the CPU that is tolerated; 0: no vote."""
    adaptive_polling_us: int = 0
    """Inferences at least this long are polled for only around their end; 0: off. Needs polling."""
    vote: str = "sustained"
    """sustained: the mode is kept between inferences; every_inference: voted for before, released after each."""
    interval_us: float = 0.0
    """From the start of one inference to the next; 0: the next follows at once."""

    def __post_init__(self) -> None:
        if self.performance_mode not in MODES:
            raise CallError(
                f"htp_performance_mode {self.performance_mode!r} is not known; it is one of {', '.join(MODES)}"
            )
        if self.rpc_polling_us is not None and not 0 <= self.rpc_polling_us <= MAX_POLLING_US:
            raise CallError(f"rpc_polling_us {self.rpc_polling_us} is not between 0 and {MAX_POLLING_US}")
        if self.rpc_control_latency_us < 0 or self.adaptive_polling_us < 0 or not 0 <= self.interval_us < math.inf:
            raise CallError("rpc_control_latency_us, adaptive_polling_us and interval_us are finite and not below 0")
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
    def vote_us(self) -> float:
        """A vote before an inference, and another after it."""
        return VOTE_US if self.vote == "every_inference" else 0.0

    def cpu_wake_us(self, accelerator_us: float) -> float:
        """What the CPU takes to wake up for the result of an inference."""
        return cpu_wake_us(accelerator_us, self.polling_us, self.adaptive_polling_us, self.rpc_control_latency_us)

    def core_wake_us(self, idle_us: float) -> float:
        """What the HTP takes to wake after it was idle so long."""
        return core_wake_us(idle_us, self.mode.sleep_latency_us)

    def wait_us(self, accelerator_us: float, call_us: float) -> float:
        """What a call waits for beyond the fitted call, which was measured in burst: wake-ups and votes."""
        idle = max(call_us, self.interval_us - accelerator_us - call_us)
        return 2 * self.vote_us + self.cpu_wake_us(accelerator_us) + self.core_wake_us(idle)


def cpu_wake_us(accelerator_us: float, polling_us: float, adaptive_us: float, control_latency_us: float) -> float:
    """What the CPU takes to wake up for the result, unless it polls that long; a control latency of 0 is no vote."""
    polled = polling_us >= accelerator_us or 0 < adaptive_us <= accelerator_us
    if polled and polling_us:
        return 0.0
    deep = CPU_WAKE_US  # whoever polls keeps the CPU from deep sleep, too
    if not polling_us:
        deep = min(DEEPEST_CPU_WAKE_US, max(CPU_WAKE_US, accelerator_us / SLEEP_PER_WAKE))
    return min(deep, control_latency_us) if control_latency_us else deep


def core_wake_us(idle_us: float, sleep_latency_us: float) -> float:
    """What an idle core takes to wake beyond the fitted call: it sleeps as deep as the latency it may take to wake."""
    slept = idle_us if idle_us < sleep_latency_us else sleep_latency_us
    return slept - AWAKE_US if slept > AWAKE_US else 0.0


BURST = Power()
"""As fast as the chip can: what times are for where nothing else is asked for."""
