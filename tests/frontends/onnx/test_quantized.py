# SPDX-License-Identifier: Apache-2.0
"""Quantized ops against exact dequantize-compute-quantize: every op of the QDQ table, random shapes and encodings.

The op is computed by onnx's reference evaluator in float64 on exact real inputs; the result must be that, rounded to
the nearest step of the output's encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hexforge.model.op_table import OPS
from tests.frontends.onnx.qdq import CONTRIB, Case, Operand, Quant, check, covering, limits, numpy_type, placed

ACTIVATIONS = ("uint8", "int8", "uint16", "int16")
EXAMPLES = 20


class Draws:
    """What one example is drawn from: a hypothesis `draw`, a random generator, and the activations' data type."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        self.dtype: str = draw(st.sampled_from(ACTIVATIONS))
        self.domain: str = draw(st.sampled_from(["", CONTRIB]))

    def integer(self, low: int, high: int) -> int:
        """An integer of low..high."""
        return int(self.draw(st.integers(low, high)))

    def pick(self, *values: Any) -> Any:
        """One of `values`."""
        return self.draw(st.sampled_from(values))

    def shape(self, rank: int, most: int = 5) -> tuple[int, ...]:
        """A shape of that rank."""
        return tuple(self.integer(1, most) for _ in range(rank))

    def any_shape(self) -> tuple[int, ...]:
        """A shape of one to four axes."""
        return self.shape(self.integer(1, 4))

    def activation(
        self, shape: Sequence[int], low: float = -4.0, high: float = 4.0, *, positive: bool = False, dtype: str = ""
    ) -> Operand:
        """A tensor with a random encoding within low..high; only values above zero where `positive`."""
        dtype = dtype or self.dtype
        fill = float(self.draw(st.floats(0.3, 1.0)))
        quant = covering(dtype, low, high, fill)
        smallest, largest = limits(dtype)
        if positive:
            smallest = int(quant.zero) + 1
        data = self.rng.integers(smallest, largest + 1, tuple(shape)).astype(np.int64).astype(numpy_type(dtype))
        return Operand(data, quant)

    def weight(self, shape: Sequence[int], axis: int | None) -> Operand:
        """A constant weight: 4, 8 or 16 bits, per tensor or per channel along `axis`."""
        kinds = ("int8", "int4") if self.dtype == "int8" else ("int8", "int4", "uint8", "int16")
        dtype = self.pick(*kinds)
        low, high = limits(dtype)
        data = self.rng.integers(low, high + 1, tuple(shape)).astype(np.int32).astype(numpy_type(dtype))
        if axis is None or self.draw(st.booleans()):
            zero = self.integer(low, high) if dtype == "uint8" else 0
            return Operand(data, Quant(dtype, np.float32(self.rng.uniform(0.5, 2) / high), zero), constant=True)
        scales = (self.rng.uniform(0.5, 2, shape[axis]) / high).astype(np.float32)
        return Operand(data, Quant(dtype, scales, np.zeros(shape[axis], np.int64), axis=axis), constant=True)

    def bias(self, x: Operand, w: Operand, size: int, axis: int | None) -> Operand | None:
        """No bias, a float one, or an int32 one in units of the product's scale, of another scale, per channel."""
        assert x.quant is not None
        assert w.quant is not None
        kind = self.pick("none", "float", "product", "other")
        if kind == "none":
            return None
        if kind == "float":
            return Operand(self.rng.standard_normal(size).astype(np.float32), constant=True)
        data = self.rng.integers(-2000, 2000, size).astype(np.int32)
        if kind == "other":
            return Operand(data, Quant("int32", np.array(0.003, np.float32)), constant=True)
        scale = np.float32(x.quant.scale) * np.asarray(w.quant.scale, np.float32)
        if scale.ndim == 0 or axis is None:
            return Operand(data, Quant("int32", np.array(scale.ravel()[0], np.float32)), constant=True)
        return Operand(data, Quant("int32", scale, np.zeros(size, np.int64), axis=0), constant=True)

    def case(
        self,
        op: str,
        operands: Sequence[Operand | None],
        *,
        same: bool = False,
        outs: int = 1,
        opset: int = 21,
        clip: tuple[float, float] | str | None = None,
        function: Callable[..., np.ndarray] | None = None,
        **attributes: Any,
    ) -> Case:
        """The case with output encodings that cover most of the exact results, or equal to the input's."""
        first = next(o.quant for o in operands if o is not None and o.quant is not None)
        case = Case(op, operands, (first,) * outs, attributes, opset, self.domain, clip, function=function)
        if same:
            return case
        results = [r[np.isfinite(r)] for r in case.reference()]
        fill = float(self.draw(st.floats(0.7, 1.5)))
        quants = [covering(self.dtype, float(r.min(initial=0)), float(r.max(initial=0)), fill) for r in results]
        return replace(case, outs=tuple(quants))


