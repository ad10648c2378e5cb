# SPDX-License-Identifier: Apache-2.0
"""Numbers: the same numbers as a tuple's, in less memory; encodings of many blocks through text."""

from __future__ import annotations

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.errors import FormatError
from hexforge.ir import Block, BlockwiseExpansion, DType, Graph, TensorType, text
from hexforge.ir.fixed_point import dequantize, encoding_fault
from hexforge.ir.types import MANY, NumberArray, many


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0.5, 2.0], "float16"), ([0.5, float(np.float32(0.1))], "float32"), ([0.1], "float64"),
        ([float("nan")], "float64"), ([1, -128], "int8"), ([200], "int16"), ([1 << 40], "int64"),
    ],
)  # fmt: skip
def test_smallest_type_that_holds_them(values: list[float], kind: str) -> None:
    numbers = NumberArray(values)
    assert numbers.array.dtype == kind
    assert [repr(v) for v in numbers] == [repr(v) for v in values]
    assert repr(numbers[0]) == repr(values[0])
    assert numbers[:1] == tuple(values[:1]) or numbers[0] != numbers[0]
    assert numbers != tuple(values)
    with pytest.raises(ValueError, match="read-only"):
        numbers.array[0] = 1


def test_many_are_an_array_and_few_a_tuple() -> None:
    assert many([1.0, 2.0]) == (1.0, 2.0)
    assert many(NumberArray([1, 2])) == (1, 2)
    long = [0.5] * (MANY + 1)
    assert many(long) == many(tuple(long)) == NumberArray(long)
    assert hash(many(long)) == hash(NumberArray(long))


@pytest.mark.parametrize("kind", ["block", "lpbq"])
def test_through_text(kind: str) -> None:
    """What is put elsewhere is found again, and the text stays short."""
    rows, blocks = 128, 64
    rng = np.random.default_rng(0)
    scales = rng.uniform(0.1, 1, rows * blocks)
    encoding = (
        Block((1, 2), tuple(scales), tuple(map(int, rng.integers(-15, 1, rows * blocks))))
        if kind == "block"
        else BlockwiseExpansion(
            0, 1, tuple(scales[:rows]), (0,) * rows, tuple(map(int, rng.integers(1, 17, rows * blocks)))
        )
    )
    dtype = DType.UINT4 if kind == "block" else DType.INT4
    graph = Graph("many")
    type = TensorType(dtype, (rows, blocks * 2), encoding)
    assert encoding_fault(type) is None
    data = rng.integers(0, 8, type.shape).astype(dtype.numpy)
    graph.static(data, encoding, "w")
    kept = bytearray()

    def put(raw: bytes) -> tuple[int, int]:
        kept.extend(raw)
        return len(kept) - len(raw), len(raw)

    written = text.dumps(graph, put=put)
    assert len(written) < 8000
    again = text.loads(written, lambda at, size: bytes(kept[at : at + size]))
    assert again.values["w"].encoding == encoding
    assert np.array_equal(dequantize(data, again.values["w"].type), dequantize(data, type))
    assert text.loads(text.dumps(graph)).values["w"].encoding == encoding
    with pytest.raises(FormatError):
        text.loads(written.replace("int8 at", "float64 at"), lambda at, size: bytes(kept[at : at + size]))


def test_faults_are_found() -> None:
    for scales, offsets, what in (
        ([0.5] * 8191 + [0.0], [0] * 8192, "positive"),
        ([0.5] * 8192, [0] * 8191 + [-16], "zero point 16"),
    ):
        fault = encoding_fault(TensorType(DType.UINT4, (8192, 2), Block((1, 2), scales, offsets)))
        assert fault is not None
        assert what in fault
