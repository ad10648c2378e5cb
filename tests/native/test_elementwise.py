# SPDX-License-Identifier: Apache-2.0
"""binary_*, table_*, quantize_*, dequantize_* and round_half."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.pointwise import flat_nest
from tests.native.halves import every_half, half, matrix_half, patterns
from tests.native.kernels import FIXED, HOW, KIND, RANGE, assert_bits, fill, round_and_clamp, run

SEEDS = st.integers(0, 2**32 - 1)
OPERATIONS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@st.composite
def broadcasts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes that broadcast against each other."""
    shape = draw(st.lists(st.integers(1, 9), min_size=1, max_size=5))
    if draw(st.booleans()):
        shape[-1] = draw(st.integers(1, 150))
    shapes = []
    for _ in range(2):
        kept = [n if draw(st.integers(0, 3)) else 1 for n in shape]
        shapes.append(tuple(kept[draw(st.integers(0, len(kept) - 1)) if draw(st.booleans()) else 0 :]))
    return shapes[0], shapes[1]


def binary(operation: str, a: np.ndarray, b: np.ndarray, ka: float, kb: float, real: type) -> np.ndarray:
    """Steps of the output: every operation rounded by itself, in the order docs/numerics.md gives."""
    a, b, one, two = a.astype(real), b.astype(real), real(ka), real(kb)
    with np.errstate(all="ignore"):
        match operation:
            case "add":
                return a * one + b * two
            case "subtract":
                return a * one - b * two
            case "multiply":
                return (a * b) * one
            case "divide":
                return np.where(b == 0, np.where(a > 0, real(1e9), real(-1e9)), (a / b) * one)
            case "maximum":
                return np.maximum(a * one, b * two)
            case _:
                return np.minimum(a * one, b * two)


def check_binary(
    bits: int, operation: str, rng: np.random.Generator, shapes: tuple[tuple[int, ...], tuple[int, ...]], how: str
) -> None:
    low, high = RANGE[bits]
    a, b = (fill(rng, s, low, high, how) for s in shapes)
    zero_a, zero_b, zero = (int(fill(rng, (), low, high, str(rng.choice(HOW)))) for _ in range(3))
    ka, kb = (float(v) for v in rng.choice([0.5, 0.25, 1.0, 1e-6, 3.7, 1e5, *rng.uniform(0.01, 2, 6)], 2))
    if operation == "multiply" and rng.integers(0, 2):
        ka /= high
    bounds = sorted(int(v) for v in rng.integers(low, high + 1, 2)) if rng.integers(0, 3) == 0 else [low, high]
    real = np.float32 if bits == 8 else np.float64
    want = round_and_clamp(binary(operation, a - zero_a, b - zero_b, ka, kb, real), zero, bounds[0], bounds[1], bits)
    loops = flat_nest(want.shape, *shapes)
    assert loops is not None
    attributes: dict[str, Any] = {
        "operation": OPERATIONS.index(operation), "scale_a": ka, "scale_b": kb, "zero_a": zero_a, "zero_b": zero_b,
        "zero_point": zero, "low": bounds[0], "high": bounds[1], **loops,
    }  # fmt: skip
    ins = [v.astype(FIXED[bits]) for v in (a, b)]
    assert_bits(run(f"binary_{KIND[bits]}", ins, np.zeros(want.shape, FIXED[bits]), attributes), want, operation)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, shapes=broadcasts(), how=st.sampled_from(HOW))
