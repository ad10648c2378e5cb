# SPDX-License-Identifier: Apache-2.0
"""Products of two operands that are computed at run time: native, and what the op's definition gives."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.ir import Array, DType, ScaleOffset, TensorType
from hexforge.ir.fixed_point import quantize
from tests.backends.htp.numbers.test_detection import SEEDS, computed, defined, real
from tests.native.halves import half

SHAPES = st.sampled_from([((), ()), ((3,), ()), ((), (3,)), ((4, 3), (3,)), ((1, 2), (4, 1)), ((2, 1, 3), (2, 5, 1))])
SIZES = st.tuples(st.sampled_from([1, 2, 5, 30]), st.sampled_from([1, 7, 16, 70]), st.sampled_from([1, 3, 33, 64]))


def operands(
    rng: np.random.Generator, leads: tuple[tuple[int, ...], ...], sizes: tuple[int, int, int], turned: bool, swap: bool
) -> tuple[Array, Array]:
    """Two operands; the first given as [k, m] where turned, the second as [n, k] where swapped."""
    m, n, k = sizes
    a = rng.standard_normal((*leads[0], *((k, m) if turned else (m, k))))
    return a, rng.standard_normal((*leads[1], *((n, k) if swap else (k, n))))


@settings(max_examples=40, deadline=None)
@given(SEEDS, SHAPES, SIZES, st.booleans(), st.booleans(), st.booleans())
def test_floats(
    seed: int, leads: tuple[tuple[int, ...], ...], sizes: tuple[int, int, int], turned: bool, swap: bool, biased: bool
) -> None:
    rng = np.random.default_rng(seed)
    a, b = operands(rng, leads, sizes, turned, swap)
    inputs = {"a": real(a), "b": real(b)} | ({"constant": real(rng.standard_normal(sizes[1]))} if biased else {})
    out = [TensorType(DType.FLOAT32, (*np.broadcast_shapes(*leads), sizes[0], sizes[1]))]
    case = ("MatMul", inputs, out, {"transpose_in0": turned, "transpose_in1": swap})
    np.testing.assert_allclose(computed(*case)[0], half(defined(*case)[0]), rtol=2e-3, atol=2e-3)


@settings(max_examples=60, deadline=None)
@given(SEEDS, SHAPES, SIZES, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([DType.UINT8, DType.UINT16]))
def test_fixed_point(seed: int, leads: tuple[tuple[int, ...], ...], sizes: tuple[int, int, int], turned: bool,
                     swap: bool, biased: bool, dtype: DType) -> None:  # fmt: skip
    rng = np.random.default_rng(seed)
    most = 2**dtype.bits - 1

    def fixed(array: Array, reach: float) -> tuple[Array, TensorType]:
        type = TensorType(dtype, array.shape, ScaleOffset(2 * reach / most, -int(rng.integers(most // 3, most // 2))))
        return quantize(array, type), type

    a, b = (fixed(x, 4) for x in operands(rng, leads, sizes, turned, swap))
    inputs = {"a": a, "b": b}
    if biased:  # in steps of the product, as models have it: equal to the last bit then
        scale = a[1].encoding.scale * b[1].encoding.scale
        inputs["constant"] = (
            rng.integers(-9999, 9999, sizes[1]).astype(np.int32),
            TensorType(DType.INT32, (sizes[1],), ScaleOffset(scale, 0)),
        )
    out = [fixed(np.zeros((*np.broadcast_shapes(*leads), sizes[0], sizes[1])), 3 * sizes[2] ** 0.5)[1]]
    case = ("MatMul", inputs, out, {"transpose_in0": turned, "transpose_in1": swap})
    difference = np.abs(computed(*case)[0].astype(np.int64) - defined(*case)[0])
    assert difference.max() <= (1 if dtype is DType.UINT8 else 0)  # at 8 bits the last product is float32's
    assert (difference != 0).mean() < 0.05
