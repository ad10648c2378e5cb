# SPDX-License-Identifier: Apache-2.0
"""A computer whose CPU is measured alike every time."""

from __future__ import annotations

from typing import Any

import pytest

from hexforge.chips.cpu_cores import REFERENCE_US
from hexforge.runtime import cpu_timing

HERE_US = 500.0


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A computer on which every part takes HERE_US and that is as fast as the reference; what parts were given."""
    fed: list[dict[str, Any]] = []

    def timed(part: object, feeds: dict[str, Any]) -> cpu_timing.CoreTime:
        fed.append(dict(feeds))
        return cpu_timing.CoreTime(HERE_US, REFERENCE_US)

    monkeypatch.setattr(cpu_timing, "_times", {})
    monkeypatch.setattr(cpu_timing, "_timed", timed)
    return fed