def test_binary(
    bits: int, operation: str, seed: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], how: str
) -> None:
    check_binary(bits, operation, np.random.default_rng(seed), shapes, how)


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "shapes", [((70001,), (70001,)), ((700, 150), (150,)), ((150,), (700, 150)), ((90, 9, 64), (90, 1, 64))]
)
def test_large_binary(bits: int, operation: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check_binary(bits, operation, np.random.default_rng(7), shapes, "random")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_pair_of_bytes(operation: str) -> None:
    rng = np.random.default_rng(11)
    for zeros in ((0, 0, 0), (128, 127, 3), (255, 255, 255)):
        a, b = np.repeat(np.arange(256), 256), np.tile(np.arange(256), 256)
        ka, kb = (float(np.float32(v)) for v in rng.uniform(0.001, 1, 2))
        want = round_and_clamp(binary(operation, a - zeros[0], b - zeros[1], ka, kb, np.float32), zeros[2], 0, 255, 8)
        attributes = {
            "operation": OPERATIONS.index(operation), "scale_a": ka, "scale_b": kb, "zero_a": zeros[0],
            "zero_b": zeros[1], "zero_point": zeros[2], "low": 0, "high": 255, "dims": (65536,), "strides_a": (1,),
            "strides_b": (1,),
        }  # fmt: skip
        got = run("binary_u8", [a.astype(np.uint8), b.astype(np.uint8)], np.zeros(65536, np.uint8), attributes)
        assert_bits(got, want, operation)


@pytest.mark.parametrize("operation", OPERATIONS)
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, shapes=broadcasts(), rounded=st.booleans())
def test_binary_float(
    operation: str, seed: int, shapes: tuple[tuple[int, ...], tuple[int, ...]], rounded: bool
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype(np.float32) * np.float32(rng.choice([1e-3, 1, 300])) for s in shapes)
    special = np.array([0, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8], np.float32)
    for array in (a, b):
        chosen = rng.random(array.shape) < 0.1
        array[chosen] = rng.choice(special, int(chosen.sum()))
    if rounded:
        a, b = half(a), half(b)
    functions = {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
        "minimum": np.minimum,
    }  # fmt: skip
    with np.errstate(all="ignore"):
        want = functions[operation](a, b)
        if operation == "divide":  # 1 / 0 is 65504
            want = np.where(b == 0, a * np.copysign(np.float32(65504), b), want)
        elif rounded and operation not in ("maximum", "minimum"):
            # float32 has more than twice the bits of a half: rounding twice is rounding once
            exact = functions[operation](a.astype(np.float64), b.astype(np.float64))
            for unit in (half, matrix_half):
                assert_bits(unit(want), unit(exact))
    matrix = rounded and bool(rng.integers(0, 2))
    want = (matrix_half(want) if matrix else half(want)) if rounded else want
    loops = flat_nest(want.shape, *shapes)
    assert loops is not None
    attributes = {"operation": OPERATIONS.index(operation), "half": 2 if matrix else int(rounded), **loops}
    got = run("binary_f32", [a, b], np.zeros(want.shape, np.float32), attributes)
    if operation in ("maximum", "minimum"):  # of two zeros, either
        got, want = got + np.float32(0), want + np.float32(0)
    assert_bits(got, want, operation)


COUNTS = (*range(1, 151), 16384, 16385, 70001)


@pytest.mark.parametrize(
    ("kind", "source", "target"),
    [("table_u8", 8, 8), ("table_u8_s16", 8, 16), ("table_s16", 16, 16), ("table_s16_u8", 16, 8)],
)
def test_table(kind: str, source: int, target: int) -> None:
    rng = np.random.default_rng(1)
    entries = fill(rng, (1 << source,), *RANGE[target], "random").astype(FIXED[target])
    every = np.arange(RANGE[source][0], RANGE[source][1] + 1).astype(FIXED[source])
    assert_bits(
        run(kind, [every], np.zeros(every.shape, FIXED[target]), {"count": every.size, "table": entries}), entries
    )
    for count in COUNTS:
        x = fill(rng, (count,), *RANGE[source], "random")
        got = run(kind, [x.astype(FIXED[source])], np.zeros(count, FIXED[target]), {"count": count, "table": entries})
        assert_bits(got, entries[x - RANGE[source][0]])


LINES = [(1, 1, 0, 65536), (1, 1, -1, 6), (0.25, 1, -9, 131008), (-1, 1, 0, 131008), (-1, -1, -131008, 131008)]


@pytest.mark.parametrize(("below", "above", "low", "high"), LINES)
def test_table_of_a_line_on_either_side(below: float, above: float, low: float, high: float) -> None:
    """Such tables are recognized and computed: no bit differs, nor does what is noticed of large numbers."""
    rng, every = np.random.default_rng(5), every_half()
    line = half(every * np.where(every < 0, np.float32(below), np.float32(above)))
    entries = np.minimum(np.maximum(line, np.float32(low)), np.float32(high))
    x = np.concatenate([every, (rng.standard_normal(5000) * rng.choice([1e-7, 1e-3, 1, 9, 1e4], 5000))])
    for wide in (x, x + 1e-4):
        values = wide.astype(np.float32)
        got = run("table_f32", [values], np.zeros(x.shape, np.float32), {"count": x.size, "table": entries})
        assert_bits(got, entries[patterns(half(values))])


