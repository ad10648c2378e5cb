# SPDX-License-Identifier: Apache-2.0
"""Where tensors lie: none of two that live at the same time share a byte."""

from __future__ import annotations

import random

import pytest

pytest.importorskip("pyopencl")

from hexforge.addons.gpu.resident import memory

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", range(20))
def test_what_lives_together_lies_apart(seed: int) -> None:
    chance = random.Random(seed)
    sizes = {i: chance.randrange(0, 5000) for i in range(60)}
    lives = {}
    for key in sizes:
        first = chance.randrange(40)
        lives[key] = (first, first + chance.randrange(12))
    chosen, bytes_of = memory.assign_buffers(sizes, lives)
    assert all(bytes_of[chosen[key]] >= size for key, size in sizes.items())
    for a in sizes:
        for b in sizes:
            together = lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
            assert a == b or not together or chosen[a] != chosen[b]
    assert sum(bytes_of) < sum(sizes.values())
    assert len(memory.assign_buffers(sizes, lives, share=False)[1]) == len(sizes)
