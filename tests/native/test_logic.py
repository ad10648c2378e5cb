# SPDX-License-Identifier: Apache-2.0
"""compare_*, logical, select, integer_*, cast, prelu_*, squared_difference_* against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.backends.htp.numbers.lower.adapt import nest
from hexforge.ir import DType
from hexforge.ops.pointwise_activation import cast
from hexforge.ops.pointwise_elementwise import divide
from tests.native.halves import half
from tests.native.kernels import FIXED, KIND, RANGE, assert_bits, round_and_clamp, run
from tests.native.several import halves

EXAMPLES = settings(max_examples=40, deadline=None)
SEEDS = st.integers(0, 2**32 - 1)
COMPARE = (np.equal, np.not_equal, np.greater, np.greater_equal, np.less, np.less_equal)
TYPES = (DType.BOOL, DType.UINT8, DType.INT8, DType.UINT16, DType.INT16, DType.UINT32, DType.INT32, DType.INT64)


@st.composite
def broadcast(draw: Any, operands: int = 2) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=4)))
    found = []
    for _ in range(operands):
        drop = draw(st.integers(0, len(shape) - 1))
        found.append(tuple(1 if draw(st.booleans()) else n for n in shape[drop:]))
    return tuple(np.broadcast_shapes(*found)), found


@EXAMPLES
@given(broadcast(), st.sampled_from(["u8", "s16", "f32", "bool", "int32", "int64"]), st.integers(0, 5), SEEDS)
def test_compare(shapes: Any, kind: str, operation: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, (a_shape, b_shape) = shapes
    dtype = {"u8": np.uint8, "s16": np.int16, "f32": np.float32, "bool": np.bool_}.get(kind, kind)
    a, b = (rng.integers(0, 2 if kind == "bool" else 4, s).astype(dtype) for s in (a_shape, b_shape))
    attributes: dict[str, Any] = {"operation": operation, **nest(shape, a_shape, b_shape)}
    x, y = a, b
    if kind in ("u8", "s16"):
        attributes |= {"zero_a": 1, "zero_b": 2, "scale_a": 0.5, "scale_b": 0.25}
        x, y = (a.astype(np.float64) - 1) * 0.5, (b.astype(np.float64) - 2) * 0.25
    elif kind == "f32":
        a[rng.random(a.shape) < 0.1] = np.nan
    got = run(f"compare_{kind}", [a, b], np.zeros(shape, np.bool_), attributes)
    assert_bits(got, np.asarray(COMPARE[operation](x, y)))


@EXAMPLES
@given(broadcast(), st.integers(0, 3), SEEDS)
def test_logical(shapes: Any, operation: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, operands = shapes
    a, b = (rng.integers(0, 2, s).astype(np.bool_) for s in operands)
    want = np.broadcast_to((a & b, a | b, a ^ b, ~a)[operation], shape)
    attributes = {"operation": operation, **nest(shape, *operands)}
    assert_bits(run("logical", [a, b], np.zeros(shape, np.bool_), attributes), np.ascontiguousarray(want))


@EXAMPLES
@given(broadcast(3), st.sampled_from([np.uint8, np.int16, np.float32, np.int64]), SEEDS)
def test_select(shapes: Any, dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, operands = shapes
    condition = rng.integers(0, 2, operands[0]).astype(np.bool_)
    a, b = (rng.integers(0, 100, s).astype(dtype) for s in operands[1:])
    attributes = {"element_bytes": a.itemsize, **nest(shape, *operands)}
    assert_bits(run("select", [condition, a, b], np.zeros(shape, dtype), attributes), np.where(condition, a, b))


@EXAMPLES
@given(broadcast(), st.sampled_from([np.int32, np.int64]), st.integers(0, 8), st.booleans(), SEEDS)
def test_integers(shapes: Any, dtype: Any, operation: int, small: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, operands = shapes
    info = np.iinfo(dtype)
    low, high = (-5, 5) if small else (info.min, info.max)
    a, b = (rng.integers(low, high, s, dtype=dtype, endpoint=True) for s in operands)
    if not small:
        b[b == -1] = 1  # numpy's own overflow
    functions = (np.add, np.subtract, np.multiply, divide, np.maximum, np.minimum, np.floor_divide, np.mod, np.fmod)
    with np.errstate(all="ignore"):
        want = np.asarray(functions[operation](a, b)).astype(dtype)
    attributes = {"operation": operation, **nest(shape, *operands)}
    got = run(f"integer_{np.dtype(dtype).name}", [a, b], np.zeros(shape, dtype), attributes)
    assert_bits(got, np.where(b == 0, 0, want).astype(dtype) if operation in (6, 7, 8) else want)


def test_the_smallest_integer_over_minus_one_wraps() -> None:
    a, b = np.array([-(2**31)], np.int32), np.array([-1], np.int32)
    for operation, want in ((3, -(2**31)), (6, -(2**31)), (7, 0), (8, 0)):
        attributes = {"operation": operation, **nest((1,), (1,), (1,))}
        assert run("integer_int32", [a, b], np.zeros(1, np.int32), attributes)[0] == want


@pytest.mark.parametrize("source", range(9))
@pytest.mark.parametrize("target", range(9))
def test_cast(source: int, target: int) -> None:
    rng = np.random.default_rng(source * 9 + target)
    if source == 8:
        x = np.concatenate(
            [halves(rng, (200,), 1000.0), [np.nan, np.inf, -np.inf, 3e9, -3e9, 1e19, -1e19, 0.5, -0.5, 0]]
        )
        x = x.astype(np.float32)
    elif source == 0:
        x = rng.integers(0, 2, 100).astype(np.bool_)
    else:
        low, high = TYPES[source].range
        dtype = TYPES[source].numpy
        x = np.concatenate([rng.integers(low, high, 100, dtype=dtype, endpoint=True), np.array([low, high, 0], dtype)])
    if target == 8:
        want = half(x.astype(np.float32))
    else:
        with np.errstate(invalid="ignore"):
            want = cast(x, TYPES[target])
    got = run("cast", [x], np.zeros(x.shape, want.dtype), {"count": x.size, "from": source, "to": target})
    assert_bits(got, want)


@EXAMPLES
@given(broadcast(), st.sampled_from([8, 16, 32]), SEEDS)
def test_prelu(shapes: Any, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, (_, other) = shapes
    attributes: dict[str, Any] = nest(shape, shape, other)
    if bits == 32:
        x, c = halves(rng, shape), halves(rng, other, 0.5)
        want = np.where(x >= 0, x, half(c * x))
        assert np.array_equal(run("prelu_f32", [x, c], np.zeros(shape, np.float32), attributes), want)
        return
    low, high = RANGE[bits]
    x = rng.integers(low, high + 1, shape)
    zero_a, zero = (int(v) for v in rng.integers(low, high + 1, 2))
    c = rng.uniform(-1, 1, other)
    attributes |= {"zero_a": zero_a, "zero_point": zero, "low": low, "high": high, "scale": 0.7}
    steps = (x - zero_a).astype(np.float64) * 0.7
    got = run(f"prelu_{KIND[bits]}", [x.astype(FIXED[bits]), c], np.zeros(shape, FIXED[bits]), attributes)
    assert_bits(got, round_and_clamp(np.where(steps >= 0, steps, c * steps), zero, low, high, bits))


@EXAMPLES
@given(broadcast(), st.sampled_from([8, 16, 32]), SEEDS)
def test_squared_difference(shapes: Any, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, operands = shapes
    attributes: dict[str, Any] = nest(shape, *operands)
    if bits == 32:
        a, b = (halves(rng, s) for s in operands)
        got = run("squared_difference_f32", [a, b], np.zeros(shape, np.float32), attributes)
        assert_bits(got, half((a - b) * (a - b)))
        return
    low, high = RANGE[bits]
    a, b = (rng.integers(low, high + 1, s) for s in operands)
    zero_a, zero_b, zero = (int(v) for v in rng.integers(low, high + 1, 3))
    attributes |= {"zero_a": zero_a, "zero_b": zero_b, "zero_point": zero, "low": low, "high": high}
    attributes |= {"scale_a": 0.013, "scale_b": 0.021, "scale": 3.7}
    d = (a - zero_a).astype(np.float64) * 0.013 - (b - zero_b).astype(np.float64) * 0.021
    got = run(
        f"squared_difference_{KIND[bits]}",
        [a.astype(FIXED[bits]), b.astype(FIXED[bits])],
        np.zeros(shape, FIXED[bits]),
        attributes,
    )
    assert_bits(got, round_and_clamp(d * d * 3.7, zero, low, high, bits))
