# SPDX-License-Identifier: Apache-2.0
"""Ports: an output is written where it is wanted only if nothing else has that memory."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.ports import _Taken

PARTS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


@settings(max_examples=200, deadline=None)
@given(held=PARTS, added=PARTS, asked=PARTS)
def test_arrays_that_meet_are_counted(
    held: list[tuple[int, int]], added: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    memory = np.zeros(80, np.uint8)
    arrays = [memory[at : at + size] for at, size in held]
    taken = _Taken(arrays)
    for at, size in added:
        taken.add(memory[at : at + size])
        arrays.append(memory[at : at + size])
    for at, size in asked:
        wanted = memory[at : at + size]
        assert taken.count(wanted) == sum(np.may_share_memory(wanted, array) for array in arrays)
