# SPDX-License-Identifier: Apache-2.0
"""Statistics of tensors: exact counts in any order, merged or not, saved and loaded."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hexforge import _native
from hexforge.errors import FormatError
from hexforge.quant.data.observe import BINS, Statistics, TensorStatistics

Array = np.ndarray[Any, Any]

# All floats: denormals, huge ones, and those near each other.
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
values = st.one_of(
    arrays.arrays(np.float32, st.integers(0, 40), elements=floats),
    arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(-8, 8, width=32)),
)


def seen(*parts: Array, **options: Any) -> TensorStatistics:
    """Statistics of arrays, one after another."""
    found = TensorStatistics(**options)
    for part in parts:
        found.update(part)
    return found


def exactly_equal(a: TensorStatistics, b: TensorStatistics) -> bool:
    """Equal but for the sums, which are rounded."""
    names = ("minimum", "maximum", "count", "zeros", "nonfinite", "samples", "exponent")
    return all(getattr(a, n) == getattr(b, n) for n in names) and np.array_equal(a.counts, b.counts)  # type: ignore[arg-type]


@given(st.lists(values, max_size=6), st.randoms())
@settings(max_examples=40, deadline=None)
def test_order_does_not_show(parts: list[Array], random: Any) -> None:
    shuffled = random.sample(parts, len(parts))
    assert exactly_equal(seen(*parts), seen(*shuffled))


@given(st.lists(values, min_size=3, max_size=3))
@settings(max_examples=40, deadline=None)
def test_merging_is_associative_and_the_same_as_seeing_all(parts: list[Array]) -> None:
    left, right, rest = seen(parts[0]), seen(parts[1]), seen(parts[2])
    left.merge(right)
    left.merge(rest)
    other, tail = seen(parts[0]), seen(parts[1])
    tail.merge(rest)
    other.merge(tail)
    together = seen(*parts)
    assert exactly_equal(left, together)
    assert exactly_equal(other, together)
    assert left.average == pytest.approx(together.average)


@given(st.lists(values, max_size=4))
@settings(max_examples=40, deadline=None)
def test_the_histogram_counts_every_value_in_its_bin(parts: list[Array]) -> None:
    found = seen(*parts)
    everything = np.concatenate([*parts, np.zeros(0, np.float32)]).astype(np.float64)
    counts, edges = found.histogram()
    assert counts.sum() == found.count == everything.size
    assert found.zeros == (everything == 0).sum()
    if everything.size:
        assert found.minimum == everything.min()
        assert found.maximum == everything.max()
        where = np.searchsorted(edges, everything, "right") - 1
        np.testing.assert_array_equal(counts, np.bincount(where, minlength=len(counts)))
        assert len(counts) <= BINS


def test_the_range_uses_at_least_a_quarter_of_the_bins() -> None:
    random = np.random.default_rng(0)
    for scale in (1e-30, 1e-3, 1.0, 3.7, 1e30):
        counts, _ = seen(random.standard_normal(1000, np.float32) * np.float32(scale)).histogram()
        assert len(counts) > BINS // 2 - 2


@pytest.mark.parametrize("level", _native.levels())
@pytest.mark.parametrize("size", [1, 15, 16, 17, 2047, 5001, 70_001])
def test_every_instruction_set_counts_alike(level: str, size: int) -> None:
    random = np.random.default_rng(size)
    array = np.maximum(random.standard_normal(size, np.float32) * 3, -1)
    array[random.integers(0, size, size // 9)] = 0
    array[random.integers(0, size, size // 50)] = np.nan
    array[random.integers(0, size, size // 50)] = np.inf
    best = _native.level()
    try:
        _native.set_level(level)
        found, channels = seen(array), seen(array[None], channel_axis=1)
        blocks = seen(array[: size // 5 * 5].reshape(1, 5, -1), channel_axis=1)
    finally:
        _native.set_level(best)
    finite = array[np.isfinite(array)].astype(np.float64)
    assert (found.minimum, found.maximum) == (finite.min(), finite.max())
    assert (found.count, found.nonfinite) == (finite.size, size - finite.size)
    assert found.zeros == (finite == 0).sum()
    counts, edges = found.histogram()
    np.testing.assert_array_equal(counts, np.histogram(finite, edges)[0] if len(counts) > 1 else [finite.size])
    assert channels.channel_minimum is not None
    np.testing.assert_array_equal(channels.channel_minimum, np.where(np.isfinite(array), array, np.inf))
    if size >= 5:
        rows = array[: size // 5 * 5].reshape(5, -1)
        assert blocks.channel_maximum is not None
        np.testing.assert_array_equal(blocks.channel_maximum, np.where(np.isfinite(rows), rows, -np.inf).max(1))


@pytest.mark.parametrize(
    ("array", "count", "extremes"),
    [
        (np.zeros(5, np.float32), 5, (0.0, 0.0)),
        (np.float32(7.5), 1, (7.5, 7.5)),
        (np.zeros((3, 0, 2), np.float32), 0, (math.inf, -math.inf)),
        (np.full(4, np.nan, np.float32), 0, (math.inf, -math.inf)),
        (np.array([1e30, -3e38], np.float32), 2, (float(np.float32(-3e38)), float(np.float32(1e30)))),
        (np.array([1e-45, -1e-45], np.float32), 2, (float(np.float32(-1e-45)), float(np.float32(1e-45)))),
        (np.arange(6, dtype=np.float16).reshape(2, 3).T, 6, (0.0, 5.0)),
        (np.arange(6.0)[::2], 3, (0.0, 4.0)),
    ],
)
def test_odd_tensors(array: Array, count: int, extremes: tuple[float, float]) -> None:
    found = seen(array, array)
    assert found.count == 2 * count
    assert (found.minimum, found.maximum) == extremes
    assert found.histogram()[0].sum() == 2 * count


def test_the_average_is_of_the_samples_extremes() -> None:
    found = seen(np.array([-1, 3], np.float32), np.array([-3, 1], np.float32), np.zeros(0, np.float32))
    assert found.average == (-2.0, 2.0)
    assert TensorStatistics().average == (0.0, 0.0)


def test_channels_are_merged() -> None:
    random = np.random.default_rng(1)
    a, b = random.standard_normal((2, 4, 3, 6)).astype(np.float32)
    one, two = seen(a, channel_axis=1), seen(b, channel_axis=1)
    one.merge(two)
    np.testing.assert_array_equal(one.channel_maximum, np.concatenate([a, b]).max((0, 2)))
    with pytest.raises(ValueError, match="do not merge"):
        one.merge(seen(a))


def test_statistics_are_saved_whole_and_loaded_alike(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    tensors = {
        "a/b": seen(random.standard_normal((2, 5)), channel_axis=1),
        "plain": seen(random.standard_normal(9), histogram=False),
        "nothing": TensorStatistics(),
    }
    path = tmp_path / "statistics.npz"
    Statistics(tensors, "m", "d", 3).save(path)
    found = Statistics.load(path)
    assert (found.model_sha256, found.data_sha256, found.samples, list(found)) == ("m", "d", 3, list(tensors))
    for name, tensor in tensors.items():
        for key, array in tensor.to_arrays().items():
            np.testing.assert_array_equal(found[name].to_arrays()[key], array)
    assert [p.name for p in tmp_path.iterdir()] == ["statistics.npz"]
    found["a/b"].update(np.ones((1, 5)))  # goes on where it was


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "statistics.npz"
    with pytest.raises(FormatError, match="cannot be read"):
        Statistics.load(path)
    path.write_bytes(b"no archive")
    with pytest.raises(FormatError, match="statistics"):
        Statistics.load(path)
    np.savez(path, x=np.zeros(3))
    with pytest.raises(FormatError, match="about"):
        Statistics.load(path)
    Statistics({"t": seen(np.arange(100.0))}).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError):
        Statistics.load(path)


def test_a_histogram_that_contradicts_itself_is_refused() -> None:
    good = seen(np.arange(100.0)).to_arrays()
    for name, index, value in (("integers", 4, 3), ("integers", 0, 7), ("counts", 5, -1), ("reals", 0, 1e9)):
        bad = {key: array.copy() for key, array in good.items()}
        bad[name][index] = value
        with pytest.raises(ValueError, match=r"belong|order"):
            TensorStatistics.from_arrays(bad)
    with pytest.raises(ValueError, match="belongs"):
        TensorStatistics.from_arrays({**good, "counts": np.zeros(7, np.int64)})
