# SPDX-License-Identifier: Apache-2.0
"""Contexts whose steps say what they should not: refused, or run within their memory. `make sanitize` watches."""

from __future__ import annotations

import numpy as np
import pytest

from fuzz.targets import TARGETS, seeds


@pytest.mark.parametrize("target", ["container", "context", "steps"])
def test_changed_bytes(target: str) -> None:
    rng = np.random.default_rng(7)
    for seed in seeds(target):
        TARGETS[target](seed)
        for _ in range(40):
            data = np.frombuffer(seed, np.uint8).copy()
            places = rng.integers(0, data.size, rng.integers(1, 6))
            data[places] = rng.choice(np.frombuffer(b"0123456789-[]{}\x00\x7f\x80\xff", np.uint8), places.size)
            TARGETS[target](data.tobytes())
    if target == "steps":
        for _ in range(150):
            TARGETS[target](rng.integers(0, 256, 44, np.uint8).tobytes())
