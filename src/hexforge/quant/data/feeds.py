# SPDX-License-Identifier: Apache-2.0
"""Feeds: what a model is run on, and what runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from hexforge.ir import Array

Feeds = Mapping[str, Array]
"""One sample: the model's inputs by name."""


@runtime_checkable
class Samples(Protocol):
    """Calibration or evaluation data. Each iteration starts anew and yields the samples in the same order."""

    def __iter__(self) -> Iterator[Feeds]: ...

    def __len__(self) -> int: ...


class TaskMap(Protocol):
    """One way to many processes: what `make(*arguments)` gives for each task, in order, whoever works on them."""

    def __call__(
        self, make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...], tasks: Iterable[Any], /
    ) -> Iterator[Any]:
        """The results, one after the other."""
        ...


class SampleRunner(Protocol):
    """Runs one model on samples: onnxruntime's CPU provider for float models, a session on the emulator for QDQ."""

    def __call__(self, feeds: Feeds, /) -> dict[str, Array]:
        """Outputs by name."""
        ...
