# SPDX-License-Identifier: Apache-2.0
"""Payloads: what setPowerConfig takes, field by field as QnnHtpPerfInfrastructure.h and the guide name them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.chips.power import MAX_POLLING_US, Corner
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


def invalid(message: str) -> DeviceError:
    """QNN's INVALID_INPUT."""
    return DeviceError(Code.QNN_HTP_PERF_INFRASTRUCTURE_ERROR_INVALID_INPUT, message)


def _named(corners: list[Corner]) -> str:
    return ", ".join(corner.name for corner in corners)
