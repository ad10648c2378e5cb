# SPDX-License-Identifier: Apache-2.0
"""Weights that are moved together: the same numbers, once, and only where they fill pages."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np

from hexforge._native import move_to_large_pages
from hexforge.backends.htp.numbers.large_pages import LEAST_ARRAY, LEAST_BLOCK, gather
from hexforge.formats.container import map_file

LEAST_SHARED = 1 << 25
"""Bytes of a program's packed weights that are worth a copy (native/context/large_pages.h)."""

RNG = np.random.default_rng(3)


def steps(count: int) -> list[dict[str, Any]]:
    """Attributes of steps, each with weights of a mebibyte, a small array and a number."""
    return [
        {"weights": RNG.integers(-128, 128, (1024, 1024), np.int8), "bias": np.arange(4), "taps": 9}
        for _ in range(count)
    ]


def test_arrays_lie_behind_each_other_with_the_same_numbers() -> None:
    attributes = steps(5)
    attributes.append({"weights": attributes[0]["weights"], "table": np.arange(LEAST_ARRAY, dtype=np.float64)})
    before = [dict(each) for each in attributes]
    gather(attributes)
    for each, old in zip(attributes, before, strict=True):
        assert each.keys() == old.keys()
        assert all(np.array_equal(each[name], old[name]) for name in each)
        assert each.get("bias") is old.get("bias")  # small ones stay
        assert each["weights"].dtype == old["weights"].dtype
    assert attributes[5]["weights"] is attributes[0]["weights"]  # shared ones stay shared
    starts = sorted({each["weights"].ctypes.data for each in attributes})
    assert len(starts) == 5
    assert starts[-1] - starts[0] < LEAST_BLOCK + (1 << 20)
    assert all(start % 64 == 0 for start in starts)


def test_a_small_program_stays_as_it_is() -> None:
    attributes = steps(3)
    before = [each["weights"] for each in attributes]
    gather(attributes)
    assert all(each["weights"] is old for each, old in zip(attributes, before, strict=True))


def test_memory_of_others_is_not_copied() -> None:
    owner = RNG.integers(0, 9, LEAST_BLOCK * 2, np.int8)
    attributes = [{"weights": owner[:LEAST_BLOCK]}, {"weights": owner[LEAST_BLOCK:]}]
    gather(attributes)
    assert all(np.shares_memory(each["weights"], owner) for each in attributes)


def test_graphs_of_a_mapped_file_share_one_copy_of_large_weights(tmp_path: Path) -> None:
    """The numbers of the file, in memory of their own; small ones, and arrays of no file, stay where they are."""
    path = tmp_path / "weights"
    path.write_bytes(RNG.bytes(LEAST_SHARED + 3 * LEAST_ARRAY))
    file = map_file(path)
    assert file is not None
    mapped = np.frombuffer(file, np.uint8)
    weights, scales = mapped[:LEAST_SHARED], mapped[LEAST_SHARED : LEAST_SHARED + LEAST_ARRAY]
    own, few = np.zeros(LEAST_ARRAY, np.uint8), mapped[-16:]
    table = mapped[LEAST_SHARED - 1 : LEAST_SHARED + LEAST_ARRAY]  # too large to be worth a copy where it is no weight
    first = move_to_large_pages([weights, scales, own], [few, table])
    assert [copy is not None for copy in first] == [True, True, False, True, False]
    for array, copy in zip((weights, scales, few), (first[0], first[1], first[3]), strict=True):
        assert copy is not None
        assert np.array_equal(copy, array)
        assert copy.ctypes.data % 64 == 0
        assert not np.shares_memory(copy, array)
    again = move_to_large_pages([weights], [])
    assert again[0] is not None
    assert first[0] is not None
    assert np.shares_memory(again[0], first[0])
    assert move_to_large_pages([scales], [few]) == [None, None]  # not worth a copy
    del first, again, copy
    gc.collect()
    (anew,) = move_to_large_pages([weights], [])
    assert anew is not None  # the old one is gone
    assert np.array_equal(anew, weights)
