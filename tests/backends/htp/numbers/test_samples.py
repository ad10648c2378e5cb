# SPDX-License-Identifier: Apache-2.0
"""Every op's samples on the htp backend: near the op's definition, and by native steps where there are any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.ir import Array, Call, DType, Graph, Role, TensorType, lookup
from hexforge.ops.evaluate import evaluate
from tests.native.halves import half
from tests.ops.sample import Sample
from tests.ops.test_samples import SAMPLES

FLOAT = [s for s in SAMPLES if not s.encodings and all(a is None or a.dtype != np.float16 for a in s.inputs)]
FIXED = [s for s in FLOAT if s.quantizable]


def compiled(sample: Sample, ins: list[TensorType | None], outs: list[TensorType], arrays: list[Any]) -> HtpProgram:
    """The sample's node alone; real-valued inputs but the first are constants, as weights are."""
    graph = Graph("sample")
    values = []
    for i, (type, array) in enumerate(zip(ins, arrays, strict=True)):
        if type is None:
            values.append(None)  # type: ignore[arg-type]
        elif i and (type.encoding is not None or type.dtype.is_float):
            values.append(graph.value(f"in{i}", type, Role.STATIC, array))
        else:
            values.append(graph.value(f"in{i}", type, Role.APP_WRITE))
    made = [graph.value(f"out{i}", type, Role.APP_READ) for i, type in enumerate(outs)]
    graph.node(sample.op, values, made, **sample.params)
    return HtpBackend().compile(graph)  # type: ignore[return-value]


def run(program: HtpProgram, arrays: list[Any]) -> list[Array]:
    """What the program gives for the arrays that are not constants."""
    names = {v.name for v in program.graph.inputs}
    results = program.run({f"in{i}": a for i, a in enumerate(arrays) if f"in{i}" in names})
    return [results[v.name] for v in program.graph.outputs]


@pytest.mark.parametrize("sample", FLOAT, ids=lambda s: s.op + s.id)
def test_float(sample: Sample) -> None:
    if sample.op.startswith("Random"):
        pytest.skip("random numbers")
    arrays = [half(a) if a is not None and a.dtype == np.float32 else a for a in sample.inputs]
    ins = [None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in arrays]
    outs = [TensorType(DType.of(a.dtype), a.shape) for a in sample.expected]
    program = compiled(sample, ins, outs, arrays)
    want = evaluate(Call(lookup(sample.op), tuple(ins), tuple(outs), program.graph.nodes[0].params), arrays)
    for got, expected in zip(run(program, arrays), want, strict=True):
        assert got.dtype == expected.dtype
        assert got.shape == expected.shape
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(got, expected)
            continue
        scale = float(np.max(np.abs(expected[np.isfinite(expected)]), initial=0))
        np.testing.assert_allclose(got, half(expected), rtol=2e-3, atol=2e-3 * min(scale, 1.0) + 1e-6)


@pytest.mark.parametrize("dtype", [DType.UINT8, DType.INT8, DType.UINT16, DType.INT16], ids=lambda d: d.value)
@pytest.mark.parametrize("sample", FIXED, ids=lambda s: s.op + s.id)
def test_fixed(sample: Sample, dtype: DType) -> None:
    arrays, ins, outs = sample.quantized(dtype)
    program = compiled(sample, ins, outs, arrays)
    want = evaluate(Call(lookup(sample.op), tuple(ins), tuple(outs), program.graph.nodes[0].params), arrays)
    # recurrences go through float16
    allowed = 1 if sample.op not in ("Lstm", "Gru") else 2 if dtype.bits == 8 else 160
    for got, expected in zip(run(program, arrays), want, strict=True):
        assert got.dtype == expected.dtype
        difference = np.abs(got.astype(np.int64) - expected.astype(np.int64))
        assert difference.max(initial=0) <= allowed
