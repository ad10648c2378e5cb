# SPDX-License-Identifier: Apache-2.0
"""Attributes that do not fit are refused with ValueError; what is accepted stays within its tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hexforge import _native
from tests.native.kernels import BLOCK, GUARD, LEVELS, declared

Step = tuple[str, list[np.ndarray], np.ndarray, dict[str, Any]]
ONE = (1, 1, 1)
OUTPUT = {"zero_point": 3, "low": 0, "high": 255}


def conv(bits: int, depthwise: bool = False) -> Step:
    dtype: Any = {8: np.uint8, 16: np.int16, 32: np.float32}[bits]
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, 3, 4), "out": (1, 2, 4), "kernel": (1, 2, 3), "stride": ONE, "pad": (0, 0, 1),
        "dilation": ONE, "channels": 4, "out_channels": 4, "groups": 1, "x_stride": 4, "y_stride": 4, "x_offset": 0,
        "y_offset": 0, "row_taps": 0 if depthwise else 1, "weights": np.zeros(6 * 4 * BLOCK + 1024, np.float32),
        "pad_row": np.zeros(BLOCK, np.float32),
    }  # fmt: skip
    if bits == 32:
        attributes |= {"low": -np.inf, "high": np.inf, "half": 1, "bias_f32": np.zeros(BLOCK, np.float32)}
    elif bits == 16:
        attributes |= OUTPUT | {"bias": np.zeros(BLOCK, np.int64), "multiplier": np.ones(BLOCK), "flush": 2}
    else:
        attributes |= OUTPUT | {"bias32": np.zeros(BLOCK, np.int32), "multiplier32": np.ones(BLOCK, np.float32)}
        attributes |= {"weight_offset": 0 if depthwise else 3, "table": np.zeros(256, np.uint8)}
    kind = ("depthwise_" if depthwise else "conv_") + {8: "u8", 16: "s16", 32: "f32"}[bits]
    return kind, [np.zeros((3, 4, 4), dtype)], np.zeros((2, 4, 4), dtype), attributes


def computed(bits: int, depthwise: bool = False) -> Step:
    """A convolution whose weights are its second input."""
    kind, ins, out, given = conv(bits, depthwise)
    held = {"weights", "bias", "bias32", "bias_f32", "multiplier", "multiplier32", "weight_offset", "flush"}
    added: Any = {8: np.int32, 16: np.int64, 32: np.float32}[bits]
    attributes = {n: v for n, v in given.items() if n not in held} | {
        "weight_start": 0, "weight_strides": (0, 12, 4, 0, 1) if depthwise else (0, 48, 16, 4, 1),
        "added": np.zeros(4, added), "zero_a": 3, "zero_b": 5, "scale": 0.5,
    }  # fmt: skip
    return kind, [*ins, np.zeros(24 if depthwise else 96, ins[0].dtype)], out, attributes


def matmul(kind: str, dtype: Any, second: Any = None) -> Step:
    attributes: dict[str, Any] = {
        "batch": 2, "m": 3, "n": 5, "k": 7, "stride_a": 21, "stride_b": 35, "row_a": 7, "row_b": 5, "column_b": 1,
        "zero_a": 0, "zero_b": 0, "scale": 1.0, **OUTPUT,
    }  # fmt: skip
    return (
        kind,
        [np.zeros((2, 3, 7), dtype), np.zeros((2, 7, 5), second or dtype)],
        np.zeros((2, 3, 5), dtype),
        declared(kind, attributes),
    )


def tiled(kind: str, dtype: Any) -> Step:
    attributes: dict[str, Any] = {
        "batch": 2, "m": 3, "n": 64, "k": 32, "stride_a": 96, "stride_b": 2048, "row_a": 32, "row_b": 64, "column_b": 1,
        "zero_a": 0, "zero_b": 128, "scale": 1.0, "tile": 64, **OUTPUT,
    }  # fmt: skip
    ins = [np.zeros((2, 3, 32), dtype), np.zeros((2, 32, 64), U8)]
    return kind, ins, np.zeros((2, 3, 64), dtype), declared(kind, attributes)


def binary(kind: str, dtype: Any) -> Step:
    attributes: dict[str, Any] = {
        "operation": 0, "dims": (3, 5), "strides_a": (5, 1), "strides_b": (0, 1), "scale_a": 1.0, "scale_b": 1.0,
        "zero_a": 0, "zero_b": 0, **OUTPUT,
    }  # fmt: skip
    if dtype is np.float32:
        attributes |= {"low": 0.0, "high": 255.0}
    return kind, [np.zeros((3, 5), dtype), np.zeros(5, dtype)], np.zeros((3, 5), dtype), declared(kind, attributes)


def pointwise(kind: str, source: Any, target: Any, **attributes: Any) -> Step:
    return kind, [np.zeros(9, source)], np.zeros(9, target), {"count": 9, **attributes}


def pool(kind: str, dtype: Any) -> Step:
    attributes: dict[str, Any] = {
        "batch": 1, "in": (1, 3, 4), "out": (1, 2, 4), "kernel": (1, 2, 3), "stride": ONE, "pad": (0, 0, 1),
        "pad_after": (0, 0, 1), "dilation": ONE, "channels": 5, "scale": 1.0, "zero_a": 0, "lowest": 0, **OUTPUT,
    }  # fmt: skip
    return kind, [np.zeros((3, 4, 5), dtype)], np.zeros((2, 4, 5), dtype), declared(kind, attributes)


def rows(step: str, dtype: Any, **attributes: Any) -> Step:
    return step, [np.zeros((3, 6), dtype)], np.zeros((3, 6), dtype), {"rows": 3, "n": 6, **attributes}


def masked(kind: str, dtype: Any) -> Step:
    attributes = {
        "rows": 3, "n": 6, "table": np.full(1 << 8 * np.dtype(dtype).itemsize, 7, np.uint32), "scale": 1.0, **OUTPUT,
        "mask_bytes": 1, "mask_zero": 0, "keep_zero": 1, "mask_at": np.zeros(3, np.int64),
    }  # fmt: skip
    return kind, [np.zeros((3, 6), dtype), np.zeros(6, U8)], np.zeros((3, 6), dtype), attributes


def norm(kind: str, dtype: Any) -> Step:
    attributes: dict[str, Any] = {
        "outer": 2, "spatial": 3, "groups": 2, "channels": 5, "kind": 0, "zero_a": 0, "scale_x": 1.0, "epsilon": 1e-5,
        "gamma": np.ones(10), "beta": np.ones(10), **OUTPUT,
    }  # fmt: skip
    return kind, [np.zeros((2, 3, 10), dtype)], np.zeros((2, 3, 10), dtype), attributes


U8, S16, F32 = np.uint8, np.int16, np.float32
STEPS: tuple[Step, ...] = (
    *(computed(bits, depthwise) for bits in (8, 16, 32) for depthwise in (False, True)),
    *(conv(bits, depthwise) for bits in (8, 16, 32) for depthwise in (False, True)),
    matmul("matmul_u8", U8), matmul("matmul_s16", S16), matmul("matmul_f32", F32),
    matmul("matmul_s16_u8", S16, U8),
    tiled("matmul_hmx_u8", U8), tiled("matmul_hmx_s16", S16),
    binary("binary_u8", U8), binary("binary_s16", S16), binary("binary_f32", F32),
    pointwise("table_u8", U8, U8, table=np.zeros(256, U8)),
    pointwise("table_u8_s16", U8, S16, table=np.zeros(256, S16)),
    pointwise("table_s16", S16, S16, table=np.zeros(65536, S16)),
    pointwise("table_s16_u8", S16, U8, table=np.zeros(65536, U8)),
    pointwise("table_f32", F32, F32, table=np.zeros(65536, F32)), pointwise("round_half", F32, F32),
    pointwise("quantize_u8", F32, U8, scale=1.0, **OUTPUT), pointwise("quantize_s16", F32, S16, scale=1.0, **OUTPUT),
    pointwise("dequantize_u8", U8, F32, scale=1.0, zero_point=1),
    pointwise("dequantize_s16", S16, F32, scale=1.0, zero_point=1),
    pool("pool_max_u8", U8), pool("pool_max_s16", S16), pool("pool_max_f32", F32), pool("pool_mean_u8", U8),
    pool("pool_mean_s16", S16), pool("pool_mean_f32", F32),
    rows("softmax_u8", U8, table=np.full(256, 7, np.uint32), scale=1.0, **OUTPUT),
    rows("softmax_s16", S16, table=np.full(65536, 7, np.uint32), scale=1.0, **OUTPUT),
    masked("masked_softmax_u8", U8), masked("masked_softmax_s16", S16),
    rows("softmax_f32", F32, table=np.ones(65536, F32)),
    rows("normalize_f32", F32, kind=0, epsilon=1e-5, gamma=np.ones(6, F32), beta=np.ones(6, F32)),
    norm("normalize_u8", U8), norm("normalize_s16", S16),
    ("copy", [np.zeros((3, 5), U8)], np.zeros((5, 3), U8),
     {"element_bytes": 1, "dims": (5, 3), "strides_x": (1, 5), "strides_y": (3, 1), "offset_x": 0, "offset_y": 0}),
    ("fill", [], np.zeros(9, S16), {"element_bytes": 2, "count": 9, "value": np.zeros(1, S16)}),
)  # fmt: skip
OPERANDS = r"operands|one input and one output"
BAD = (-1, 0, -(2**40), 7, 1000, 2**31, 2**33 + 1, 2**40, 2**62, 2**63 - 1, -(2**63))


def attempt(step: Step, attributes: dict[str, Any], less: tuple[int, int] = (0, 0)) -> bool:
    """True where the step was accepted; then it ran and wrote nothing outside its output."""
    kind, ins, out, _ = step
    arena = sum(-(-(a.nbytes + 64) // 64) * 64 for a in ins)
    program = _native.Program(arena)
    tensors, at = [], 0
    for array in ins:
        tensors.append(program.arena_tensor(at, array.nbytes - less[0]))
        at += -(-(array.nbytes + 64) // 64) * 64
    result = program.output_tensor(out.nbytes - less[1])
    try:
        program.step(kind, tensors, [result], attributes)
    except ValueError:
        return False
    try:
        for level in LEVELS:
            _native.set_level(level)
            memory = np.full(out.nbytes + 2 * GUARD, 0xA5, np.uint8)
            program.run([], [memory[GUARD : GUARD + out.nbytes - less[1]]], 2)
            assert (memory[:GUARD] == 0xA5).all()
            assert (memory[GUARD + out.nbytes :] == 0xA5).all()
    finally:
        _native.set_level(LEVELS[-1])
    return True


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s[0])
def test_good_attributes_are_accepted(step: Step) -> None:
    assert attempt(step, step[3])


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s[0])
def test_tensors_that_are_too_small_are_refused(step: Step) -> None:
    if step[1]:
        assert not attempt(step, step[3], less=(1, 0))
    assert not attempt(step, step[3], less=(0, 1))


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s[0])
def test_wrong_attributes(step: Step) -> None:
    for name, value in step[3].items():
        if isinstance(value, np.ndarray):
            without = {k: v for k, v in step[3].items() if k != name}
            windowed = step[0].startswith(("conv", "depthwise"))  # weights are padded there, and some are a choice
            if name not in ("table", "added") or not windowed:
                assert not attempt(step, without), f"{name} missing"
            assert not attempt(step, without | {name: value[: 0 if windowed else -1]}), f"{name} shorter"
        elif isinstance(value, tuple):
            assert not attempt(step, step[3] | {name: (*value, 1)}), f"{name} longer"
            assert not attempt(step, step[3] | {name: ()}), f"{name} empty"
            for i in range(len(value)):
                for bad in BAD:
                    attempt(step, step[3] | {name: (*value[:i], bad, *value[i + 1 :])})
        elif isinstance(value, int):
            for bad in BAD:
                attempt(step, step[3] | {name: bad})


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s[0])
def test_wrong_operands(step: Step) -> None:
    kind, ins, _, attributes = step
    program = _native.Program(4096)
    arena = [program.arena_tensor(0, 1024) for _ in range(4)]
    for count in {0, 1, 2, 3} - {len(ins)}:
        with pytest.raises(ValueError, match=OPERANDS):
            program.step(kind, arena[:count], arena[:1], attributes)
    for count in (0, 2):
        with pytest.raises(ValueError, match=OPERANDS):
            program.step(kind, arena[: len(ins)], arena[:count], attributes)
    for bad in (-1, 99):
        with pytest.raises((ValueError, IndexError)):
            program.step(kind, [bad] * len(ins), [bad], attributes)
    constant, given = program.constant_tensor(np.zeros(1024, np.uint8)), program.input_tensor(1024)
    for target in (constant, given):
        with pytest.raises(ValueError, match="write"):
            program.step(kind, arena[: len(ins)], [target], attributes)


MISTAKES: tuple[Callable[[], Any], ...] = (
    lambda: _native.Program(-1),
    lambda: _native.Program(64).arena_tensor(0, 65),
    lambda: _native.Program(64).arena_tensor(-1, 8),
    lambda: _native.Program(64).arena_tensor(0, -1),
    lambda: _native.Program(64).arena_tensor(2**62, 2**62),
    lambda: _native.Program(64).arena_tensor(2**63 - 1, 2**63 - 1),
    lambda: _native.Program(64).input_tensor(-1),
    lambda: _native.Program(64).output_tensor(-1),
    lambda: _native.Program(64).step("no such step", [], [], {}),
    lambda: _native.Program(64).run([np.zeros(1, np.uint8)], [], 1),
    lambda: _native.set_level("mmx"),
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_programs_refuse(mistake: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        mistake()


def test_inputs_and_outputs_have_their_sizes() -> None:
    program = _native.Program(0)
    ends = program.input_tensor(4), program.output_tensor(4)
    program.step("copy", [ends[0]], [ends[1]], {"element_bytes": 1, "dims": (4,), "strides_x": (1,), "strides_y": (1,)})
    good = np.zeros(4, np.uint8)
    program.run([good], [good.copy()], 1)
    for ins, outs in (([good[:3]], [good]), ([good], [good[:3]]), ([], [good]), ([good], [])):
        with pytest.raises(ValueError, match="run: "):
            program.run(ins, outs, 1)


def test_a_constant_the_step_does_not_ask_for_is_refused() -> None:
    program = _native.Program(0)
    ends = program.input_tensor(4), program.output_tensor(4)
    attributes = {"element_bytes": 1, "dims": (4,), "strides_x": (1,), "strides_y": (1,)}
    with pytest.raises(ValueError, match="copy takes no constant table"):
        program.step("copy", [ends[0]], [ends[1]], {**attributes, "table": np.zeros(256, np.uint8)})
