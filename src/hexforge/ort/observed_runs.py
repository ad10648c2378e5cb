# SPDX-License-Identifier: Apache-2.0
"""Observed runs: what add-ons do beside a session's runs: a simulated device takes its time, a profile records them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hexforge.backend import Backend
from hexforge.ort.options.config import DynamicOptions, RunConfig
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.runtime.stages import Stage, Stages


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


class SessionRecord:
    """What is recorded of a session and of its runs: nothing, unless an add-on does."""

    active = False
    """Whether runs add to it."""
    start_ns = 0
    """When it began, comparable to time.monotonic_ns()."""

    def start(self, name: str, plan: Stages, backend: Backend, options: ProviderOptions, loaded: bool,
              took_us: int, note: Callable[[str], None]) -> None:  # fmt: skip
        """The graphs are there: loaded from a context, or prepared, in so long."""

    def span(self, category: str, name: str) -> contextlib.AbstractContextManager[None]:
        """Record how long a block takes."""
        return contextlib.nullcontext()

    def run_of(self, stage: Stage) -> contextlib.AbstractContextManager[None]:
        """Record what a stage does while the block runs it."""
        return contextlib.nullcontext()

    def when_freed(self) -> Callable[[int], None] | None:
        """What is told how long it took to free the session's programs, in microseconds; None where nobody asks."""
        return None

    def end(self) -> str:
        """Write onnxruntime's own trace and return the name of its file; nothing where there is none."""
        return ""
