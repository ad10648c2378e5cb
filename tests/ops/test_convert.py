# SPDX-License-Identifier: Apache-2.0
"""Cast and the conversions of fixed point."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import ModelError
from hexforge.ir import DType, Encoding, Graph, Role, ScaleOffset, TensorType
from hexforge.ops.evaluate import evaluate
from hexforge.ops.pointwise_activation import cast

quick = settings(max_examples=40, deadline=None)
INTEGERS = [d for d in DType if d.is_integer]


@quick
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(INTEGERS))
def test_integers_keep_their_low_bits(value: int, dtype: DType) -> None:
    low, _ = dtype.range
    assert int(cast(np.asarray([value]), dtype)[0]) == (value - low) % (1 << dtype.bits) + low


@quick
@given(st.floats(width=32), st.sampled_from([d for d in INTEGERS if d.bits >= 32]))
def test_floats_truncate_and_saturate(value: float, dtype: DType) -> None:
    low, high = dtype.range
    whole = 0 if np.isnan(value) else low if value < low else high if value > high else int(value)
    assert int(cast(np.array([value], np.float32), dtype)[0]) == whole


def _convert(op: str, source: TensorType, target: TensorType, data: np.ndarray) -> np.ndarray:
    graph = Graph("test")
    x = graph.value("x", source, Role.APP_WRITE)
    y = graph.value("y", target, Role.APP_READ)
    node = graph.node(op, [x], [y])
    node.op.infer(node.call)
    return evaluate(node.call, [data])[0]


@quick
@given(st.lists(st.integers(0, 255), min_size=1, max_size=4), st.integers(0, 255))
def test_quantize_undoes_dequantize(values: list[int], zero: int) -> None:
    plain = TensorType(DType.FLOAT32, (len(values),))
    fixed = TensorType(DType.UINT8, plain.shape, ScaleOffset(float(np.float32(0.3)), -zero))
    real = _convert("Dequantize", fixed, plain, np.asarray(values, np.uint8))
    assert _convert("Quantize", plain, fixed, real).tolist() == values


def _type(dtype: DType, encoding: Encoding | None = None) -> TensorType:
    return TensorType(dtype, (1,), encoding)


@pytest.mark.parametrize(
    ("op", "source", "target"),
    [
        ("Quantize", _type(DType.FLOAT32), _type(DType.UINT8)),
        ("Quantize", _type(DType.INT32), _type(DType.UINT8, ScaleOffset(1.0))),
        ("Dequantize", _type(DType.UINT8), _type(DType.FLOAT32)),
        ("Dequantize", _type(DType.UINT8, ScaleOffset(1.0)), _type(DType.INT32)),
        ("Convert", _type(DType.UINT8), _type(DType.UINT16, ScaleOffset(1.0))),
    ],
)
def test_types_that_are_no_conversion(op: str, source: TensorType, target: TensorType) -> None:
    with pytest.raises(ModelError, match="not"):
        _convert(op, source, target, np.zeros(1, source.dtype.numpy))
