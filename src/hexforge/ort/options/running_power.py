# SPDX-License-Identifier: Apache-2.0
"""RunningPower: performance mode and control latency as run and dynamic options have changed them so far."""

from __future__ import annotations

from dataclasses import replace

from hexforge.chips.power import Power
from hexforge.ort.options.config import DynamicOptions, RunConfig

MODE, LATENCY = "qnn.htp_perf_mode", "qnn.rpc_control_latency"
DYNAMIC_MODE = "ep.dynamic.qnn_htp_performance_mode"


class RunningPower:
    """What holds for the next run; nothing is changed where an option was not given."""

    def __init__(self, power: Power) -> None:
        """`power` is that of the provider options."""
        self._power = power
        self._mode: str | None = None
        self._latency_us: int | None = None

    def begin(self, config: RunConfig) -> None:
        """A run begins under its options, which hold from then on."""
        self._mode = config.htp_perf_mode or self._mode
        if config.rpc_control_latency is not None:
            self._latency_us = config.rpc_control_latency

    def end(self, config: RunConfig) -> None:
        """A run has ended: the mode that its options ask for after it holds."""
        self._mode = config.htp_perf_mode_post_run or self._mode

    def follow(self, options: DynamicOptions, changed: list[str]) -> None:
        """Dynamic options were set."""
        if DYNAMIC_MODE in changed:
            self._mode = options.qnn_htp_performance_mode

    @property
    def config(self) -> RunConfig:
        """The run options that ask for what holds now."""
        given = {MODE: self._mode, LATENCY: None if self._latency_us is None else str(self._latency_us)}
        return RunConfig.parse({key: value for key, value in given.items() if value is not None})

    @property
    def power(self) -> Power:
        """The power of the provider options with these changes."""
        power = self._power
        if self._mode is not None:
            power = power.in_mode(self._mode)
        return power if self._latency_us is None else replace(power, rpc_control_latency_us=self._latency_us)
