# SPDX-License-Identifier: Apache-2.0
"""What a kernel may read behind its tensors is there, or the step is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hexforge import _native

ROOMS = _native.step_rooms()
TABLE: dict[str, Any] = {"count": 8, "table": np.arange(256, dtype=np.uint8)}
ROUND = {"count": 2}


def test_every_step_says_what_it_may_read() -> None:
    assert ROOMS.keys() == _native.step_fields().keys()
    assert set(ROOMS.values()) == {0, 64}
    exact = {
        "cast",
        "copy",
        "dequantize_u8",
        "dequantize_s16",
        "quantize_u8",
        "quantize_s16",
        "round_half",
        "table_f32",
    }
    exact |= {"masked_softmax_u8", "masked_softmax_s16", "matmul_hmx_u8", "matmul_hmx_s16", "packed_f32"}
    exact |= {"packed_scaled_u8", "packed_scaled_s16"}
    exact |= {f"scatter_{kind}" for kind in ("u8", "s16", "f32", "int32", "int64")}
    assert {kind for kind, room in ROOMS.items() if room == 0} == exact


def test_an_input_without_room_is_for_steps_that_read_no_more_than_it() -> None:
    program = _native.Program(0)
    given, result = program.input_tensor(8), program.output_tensor(8)
    program.step("round_half", [given], [result], ROUND)
    with pytest.raises(
        ValueError, match="table_u8 reads up to 64 bytes behind an input that has 0 there; copy it into the arena"
    ):
        program.step("table_u8", [given], [result], TABLE)


def test_a_run_is_given_the_room_that_was_declared() -> None:
    program = _native.Program(0)
    program.step("table_u8", [program.input_tensor(8, 64)], [program.output_tensor(8)], TABLE)
    out = np.zeros(8, np.uint8)
    with pytest.raises(ValueError, match="an input has the wrong size"):
        program.run([np.zeros(8, np.uint8)], [out], 1)
    program.run([np.arange(72, dtype=np.uint8)], [out], 1)
    np.testing.assert_array_equal(out, np.arange(8))


def test_an_output_that_is_read_again_needs_room() -> None:
    program = _native.Program(0)
    given = program.input_tensor(8, 64)
    bare, roomy, last = program.output_tensor(8), program.output_tensor(8, 64), program.output_tensor(8)
    program.step("table_u8", [given], [bare], TABLE)
    program.step("table_u8", [given], [roomy], TABLE)
    with pytest.raises(ValueError, match="behind an output that has 0"):
        program.step("table_u8", [bare], [last], TABLE)
    program.step("table_u8", [roomy], [last], TABLE)


@pytest.mark.parametrize("room", [0, 63, 64])
def test_the_room_of_a_constant_is_what_its_memory_has(room: int) -> None:
    program = _native.Program(0)
    views = (
        np.zeros(8 + room, np.uint8)[:8],
        np.frombuffer(memoryview(bytes(8 + room))[:8], np.uint8),
        np.zeros(8 + room, np.uint8)[:8].reshape(2, 4).view(np.int8),
    )
    for view in views:
        constant, result = program.constant_tensor(view), program.output_tensor(8)
        if room == 64:
            program.step("table_u8", [constant], [result], TABLE)
        else:
            with pytest.raises(ValueError, match=f"behind a constant that has {room}"):
                program.step("table_u8", [constant], [result], TABLE)


def test_the_arena_has_room_behind_its_end() -> None:
    program = _native.Program(64)
    last = program.arena_tensor(0, 64)
    program.step("copy", [program.input_tensor(64)], [last],
                 {"element_bytes": 1, "dims": (64,), "strides_x": (1,), "strides_y": (1,)})  # fmt: skip
    program.step("table_u8", [last], [program.output_tensor(64)], {**TABLE, "count": 64})
