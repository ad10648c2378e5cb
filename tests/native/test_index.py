# SPDX-License-Identifier: Apache-2.0
"""take, take_at, scatter_*, one_hot, top_k_*: numpy's indexing is the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.formats.hmx_layout import from_hmx, to_hmx
from tests.native.halves import half
from tests.native.kernels import assert_bits, run
from tests.native.several import halves, run_all

KINDS = {"u8": np.uint8, "s16": np.int16, "f32": np.float32, "int32": np.int32, "int64": np.int64}
SEEDS = st.integers(0, 2**32 - 1)
SHAPES = st.lists(st.integers(1, 6), min_size=1, max_size=4)
EXAMPLES = settings(max_examples=60, deadline=None)


def _data(rng: np.random.Generator, shape: Any, kind: str) -> np.ndarray:
    return halves(rng, tuple(shape)) if kind == "f32" else rng.integers(0, 200, shape).astype(KINDS[kind])


def _indices(rng: np.random.Generator, shape: Any, size: int, wide: bool) -> np.ndarray:
    return rng.integers(-size, size, shape).astype(np.int64 if wide else np.int32)


@EXAMPLES
@given(SHAPES, st.data(), st.sampled_from(list(KINDS)), st.booleans(), SEEDS)
def test_take(shape: list[int], data: Any, kind: str, wide: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = data.draw(st.integers(0, len(shape) - 1))
    x, index = _data(rng, shape, kind), _indices(rng, data.draw(st.integers(1, 9)), shape[axis], wide)
    want = np.take(x, index, axis)
    attributes = {
        "outer": int(np.prod(shape[:axis])), "axis": shape[axis], "indices": index.size, "index_bytes": index.itemsize,
        "inner_bytes": int(np.prod(shape[axis + 1 :])) * x.itemsize,
    }  # fmt: skip
    assert_bits(run("take", [x, index], np.zeros(want.shape, x.dtype), attributes), want)


def _elements(rng: np.random.Generator, shape: list[int], axis: int, wide: bool) -> tuple[np.ndarray, dict[str, Any]]:
    dims = [int(rng.integers(1, n + 1 if i != axis else 9)) for i, n in enumerate(shape)]
    index = _indices(rng, dims, shape[axis], wide)
    return index, {"data": tuple(shape), "dims": tuple(dims), "axis": axis, "index_bytes": index.itemsize}


def _grid(index: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    grid = list(np.indices(index.shape))
    grid[axis] = index
    return tuple(grid)  # type: ignore[arg-type]


@EXAMPLES
@given(SHAPES, st.data(), st.sampled_from(list(KINDS)), st.booleans(), SEEDS)
def test_take_elements(shape: list[int], data: Any, kind: str, wide: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = data.draw(st.integers(0, len(shape) - 1))
    index, attributes = _elements(rng, shape, axis, wide)
    x = _data(rng, shape, kind)
    want = x[_grid(index, axis)]
    attributes["element_bytes"] = x.itemsize
    assert_bits(run("take_at", [x, index], np.zeros(want.shape, x.dtype), attributes), want)


def _tuples(rng: np.random.Generator, shape: list[int], batch: int, wide: bool) -> tuple[np.ndarray, dict[str, Any]]:
    """Index tuples of the axes after `batch` of them, and the attributes that describe them."""
    width = int(rng.integers(1, len(shape) - batch + 1))
    count = int(rng.integers(1, 7))
    lead = int(np.prod(shape[:batch]))
    parts = [_indices(rng, (lead, count), n, wide) for n in shape[batch : batch + width]]
    return np.stack(parts, -1), {
        "data": tuple(shape[batch : batch + width]), "batch": lead, "tuples": count,
        "slice": int(np.prod(shape[batch + width :])), "index_bytes": parts[0].itemsize,
    }  # fmt: skip


@EXAMPLES
@given(SHAPES, st.data(), st.sampled_from(list(KINDS)), st.booleans(), SEEDS)
def test_take_tuples(shape: list[int], data: Any, kind: str, wide: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = data.draw(st.integers(0, len(shape) - 1))
    index, attributes = _tuples(rng, shape, batch, wide)
    x = _data(rng, shape, kind)
    flat = x.reshape(attributes["batch"], *shape[batch:])
    want = np.stack([flat[b][tuple(np.moveaxis(index[b], -1, 0))] for b in range(len(flat))])
    attributes["element_bytes"] = x.itemsize
    assert_bits(run("take_at", [x, index], np.zeros(want.shape, x.dtype), attributes), want)


@EXAMPLES
@given(SHAPES, st.data(), st.sampled_from(list(KINDS)), st.integers(0, 4), st.booleans(), SEEDS)
def test_scatter(shape: list[int], data: Any, kind: str, reduction: int, wide: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = _data(rng, shape, kind)
    if data.draw(st.booleans()):
        axis = data.draw(st.integers(0, len(shape) - 1))
        index, attributes = _elements(rng, shape, axis, wide)
        if data.draw(st.booleans()):  # rows of one index, as those of a cache, are put as a whole
            index[...] = index[..., :1]
        where = _grid(index, axis)
        updates = _data(rng, index.shape, kind)
    else:
        index, attributes = _tuples(rng, shape, 0, wide)
        where = tuple(np.moveaxis(index[0], -1, 0))
        updates = _data(rng, x[where].shape, kind)
    want = x.copy()
    ufunc = (None, np.add, np.multiply, np.maximum, np.minimum)[reduction]
    if ufunc is None:
        for at in np.ndindex(where[0].shape):  # one after the other: the last of equal places stays
            want[tuple(w[at] for w in where)] = updates[at]
    else:
        ufunc.at(want, where, updates)
    attributes["reduction"] = reduction
    got = run(f"scatter_{kind}", [x, index, updates], np.zeros(x.shape, x.dtype), attributes)
    assert_bits(got, half(want) if kind == "f32" else want)


@pytest.mark.parametrize("tile", [64, 256])
@pytest.mark.parametrize("axis", [1, 2])
def test_scatter_into_the_hmx_layout(tile: int, axis: int) -> None:
    rng = np.random.default_rng(tile + axis)
    x = rng.integers(0, 256, (2, 64, 512)).astype(np.uint8)
    index = rng.integers(0, x.shape[axis], (2, 5, 7)).astype(np.int32)
    updates = rng.integers(0, 256, index.shape).astype(np.uint8)
    want = x.copy()
    for at in np.ndindex(*index.shape):
        place = list(at)
        place[axis] = int(index[at])
        want[tuple(place)] = updates[at]
    attributes = {
        "data": x.shape, "dims": index.shape, "axis": axis, "index_bytes": 4, "reduction": 0, "tile": tile,
    }  # fmt: skip
    got = run("scatter_u8", [to_hmx(x, tile), index, updates], np.zeros(x.shape, np.uint8), attributes)
    assert_bits(from_hmx(got, tile), want)


@EXAMPLES
@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 9), st.sampled_from(list(KINDS)), st.booleans(), SEEDS)
def test_one_hot(outer: int, inner: int, depth: int, kind: str, wide: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    index = rng.integers(-depth - 2, depth + 2, (outer, inner)).astype(np.int64 if wide else np.int32)
    on, off = np.array([7], KINDS[kind]), np.array([3], KINDS[kind])
    place = np.where(index < 0, index + depth, index)  # type: ignore[operator]
    want = np.where(np.arange(depth)[None, :, None] == place[:, None], on, off)
    attributes = {
        "outer": outer, "inner": inner, "depth": depth, "index_bytes": index.itemsize, "element_bytes": on.itemsize,
        "on": on, "off": off,
    }  # fmt: skip
    assert_bits(run("one_hot", [index], np.zeros(want.shape, on.dtype), attributes), want)


@EXAMPLES
@given(
    st.integers(1, 4), st.integers(1, 60), st.data(), st.sampled_from(list(KINDS)), st.booleans(), st.booleans(), SEEDS
)
def test_top_k(rows: int, n: int, data: Any, kind: str, largest: bool, nan: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    k = data.draw(st.integers(1, n))
    x = rng.integers(0, 9, (rows, n)).astype(KINDS[kind])  # many equals: in their own order
    if kind == "f32" and nan:
        x[rng.random(x.shape) < 0.1] = np.nan
    rank = np.where(x != x, np.inf, x.astype(np.float64)) if kind == "f32" else x.astype(np.int64)
    order = np.argsort(-rank if largest else rank, axis=1, kind="stable")[:, :k]
    values, indices = run_all(
        f"top_k_{kind}",
        [x],
        [np.zeros((rows, k), x.dtype), np.zeros((rows, k), np.int32)],
        {"rows": rows, "n": n, "k": k, "largest": int(largest), "index_bytes": 4},
    )
    assert_bits(indices, order.astype(np.int32))
    assert_bits(values, np.take_along_axis(x, order, 1))


def test_an_index_outside_ends_the_run() -> None:
    x, index = np.arange(4, dtype=np.uint8), np.array([0, 4], np.int32)
    attributes = {"outer": 1, "axis": 4, "indices": 2, "index_bytes": 4, "inner_bytes": 1}
    with pytest.raises(IndexError, match="index 4 is outside an axis of 4 elements"):
        run("take", [x, index], np.zeros(2, np.uint8), attributes)
