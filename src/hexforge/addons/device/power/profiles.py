# SPDX-License-Identifier: Apache-2.0
"""Profiles: what a process votes for by a performance mode, and the two idle states of the HTP backend's guide.

The modes and what becomes of their votes are those of `chips/power`; here they are votes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexforge.addons.device.power.payloads import (
    AdaptivePollingTime,
    DcvsV3,
    HmxV2,
    PowerConfig,
    RpcControlLatency,
    RpcPollingTime,
    invalid,
)
from hexforge.chips.power import (
    CONTROL_LATENCY_US,
    HOLD_US,
    KEPT,
    MODES,
    RELAXED,
    RELEASED,
    SYSTEM_SETTINGS,
    TIMER,
    Corner,
    Power,
)

MOST_HOLD_US = 10**9
"""How long a vote can be held after an inference, at most."""


@dataclass(frozen=True, slots=True)
class PerfProfile:
    """A row of the performance table."""

    name: str
    sleep_latency_us: int
    dcvs: bool
    low: Corner
    target: Corner
    high: Corner
    after: str = RELEASED
    """What follows each stage."""
    votes: bool = True
    """False where nothing is voted for: default, system_settings."""
    control_latency_us: int = CONTROL_LATENCY_US
    polling_us: int = 0
    adaptive_polling_us: int = 0
    hold_us: int = HOLD_US
    """How long a vote that a timer holds stays after an inference: hmx_timeout_us."""
    bus: Corner | None = None
    """The corner of the bus; None: as the core's."""
    hmx: Corner | None = None
    """A corner of HMX's own; None: it scales with the core."""

    @classmethod
    def of(cls, power: Power, name: str = "") -> PerfProfile:
        """What a device is asked for so that it is driven as `power` says."""
        mode, corner = power.mode, power.corner
        return cls(
            name or mode.name, mode.sleep_latency_us, mode.dcvs, corner, corner, corner, power.after,
            mode.after != KEPT, power.control_latency_us, power.polling_us, power.adaptive_polling_us,
            power.hold_us, power.bus_corner, power.hmx_corner,
        )  # fmt: skip

    def check(self) -> None:
        """DeviceError for a profile that cannot be voted for."""
        if self.after not in (TIMER, RELAXED, RELEASED, KEPT):
            raise invalid(f"profile {self.name!r}: after a stage comes one of {TIMER}, {RELAXED}, {RELEASED}, {KEPT}")
        if not 0 <= self.hold_us <= MOST_HOLD_US:
            raise invalid(f"profile {self.name!r}: a vote is held for 0 to {MOST_HOLD_US:,} us")
        for config in self.configs():
            config.check()

    def configs(self) -> list[PowerConfig]:
        """What is set for it, bus and core alike unless the bus has a corner of its own."""
        if not self.votes:
            return []
        low, target, high = (self.bus or corner for corner in (self.low, self.target, self.high))
        dcvs = DcvsV3(
            setDcvsEnable=1, dcvsEnable=int(self.dcvs), setSleepLatency=1, sleepLatency=self.sleep_latency_us,
            setBusParams=1, busVoltageCornerMin=low, busVoltageCornerTarget=target, busVoltageCornerMax=high,
            setCoreParams=1, coreVoltageCornerMin=self.low, coreVoltageCornerTarget=self.target,
            coreVoltageCornerMax=self.high,
        )  # fmt: skip
        made: list[PowerConfig] = [dcvs, RpcControlLatency(self.control_latency_us), RpcPollingTime(self.polling_us)]
        if self.polling_us and self.adaptive_polling_us:
            made.append(AdaptivePollingTime(self.adaptive_polling_us))
        if self.hmx is not None:
            hmx = self.hmx
            made.append(HmxV2(hmxVoltageCornerMin=hmx, hmxVoltageCornerTarget=hmx, hmxVoltageCornerMax=hmx))
        return made


PROFILES: Mapping[str, PerfProfile] = {
    **{
        name: PerfProfile.of(Power(name, rpc_control_latency_us=CONTROL_LATENCY_US))
        for name, mode in MODES.items()
        if mode.after != KEPT
    },
    SYSTEM_SETTINGS: PerfProfile.of(Power("default"), SYSTEM_SETTINGS),
}
"""By the guide's names, fastest first."""

STATES: Mapping[str, PerfProfile] = {
    RELAXED: PerfProfile(RELAXED, 2000, True, Corner.SVS2, Corner.SVS, Corner.SVS),
    RELEASED: PerfProfile(
        RELEASED, 65535, True, Corner.MIN_VOLTAGE_CORNER, Corner.MIN_VOLTAGE_CORNER, Corner.MIN_VOLTAGE_CORNER
    ),
}
"""Applied after stages; nobody can choose them."""
