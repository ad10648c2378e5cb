# SPDX-License-Identifier: Apache-2.0
"""Fixed-point graphs of random encodings, run on htp at every level, and the exact sums they are compared with."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backends.cpu import CpuBackend
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.pipeline import lower_graph, prepare_graph
from hexforge.chips.graph_config import GraphConfig
from hexforge.ir import AxisScaleOffset, DType, Encoding, Graph, Role, ScaleOffset, TensorType, Value
from hexforge.ir.fixed_point import centered, quantized_range, scale_array

ACTIVATIONS = (DType.UINT8, DType.INT8, DType.UINT16, DType.INT16)
SEEDS = st.integers(0, 2**32 - 1)
Array = np.ndarray[Any, Any]


def examples(count: int) -> Callable[[Any], Any]:
    return settings(max_examples=count, deadline=None)


class Net:
    """A graph being written, with random encodings and data."""

    def __init__(self, seed: int, dtype: DType) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.graph = Graph("g")
        self.feeds: dict[str, Array] = {}

    def encoding(self, dtype: DType | None = None, scale: float | None = None) -> ScaleOffset:
        """A scale that is a float32, as models have them, and any zero point."""
        low, high = (dtype or self.dtype).range
        zero = int(self.rng.choice([low, high, *self.rng.integers(low, high + 1, 6)]))
        found = scale if scale is not None else float(self.rng.uniform(0.5, 2) / (high - low))
        return ScaleOffset(float(np.float32(found)), -zero)

    def input(self, shape: tuple[int, ...], encoding: Encoding | None = None, dtype: DType | None = None) -> Value:
        own = dtype or self.dtype
        name = f"x{len(self.feeds)}"
        value = self.graph.value(name, TensorType(own, shape, encoding or self.encoding(own)), Role.APP_WRITE)
        low, high = own.range
        how = int(self.rng.integers(0, 5))
        data = self.rng.integers(low, high + 1, shape)
        if how == 0:
            data = self.rng.choice([low, high], shape)
        self.feeds[name] = data.astype(own.numpy)
        return value

    def output(self, shape: tuple[int, ...], encoding: Encoding | None = None, dtype: DType | None = None) -> Value:
        own = dtype or self.dtype
        name = self.graph.unique("y")
        return self.graph.value(name, TensorType(own, shape, encoding or self.encoding(own)), Role.APP_READ)

    def middle(self, shape: tuple[int, ...], encoding: Encoding | None = None) -> Value:
        name = self.graph.unique("m")
        return self.graph.value(name, TensorType(self.dtype, shape, encoding or self.encoding()))

    def weights(self, shape: tuple[int, ...], dtype: DType, axis: int | None) -> Value:
        low, high = dtype.range
        data = self.rng.integers(low, high + 1, shape)
        if self.rng.integers(0, 5) == 0:
            data = np.full(shape, self.rng.choice([low, high]))
        symmetric = dtype.is_signed and bool(self.rng.integers(0, 2))
        if axis is None:
            zero = 0 if symmetric else int(self.rng.choice([low, high, self.rng.integers(low, high + 1)]))  # type: ignore[arg-type]
            encoding: Encoding = ScaleOffset(float(np.float32(self.rng.uniform(0.002, 0.02))), -zero)
        else:
            count = shape[axis]
            scales = tuple(float(np.float32(s)) for s in self.rng.uniform(0.002, 0.02, count))
            zero = 0 if dtype.is_signed else 1 << dtype.bits - 1
            encoding = AxisScaleOffset(axis, scales, (-zero,) * count)
        return self.graph.static(data.astype(dtype.numpy), encoding, "w")

    def bias(self, x: Value, w: Value, outputs: int) -> Value | None:
        """None, int32 with the product's scale as float32 has it, int32 with another scale, or float."""
        how = int(self.rng.integers(0, 4))
        if how == 0:
            return None
        if how == 3:
            return self.graph.static(self.rng.standard_normal(outputs).astype(np.float32), None, "b")
        assert isinstance(x.encoding, ScaleOffset)
        if isinstance(w.encoding, ScaleOffset):
            scales = np.full(outputs, w.encoding.scale)
        else:
            assert isinstance(w.encoding, AxisScaleOffset)
            scales = np.asarray(w.encoding.scales)
        scales = (x.encoding.scale * scales).astype(np.float32) * np.float32(1 if how == 1 else 3)
        data = self.rng.integers(-100000, 100000, outputs).astype(np.int32)
        encoding = AxisScaleOffset(0, tuple(float(s) for s in scales), (0,) * outputs)
        return self.graph.static(data, encoding, "b")

    def run(self, native: bool = True) -> dict[str, Array]:
        """The outputs of the htp backend: the same at every level and number of threads."""
        first: dict[str, Array] | None = None
        for level in (1, 2, 3):
            program = HtpProgram.of(*self.compiled(level))
            if native and level > 1:
                assert not program.facts.references
            for threads in (1, 2):
                program.running.threads = threads
                got = program.run(self.feeds)
                if first is None:
                    first = got
                for name, array in got.items():
                    np.testing.assert_array_equal(array, first[name], f"level {level}, {threads} threads")
        assert first is not None
        return first

    def compiled(self, level: int, **options: Any) -> tuple[Graph, Any]:
        graph = copy.deepcopy(self.graph)
        return graph, lower_graph(prepare_graph(graph), GraphConfig(optimization=level, **options))

    def cpu(self) -> dict[str, Array]:
        return CpuBackend().compile(copy.deepcopy(self.graph)).run(self.feeds)

    def check(self, tolerance: int, native: bool = True) -> dict[str, Array]:
        """htp within so many steps of cpu."""
        got, want = self.run(native), self.cpu()
        for name, array in got.items():
            assert array.dtype == want[name].dtype
            difference = np.abs(array.astype(np.int64) - want[name].astype(np.int64))
            assert difference.max(initial=0) <= tolerance, f"{name}: {difference.max()} steps apart"
        return got


