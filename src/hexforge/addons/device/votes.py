# SPDX-License-Identifier: Apache-2.0
"""Votes: power config ids, what each votes for, and the clocks that follow; and what profiles vote for by stages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.log import DeviceLog
from hexforge.addons.device.power import (
    STATES,
    AdaptivePollingTime,
    ClkPerfMode,
    DcvsV3,
    HmxV2,
    PerfProfile,
    PowerConfig,
    PowerMode,
    RpcControlLatency,
    RpcPollingTime,
    invalid,
)
from hexforge.addons.device.scheduling.clock import Timer, VirtualClock, Waits
from hexforge.chips.power import KEPT, MAX_POLLING_US, MODES, RELAXED, TIMER, VOTE_US, Corner

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

    def __init__(self, log: DeviceLog, arch: int, cores: int, platform: str) -> None:
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
                "id": number,
                "process": votes.process,
                "core": votes.core_id,
                "core_corner": votes.dcvs.coreVoltageCornerTarget.name if votes.dcvs is not None else "",
                "bus_corner": votes.dcvs.busVoltageCornerTarget.name if votes.dcvs is not None else "",
            }
            for number, votes in self._ids.items()
        ]

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


class ProfileVotes:
    """The votes of one process; without a profile the application votes itself."""

    def __init__(self, process: str, power: PowerVotes, cores: int, clock: VirtualClock, log: DeviceLog) -> None:
        self.profile: PerfProfile | None = None
        self._process, self._power, self._cores, self._clock, self._log = process, power, cores, clock, log
        self._power_ids: list[int] = []
        """One for each core, once a profile is voted for."""
        self._voted: PerfProfile | None = None
        self._timer: Timer | None = None
        self._busy = 0

    def begin(self, stage: str) -> Waits:
        """A stage begins (INIT, INFERENCE, DE-INIT): the profile is voted for unless it holds already."""
        self._busy += 1
        profile = self.profile
        if self._timer is not None:
            self._clock.cancel(self._timer)
            self._timer = None
        if profile is None or not profile.votes:
            return
        holds = self._voted is profile
        if not holds:
            self._vote(profile, stage)
        # a vote that is kept was made before, and not in this call; one around every stage is made in each
        if profile.after != KEPT and not (holds and profile.after == TIMER):
            yield VOTE_US

    def done(self) -> None:
        """A stage has ended: votes are lowered as the profile says, once nothing of the process runs."""
        self._busy -= 1
        profile = self.profile
        if self._busy or profile is None or not profile.votes or profile.after == KEPT:
            return
        if profile.after == TIMER:
            self._timer = self._clock.after(profile.hold_us, self._lower, RELAXED)
        else:
            self._lower(profile.after)

    def vote_now(self) -> None:
        """Vote for the profile outside of any stage, unless it is voted for around every one."""
        if self.profile is not None and self._voted is not self.profile and not self.lowers_after:
            self._vote(self.profile, "now")

    def _lower(self, state: str) -> None:
        self._timer = None
        self._vote(STATES[state], "idle")

    def _vote(self, profile: PerfProfile, stage: str) -> None:
        power = self._power
        if not self._power_ids:
            cores = range(self._cores)
            self._power_ids = [power.create_power_config_id(0, core, self._process) for core in cores]
        if not profile.votes:  # nothing is voted for: what was is taken back
            for number in self._power_ids:
                power.destroy_power_config_id(number)
            self._power_ids = []
        for number in self._power_ids:
            power.set_power_config(number, profile.configs())
        self._voted = profile
        self._log.write("power_state", process=self._process, stage=stage, state=profile.name)

    @property
    def lowers_after(self) -> bool:
        """Whether every inference ends with a vote of its own, which takes time."""
        return self.profile is not None and self.profile.votes and self.profile.after not in (KEPT, TIMER)

    @property
    def lowering_us(self) -> float:
        """What that vote takes."""
        return VOTE_US if self.lowers_after else 0.0

    def withdraw(self) -> None:
        """The process ends: its votes go, and none is made any more where a stage of it ends now."""
        if self._timer is not None:
            self._clock.cancel(self._timer)
        self.profile, self._power_ids = None, []
        self._power.withdraw_votes(self._process)
