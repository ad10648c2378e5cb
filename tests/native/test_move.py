# SPDX-License-Identifier: Apache-2.0
"""copy and fill move bytes; requantize is what the cpu backend's bilinear ops end with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge import _native
from tests.native.halves import half
from tests.native.kernels import assert_bits, run

SEEDS = st.integers(0, 2**32 - 1)
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def numbers(rng: np.random.Generator, shape: tuple[int, ...], size: int) -> np.ndarray:
    return rng.integers(0, 256, (*shape, size), dtype=np.uint8).view(UNSIGNED[size]).reshape(shape)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[tuple[int, int, int], ...], tuple[int, ...]]:
    """A shape, a (start, step, count) of each axis, steps of either sign or 0, and an order of the axes."""
    shape = tuple(draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    if draw(st.booleans()):
        shape = (*shape, *draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    cuts = []
    for n in shape:
        start, step = draw(st.integers(0, n - 1)), draw(st.sampled_from([1, 1, 1, 2, 3, -1, -2, 0]))
        room = (n - 1 - start) // step + 1 if step > 0 else start // -step + 1 if step < 0 else 4
        cuts.append((start, step, draw(st.integers(1, room))))
    return shape, tuple(cuts), tuple(draw(st.permutations(range(len(shape)))))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, box=boxes(), margin=st.integers(0, 3))
def test_copy(
    size: int, seed: int, box: tuple[tuple[int, ...], tuple[tuple[int, int, int], ...], tuple[int, ...]], margin: int
) -> None:
    shape, cuts, order = box
    rng = np.random.default_rng(seed)
    x = numbers(rng, shape, size)
    strides = [int(np.prod(shape[i + 1 :], dtype=np.int64)) for i in range(len(shape))]
    index = np.ix_(*([start + step * i for i in range(count)] for start, step, count in cuts))
    taken = x[index].transpose(order)
    # the output is a larger tensor, the box in its middle, its rows reversed
    y = numbers(rng, tuple(n + 2 * margin for n in taken.shape), size)
    want = y.copy()
    want[tuple(slice(margin, margin + n) for n in taken.shape)] = taken[::-1]
    target = [int(np.prod(y.shape[i + 1 :], dtype=np.int64)) for i in range(y.ndim)]
    attributes: dict[str, Any] = {
        "element_bytes": size,
        "dims": taken.shape,
        "strides_x": tuple(cuts[i][1] * strides[i] for i in order),
        "offset_x": sum(cuts[i][0] * strides[i] for i in range(len(shape))),
        "strides_y": (-target[0], *target[1:]),
        "offset_y": margin * sum(target) + (taken.shape[0] - 1) * target[0],
    }
    assert_bits(run("copy", [x], y, attributes), want)


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 70), st.integers(1, 70), st.sampled_from(["rows", "columns", "apart"]))
def test_copy_rounds_floats(seed: int, rows: int, columns: int, order: str) -> None:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, columns)) * rng.choice([1e-7, 1, 9e4], (rows, columns))).astype(np.float32)
    attributes: dict[str, Any] = {"element_bytes": 4, "dims": x.shape, "strides_x": (columns, 1), "half": 1}
    if order == "columns":
        got = run("copy", [x], np.zeros((columns, rows), np.float32), attributes | {"strides_y": (1, rows)}).T
    elif order == "rows":
        got = run("copy", [x], np.zeros(x.shape, np.float32), attributes | {"strides_y": (columns, 1)})
    else:
        wide = {"strides_y": (2 * columns, 2)}
        got = run("copy", [x], np.zeros((rows, 2 * columns), np.float32), attributes | wide)[:, ::2]
    assert_bits(np.ascontiguousarray(got), half(x))


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_large_transposes_are_shared_by_the_threads(size: int) -> None:
    x = numbers(np.random.default_rng(1), (3, 210, 170), size)
    for order in ((0, 2, 1), (2, 0, 1), (1, 0, 2)):
        strides = (210 * 170, 170, 1)
        want = np.ascontiguousarray(x.transpose(order))
        attributes = {
            "element_bytes": size,
            "dims": want.shape,
            "strides_x": tuple(strides[i] for i in order),
            "strides_y": (want.shape[1] * want.shape[2], want.shape[2], 1),
        }
        assert_bits(run("copy", [x], np.zeros_like(want), attributes), want)


def test_an_empty_box_copies_nothing() -> None:
    x, y = np.arange(4, dtype=np.uint8), np.arange(4, 8, dtype=np.uint8)
    attributes = {"element_bytes": 1, "dims": (2, 0), "strides_x": (1, 1), "strides_y": (1, 1)}
    assert_bits(run("copy", [x], y, attributes), y)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, size=st.sampled_from([1, 2, 4, 8]), count=st.integers(0, 300))
def test_fill(seed: int, size: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    value = numbers(rng, (1,), size)
    start = numbers(rng, (count + 3,), size)
    want = start.copy()
    want[:count] = value
    assert_bits(run("fill", [], start, {"element_bytes": size, "count": count, "value": value}), want)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, rows=st.integers(0, 20), channels=st.integers(1, 60))
def test_requantize(dtype: Any, seed: int, rows: int, channels: int) -> None:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    acc = rng.integers(-(2**40), 2**40, (rows, channels)).astype(np.float64)
    multipliers = rng.choice([0.5, 2.0**-30, 1e-9, 1e-10, 1e300], channels)
    low, high = sorted(int(v) for v in rng.integers(info.min, info.max + 1, 2))
    zero = int(rng.integers(info.min, info.max + 1))
    out = np.zeros((rows, channels), dtype)
    _native.requantize(acc, multipliers, out, zero, low, high)
    want = [
        [min(max(round_half_even(a * m) + zero, low), high) for a, m in zip(row, multipliers.tolist(), strict=True)]
        for row in acc.tolist()
    ]
    assert_bits(out, np.array(want, dtype).reshape(rows, channels))


def round_half_even(value: float) -> int:
    return 2**62 if value > 2**62 else -(2**62) if value < -(2**62) else round(value)


def test_requantize_checks_shapes() -> None:
    with pytest.raises(ValueError, match="shapes"):
        _native.requantize(np.zeros((2, 3)), np.zeros(2), np.zeros((2, 3), np.uint8), 0, 0, 255)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32])
@pytest.mark.parametrize("shape", [(3, 1), (3, 64), (3, 331), (2, 5000), (64, 210), (17, 35), (4, 66)])
def test_planes_become_pixels_and_pixels_planes(dtype: type, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[1])
    x = rng.integers(0, 256, shape).astype(dtype)
    rows, columns = shape
    attributes = {
        "element_bytes": x.itemsize,
        "dims": (columns, rows),
        "strides_x": (1, columns),
        "strides_y": (rows, 1),
    }
    got = run("copy", [x], np.zeros((columns, rows), dtype), attributes)
    assert_bits(got, np.ascontiguousarray(x.T))
    back = attributes | {"dims": (rows, columns), "strides_x": (1, rows), "strides_y": (columns, 1)}
    assert_bits(run("copy", [got], np.zeros(shape, dtype), back), x)
