# SPDX-License-Identifier: Apache-2.0
"""Patterns: functions that are written out in several nodes, and what only looks like one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import numpy_helper

from hexforge.model.reader import read
from hexforge.patterns.activations import ScaledSoftmax, gelu, hard_swish, scaled_softmax, tanh_gelu
from hexforge.patterns.normalizations import GroupNormalization, Normalization, group_norm, l2_norm, layer_norm
from hexforge.patterns.written_out import WrittenOut

Matcher = Callable[[onnx_ir.Node], WrittenOut | None]
CONSTANTS = {
    "three": 3.0, "zero": 0.0, "six": 6.0, "sixth": 1 / 6, "one": 1.0, "half": 0.5, "two": 2.0, "root": math.sqrt(2),
    "eps": 1e-5, "eight": 8.0, "deep": np.full((1,) * 5, 3.0), "row": np.arange(8), "last": np.array([-1], np.int64),
    "groups": np.array([2, 2, -1], np.int64), "back": np.array([2, 4, 8], np.int64), "ones": np.ones(2),
    "cubed": 0.044715, "inner": math.sqrt(2 / math.pi),
}  # fmt: skip


def _matches(matcher: Matcher, body: str, outputs: str = "y") -> list[WrittenOut]:
    """What a matcher recognizes in a model of these nodes, which reads x."""
    written = ", ".join(f"float[N] {name}" for name in outputs.split())
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 20]> g (float[2, 4, 8] x) => ({written}) {{ {body} }}'
    )
    for name, value in CONSTANTS.items():
        array = np.asarray(value)
        array = array if array.dtype == np.int64 and name != "row" else array.astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    for output in model.graph.output:
        output.type.tensor_type.ClearField("shape")
    return [match for node in read(model).ir.graph if (match := matcher(node)) is not None]


GATE = "a = Add(x, three) g = Clip(a, zero, six)"
HALVES = "s = Div(x, root) e = Erf(s) p = Add(one, e)"
TANH = "k = Mul(cubed, c) s = Add(x, k) i = Mul(s, inner) t = Tanh(i) p = Add(t, one)"
FACTORED = "a = Mul(x, cubed) b = Mul(x, a) c = Add(b, one) d = Mul(x, c) i = Mul(inner, d) t = Tanh(i)"
CENTER = "m = ReduceMean(x, last) d = Sub(x, m)"
DEVIATION = "v = ReduceMean(q, last) w = Add(v, eps) r = Sqrt(w)"


@pytest.mark.parametrize(
    ("matcher", "body", "count"),
    [
        (hard_swish, "g = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, g)", 2),
        (hard_swish, f"{GATE} p = Mul(g, x) y = Div(p, six)", 4),
        (hard_swish, f"{GATE} d = Mul(sixth, g) y = Mul(x, d)", 4),
        (gelu, f"{HALVES} h = Mul(x, half) y = Mul(h, p)", 5),
        (gelu, f"{HALVES} h = Mul(p, half) y = Mul(h, x)", 5),
        (gelu, f"{HALVES} h = Mul(x, p) y = Mul(half, h)", 5),
        (tanh_gelu, f"c = Pow(x, three) {TANH} h = Mul(x, half) y = Mul(h, p)", 8),
        (tanh_gelu, f"a = Mul(x, x) c = Mul(a, x) {TANH} h = Mul(half, p) y = Mul(x, h)", 9),
        (tanh_gelu, f"{FACTORED} p = Add(one, t) h = Mul(x, p) y = Mul(h, half)", 9),
        (scaled_softmax, "s = Div(x, eight) y = Softmax(s)", 2),
        (layer_norm, f"{CENTER} q = Pow(d, two) {DEVIATION} y = Div(d, r)", 7),
        (layer_norm, f"{CENTER} q = Mul(d, d) {DEVIATION} n = Div(d, r) t = Mul(n, row) y = Add(row, t)", 9),
        (l2_norm, "n = ReduceL2(x, last) c = Max(n, eps) y = Div(x, c)", 3),
        (l2_norm, "n = ReduceL2(x, last) c = Clip(n, eps) y = Div(x, c)", 3),
        (group_norm, "i = Reshape(x, groups) n = InstanceNormalization(i, ones, ones) y = Reshape(n, back)", 3),
    ],
)
def test_a_function_is_recognized(matcher: Matcher, body: str, count: int) -> None:
    (match,) = _matches(matcher, body)
    assert len(match.nodes) == count
    assert match.last.outputs[0].name == "y"
    assert match.inputs[0] is not None
    assert match.inputs[0].name == "x"


@pytest.mark.parametrize(
    ("matcher", "body", "outputs"),
    [
        (hard_swish, "g = HardSigmoid(x) y = Mul(x, g)", "y"),  # another slope
        (hard_swish, f"{GATE} p = Mul(g, x) y = Div(six, p)", "y"),  # the reciprocal
        (hard_swish, f"{GATE} p = Mul(g, x) y = Div(p, six)", "y g"),  # the gate is read
        (hard_swish, "a = Add(x, deep) g = Clip(a, zero, six) p = Mul(g, x) y = Div(p, six)", "y"),  # more dimensions
        (gelu, f"{HALVES} h = Mul(x, p) y = Mul(two, h)", "y"),
        (gelu, f"{HALVES} h = Mul(x, half) y = Mul(h, p)", "y h"),
        (gelu, "s = Div(root, x) e = Erf(s) p = Add(one, e) h = Mul(x, p) y = Mul(half, h)", "y"),
        (tanh_gelu, f"c = Pow(x, two) {TANH} h = Mul(x, half) y = Mul(h, p)", "y"),  # a square
        (tanh_gelu, f"c = Pow(x, three) {TANH} h = Mul(x, half) y = Mul(h, p)", "y t"),  # the tanh is read
        (tanh_gelu, "t = Tanh(x) p = Add(t, one) h = Mul(x, half) y = Mul(h, p)", "y"),
        (scaled_softmax, "s = Div(x, x) y = Softmax(s)", "y"),
        (layer_norm, f"m = ReduceMean(x, last) d = Sub(m, x) q = Pow(d, two) {DEVIATION} y = Div(d, r)", "y"),
        (layer_norm, f"{CENTER} q = Pow(d, three) {DEVIATION} y = Div(d, r)", "y"),
        (layer_norm, f"{CENTER} q = Pow(d, two) {DEVIATION} y = Div(d, r)", "y d"),
        (l2_norm, "n = ReduceL2(x, last) c = Add(n, eps) y = Div(x, c)", "y"),
        (l2_norm, "n = ReduceL2(x, last) c = Clip(n, eps, six) y = Div(x, c)", "y"),
    ],
)
def test_what_only_looks_like_one(matcher: Matcher, body: str, outputs: str) -> None:
    assert _matches(matcher, body, outputs) == []


def test_what_a_match_says() -> None:
    (softmax,) = _matches(scaled_softmax, "s = Div(x, eight) y = Softmax(s)")
    assert isinstance(softmax, ScaledSoftmax)
    assert softmax.beta == 0.125
    body = f"{CENTER} q = Mul(d, d) {DEVIATION} n = Div(d, r) t = Mul(n, row) y = Add(t, row)"
    (norm,) = _matches(layer_norm, body)
    assert isinstance(norm, Normalization)
    assert (norm.axes, [v and v.name for v in norm.inputs]) == ((2,), ["x", "row", "row"])
    assert norm.epsilon == pytest.approx(1e-5)
    body = "i = Reshape(x, groups) n = InstanceNormalization(i, ones, ones) b = Reshape(n, back) y = Mul(b, half)"
    (grouped,) = _matches(group_norm, body)
    assert isinstance(grouped, GroupNormalization)
    assert (grouped.groups, grouped.weight.tolist(), grouped.bias.tolist()) == (2, [0.5] * 4, [0.5] * 4)


def test_a_tolerance_is_relative() -> None:
    body = "g = HardSigmoid<alpha = 0.16667, beta = 0.5>(x) y = Mul(x, g)"
    assert _matches(hard_swish, body) == []
    assert len(_matches(lambda node: hard_swish(node, tolerance=1e-4), body)) == 1
