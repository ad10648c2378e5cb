# SPDX-License-Identifier: Apache-2.0
"""Profiles: the ten performance profiles of the HTP backend's guide and its two idle states, and the modes of the EP.

The two tables differ: by the guide sustained_high_performance is TURBO with polling, in the execution provider it is
as burst without; the guide turns DCVS off for all nine, the provider for three. Each face uses its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexforge.chips.power import MAX_POLLING_US, MODES, Corner
from hexforge.device.power.payloads import AdaptivePollingTime, DcvsV3, PowerConfig, RpcControlLatency, RpcPollingTime

CONTROL_LATENCY_US = 100
"""The backend extensions' default."""
HOLD_US = 300_000
"""Assumed: how long burst and sustained profiles hold their vote after an inference; hmx_timeout_us's default."""
TIMER, RELAXED, RELEASED, KEPT = "timer", "RELAXED_POWER_STATE", "RELEASED_POWER_STATE", "kept"
"""What becomes of a vote after a stage: held by a timer, lowered, or (the EP) kept until it is changed."""


@dataclass(frozen=True, slots=True)
class PerfProfile:
    """A row of the performance table."""

    name: str
    sleep_latency_us: int
    dcvs: bool
    polling: bool
    low: Corner
    target: Corner
    high: Corner
    after: str = RELEASED
    """What follows each stage."""
    votes: bool = True
    """False where nothing is voted for: system_settings."""
    control_latency_us: int = CONTROL_LATENCY_US
    adaptive_polling_us: int = 0
    polling_us: int | None = None
    """Another polling time than the profile's; None: its own."""
    hold_us: int = HOLD_US
    """How long a vote that a timer holds stays after an inference: hmx_timeout_us."""

    def configs(self) -> list[PowerConfig]:
        """What is set for it, bus and core alike."""
        if not self.votes:
            return []
        dcvs = DcvsV3(
            setDcvsEnable=1, dcvsEnable=int(self.dcvs), setSleepLatency=1, sleepLatency=self.sleep_latency_us,
            setBusParams=1, busVoltageCornerMin=self.low, busVoltageCornerTarget=self.target,
            busVoltageCornerMax=self.high, setCoreParams=1, coreVoltageCornerMin=self.low,
            coreVoltageCornerTarget=self.target, coreVoltageCornerMax=self.high,
        )  # fmt: skip
        polling = (MAX_POLLING_US if self.polling else 0) if self.polling_us is None else self.polling_us
        made: list[PowerConfig] = [dcvs, RpcControlLatency(self.control_latency_us), RpcPollingTime(polling)]
        return [*made, AdaptivePollingTime(self.adaptive_polling_us)] if polling and self.adaptive_polling_us else made


def _row(name: str, sleep: int, polling: bool, corner: Corner, after: str) -> PerfProfile:
    return PerfProfile(name, sleep, False, polling, corner, corner, corner, after)


PROFILES: Mapping[str, PerfProfile] = {
    p.name: p
    for p in (
        _row("burst", 40, True, Corner.MAX_VOLTAGE_CORNER, TIMER),
        _row("sustained_high_performance", 100, True, Corner.TURBO, TIMER),
        _row("high_performance", 100, True, Corner.TURBO, RELAXED),
        _row("balanced", 1000, False, Corner.NOM_PLUS, RELAXED),
        _row("low_balanced", 1000, False, Corner.NOM, RELAXED),
        _row("high_power_saver", 1000, False, Corner.SVS_PLUS, RELEASED),
        _row("power_saver", 1000, False, Corner.SVS, RELEASED),
        _row("low_power_saver", 1000, False, Corner.SVS2, RELEASED),
        _row("extreme_power_saver", 1000, False, Corner.DISABLE, RELEASED),
        PerfProfile("system_settings", 1000, True, False, Corner.NOM, Corner.NOM, Corner.NOM, KEPT, votes=False),
    )
}
"""By the guide, fastest first. That balanced profiles relax and extreme_power_saver releases is assumed."""

STATES: Mapping[str, PerfProfile] = {
    RELAXED: PerfProfile(RELAXED, 2000, True, False, Corner.SVS2, Corner.SVS, Corner.SVS),
    RELEASED: PerfProfile(
        RELEASED, 65535, True, False, Corner.MIN_VOLTAGE_CORNER, Corner.MIN_VOLTAGE_CORNER, Corner.MIN_VOLTAGE_CORNER
    ),
}
"""Applied after stages; nobody can choose them."""

EP_PROFILES: Mapping[str, PerfProfile] = {
    mode.name: PerfProfile(
        mode.name, mode.sleep_latency_us, mode.dcvs, bool(mode.rpc_polling_us), mode.corner, mode.corner, mode.corner,
        KEPT, votes=mode.name != "default", control_latency_us=0,
    )
    for mode in MODES.values()
}  # fmt: skip
"""As the execution provider votes: once, until it votes again."""
