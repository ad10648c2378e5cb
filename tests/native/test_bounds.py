# SPDX-License-Identifier: Apache-2.0
"""Whatever a file says a step is: it is refused with ValueError, or it stays within its tensors and its axes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.guarded_memory import GuardedMemory
from hexforge import _native
from tests.native.kernels import GUARD, declared

Step = tuple[str, list[np.ndarray], list[np.ndarray], dict[str, Any]]
U8, S16, F32, I32, I64 = np.uint8, np.int16, np.float32, np.int32, np.int64
OUTPUT = {"zero_a": 0, "zero_point": 3, "low": 0, "high": 255, "scale": 1.0}
TABLE = np.zeros(65536, F32)
ONE = (1, 1, 1)


def zeros(dtype: Any, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.zeros(shape, dtype) for shape in shapes]


def resize(kind: str, dtype: Any, real: Any) -> Step:
    attributes: dict[str, Any] = {
        "batch": 2,
        "channels": 3,
        "in": (1, 2, 4),
        "out": (1, 4, 8),
        "taps": (1, 2, 2),
        **OUTPUT,
    }
    for axis, size in enumerate((1, 4, 8)):
        taps = attributes["taps"][axis]
        attributes |= {f"index{axis}": np.zeros(size * taps, I32), f"weight{axis}": np.ones(size * taps, real)}
    return kind, zeros(dtype, (2, 2, 4, 3)), zeros(dtype, (2, 4, 8, 3)), attributes


def nest(kind: str, ins: list[Any], out: Any, **more: Any) -> Step:
    strides = (5, 1, *(0, 1) * (len(ins) - 1))
    shapes = [(3, 5), *[(5,)] * (len(ins) - 1)]
    arrays = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, ins, strict=True)]
    return kind, arrays, zeros(out, (3, 5)), {"dims": (3, 5), "strides": strides, **more}


def along(kind: str, dtype: Any, out: Any, shape: tuple[int, ...], **more: Any) -> Step:
    return kind, zeros(dtype, (2, 3, 4)), zeros(out, shape), {"outer": 2, "n": 3, "inner": 4, **OUTPUT, **more}


def rows(kind: str, dtype: Any, **more: Any) -> Step:
    return kind, zeros(dtype, (3, 6)), zeros(dtype, (3, 6)), {"rows": 3, "n": 6, **more}


def wide(kind: str, dtype: Any) -> Step:
    attributes = {
        "batch": 1, "in": (1, 3, 4), "out": (1, 2, 4), "kernel": (1, 2, 3), "stride": ONE, "pad": (0, 0, 1),
        "dilation": ONE, "channels": 4, "out_channels": 3, "groups": 2, "blocks": 2, **OUTPUT,
        "weights_low": np.zeros(2 * 4 * 2 * 32, S16), "sums": np.zeros(12, I64), "units": np.zeros(6, I64),
        "scales": np.ones(12), "bias": np.ones(6),
    }  # fmt: skip
    return kind, zeros(dtype, (3, 4, 8)), zeros(dtype, (2, 4, 6)), attributes


SEQUENCE = {
    "time": 2, "batch": 2, "features": 3, "units": 4, "reverse": 0, "time_major": 1, "has_h": 1, "sigmoid": TABLE,
    "tanh": TABLE,
}  # fmt: skip
AT = {"index_bytes": 4, "data": (3, 4), "batch": 2, "tuples": 5, "slice": 2}
GIVEN: tuple[Step, ...] = (
    ("take", [np.zeros((2, 3, 4), U8), np.array([2, -1, 0, 1, 1], I32)], zeros(U8, (2, 5, 4)),
     {"outer": 2, "axis": 3, "inner_bytes": 4, "indices": 5, "index_bytes": 4}),
    ("take_at", [np.zeros((2, 3, 4, 2), U8), np.zeros((2, 5, 2), I32)], zeros(U8, (2, 5, 2)),
     {"element_bytes": 1, **AT}),
    ("take_at", [np.zeros((3, 4), U8), np.zeros((3, 2), I64)], zeros(U8, (3, 2)),
     {"element_bytes": 1, "index_bytes": 8, "data": (3, 4), "dims": (3, 2), "axis": 1}),
    ("scatter_f32", [np.zeros((2, 3, 4, 2), F32), np.zeros((2, 5, 2), I32), np.zeros((2, 5, 2), F32)],
     zeros(F32, (2, 3, 4, 2)), {"reduction": 1, **AT}),
    ("one_hot", zeros(I32, (2, 3)), zeros(S16, (2, 4, 3)),
     {"outer": 2, "inner": 3, "depth": 4, "index_bytes": 4, "element_bytes": 2, "on": np.ones(1, S16),
      "off": np.zeros(1, S16)}),
    ("top_k_u8", zeros(U8, (3, 6)), [np.zeros((3, 2), U8), np.zeros((3, 2), I32)],
     {"rows": 3, "n": 6, "k": 2, "largest": 1, "index_bytes": 4}),
    resize("resize_u8", U8, F32), resize("resize_s16", S16, np.float64), resize("resize_f32", F32, F32),
    ("resize_nearest", zeros(U8, (2, 2, 4, 3)), zeros(U8, (2, 4, 8, 3)),
     {"batch": 2, "channels": 3, "in": (1, 2, 4), "out": (1, 4, 8), "index0": np.zeros(1, I32),
      "index1": np.zeros(4, I32), "index2": np.zeros(8, I32)}),
    along("reduce_sum_u8", U8, U8, (2, 4)), along("reduce_max_f32", F32, F32, (2, 4)),
    along("cumulative_s16", S16, S16, (2, 3, 4), exclusive=0, reverse=1),
    along("arg_f32", F32, I64, (2, 4), largest=1, index_bytes=8),
    rows("log_softmax_u8", U8, table=np.full(256, 7, np.uint32), step=1.0, **OUTPUT),
    rows("log_softmax_f32", F32, table=TABLE, beta=1.0),
    rows("affine_u8", U8, gamma=np.ones(6), beta=np.ones(6), **OUTPUT),
    rows("affine_f32", F32, gamma=np.ones(6, F32), beta=np.ones(6, F32)),
    rows("lrn_u8", U8, radius=2, alpha=1.0, beta=1.0, bias=1.0, scale_x=1.0, **OUTPUT),
    ("normalize_groups_f32", zeros(F32, (2, 3, 10)), zeros(F32, (2, 3, 10)),
     {"outer": 2, "spatial": 3, "groups": 2, "channels": 5, "kind": 0, "epsilon": 1e-5, "gamma": np.ones(10, F32),
      "beta": np.ones(10, F32)}),
    nest("compare_u8", [U8, U8], U8, operation=2, scale_a=1.0, scale_b=1.0, zero_a=0, zero_b=0),
    nest("logical", [U8, U8], U8, operation=1), nest("select", [U8, F32, F32], F32, element_bytes=4),
    nest("integer_int32", [I32, I32], I32, operation=3), nest("prelu_f32", [F32, F32], F32),
    ("cast", zeros(F32, (9,)), zeros(U8, (9,)), {"count": 9, "from": 8, "to": 1}),
    ("grid_sample_u8_f32", [np.zeros((2, 3, 4, 5), U8), np.zeros((2, 2, 2, 2), F32)], zeros(U8, (2, 2, 2, 5)),
     {"batch": 2, "in": (3, 4), "out": (2, 2), "channels": 5, "align_corners": 0, "nearest": 0, "padding": 2,
      **OUTPUT}),
    ("grid_sample_u8_f32", [np.zeros((2, 2, 3, 4, 5), U8), np.zeros((2, 1, 2, 2, 3), F32)], zeros(U8, (2, 1, 2, 2, 5)),
     {"batch": 2, "in": (2, 3, 4), "out": (1, 2, 2), "channels": 5, "align_corners": 0, "nearest": 0, "padding": 2,
      **OUTPUT}),
    ("lstm_f32", zeros(F32, (2, 2, 3), (2, 4), (2, 4)), zeros(F32, (2, 2, 4), (2, 4), (2, 4)),
     {**SEQUENCE, "size": 4, "gates": 4, "has_c": 1, "cell_clip": 0.0, "output_clip": 0.0, "wx": np.zeros(48, F32),
      "wh": np.zeros(64, F32), "bias": np.zeros(16, F32)}),
    ("gru_f32", zeros(F32, (2, 2, 3), (2, 4)), zeros(F32, (2, 2, 4), (2, 4)),
     {**SEQUENCE, "linear": 1, "wx": np.zeros(36, F32), "wh": np.zeros(48, F32), "bias_x": np.zeros(12, F32),
      "bias_h": np.zeros(12, F32)}),
    wide("conv_wide_u8", U8), wide("conv_wide_s16", S16),
)  # fmt: skip
STEPS = tuple((kind, ins, outs, declared(kind, attributes)) for kind, ins, outs, attributes in GIVEN)
IDS = [f"{step[0]}-{i}" for i, step in enumerate(STEPS)]
BAD = (-1, 0, 7, 1000, 2**31, 2**32, 2**33 + 1, 2**40, 2**56, 2**61, 2**62, 2**63 - 1, -(2**63))


def attempt(step: Step, attributes: dict[str, Any], less: int = -1) -> bool:
    """True where the step was accepted; then it ran and wrote nothing beside its outputs.

    `less` is the number of a tensor that is a byte too small.
    """
    kind, ins, outs, _ = step
    sizes = [a.nbytes - (i == less) for i, a in enumerate([*ins, *outs])]
    program = _native.Program(0)
    room = _native.step_rooms()[kind]
    given_ = [program.input_tensor(size, room) for size in sizes[: len(ins)]]
    made = [program.output_tensor(size) for size in sizes[len(ins) :]]
    try:
        program.step(kind, given_, made, attributes)
    except ValueError:
        return False
    guarded = GuardedMemory()
    arrays = [
        guarded.with_room(np.ascontiguousarray(a).reshape(-1).view(U8)[:size], room)
        for a, size in zip(ins, sizes, strict=False)
    ]
    memory = [np.full(a.nbytes + 2 * GUARD, 0xA5, U8) for a in outs]
    with contextlib.suppress(IndexError):  # an index of the data is outside its axis
        program.run(arrays, [m[GUARD : GUARD + size] for m, size in zip(memory, sizes[len(ins) :], strict=True)], 2)
    guarded.release()
    for array, m in zip(outs, memory, strict=True):
        assert (m[:GUARD] == 0xA5).all(), f"{kind} wrote before an output"
        assert (m[GUARD + array.nbytes :] == 0xA5).all(), f"{kind} wrote past an output"
    return True


@pytest.mark.parametrize("step", STEPS, ids=IDS)
def test_what_fits_is_accepted_and_tensors_that_are_too_small_are_not(step: Step) -> None:
    assert attempt(step, step[3])
    for tensor in range(len(step[1]) + len(step[2])):
        assert not attempt(step, step[3], tensor), f"tensor {tensor} is a byte short"


def places(attributes: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """Every integer of the attributes; -1 where it is no list."""
    for name, value in attributes.items():
        if isinstance(value, tuple):
            yield from ((name, i) for i in range(len(value)))
        elif isinstance(value, int):
            yield name, -1


def changed(attributes: dict[str, Any], place: tuple[str, int], value: int) -> dict[str, Any]:
    name, i = place
    whole = attributes[name]
    return {**attributes, name: value if i < 0 else (*whole[:i], value, *whole[i + 1 :])}


@pytest.mark.parametrize("step", STEPS, ids=IDS)
def test_one_wrong_number(step: Step) -> None:
    for place in places(step[3]):
        for bad in BAD:
            attempt(step, changed(step[3], place, bad))


@settings(max_examples=40)
@given(data=st.data())
def test_several_wrong_numbers(data: st.DataObject) -> None:
    """Products of two that wrap around to something small, above all."""
    step = data.draw(st.sampled_from(STEPS), "step")
    attributes = step[3]
    for _ in range(data.draw(st.integers(2, 4), "how many")):
        place = data.draw(st.sampled_from(list(places(attributes))), "place")
        attributes = changed(attributes, place, data.draw(st.sampled_from(BAD), "number"))
    attempt(step, attributes)


def test_products_that_wrap_around_are_refused() -> None:
    for kind, names in (("take", ("outer", "axis")), ("reduce_sum_u8", ("outer", "n")), ("top_k_u8", ("rows", "n"))):
        step = next(s for s in STEPS if s[0] == kind)
        assert not attempt(step, {**step[3], **dict.fromkeys(names, 2**32)}), kind
        assert not attempt(step, {**step[3], names[0]: 0, names[1]: 2**62}), f"{kind}: a 0 hides nothing"


@pytest.mark.parametrize("step", [s for s in STEPS if s[0].startswith("resize")], ids=lambda s: s[0])
def test_index_tables_stay_within_their_axis(step: Step) -> None:
    for axis in range(3):
        table = step[3][f"index{axis}"]
        for bad in (-1, step[3]["in"][axis], 2**31 - 1, -(2**31)):
            wrong = table.copy()
            wrong[-1] = bad
            assert not attempt(step, {**step[3], f"index{axis}": wrong}), f"axis {axis}: {bad}"


@pytest.mark.parametrize("bad", [3, -4, 2**31 - 1, -(2**31)])
def test_indices_outside_their_axis_end_the_run(bad: int) -> None:
    program = _native.Program(0)
    room = _native.step_rooms()["take"]
    indices = np.array([0, bad, *[0] * (room // 4)], I32)[:2]
    tensors = program.input_tensor(12, room), program.constant_tensor(indices), program.output_tensor(8)
    step = {"outer": 1, "axis": 3, "inner_bytes": 4, "indices": 2, "index_bytes": 4}
    program.step("take", list(tensors[:2]), [tensors[2]], step)
    with pytest.raises(IndexError, match="outside an axis of 3"):
        program.run([np.zeros(12 + room, U8)], [np.zeros(8, U8)], 1)
