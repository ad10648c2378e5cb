# SPDX-License-Identifier: Apache-2.0
"""Layout and space ops against naive implementations, and their complaints."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import DType, Graph, Node, Role, ScaleOffset, TensorType
from hexforge.ops.evaluate import evaluate

quick = settings(max_examples=40, deadline=None)


def node(op: str, *arrays: np.ndarray, **params: Any) -> Node:
    graph = Graph("test")
    ins = [graph.value(f"in{i}", TensorType(DType.of(a.dtype), a.shape), Role.APP_WRITE) for i, a in enumerate(arrays)]
    return graph.node(op, ins, **params)


def run(op: str, *arrays: np.ndarray, **params: Any) -> np.ndarray:
    return evaluate(node(op, *arrays, **params).call, arrays)[0]


def counted(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@st.composite
def _slices(draw: st.DrawFn) -> tuple[tuple[int, ...], list[tuple[int, int, int]]]:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    rows = []
    for n in shape:
        step = draw(st.sampled_from([-3, -2, -1, 1, 2, 3]))
        begin = draw(st.integers(0, n + 1))
        end = draw(st.integers(-1 if step < 0 else 0, n + 1))
        rows.append((begin, end, step))
    return shape, rows


@quick
@given(_slices())
def test_strided_slice_walks_each_axis(case: tuple[tuple[int, ...], list[tuple[int, int, int]]]) -> None:
    shape, rows = case
    x = counted(*shape)
    picked = []
    for n, (begin, end, step) in zip(shape, rows, strict=True):
        at, places = min(begin, n if step > 0 else n - 1), []
        while (at < min(end, n)) if step > 0 else (at > end and at >= 0):
            places.append(at)
            at += step
        picked.append(places)
    np.testing.assert_array_equal(run("StridedSlice", x, ranges=rows), x[np.ix_(*picked)])


@quick
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 4), st.sampled_from([0, 1, 2, 3]))
def test_pad_reads_the_mirrored_place(n: int, before: int, after: int, scheme: int) -> None:
    most = {0: 9, 1: n, 2: n - 1, 3: 9}[scheme]
    before, after = min(before, most), min(after, most)

    def source(i: int) -> float:
        if scheme == 0:
            return 7.0 if not 0 <= i < n else float(i)
        if scheme == 3:
            return float(min(max(i, 0), n - 1))
        edge = 1 if scheme == 1 else 0
        return float(-i - edge if i < 0 else 2 * (n - 1) + edge - i if i >= n else i)

    got = run("Pad", counted(n), scheme=scheme, pad_amount=[[before, after]], pad_constant_value=7.0)
    assert got.tolist() == [source(i) for i in range(-before, n + after)]


@quick
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 3))
def test_depth_and_space(n: int, h: int, w: int, d: int, bh: int, bw: int) -> None:
    x = counted(n, h, w, d * bh * bw)
    for mode in (0, 1):
        y = run("DepthToSpace", x, block_size=(bh, bw), mode=mode)
        for i, j, p, q, k in itertools.product(range(h), range(w), range(bh), range(bw), range(d)):
            channel = (p * bw + q) * d + k if mode == 0 else (k * bh + p) * bw + q
            assert y[0, i * bh + p, j * bw + q, k] == x[0, i, j, channel]
        np.testing.assert_array_equal(run("SpaceToDepth", y, block_size=(bh, bw), mode=mode), x)
    y = counted(n, h * bh, w * bw, d)
    batches = run("SpaceToBatch", y, block_size=(bh, bw))
    assert batches[0, 0, 0, 0] == y[0, 0, 0, 0]
    np.testing.assert_array_equal(run("BatchToSpace", batches, block_size=(bh, bw)), y)


def test_views_are_not_copies() -> None:
    x = counted(2, 3, 4)
    for call in (
        node("Transpose", x, perm=(2, 0, 1)).call,
        node("StridedSlice", x, ranges=[[0, 2, 1], [2, -1, -1], [1, 4, 2]]).call,
        node("Split", x, axis=1, split_index=(1,)).call,
    ):
        assert all(np.shares_memory(x, y) for y in evaluate(call, [x]))


def test_pad_of_integers_fills_with_the_quantized_constant() -> None:
    graph = Graph("test")
    type = TensorType(DType.UINT8, (2,), ScaleOffset(0.5, -128))
    x = graph.value("x", type, Role.APP_WRITE)
    padded = graph.node("Pad", [x], scheme=0, pad_amount=[[1, 0]], pad_constant_value=-1.0)
    assert padded.outputs[0].encoding == type.encoding
    assert evaluate(padded.call, [np.array([1, 2], np.uint8)])[0].tolist() == [126, 1, 2]


def test_concat_of_two_encodings_goes_through_real_numbers() -> None:
    graph = Graph("test")
    a = graph.value("a", TensorType(DType.UINT8, (1,), ScaleOffset(0.5, -10)), Role.APP_WRITE)
    b = graph.value("b", TensorType(DType.UINT8, (1,), ScaleOffset(0.25, 0)), Role.APP_WRITE)
    joined = graph.node("Concat", [a, b], axis=0)
    assert evaluate(joined.call, [np.array([14], np.uint8), np.array([6], np.uint8)])[0].tolist() == [14, 13]


@pytest.mark.parametrize(
    ("op", "params", "words"),
    [
        ("Transpose", {"perm": (0, 0)}, "no permutation"),
        ("Split", {"axis": 1, "split_index": (4, 2)}, "does not rise"),
        ("Pad", {"scheme": 2, "pad_amount": [[2, 0], [0, 0]]}, "at most"),
        ("Pad", {"scheme": 0, "pad_amount": [[1, 1]]}, "pairs of counts"),
        ("StridedSlice", {"ranges": [[0, 1, 1], [-1, 2, 1]]}, "negative bound"),
        ("StridedSlice", {"ranges": [[0, 1, 1], [0, 2, 0]]}, "step 0"),
        ("Tile", {"multiples": (2,)}, "must be 2 counts"),
        ("ExpandDims", {"axes": (0, 0)}, "twice"),
        ("ChannelShuffle", {"num_groups": 2, "axis": 1}, "do not divide"),
        ("DepthToSpace", {"block_size": (2, 2)}, "dimensions"),
        ("Concat", {"axis": 2}, "outside"),
        ("Reshape", {}, "must be declared"),
    ],
)
def test_bad_nodes_say_why(op: str, params: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        node(op, counted(2, 3), **params)
