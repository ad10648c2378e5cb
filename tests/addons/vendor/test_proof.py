# SPDX-License-Identifier: Apache-2.0
"""A context beside a fresh session: alike, not alike, or not to be told where the numbers change by the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.addons.vendor import proof
from hexforge.addons.vendor.session import VendorOptions, VendorPlacement, VendorSession

CONTEXT = [["EPContext", "context"]]


class Numbers(VendorSession):
    """A session that gives these numbers, one for each run, and counts its runs."""

    def __init__(self, numbers: Sequence[int], nodes: Sequence[Sequence[str]] = ()) -> None:
        self._numbers: Iterator[int] = iter(numbers)
        self.placement = VendorPlacement({"QNNExecutionProvider": nodes})
        self.runs = 0

    def run(self, feeds: Any) -> dict[str, Any]:
        self.runs += 1
        return {"y": np.array([next(self._numbers)])}

    def close(self) -> None:
        pass


def compared(monkeypatch: pytest.MonkeyPatch, fresh: Numbers, loaded: Numbers) -> tuple[bool, bool | None]:
    """What the proof says of a context, by these two sessions."""
    monkeypatch.setattr(proof, "VendorSession", lambda *given: loaded)
    process: Any = None
    return proof._context_runs(Path("model_ctx.onnx"), fresh, VendorOptions(), process, [{}])


@pytest.mark.parametrize(
    ("fresh", "loaded", "alike"),
    [
        ([5], [5], True),
        ([5, 5, 5], [6, 6, 6], False),
        ([5, 5, 5], [6, 5, 5], None),
        ([5, 5, 6, 5], [6, 6, 6], None),
        ([5, 5, 5], [6, 6, 7, 6], None),
    ],
    ids=["same", "other", "other once", "fresh changes", "loaded changes"],
)
def test_a_context_is_alike_only_where_runs_can_tell(
    fresh: list[int], loaded: list[int], alike: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Numbers(fresh), Numbers(loaded, CONTEXT)
    assert compared(monkeypatch, *sessions) == (True, alike)
    assert [session.runs for session in sessions] == [len(fresh), len(loaded)]


def test_a_model_that_is_no_context_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Numbers([5]), Numbers([5])
    assert compared(monkeypatch, *sessions) == (False, None)
    assert [session.runs for session in sessions] == [0, 0]
