# SPDX-License-Identifier: Apache-2.0
"""Power: what setPowerConfig takes, field by field as QnnHtpPerfInfrastructure.h and the guide name it, and profiles.

A profile is what a process votes for by a performance mode. The modes and what becomes of their votes are those of
`chips/power`; here they are votes, as are the two idle states of the HTP backend's guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, Any, get_args

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.chips.power import (
    CONTROL_LATENCY_US,
    HOLD_US,
    KEPT,
    MAX_POLLING_US,
    MODES,
    RELAXED,
    RELEASED,
    SYSTEM_SETTINGS,
    TIMER,
    Corner,
    Power,
)
from hexforge.formats.validated import OneOf, validated
from hexforge.qnn_api.enumerations import value_of

SLEEP_LATENCY = (10, 65535)


class PowerMode(IntEnum):
    """QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_*: how eagerly DCVS moves the clocks."""

    ADJUST_UP_DOWN = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_UP_DOWN")
    ADJUST_ONLY_UP = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_ADJUST_ONLY_UP")
    POWER_SAVER_MODE = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_POWER_SAVER_MODE")
    POWER_SAVER_AGGRESSIVE_MODE = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_POWER_SAVER_AGGRESSIVE_MODE")
    PERFORMANCE_MODE = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_PERFORMANCE_MODE")
    DUTY_CYCLE_MODE = value_of("QNN_HTP_PERF_INFRASTRUCTURE_POWERMODE_DUTY_CYCLE_MODE")


class ClkPerfMode(IntEnum):
    """QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_*: which clock of a corner is taken."""

    HIGH = value_of("QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_HIGH")
    LOW = value_of("QNN_HTP_PERF_INFRASTRUCTURE_CLK_PERF_LOW")


@dataclass(frozen=True, slots=True)
class DcvsV3:
    """QnnHtpPerfInfrastructure_DcvsV3_t: a vote for the core (HVX) and the bus."""

    contextId: int = 0
    setDcvsEnable: int = 0
    dcvsEnable: int = 0
    powerMode: PowerMode = PowerMode.PERFORMANCE_MODE
    setSleepLatency: int = 0
    sleepLatency: int = 0
    setSleepDisable: int = 0
    sleepDisable: int = 0
    setBusParams: int = 0
    busVoltageCornerMin: Corner = Corner.DISABLE
    busVoltageCornerTarget: Corner = Corner.DISABLE
    busVoltageCornerMax: Corner = Corner.DISABLE
    setCoreParams: int = 0
    coreVoltageCornerMin: Corner = Corner.DISABLE
    coreVoltageCornerTarget: Corner = Corner.DISABLE
    coreVoltageCornerMax: Corner = Corner.DISABLE

    def check(self) -> None:
        """DeviceError for a field out of its range."""
        low, high = SLEEP_LATENCY
        if self.setSleepLatency and not low <= self.sleepLatency <= high:
            raise invalid(f"sleepLatency {self.sleepLatency} is not between {low} and {high} us")
        for given, name in ((self.setBusParams, "bus"), (self.setCoreParams, "core")):
            corners = [getattr(self, f"{name}VoltageCorner{end}") for end in ("Min", "Target", "Max")]
            if given and corners != sorted(corners):
                raise invalid(f"{name}VoltageCornerMin, Target and Max are not in this order: {_named(corners)}")


@dataclass(frozen=True, slots=True)
class HmxV2:
    """QnnHtpPerfInfrastructure_HmxV2_t: a vote for the matrix unit."""

    hmxPickDefault: int = 0
    hmxPerfMode: ClkPerfMode = ClkPerfMode.HIGH
    hmxVoltageCornerMin: Corner = Corner.DISABLE
    hmxVoltageCornerTarget: Corner = Corner.DISABLE
    hmxVoltageCornerMax: Corner = Corner.DISABLE

    def check(self) -> None:
        """DeviceError for corners out of order."""
        corners = [self.hmxVoltageCornerMin, self.hmxVoltageCornerTarget, self.hmxVoltageCornerMax]
        if not self.hmxPickDefault and corners != sorted(corners):
            raise invalid(f"hmxVoltageCornerMin, Target and Max are not in this order: {_named(corners)}")


@dataclass(frozen=True, slots=True)
class RpcControlLatency:
    """rpcControlLatencyConfig, microseconds; 100 is recommended."""

    us: int = 100

    def check(self) -> None:
        """DeviceError below 0."""
        if self.us < 0:
            raise invalid(f"rpcControlLatencyConfig {self.us} is below 0")


@dataclass(frozen=True, slots=True)
class RpcPollingTime:
    """rpcPollingTimeConfig, microseconds: 0 to 10000, of which 10000 is taken as 9999 (the header's own limit)."""

    us: int = MAX_POLLING_US

    def check(self) -> None:
        """DeviceError outside of that range."""
        if not 0 <= self.us <= MAX_POLLING_US + 1:
            raise invalid(f"rpcPollingTimeConfig {self.us} is not between 0 and {MAX_POLLING_US + 1}")


@dataclass(frozen=True, slots=True)
class AdaptivePollingTime:
    """adaptivePollingTimeConfig, microseconds: inferences this long are polled for only around their end."""

    us: int = 1000

    def check(self) -> None:
        """DeviceError below 0."""
        if self.us < 0:
            raise invalid(f"adaptivePollingTimeConfig {self.us} is below 0")


PowerConfig = DcvsV3 | HmxV2 | RpcControlLatency | RpcPollingTime | AdaptivePollingTime
"""QnnHtpPerfInfrastructure_PowerConfig_t: one option of setPowerConfig."""


POWER_CONFIGS: Mapping[str, type[PowerConfig]] = {kind.__name__: kind for kind in get_args(PowerConfig)}


@dataclass(frozen=True, slots=True)
class WrittenVote:
    """A power config as messages and scripts have it: its kind, and its fields by QNN's names."""

    kind: Annotated[str, OneOf(tuple(POWER_CONFIGS))]
    fields: dict[str, Any]

    def read(self, where: str) -> PowerConfig:
        """What is voted for; FormatError or CallError for fields that it does not have."""
        return validated(POWER_CONFIGS[self.kind], self.fields, where)


def invalid(message: str) -> DeviceError:
    """QNN's INVALID_INPUT."""
    return DeviceError(Code.QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, message)


def _named(corners: list[Corner]) -> str:
    return ", ".join(corner.name for corner in corners)


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
