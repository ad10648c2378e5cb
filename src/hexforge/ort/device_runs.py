# SPDX-License-Identifier: Apache-2.0
"""What a session asks of the simulated device that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from hexforge.ort.options.config import DynamicOptions, RunConfig


class DeviceRuns(Protocol):
    """The runs of a session on a simulated device."""

    device: Any
    """The device."""
    runs: Sequence[Any]
    """The last thousand, oldest first: time, energy, yields, mode."""

    @property
    def last(self) -> Any:
        """The last run."""

    @property
    def latency_us(self) -> float:
        """Of the last run, as the application sees it."""

    @property
    def memory_bytes(self) -> int:
        """What the session has in use on the device."""

    @property
    def mode(self) -> str:
        """The performance mode that holds."""

    def run(self, config: RunConfig | None = None, shared: Sequence[Any] = ()) -> Any:
        """One run under run options, with inputs in shared buffers where some are."""

    def begin(self, config: RunConfig | None = None, shared: Sequence[Any] = ()) -> Any:
        """Begin a run: it is on the device from now on, beside those of other sessions that have begun."""

    def finish(self, flight: Any) -> Any:
        """Let time pass until a run is over."""

    def follow(self, options: DynamicOptions, changed: Sequence[str]) -> None:
        """Dynamic options from now on."""