def const(values: Any, dtype: Any = np.int64) -> Operand:
    """A constant that is no real number: a shape, axes, indices."""
    return Operand(np.asarray(values, dtype), constant=True)


Maker = Callable[[Draws], Case]
MAKERS: dict[str, Maker] = {}


def _unary(op: str, low: float, high: float, positive: bool, attributes: dict[str, Any]) -> Maker:
    return lambda d: d.case(op, [d.activation(d.any_shape(), low, high, positive=positive)], **attributes)


def _maybe(d: Draws, case: Case) -> Case:
    """The case, or the same without a QuantizeLinear after it."""
    return replace(case, outs=(d.pick(case.outs[0], None),))


for _op, _low, _high, _positive, _attributes in (
    ("LeakyRelu", -4, 4, False, {"alpha": 0.1}), ("Relu", -4, 4, False, {}), ("Gelu", -4, 4, False, {}),
    ("Elu", -4, 4, False, {"alpha": 1.5}), ("HardSigmoid", -4, 4, False, {"alpha": 0.3, "beta": 0.4}),
    ("HardSwish", -4, 4, False, {}), ("Sigmoid", -6, 6, False, {}), ("Softplus", -4, 4, False, {}),
    ("Sqrt", 0, 9, False, {}), ("Atan", -4, 4, False, {}), ("Asin", -0.98, 0.98, False, {}), ("Sin", -4, 4, False, {}),
    ("Cos", -4, 4, False, {}), ("Sign", -4, 4, False, {}), ("Tanh", -3, 3, False, {}), ("Exp", -4, 2, False, {}),
    ("Log", 0, 8, True, {}), ("Ceil", -9, 9, False, {}), ("Floor", -9, 9, False, {}), ("Round", -9, 9, False, {}),
    ("Abs", -4, 4, False, {}), ("Neg", -4, 4, False, {}),
):  # fmt: skip
    MAKERS[_op] = _unary(_op, _low, _high, _positive, _attributes)


def makes(*ops: str) -> Callable[[Callable[[Draws, str], Case]], Callable[[Draws, str], Case]]:
    """Register a maker of cases for ops."""

    def register(function: Callable[[Draws, str], Case]) -> Callable[[Draws, str], Case]:
        for op in ops:
            MAKERS[op] = lambda d, op=op: function(d, op)  # type: ignore[misc]
        return function

    return register


@makes("Reciprocal")
def _reciprocal(d: Draws, op: str) -> Case:
    return _maybe(d, d.case(op, [d.activation(d.any_shape(), 0, 8, positive=True)]))


