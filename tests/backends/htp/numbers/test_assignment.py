# SPDX-License-Identifier: Apache-2.0
"""A program from a file reads only what its own steps wrote: nothing of who used the memory before."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from hexforge import _native
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.errors import FormatError
from hexforge.formats.container import json_bytes
from hexforge.ir import DType, Graph, Role, TensorType


def copy(source: int, target: int, count: int, **more: Any) -> list[Any]:
    box = {"element_bytes": 1, "dims": [count], "strides_x": [1], "strides_y": [1], "offset_x": 0, "offset_y": 0}
    return ["copy", [source], [target], box | more]


def load(steps: list[Any], arena: int = 256, tensors: list[Any] | None = None, weights: bytes = b"") -> HtpProgram:
    """A program of one segment: tensor 0 is the input, 1 the output (64 bytes each), 2 and more are given."""
    graph = Graph("g")
    kind = TensorType(DType.INT32, (16,))
    x, y = graph.value("x", kind, Role.APP_WRITE), graph.value("y", kind, Role.APP_READ)
    segment = {
        "reads": ["x"],
        "writes": [["y", "<i4", [16]]],
        "arena_bytes": arena,
        "tensors": [["input", 0, 64], ["output", 0, 64], *(tensors or [["arena", 0, 64], ["arena", 128, 64]])],
        "steps": steps,
    }
    data = json_bytes({"graph": "", "stages": [segment]})
    kept = np.frombuffer(weights or bytes(64), np.uint8).copy()
    whole = memoryview(kept)  # type: ignore[arg-type]
    program, _ = HtpProgram.load("g", [x], [y], Saved(data), lambda offset, size: whole[offset : offset + size])
    return program


@dataclass(frozen=True, slots=True)
class Saved:
    """A program as a file holds it."""

    data: bytes

    def __call__(self) -> Any:
        return json.loads(self.data)

    def text(self) -> bytes:
        return self.data


def value() -> dict[str, np.ndarray]:
    return {"x": np.arange(16, dtype=np.int32)}


def test_what_writes_all_it_reads_runs() -> None:
    program = load([copy(0, 2, 64), copy(2, 3, 64), copy(3, 1, 64)])
    np.testing.assert_array_equal(program.run(value())["y"], value()["x"])


def strided(source: int, target: int, offset: int, count: int, stride: int) -> list[Any]:
    return copy(source, target, count, strides_x=[1], strides_y=[stride], offset_y=offset)


WRONG: dict[str, tuple[list[Any], str]] = {
    "no steps": ([], "output 0 is not written whole"),
    "the output is written in part": ([copy(0, 1, 63)], "not written whole"),
    "every other byte": ([strided(0, 1, 0, 32, 2)], "not written whole"),
    "memory nobody wrote": ([copy(2, 1, 64)], "step 0 .copy. reads bytes that no step before it wrote"),
    "written too late": ([copy(2, 1, 64), copy(0, 2, 64)], "step 0"),
    "written in part": ([copy(0, 2, 63), copy(2, 1, 64)], "step 1"),
    "a hole": ([copy(0, 2, 31), copy(0, 2, 32, offset_y=32), copy(2, 1, 64)], "step 2"),
    "an output before it is written": ([copy(1, 2, 64), copy(0, 1, 64)], "step 0"),
    "all but one phase": ([*(strided(0, 2, i, 16, 4) for i in range(3)), copy(2, 1, 64)], "step 3"),
    "onto itself": ([copy(0, 2, 64), copy(2, 2, 32, offset_y=32), copy(2, 1, 64)], "overlaps"),
    "twice at once": ([copy(0, 1, 64, dims=[2, 64], strides_x=[0, 1], strides_y=[0, 1])], "more than once"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_reads_more_than_it_wrote_is_refused(name: str) -> None:
    steps, words = WRONG[name]
    with pytest.raises(FormatError, match=words):
        load(steps)


RIGHT: dict[str, list[Any]] = {
    "halves": [copy(0, 1, 32), copy(0, 1, 32, offset_y=32, offset_x=32)],
    "phases that interleave": [
        copy(0, 1, 16, strides_x=[4], strides_y=[4], offset_x=i, offset_y=i) for i in (2, 0, 3, 1)
    ],
    "backwards": [copy(0, 1, 64, offset_x=63, strides_x=[-1], offset_y=63, strides_y=[-1])],
    "channels side by side": [
        copy(0, 1, 0, dims=[8, c], strides_x=[8, 1], strides_y=[8, 1], offset_x=at, offset_y=at)
        for at, c in ((0, 3), (3, 4), (7, 1))
    ],
    "phases of unequal size": [
        copy(0, 1, 13, strides_x=[5], strides_y=[5]),
        *(copy(0, 1, 13 if i < 4 else 12, strides_x=[5], strides_y=[5], offset_x=i, offset_y=i) for i in (1, 2, 3, 4)),
    ],
}


@pytest.mark.parametrize("name", RIGHT)
def test_pieces_that_make_the_whole_are_taken(name: str) -> None:
    np.testing.assert_array_equal(load(RIGHT[name]).run(value())["y"], value()["x"])


def test_every_way_to_write_a_part_is_followed_exactly() -> None:
    """Random boxes of copies against a mask of bytes."""
    rng = np.random.default_rng(5)
    seen = {True: 0, False: 0}
    for _ in range(400):
        mask, steps = np.zeros(64, bool), []
        for _ in range(rng.integers(1, 7)):
            dims = [int(n) for n in rng.integers(1, 5, rng.integers(1, 4))]
            inner = np.cumprod([1, *dims[:0:-1]])[::-1] * rng.integers(1, 3)
            strides = [int(s) for s in rng.permutation(inner)] if rng.integers(2) else [int(s) for s in inner]
            offset = int(rng.integers(0, 64))
            places = offset + sum(np.ix_(*[np.arange(d) * s for d, s in zip(dims, strides, strict=True)]))
            step = copy(0, 1, 0, dims=dims, strides_x=[0] * len(dims), strides_y=strides, offset_y=offset)
            if places.max() < 64 and len(np.unique(places)) == places.size:
                mask[places] = True
                steps.append(step)
        if rng.integers(2):
            steps += [copy(0, 1, 1, offset_y=int(i)) for i in np.flatnonzero(~mask)]
            mask[:] = True
        try:
            load(steps)
            refused = ""
        except FormatError as error:
            refused = str(error)
        assert mask.all() if not refused else "more than once" in refused or not mask.all(), steps
        seen[not refused] += 1
    assert min(seen.values()) > 50


def test_arena_tensors_and_constants_are_aligned() -> None:
    with pytest.raises(FormatError, match="multiple of 64"):
        load([copy(0, 1, 64)], tensors=[["arena", 1, 8]])
    table = {"at": [1, 4], "dtype": "uint8", "shape": [4]}
    with pytest.raises(FormatError, match="multiple of 8"):
        load([copy(0, 1, 64)], tensors=[table])
    table = {"at": [1, 512], "dtype": "uint8", "shape": [512]}
    steps = [copy(0, 2, 64), ["table_u8_s16", [2], [1], {"count": 8, "table": table}]]
    with pytest.raises(FormatError, match="does not lie where its data type may"):
        load(steps, tensors=[["arena", 0, 64]], weights=bytes(1024))


def test_weights_behind_the_channels_are_zero() -> None:
    """Kernels read whole groups of channels; with weights there, a file could read what lies behind its tensor."""
    ones = np.ones(3 * 4 * 64 + 4096, np.int8)  # 1 x 1, 3 of 4 channels
    for weights, fits in ((ones, False), (ones * (np.arange(ones.size) % 4 < 3), True)):
        program = _native.Program(0)
        x, y = program.input_tensor(12, 64), program.output_tensor(64)
        one = (1, 1, 1)
        attributes = {
            "batch": 1, "in": (1, 1, 4), "out": (1, 1, 4), "kernel": one, "stride": one, "pad": (0, 0, 0),
            "dilation": one, "channels": 3, "out_channels": 16, "x_stride": 3, "y_stride": 16, "zero_point": 0,
            "low": 0, "high": 255, "weights": weights.astype(np.int8), "bias32": np.zeros(64, np.int32),
            "multiplier32": np.ones(64, np.float32), "pad_row": np.zeros(64, np.uint8),
        }  # fmt: skip
        if fits:
            program.step("conv_u8", [x], [y], attributes)
        else:
            with pytest.raises(ValueError, match="behind the channels"):
                program.step("conv_u8", [x], [y], attributes)


def test_bounds_and_zero_points_of_no_tensor_are_refused() -> None:
    for name in ("zero_a", "zero_b", "zero_point", "low", "high"):
        attributes = dict.fromkeys(("zero_a", "zero_b", "zero_point", "low"), 0) | {"high": 255, "operation": 0}
        attributes |= {"dims": [64], "strides_a": [1], "strides_b": [1], name: -(2**31)}  # type: ignore[dict-item]
        step = ["binary_u8", [2, 2], [1], attributes | {"scale_a": {"real": "0x1p0"}, "scale_b": {"real": "0x1p0"}}]
        with pytest.raises(FormatError, match=f"{name} is out of range"):
            load([copy(0, 2, 64), step], tensors=[["arena", 0, 64]])


def test_very_many_steps_load_in_time() -> None:
    """Time grows as the number of steps does, also where none of them completes what it writes."""
    count = 200_000
    began = time.process_time()
    load([copy(0, 2, 64), *[copy(2, 3, 64), copy(3, 2, 64)] * (count // 2), copy(2, 1, 64)])
    whole = time.process_time() - began
    began = time.process_time()
    with pytest.raises(FormatError, match=r"not written whole|too many small pieces"):
        load([strided(0, 2, i % 7, 8, 7) for i in range(count // 4)])
    scattered = time.process_time() - began
    assert max(whole, scattered) < 30
