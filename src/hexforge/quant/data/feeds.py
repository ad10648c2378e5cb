# SPDX-License-Identifier: Apache-2.0
"""Feeds: what a model is run on, and what runs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

from hexforge.ir import Array

Feeds = Mapping[str, Array]
"""One sample: the model's inputs by name."""


@runtime_checkable
class Samples(Protocol):
    """Calibration or evaluation data. Each iteration starts anew and yields the samples in the same order."""

    def __iter__(self) -> Iterator[Feeds]: ...

    def __len__(self) -> int: ...


class ModelRunner(Protocol):
    """Runs one model on samples: onnxruntime's CPU provider for float models, a session on the emulator for QDQ."""

    def __call__(self, feeds: Feeds, /) -> dict[str, Array]:
        """Outputs by name."""
        ...
