# SPDX-License-Identifier: Apache-2.0
"""The ablation benchmark: what it takes away is there to be taken, changes something, and comes back."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.latency.ablation import WITHOUT, patched


@pytest.mark.parametrize("name", [name for name in WITHOUT if name != "nothing removed"])
def test_every_mechanism_is_taken_away_and_put_back(name: str) -> None:
    patches = WITHOUT[name]()
    before = [getattr(module, attribute) for module, attribute, _ in patches]
    with patched(patches):
        during = [getattr(module, attribute) for module, attribute, _ in patches]
    after = [getattr(module, attribute) for module, attribute, _ in patches]
    assert patches
    assert any(not _same(a, b) for a, b in zip(before, during, strict=True))
    assert all(a is b for a, b in zip(before, after, strict=True))


def _same(a: object, b: object) -> bool:
    return np.array_equal(a, b) if isinstance(a, np.ndarray) and isinstance(b, np.ndarray) else a == b