def requantized(acc: Array, x: Value, w: Value, b: Value | None, y: Value) -> Array:
    """Exact sums to the output's integers as docs/numerics.md defines: the bias joins them in whole steps."""
    assert isinstance(x.encoding, ScaleOffset)
    assert isinstance(y.encoding, ScaleOffset)
    scales = w.encoding.scale if isinstance(w.encoding, ScaleOffset) else np.asarray(w.encoding.scales)
    product = x.encoding.scale * np.asarray(scales, np.float64)
    if b is not None:
        assert b.data is not None
        if b.encoding is None:
            steps = np.rint(b.data.astype(np.float64) / product)
        else:
            own = scale_array(b.encoding, b.shape)
            near = bool(np.all(np.abs(own - product) <= 1e-6 * product))
            steps = b.data.astype(np.float64) if near else np.rint(b.data * own / product)
        acc = acc + steps.astype(np.int64)
    low, high = quantized_range(y.dtype, y.encoding)
    working: Any = np.float32 if y.dtype.bits == 8 else np.float64
    real = acc.astype(working) * (product / y.encoding.scale).astype(working)
    return np.clip(np.rint(real).astype(np.float64) - y.encoding.offset, low, high).astype(y.dtype.numpy)


def integers(value: Value, data: Array) -> Array:
    """q + offset as int64."""
    return centered(data, value.type).astype(np.int64)


def convolved(x: Array, w: Array, stride: Any, pad: Any, dilation: Any, groups: int, out: tuple[int, ...]) -> Array:
    """int64 sums of [n, *spatial, c] with [*kernel, c per group, out], by plain indexing."""
    dims = len(stride)
    reach = [p[0] + p[1] + d * k for p, d, k in zip(pad, dilation, w.shape[:dims], strict=True)]
    wide = np.pad(x, [(0, 0), *((r, r) for r in reach), (0, 0)])
    acc = np.zeros(out, np.int64)
    inputs, outputs = w.shape[-2], w.shape[-1] // groups
    for k in np.ndindex(*w.shape[:dims]):
        seen = wide
        for i in range(dims):
            at = reach[i] - pad[i][0] + k[i] * dilation[i] + stride[i] * np.arange(out[1 + i])
            seen = np.take(seen, at, axis=1 + i)
        for g in range(groups):
            columns = slice(g * outputs, (g + 1) * outputs)
            acc[..., columns] += seen[..., g * inputs : (g + 1) * inputs] @ w[k][:, columns]
    return acc