@makes("Softmax", "LogSoftmax")
def _softmax(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    return d.case(op, [d.activation(shape)], axis=d.integer(-len(shape), len(shape) - 1))


@makes("Add", "Sub", "Mul", "PRelu")
def _binary(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    second = tuple(d.pick(1, n) for n in shape)[d.integer(0, len(shape) - 1) :]
    return d.case(op, [d.activation(shape), d.activation(second)])


@makes("Div")
def _div(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    return d.case(op, [d.activation(shape), d.activation(shape, 0, 4, positive=True)])


@makes("Pow")
def _pow(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    return d.case(op, [d.activation(shape, 0, 3, positive=True), d.activation(shape, -2, 2)])


@makes("Max", "Min", "Concat")
def _variadic(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    operands = [d.activation(shape) for _ in range(d.integer(2, 3))]
    return d.case(op, operands, **({"axis": d.integer(0, len(shape) - 1)} if op == "Concat" else {}))  # type: ignore[arg-type]


@makes("Clip")
def _clip(d: Draws, op: str) -> Case:
    bounds = [Operand(np.array(b, np.float32), constant=True) for b in sorted(d.rng.uniform(-3, 3, 2))]
    return d.case(op, [d.activation(d.any_shape()), *bounds[: d.integer(0, 2)]])


@makes("ReduceMean", "ReduceMin", "ReduceMax", "ReduceSum", "ReduceProd", "ReduceL2")
def _reduce(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    axes = sorted({d.integer(0, len(shape) - 1) for _ in range(2)})
    return d.case(op, [d.activation(shape, -1.5, 1.5), const(axes)], keepdims=d.integer(0, 1))


@makes("AveragePool", "MaxPool")
def _pool(d: Draws, op: str) -> Case:
    kernel = [d.integer(1, 3), d.integer(1, 3)]
    pads = [d.integer(0, k - 1) for k in (*kernel, *kernel)]
    shape = (*d.shape(2, 3), d.integer(3, 7), d.integer(3, 7))
    strides = [d.integer(1, 2), d.integer(1, 2)]
    attributes = {"count_include_pad": d.integer(0, 1)} if op == "AveragePool" else {}
    return d.case(
        op, [d.activation(shape)], same=op == "MaxPool", function=_max_pool_numbers if op == "MaxPool" else None,
        kernel_shape=kernel, pads=pads, strides=strides, **attributes,  # type: ignore[arg-type]
    )  # fmt: skip


def _max_pool_numbers(x: np.ndarray, kernel_shape: list[int], pads: list[int], strides: list[int]) -> np.ndarray:
    """MaxPool by its definition; onnx's reference fails on some paddings."""
    edges = ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3]))
    padded = np.pad(x, edges, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel_shape), axis=(2, 3))
    return np.asarray(windows[:, :, :: strides[0], :: strides[1]].max(axis=(-1, -2)))


@makes("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(d: Draws, op: str) -> Case:
    return d.case(op, [d.activation(d.shape(4))])


@makes("LRN")
def _lrn(d: Draws, op: str) -> Case:
    x, size = d.activation(d.shape(4)), d.pick(1, 3, 5)
    return d.case(op, [x], function=_lrn_numbers, size=size, alpha=0.1, beta=0.7, bias=1.0)


def _lrn_numbers(x: np.ndarray, size: int, alpha: float, beta: float, bias: float) -> np.ndarray:
    """LRN by its definition; onnx's reference counts batches where it should count channels."""
    edge = size // 2
    squares = np.pad(np.square(x), ((0, 0), (edge, edge), (0, 0), (0, 0)))
    total = np.stack([squares[:, c : c + size].sum(axis=1) for c in range(x.shape[1])], axis=1)
    return np.asarray(x / (bias + alpha / size * total) ** beta)


@makes("DepthToSpace", "SpaceToDepth")
def _space(d: Draws, op: str) -> Case:
    n, c, h, w = d.shape(4, 3)
    if op == "DepthToSpace":
        return d.case(op, [d.activation((n, c * 4, h, w))], blocksize=2, mode=d.pick("DCR", "CRD"))
    return d.case(op, [d.activation((n, c, h * 2, w * 2))], blocksize=2)


@makes("LpNormalization")
def _lp(d: Draws, op: str) -> Case:
    shape = d.shape(3)
    return d.case(op, [d.activation(shape, 0.5, 4, positive=True)], axis=d.integer(0, 2), p=2)


@makes("Slice")
def _slice(d: Draws, op: str) -> Case:
    shape = d.shape(3, 6)
    starts = [d.integer(0, n - 1) for n in shape]
    ends = [d.integer(s + 1, n) for s, n in zip(starts, shape, strict=True)]
    return d.case(op, [d.activation(shape), const(starts), const(ends), const([0, 1, 2]), const([d.integer(1, 2)] * 3)])


@makes("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Expand", "Tile")
def _layout(d: Draws, op: str) -> Case:
    a, b, c = d.shape(3, 4)
    x = d.activation((a, b, 1, c))
    match op:
        case "Reshape":
            return d.case(op, [x, const([c, -1])], same=True)
        case "Flatten":
            return d.case(op, [x], same=True, axis=d.integer(0, 4))
        case "Transpose":
            return d.case(op, [x], same=True, perm=d.draw(st.permutations(range(4))))
        case "Squeeze":
            return d.case(op, [x, const([2])], same=True)
        case "Unsqueeze":
            return d.case(op, [x, const([0, 2])], same=True)
        case "Expand":
            return d.case(op, [x, const([a, b, d.integer(2, 3), c])], same=True)
    return d.case(op, [x, const(d.shape(4, 2))], same=True)


@makes("Gather", "GatherElements")
def _gather(d: Draws, op: str) -> Case:
    shape = d.shape(3)
    axis = d.integer(0, 2)
    size = d.shape(2, 3) if op == "Gather" else tuple(d.integer(1, 3) if i == axis else n for i, n in enumerate(shape))
    indices = const(d.rng.integers(0, shape[axis], size))
    return d.case(op, [d.activation(shape), indices], same=True, axis=axis)


@makes("Resize")
def _resize(d: Draws, op: str) -> Case:
    x = d.activation(d.shape(4, 4))
    scales = Operand(np.array([1, 1, 2, 3], np.float32), constant=True)
    return d.case(
        op, [x, None, scales], same=True, mode=d.pick("nearest", "linear"), coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )  # fmt: skip


@makes("ArgMax", "ArgMin")
def _arg(d: Draws, op: str) -> Case:
    case = d.case(op, [d.activation(d.shape(3))], same=True, axis=d.integer(0, 2), keepdims=d.integer(0, 1))
    return replace(case, outs=(None,))


@makes("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
def _compare(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    x = d.activation(shape)
    other = d.activation(shape) if d.draw(st.booleans()) else Operand(d.rng.permutation(x.data), x.quant)
    return Case(op, [x, other], (None,), domain=d.domain)


@makes("Split")
def _split(d: Draws, op: str) -> Case:
    a, b = d.integer(1, 3), d.integer(1, 3)
    shape = (2, a + b, 3)
    case = d.case(op, [d.activation(shape), const([a, b])], same=True, outs=2, axis=1)
    return replace(case, outs=(case.outs[0], covering(d.dtype, -3, 3)))


@makes("Conv")
def _conv(d: Draws, op: str) -> Case:
    group, per_group, out = d.pick(1, 1, 2), d.integer(1, 3), d.integer(1, 3)
    kernel = [d.integer(1, 3), d.integer(1, 3)]
    x = d.activation((d.integer(1, 2), group * per_group, d.integer(3, 6), d.integer(3, 6)))
    w = d.weight((group * out, per_group, *kernel), 0)
    clip = d.pick(None, "Relu", (0.0, 6.0), (-1.0, 1.0))
    return d.case(
        op, [x, w, d.bias(x, w, group * out, 0)], clip=clip, group=group, kernel_shape=kernel,
        strides=[d.integer(1, 2), d.integer(1, 2)], pads=[d.integer(0, 1) for _ in range(4)],
    )  # fmt: skip


@makes("ConvTranspose")
def _conv_transpose(d: Draws, op: str) -> Case:
    kernel, channels, out = [d.integer(1, 3), d.integer(1, 3)], d.integer(1, 3), d.integer(1, 3)
    x = d.activation((1, channels, d.integer(2, 4), d.integer(2, 4)))
    w = d.weight((channels, out, *kernel), 1)
    return d.case(op, [x, w, d.bias(x, w, out, 0)], kernel_shape=kernel, strides=[d.integer(1, 2), d.integer(1, 2)])


@makes("MatMul")
def _matmul(d: Draws, op: str) -> Case:
    m, k, n = d.shape(3, 6)
    x = d.activation((*d.shape(d.integer(0, 2), 3), m, k))
    if d.dtype != "int8" and d.draw(st.booleans()):
        return d.case(op, [x, d.activation((k, n))])
    return d.case(op, [x, d.weight((k, n), 1)])


@makes("Gemm")
def _gemm(d: Draws, op: str) -> Case:
    m, k, n = d.shape(3, 6)
    transposed = d.integer(0, 1)
    x = d.activation((m, k))
    w = d.weight((n, k) if transposed else (k, n), 0 if transposed else 1)
    return _maybe(d, d.case(op, [x, w, d.bias(x, w, n, 0)], transB=transposed))


@makes("Einsum")
def _einsum(d: Draws, op: str) -> Case:
    a, b, c, e = d.shape(4, 4)
    return _maybe(d, d.case(op, [d.activation((a, b, c)), d.activation((a, c, e))], equation="bij,bjk->bik"))


@makes("GridSample")
def _grid_sample(d: Draws, op: str) -> Case:
    x, grid = d.activation((1, 2, d.integer(2, 5), d.integer(2, 5))), d.activation((1, *d.shape(2, 4), 2), -1.2, 1.2)
    return d.case(op, [x, grid], mode="linear", padding_mode=d.pick("zeros", "border"), align_corners=d.integer(0, 1))


def _vector(d: Draws, size: int, dtype: str, low: float, high: float) -> Operand:
    if dtype == "int32":
        data = d.rng.integers(-999, 1000, size).astype(np.int32)
        return Operand(data, Quant("int32", np.float32(0.002)), constant=True)
    return replace(d.activation((size,), low, high, dtype=dtype), constant=True)


@makes("InstanceNormalization", "LayerNormalization", "RMSNormalization", "BatchNormalization")
def _norm(d: Draws, op: str) -> Case:
    scale_type = d.dtype if d.dtype == "int8" else d.pick(d.dtype, "uint8")
    if op in ("InstanceNormalization", "BatchNormalization"):
        shape: tuple[int, ...] = (*d.shape(2, 3), d.integer(2, 4), d.integer(2, 4))
        size = shape[1]
    else:
        shape = (*d.shape(2, 3), d.integer(2, 6))
        size = shape[-1]
    operands: list[Operand | None] = [d.activation(shape), _vector(d, size, scale_type, -2, 2)]
    if op == "RMSNormalization":
        return d.case(op, operands, opset=23, epsilon=1e-3)
    operands.append(_vector(d, size, "int32" if op != "BatchNormalization" else d.dtype, -2, 2))
    if op == "BatchNormalization":
        operands.append(_vector(d, size, d.dtype, -1, 1))
        variance = replace(d.activation((size,), 0, 2, positive=True), constant=True)
        operands.append(variance)
    return d.case(op, operands, epsilon=1e-3)


@makes("Where")
def _where(d: Draws, op: str) -> Case:
    shape = d.any_shape()
    condition = Operand(d.rng.integers(0, 2, shape).astype(np.bool_))
    return d.case(op, [condition, d.activation(shape), d.activation(shape)])


@makes("Pad")
def _pad(d: Draws, op: str) -> Case:
    shape = d.shape(3, 4)
    pads = const([d.integer(0, 2) for _ in range(6)])
    value = d.pick(None, replace(d.activation((), -3, 3), constant=True))
    return d.case(op, [d.activation(shape), pads, *([value] if value else [])], mode="constant")


@makes("TopK")
def _top_k(d: Draws, op: str) -> Case:
    n = d.integer(2, 6)
    quant = covering(d.dtype, -3, 3)
    low, _ = limits(d.dtype)
    data = low + np.stack([d.rng.permutation(256)[:n] for _ in range(3)])  # no ties within a row
    x = Operand(data.astype(numpy_type(d.dtype)), quant)
    return Case(op, [x, const([d.integer(1, n)])], (quant, None), {"axis": -1}, 21, d.domain)


@makes("CumSum")
def _cum_sum(d: Draws, op: str) -> Case:
    shape = d.shape(3)
    return d.case(op, [d.activation(shape), const(d.integer(0, 2))])


@makes("ScatterElements")
def _scatter(d: Draws, op: str) -> Case:
    shape = (3, d.integer(2, 5))
    indices = np.stack([d.rng.permutation(shape[1])[:2] for _ in range(3)])
    return d.case(op, [d.activation(shape), const(indices), d.activation((3, 2))], axis=1)


# Erf is grouped for the Gelu fusion only: the EP has no op builder for it, so it is refused by itself.
# SimplifiedLayerNormalization is onnxruntime's own op, which onnx's reference does not have.
# What QNN has no op for is composed in fixed point, and within a step of onnxruntime: tests/ort/test_wide_units.py.
_ELSEWHERE = {"SimplifiedLayerNormalization", *(op for op, row in OPS.items() if not row.writable)}


def test_every_op_of_the_table_is_checked() -> None:
    assert set(OPS) - _ELSEWHERE == set(MAKERS)


@pytest.mark.parametrize("op", MAKERS)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_exact(op: str, data: st.DataObject) -> None:
    draws = Draws(data.draw)
    # 16-bit steps are finer than the parts of the reference that onnx computes in float32
    check(MAKERS[op](draws), 0.05 if "16" in draws.dtype else 2e-3)


def test_erf_alone_is_grouped_but_refused() -> None:
    quant = covering("uint8", -3, 3)
    case = Case("Erf", [Operand(np.zeros((2, 3), np.uint8), quant)], (quant,))
    (unit,), (placement,) = placed(case.model([(2, 3)])[0])
    assert unit.kind == "qdq"
    assert "no op builder for Erf" in (placement.reason or "")
