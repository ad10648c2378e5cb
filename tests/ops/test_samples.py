# SPDX-License-Identifier: Apache-2.0
"""Every op of the table has a sample; every sample infers, runs and gives what it must, float and quantized."""

from __future__ import annotations

import importlib
import pkgutil

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.ir import Call, DType, table
from hexforge.ir.fixed_point import dequantize, quantize
from hexforge.ops.evaluate import evaluate
from tests.ops import samples
from tests.ops.sample import Sample

SAMPLES: list[Sample] = [
    sample
    for module in pkgutil.iter_modules(samples.__path__)
    for sample in importlib.import_module(f"tests.ops.samples.{module.name}").SAMPLES
]


@pytest.mark.parametrize("name", [op.name for op in table()])
def test_every_op_has_a_sample(name: str) -> None:
    assert any(s.op == name for s in SAMPLES), f"{name} has no sample under tests/ops/samples"


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.op + s.id)
def test_sample(sample: Sample) -> None:
    node = sample.node()
    inferred = node.op.infer(node.call)
    assert [(t.dtype, t.shape) for t in inferred] == [(v.dtype, v.shape) for v in node.outputs]
    got = evaluate(node.call, sample.inputs)
    for value, expected in zip(got, sample.expected, strict=True):
        assert value.dtype == expected.dtype
        assert value.shape == expected.shape
        np.testing.assert_allclose(value.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-6)
    work = node.op.work(node.call)
    assert work.macs + work.lanes + work.lookups + work.moved_bytes > 0


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.UINT16, DType.INT16], ids=lambda d: d.value)
@pytest.mark.parametrize("sample", [s for s in SAMPLES if s.quantizable], ids=lambda s: s.op + s.id)
def test_quantized_sample_is_dequantize_compute_quantize(sample: Sample, dtype: DType) -> None:
    node = sample.node()
    arrays, types, outs = sample.quantized(dtype)
    call = Call(node.op, tuple(types), tuple(outs), node.params)
    real = [a if t is None or t.encoding is None else dequantize(a, t) for a, t in zip(arrays, types, strict=True)]
    with np.errstate(all="ignore"):
        exact = node.op.reference(call, *real)
    for got, want, type in zip(
        evaluate(call, arrays), exact if isinstance(exact, tuple) else (exact,), outs, strict=True
    ):
        np.testing.assert_array_less(np.abs(got.astype(np.int64) - quantize(want.astype(np.float64), type)), 2)
