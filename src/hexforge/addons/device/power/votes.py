# SPDX-License-Identifier: Apache-2.0
"""Votes: power config ids, what each votes for, and the clocks that follow from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.power.payloads import (
    AdaptivePollingTime,
    ClkPerfMode,
    DcvsV3,
    HmxV2,
    PowerConfig,
    PowerMode,
    RpcControlLatency,
    RpcPollingTime,
    invalid,
)
from hexforge.chips.power import MAX_POLLING_US, MODES, Corner

HMX_ARCH = 75
"""From here on HMX can be voted for."""
DEFAULT = MODES["default"]
"""What holds while nobody votes: assumed, the governor's choice under load."""
_LADDER = tuple(Corner)
_EAGER = {
    PowerMode.PERFORMANCE_MODE: 1.5,
    PowerMode.ADJUST_UP_DOWN: 1.0,
    PowerMode.ADJUST_ONLY_UP: 1.0,
    PowerMode.DUTY_CYCLE_MODE: 1.0,
    PowerMode.POWER_SAVER_MODE: 0.75,
    PowerMode.POWER_SAVER_AGGRESSIVE_MODE: 0.5,
}
"""Assumed: how much of the load a DCVS mode answers to."""


class _Log(Protocol):
    def write(self, event: str, **fields: object) -> None: ...


@dataclass(slots=True)
class _Votes:
    """What one power config id votes for."""

    core_id: int
    process: str
    dcvs: DcvsV3 | None = None
    hmx: HmxV2 | None = None
    """None: the default, which scales with the core."""
    control_latency_us: int = 0
    polling_us: int = 0
    adaptive_us: int = 0


class PowerVotes:
    """The performance infrastructure of a device."""

    def __init__(self, log: _Log, arch: int, cores: int, platform: str) -> None:
        self._log, self._arch, self._cores, self._platform = log, arch, cores, platform
        self._ids: dict[int, _Votes] = {}
        self._ever = 0
        self.version = 0
        """Goes up with every change of a vote."""

    # -- the API ------------------------------------------------------------------------------------------------------

    def create_power_config_id(self, device_id: int = 0, core_id: int = 0, process: str = "") -> int:
        """A new id to vote with."""
        if device_id != 0 or not 0 <= core_id < self._cores:
            raise invalid(f"there is no core {core_id} of device {device_id}; cores are 0 to {self._cores - 1} of 0")
        self._ever += 1
        self._ids[self._ever] = _Votes(core_id, process)
        self._log.write("power_config_id", id=self._ever, core=core_id, process=process)
        return self._ever

    def set_power_config(self, number: int, configs: Sequence[PowerConfig]) -> None:
        """Vote; all of the configs hold, or where one is wrong none."""
        votes = self._votes(number)
        dcvs = next((c for c in configs if isinstance(c, DcvsV3)), None)
        for config in configs:
            if not isinstance(config, PowerConfig):
                raise invalid(f"a power config is a {type(config).__name__}; give DcvsV3, HmxV2 and the like")
            config.check()
            if isinstance(config, DcvsV3) and config.contextId not in (0, number):
                raise invalid(f"contextId {config.contextId} is not the power config id that is voted with, {number}")
            self._check(config, votes, dcvs, any(isinstance(c, RpcPollingTime) and c.us for c in configs))
        for config in configs:
            if isinstance(config, DcvsV3):
                votes.dcvs = _merged(votes.dcvs, config)
            elif isinstance(config, HmxV2):
                votes.hmx = None if config.hmxPickDefault else config
            elif isinstance(config, RpcControlLatency):
                votes.control_latency_us = config.us
            elif isinstance(config, RpcPollingTime):
                votes.polling_us = min(config.us, MAX_POLLING_US)
            else:
                votes.adaptive_us = config.us
        self.version += 1
        kinds = [type(config).__name__ for config in configs]
        core, hmx = self.corners(votes.core_id), self.hmx(votes.core_id)
        self._log.write("power_vote", id=number, configs=kinds, core=core[0].name, bus=core[1].name, hmx=hmx.name)

    def destroy_power_config_id(self, number: int) -> None:
        """All votes of the id are removed, HMX's with them."""
        self._votes(number)
        del self._ids[number]
        self.version += 1
        self._log.write("power_config_id_destroyed", id=number)

    def require_owner(self, number: int, process: str) -> None:
        """DeviceError unless an id is one of a process."""
        if self._votes(number).process != process:
            raise invalid(f"power config id {number} is none of {process}")

    def facts(self) -> list[dict[str, object]]:
        """Every id with its process, its core and the corners that it votes for."""
        return [
            {
                "id": number, "process": votes.process, "core": votes.core_id,
                "core_corner": votes.dcvs.coreVoltageCornerTarget.name if votes.dcvs is not None else "",
                "bus_corner": votes.dcvs.busVoltageCornerTarget.name if votes.dcvs is not None else "",
            }
            for number, votes in self._ids.items()
        ]  # fmt: skip

    def withdraw_votes(self, process: str) -> None:
        """Remove all ids of a process, those that its profile made and its own."""
        for number in [number for number, votes in self._ids.items() if votes.process == process]:
            self.destroy_power_config_id(number)

    def _votes(self, number: int) -> _Votes:
        if number not in self._ids:
            raise invalid(f"there is no power config id {number}; createPowerConfigId makes one")
        return self._ids[number]

    def _check(self, config: PowerConfig, votes: _Votes, dcvs: DcvsV3 | None, polled: bool) -> None:
        if isinstance(config, HmxV2):
            if self._arch < HMX_ARCH:
                raise _not_available(f"an HMX vote needs v{HMX_ARCH} or newer, this is v{self._arch}")
            if votes.dcvs is None and dcvs is None:
                raise invalid("an HMX vote needs an HVX vote (DCVS_V3) of the same power config id")
        if isinstance(config, AdaptivePollingTime) and config.us and not votes.polling_us and not polled:
            raise invalid("adaptive polling needs RPC polling of the same power config id, set before or with it")
        rpc = isinstance(config, (RpcControlLatency, RpcPollingTime, AdaptivePollingTime))
        if rpc and self._platform == "qnx":
            raise _not_available("RPC latency and polling are not on QNX")

    # -- what follows -------------------------------------------------------------------------------------------------

    def _on(self, core_id: int) -> list[_Votes]:
        return [v for v in self._ids.values() if v.core_id == core_id]

    def corners(self, core_id: int, load: float = 1.0) -> tuple[Corner, Corner]:
        """Core and bus: the highest that somebody votes for; where DCVS is on, as the load (0 to 1) asks, within."""
        votes = [v.dcvs for v in self._on(core_id) if v.dcvs is not None]
        cores = [_corner(v, "core", load) for v in votes if v.setCoreParams]
        buses = [_corner(v, "bus", load) for v in votes if v.setBusParams]
        core = max(cores, default=DEFAULT.corner)
        return core, max(buses, default=core)

    def hmx(self, core_id: int, load: float = 1.0) -> Corner:
        """The matrix unit: as voted for; by default as the core."""
        own = [v.hmx for v in self._on(core_id) if v.hmx is not None and v.dcvs is not None]
        if not own:
            return self.corners(core_id, load)[0]
        high = ClkPerfMode.HIGH
        return max(h.hmxVoltageCornerTarget if h.hmxPerfMode is high else h.hmxVoltageCornerMin for h in own)

    def hmx_is_default(self, number: int) -> bool:
        """Whether an id leaves HMX to scale with the core."""
        return self._votes(number).hmx is None

    def has_vote(self, number: int) -> bool:
        """Whether an id has an HVX vote."""
        return self._votes(number).dcvs is not None

    def sleep_latency_us(self, core_id: int) -> float:
        """How long the core may take to wake; 0 where somebody forbids sleep."""
        votes = [v.dcvs for v in self._on(core_id) if v.dcvs is not None]
        if any(v.setSleepDisable and v.sleepDisable for v in votes):
            return 0.0
        return min((v.sleepLatency for v in votes if v.setSleepLatency), default=DEFAULT.sleep_latency_us)

    def polling_us(self, process: str) -> tuple[int, int, int]:
        """Of a process: polling time, adaptive polling time, control latency (0: none)."""
        votes = [v for v in self._ids.values() if v.process == process]
        latencies = [v.control_latency_us for v in votes if v.control_latency_us]
        polling = max((v.polling_us for v in votes), default=0)
        adaptive = max((v.adaptive_us for v in votes), default=0)
        return polling, adaptive if polling else 0, min(latencies, default=0)


