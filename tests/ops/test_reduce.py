# SPDX-License-Identifier: Apache-2.0
"""Reductions against naive loops."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import ModelError
from tests.ops.test_layout import counted, node, run

quick = settings(max_examples=40, deadline=None)

_FOLDS: dict[str, tuple[float, Callable[[float, float], float]]] = {
    "Max": (-np.inf, max),
    "Min": (np.inf, min),
    "Prod": (1.0, lambda a, b: a * b),
    "Sum": (0.0, lambda a, b: a + b),
    "SumSquare": (0.0, lambda a, b: a + b * b),
}


@quick
@given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from(sorted(_FOLDS)), st.booleans(), st.data())
def test_reduce_folds_each_group(shape: list[int], name: str, keep: bool, data: st.DataObject) -> None:
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1)))))
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    got = run(f"Reduce{name}", x, axes=axes, keep_dims=keep)
    start, fold = _FOLDS[name]
    kept = [1 if i in axes else n for i, n in enumerate(shape)]
    expected = np.empty(kept, np.float32)
    for place in np.ndindex(*kept):
        group = itertools.product(*(range(shape[i]) if i in axes else (place[i],) for i in range(len(shape))))
        expected[place] = functools.reduce(fold, (float(x[p]) for p in group), start)
    np.testing.assert_array_equal(got, expected if keep else expected.reshape(got.shape))
    assert got.ndim == len(shape) - (0 if keep else len(axes))


@quick
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=6), st.booleans(), st.booleans())
def test_cumulative_sum(values: list[int], exclusive: bool, reverse: bool) -> None:
    x = np.asarray([values, values], np.int32)
    got = run("CumulativeSum", x, axis=1, exclusive=exclusive, reverse=reverse)
    n = len(values)
    for i in range(n):
        part = values[i + exclusive :] if reverse else values[: i + (not exclusive)]
        assert got[0, i] == got[1, i] == sum(part)


def test_axes_are_checked() -> None:
    with pytest.raises(ModelError, match="twice"):
        node("ReduceSum", counted(2, 3), axes=(1, -1))
    with pytest.raises(ModelError, match="outside"):
        node("ReduceSum", counted(2, 3), axes=(2,))
    with pytest.raises(ModelError, match="empty"):
        node("Argmax", counted(2, 0), axis=1)
