# SPDX-License-Identifier: Apache-2.0
"""ProfileVotes: what a process votes for by its performance profile, stage by stage."""

from __future__ import annotations

from hexforge.addons.device.log import DeviceLog
from hexforge.addons.device.power.profiles import STATES, PerfProfile
from hexforge.addons.device.power.votes import PowerVotes
from hexforge.chips.power import KEPT, RELAXED, TIMER, VOTE_US
from hexforge.scheduling.clock import Timer, VirtualClock, Waits


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
