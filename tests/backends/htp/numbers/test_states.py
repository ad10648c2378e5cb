# SPDX-License-Identifier: Apache-2.0
"""Caches: an output that is the next state of an input is written in place where a run has one array for both."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexforge
from benchmarks.models.language import SHAPES, write_onnx
from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.numbers.segment import SegmentRunner
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType


def _program(dtype: DType, read_again: bool = False) -> HtpProgram:
    """A cache of 6 rows that new ones are put into, and its product with a query."""
    encoding = ScaleOffset(0.1, -100) if dtype.is_integer else None
    graph, cache = Graph("cache"), TensorType(dtype, (6, 16), encoding)
    past, rows, place, query = (
        graph.value(name, type, Role.APP_WRITE)
        for name, type in (
            ("past", cache),
            ("rows", cache.with_shape((1, 16))),
            ("place", TensorType(DType.INT32, (1, 16))),
            ("query", cache.with_shape((1, 6))),
        )
    )
    present = graph.value("present", cache, Role.APP_READ)
    graph.node("ScatterElements", [past, place, rows], [present], axis=0, reduction=0)
    out = graph.value("out", cache.with_shape((1, 16)), Role.APP_READ)
    graph.node("MatMul", [query, past if read_again else present], [out], transpose_in0=False, transpose_in1=False)
    program = HtpBackend().compile(graph)
    assert isinstance(program, HtpProgram)
    return program


def _feeds(program: HtpProgram) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    feeds = {v.name: rng.integers(0, 200, v.shape).astype(v.dtype.numpy) for v in program.inputs}
    return feeds | {"place": np.full((1, 16), 4, np.int32)}


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.UINT8])
def test_in_place(dtype: DType) -> None:
    program = _program(dtype)
    assert program.states == {"present": "past"}
    feeds = _feeds(program)
    before = feeds["past"].copy()
    want = program.run(feeds)
    assert np.array_equal(feeds["past"], before)
    got = program.run_into(feeds, {"present": feeds["past"]})
    assert got["present"] is feeds["past"]
    for name, array in want.items():
        assert np.array_equal(got[name], array), name
    assert not np.array_equal(feeds["past"], before)


def test_not_where_the_past_is_read_too() -> None:
    program = _program(DType.FLOAT32, read_again=True)
    assert not program.states
    feeds = _feeds(program)
    before, want = feeds["past"].copy(), program.run(feeds)
    got = program.run_into(feeds, {"present": feeds["past"]})
    assert np.array_equal(feeds["past"], before)
    assert np.array_equal(got["out"], want["out"])


def test_decoder_in_place(tmp_path: Path) -> None:
    """Tokens one by one in place give the bits of a run of all at once, and of runs that copy."""
    shape, context = SHAPES["tiny"], 16
    programs = {}
    for count in (1, 6):
        write_onnx(tmp_path / f"{count}.onnx", shape, count, context)
        programs[count] = hexforge.compile(tmp_path / f"{count}.onnx", None, "SM8650").program()
    one = programs[1]
    assert isinstance(one, HtpProgram)
    assert not one.facts.references
    assert len(one.states) == 2 * shape.layers
    tokens = np.array([5, 77, 3, 9, 60, 42])

    def empty() -> dict[str, np.ndarray]:
        return {v.name: np.zeros(v.shape, np.float32) for v in one.inputs if v.name.startswith("past")}

    held, copied = empty(), empty()
    for at, token in enumerate(tokens):
        step = {"tokens": np.array([[token]]), "position": np.array([at])}
        in_place = one.run_into(step | held, {o: held[i] for o, i in one.states.items()})
        functional = one.run(step | copied)
        copied = {i: functional[o] for o, i in one.states.items()}
        assert np.array_equal(in_place["logits"], functional["logits"])
        assert all(np.array_equal(held[i], copied[i]) for i in held)
    whole = programs[6].run({"tokens": tokens[None], "position": np.arange(6)} | empty())
    assert np.array_equal(whole["logits"], in_place["logits"])


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.UINT8])
def test_what_is_not_wanted_is_not_run(dtype: DType) -> None:
    """A product that only an unwanted output needs, behind the last one that is wanted."""
    program = _program(dtype)
    feeds = _feeds(program)
    want = program.run(feeds)
    got = program.run_into(feeds, {}, ["out"])
    assert got.keys() == {"present"}
    assert np.array_equal(got["present"], want["present"])
    (runner,) = program._runners
    assert isinstance(runner, SegmentRunner)
    assert 0 < runner._count(["out"]) < runner._count([]) == runner._steps
    assert program.run_into(feeds, {}, ["present"]).keys() == {"out"}
