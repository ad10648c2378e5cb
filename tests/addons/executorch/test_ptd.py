# SPDX-License-Identifier: Apache-2.0
"""Files of tensors beside a program (.ptd): read by name, damaged ones refused."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from hexforge.addons.executorch.formats.ptd import read_all, read_ptd
from hexforge.errors import FormatError
from tests.addons.executorch.pte_files import delegated, ptd_bytes, pte

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_tensors_by_name() -> None:
    found = read_ptd(ptd_bytes(weight=WEIGHT, bias=np.ones(3, np.int8)))
    assert list(found) == ["weight", "bias"]
    weight = found["weight"]
    assert (weight.scalar_type, weight.sizes, weight.dim_order) == (6, (2, 3), (0, 1))
    np.testing.assert_array_equal(np.frombuffer(weight.data, np.float32).reshape(2, 3), WEIGHT)
    assert bytes(found["bias"].data) == b"\1\1\1"


def test_two_files_with_one_name() -> None:
    with pytest.raises(FormatError, match="'weight' is in two"):
        read_all((ptd_bytes(weight=WEIGHT), ptd_bytes(weight=WEIGHT)))


def test_another_file() -> None:
    with pytest.raises(FormatError, match="not a file of tensors"):
        read_ptd(pte(delegated()), "model.pte")


def test_a_file_cut_short_is_refused() -> None:
    whole = ptd_bytes()
    for size in range(len(whole)):
        with pytest.raises(FormatError):
            read_ptd(whole[:size])


def test_damage_is_refused_or_harmless() -> None:
    whole, rng = ptd_bytes(), random.Random(0)
    for _ in range(2000):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        with contextlib.suppress(FormatError):
            read_ptd(bytes(data))