def _merged(before: DcvsV3 | None, now: DcvsV3) -> DcvsV3:
    """A vote on top of another: what it does not set stays."""
    if before is None:
        return now
    fields = {name: getattr(now, name) for name in DcvsV3.__slots__}
    for given, names in (
        ("setDcvsEnable", ("dcvsEnable",)),
        ("setSleepLatency", ("sleepLatency",)),
        ("setSleepDisable", ("sleepDisable",)),
        ("setBusParams", ("busVoltageCornerMin", "busVoltageCornerTarget", "busVoltageCornerMax")),
        ("setCoreParams", ("coreVoltageCornerMin", "coreVoltageCornerTarget", "coreVoltageCornerMax")),
    ):
        if not fields[given]:
            fields.update({name: getattr(before, name) for name in (given, *names)})
    return DcvsV3(**fields)


def _corner(vote: DcvsV3, name: str, load: float) -> Corner:
    target = Corner(getattr(vote, f"{name}VoltageCornerTarget"))
    if not (vote.setDcvsEnable and vote.dcvsEnable):
        return target
    low, high = (getattr(vote, f"{name}VoltageCorner{end}") for end in ("Min", "Max"))
    if low == high:
        return target
    first, last = _LADDER.index(low), _LADDER.index(high)
    wanted = first + round(min(1.0, load * _EAGER[vote.powerMode]) * (last - first))
    if vote.powerMode is PowerMode.ADJUST_ONLY_UP:
        wanted = max(wanted, _LADDER.index(target))
    return _LADDER[wanted]


def _not_available(message: str) -> DeviceError:
    return DeviceError(Code.QNN_HTP_PERF_INFRASTRUCTURE_ERROR_UNSUPPORTED_CONFIG, message)