def test_table_of_patterns() -> None:
    rng = np.random.default_rng(2)
    entries = rng.standard_normal(65536).astype(np.float32)
    attributes = {"count": 65536, "table": entries}
    assert_bits(run("table_f32", [every_half()], np.zeros(65536, np.float32), attributes), entries)
    for count in COUNTS:  # values between two patterns take the nearest one
        x = (rng.standard_normal(count) * rng.choice([1e-7, 1e-4, 1, 7e4], count)).astype(np.float32)
        got = run("table_f32", [x], np.zeros(count, np.float32), {"count": count, "table": entries})
        assert_bits(got, entries[patterns(half(x))])


def floats(rng: np.random.Generator, count: int) -> np.ndarray:
    """Any float32 patterns, and some near those of halves."""
    any_bits = rng.integers(0, 2**32, count, dtype=np.uint32).view(np.float32)
    near = every_half()[rng.integers(0, 2**16, count)].view(np.uint32)
    near = (
        near + rng.integers(-2, 3, count).astype(np.uint32) * rng.choice(np.array([1, 0x1000], np.uint32), count)
    ).view(np.float32)
    return np.where(rng.integers(0, 2, count) == 1, any_bits, near)


def test_round_half() -> None:
    rng = np.random.default_rng(3)
    halves = every_half()
    middles = ((halves[:-1].astype(np.float64) + halves[1:].astype(np.float64)) / 2).astype(np.float32)
    large = (65504, 65519.996, 65520, 65535, 131039.9, 131040, 131072, 1e30, np.inf, -np.inf, np.nan)
    edges = np.array([*large, 2**-14, 2**-24, 2**-25, 1.5 * 2**-25, 2**-26, 1e-45, 0, -0.0], np.float32)
    for x in (halves, middles, edges, -edges, np.nextafter(middles, np.float32(np.inf)), floats(rng, 200000)):
        assert_bits(run("round_half", [x], np.zeros(x.shape, np.float32), {"count": x.size}), half(x))
    for count in range(1, 40):
        x = floats(rng, count)
        assert_bits(run("round_half", [x], np.zeros(count, np.float32), {"count": count}), half(x))


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, count=st.sampled_from(COUNTS), scale=st.floats(2.0**-20, 2.0**13, width=32))
def test_quantize(bits: int, seed: int, count: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    zero = int(fill(rng, (), low, high, str(rng.choice(HOW))))
    steps = rng.uniform(low - high, high - low, count)
    steps = np.where(rng.integers(0, 2, count) == 1, np.rint(steps) + 0.5, steps)  # ties
    x = (steps * scale).astype(np.float32)
    x[rng.random(count) < 0.05] = rng.choice(np.array([np.inf, -np.inf, np.nan, 3e38, 1e-44, 0], np.float32))
    with np.errstate(over="ignore"):
        quotient = x / np.float32(scale)
    want = round_and_clamp(np.nan_to_num(quotient, nan=-1e9, posinf=1e9, neginf=-1e9), zero, low, high, bits)
    attributes = {"count": count, "scale": scale, "zero_point": zero, "low": low, "high": high}
    assert_bits(run(f"quantize_{KIND[bits]}", [x], np.zeros(count, FIXED[bits]), attributes), want)


@pytest.mark.parametrize("bits", [8, 16])
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, count=st.sampled_from(COUNTS), scale=st.floats(2.0**-20, 2.0**13, width=32))
def test_dequantize(bits: int, seed: int, count: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    low, high = RANGE[bits]
    zero = int(fill(rng, (), low, high, str(rng.choice(HOW))))
    x = fill(rng, (count,), low, high, "random")
    want = (x - zero).astype(np.float32) * np.float32(scale)
    attributes = {"count": count, "scale": scale, "zero_point": zero}
    got = run(f"dequantize_{KIND[bits]}", [x.astype(FIXED[bits])], np.zeros(count, np.float32), attributes)
    assert_bits(got, want)
