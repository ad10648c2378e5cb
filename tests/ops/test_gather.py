# SPDX-License-Identifier: Apache-2.0
"""Gather and scatter ops against naive loops, and their complaints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import CallError, ModelError
from hexforge.ops.evaluate import evaluate
from tests.ops.test_layout import counted, node, run

quick = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**31)


def _shape(rng: np.random.Generator, rank: int) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(1, 5, rank))


@quick
@given(seeds)
def test_gather(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = counted(*_shape(rng, 3))
    axis = int(rng.integers(-3, 3))
    indices = rng.integers(-x.shape[axis], x.shape[axis], _shape(rng, int(rng.integers(0, 3))))
    got = run("Gather", x, indices, axis=axis)
    before = axis % 3
    for place in np.ndindex(got.shape):
        index = indices[place[before : before + indices.ndim]]
        assert got[place] == x[(*place[:before], index, *place[before + indices.ndim :])]


@quick
@given(seeds)
def test_gather_and_scatter_elements(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = counted(*_shape(rng, 3))
    axis = int(rng.integers(0, 3))
    shape = [int(rng.integers(1, n + 1)) for n in x.shape]
    shape[axis] = int(rng.integers(1, 5))
    indices = rng.integers(-x.shape[axis], x.shape[axis], shape).astype(np.int32)
    updates = rng.integers(1, 9, shape).astype(np.float32)
    got, added = run("GatherElements", x, indices, axis=axis), x.copy()
    for place in np.ndindex(*shape):
        source = (*place[:axis], indices[place], *place[axis + 1 :])
        assert got[place] == x[source]
        added[source] += updates[place]
    np.testing.assert_array_equal(run("ScatterElements", x, indices, updates, axis=axis, reduction=1), added)


@quick
@given(seeds)
def test_gather_and_scatter_nd(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = counted(*_shape(rng, 4))
    batch, depth = int(rng.integers(0, 2)), int(rng.integers(1, 4))
    outer = (*x.shape[:batch], *_shape(rng, 1))
    indices = np.stack([rng.integers(-n, n, outer) for n in x.shape[batch : batch + depth]], -1)
    got = run("GatherNd", x, indices, batch_dims=batch)
    for place in np.ndindex(*outer):
        np.testing.assert_array_equal(got[place], x[(*place[:batch], *indices[place])])
    if batch == 0:
        updates = rng.integers(1, 9, (*outer, *x.shape[depth:])).astype(np.float32)
        largest = x.copy()
        for place in np.ndindex(*outer):
            at = tuple(indices[place])
            largest[at] = np.maximum(largest[at], updates[place])
        np.testing.assert_array_equal(run("ScatterNd", x, indices, updates, reduction=3), largest)


@quick
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8), st.booleans(), st.data())
def test_top_k_takes_the_first_of_equals(values: list[int], largest: bool, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(values)))
    x = np.asarray(values, data.draw(st.sampled_from([np.float32, np.int8, np.int64])))
    order = sorted(range(len(values)), key=lambda i: (-values[i] if largest else values[i], i))[:k]
    got, indices = evaluate(node("TopK", x, k=k, largest=largest).call, [x])
    assert indices.tolist() == order
    assert got.tolist() == [values[i] for i in order]


def test_an_index_outside_is_the_callers_error() -> None:
    with pytest.raises(CallError, match="index 3 is outside an axis of 2"):
        run("Gather", counted(2, 3), np.array([0, 3]))
    with pytest.raises(CallError, match="index -4"):
        run("GatherElements", counted(2, 3), np.array([[-4]]), axis=1)


@pytest.mark.parametrize(
    ("op", "arrays", "params", "words"),
    [
        ("Gather", [counted(2), counted(2)], {}, "must be integers"),
        ("GatherElements", [counted(2, 3), np.zeros((3, 1), int)], {"axis": 1}, "do not fit"),
        ("GatherNd", [counted(2, 3), np.zeros((1, 3), int)], {}, "name 3 axes"),
        ("ScatterNd", [counted(2, 3), np.zeros((1, 1), int), counted(2)], {}, "updates have shape"),
        ("TopK", [counted(2, 3)], {"k": 4}, "k 4"),
    ],
)
def test_bad_nodes_say_why(op: str, arrays: list[np.ndarray], params: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        node(op, *arrays, **params)
