# SPDX-License-Identifier: Apache-2.0
"""No 16-bit unit is further than a step off without being told: what runs in float16 is named by `check`."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.model.op_table import OPS
from tests.ort.test_wide_units import SHAPE, Case, fed, session_of, theirs, unit

_PLANE = (1, 3, 6, 6)
_ONE = (
    "Relu Elu HardSwish Softplus Sqrt Atan Asin Sin Cos Tan Sign Exp Log Ceil Floor Round Abs Neg Sigmoid HardSigmoid "
    "Tanh Reciprocal Selu ThresholdedRelu LeakyRelu Softmax LogSoftmax"
)
_REDUCED = "ReduceMean ReduceMin ReduceMax ReduceL2 ReduceLogSumExp"
_THREE = np.array([1, 2, 3], np.float32)
CASES: tuple[Case, ...] = (
    *((op, [SHAPE], {}, {}) for op in _ONE.split()),  # type: ignore[arg-type]
    *((op, [SHAPE], {"axes": [1]}, {}) for op in _REDUCED.split()),  # type: ignore[arg-type]
    *((op, [SHAPE, (4, 5)], {}, {}) for op in "Add Div Mul Sub PRelu".split()),
    *((op, [SHAPE, (4, 5), (1,)], {}, {}) for op in "Max Min Sum Mean".split()),
    ("Mod", [SHAPE, (4, 5)], {"fmod": 1}, {}), ("Pow", [SHAPE], {}, {"e": np.float32(2)}),
    ("Concat", [SHAPE, SHAPE], {"axis": 1}, {}), ("CumSum", [SHAPE], {}, {"i": np.array(1)}),
    ("ReduceSum", [SHAPE], {}, {"i": np.array([1])}), ("Clip", [SHAPE], {}, {"a": np.float32(-1), "b": np.float32(1)}),
    ("LpNormalization", [SHAPE], {"axis": 1}, {}), ("LpNormalization", [SHAPE], {"axis": 1, "p": 1}, {}),
    ("LRN", [_PLANE], {"size": 3}, {}), ("LpPool", [_PLANE], {"kernel_shape": [2, 2], "p": 3}, {}),
    ("MaxPool", [_PLANE], {"kernel_shape": [2, 2]}, {}), ("AveragePool", [_PLANE], {"kernel_shape": [2, 2]}, {}),
    ("GlobalAveragePool", [_PLANE], {}, {}), ("GlobalMaxPool", [_PLANE], {}, {}),
    ("Gather", [SHAPE], {"axis": 1}, {"i": np.array([0, 2])}), ("Transpose", [SHAPE], {"perm": [0, 2, 3, 1]}, {}),
    ("GatherND", [SHAPE], {}, {"i": np.array([[0, 1], [1, 2]])}), ("Tile", [(3, 4)], {}, {"i": np.array([2, 1])}),
    ("GatherElements", [(3, 4)], {}, {"i": np.array([[0, 1, 2, 0], [1, 1, 0, 2]])}),
    ("Reshape", [SHAPE], {}, {"i": np.array([6, 20])}), ("Expand", [(3, 1)], {}, {"i": np.array([3, 4])}),
    ("Flatten", [SHAPE], {}, {}), ("Squeeze", [(1, 3, 4)], {}, {"i": np.array([0])}),
    ("Unsqueeze", [(3, 4)], {}, {"i": np.array([0])}), ("DepthToSpace", [(1, 4, 3, 3)], {"blocksize": 2}, {}),
    ("SpaceToDepth", [(1, 1, 4, 4)], {"blocksize": 2}, {}), ("Pad", [(3, 4)], {}, {"i": np.array([1, 0, 0, 1])}),
    ("Slice", [SHAPE], {}, {"a": np.array([0]), "b": np.array([2]), "c": np.array([1])}),
    ("Resize", [_PLANE], {"mode": "linear"},
     {"roi": np.array([], np.float32), "scales": np.array([1, 1, 2, 2], np.float32)}),
    ("GridSample", [_PLANE, (1, 4, 4, 2)], {}, {}), ("Einsum", [(3, 4), (4, 5)], {"equation": "ij,jk->ik"}, {}),
    ("MatMul", [(3, 4), (4, 5)], {}, {}), ("Gemm", [(3, 4), (4, 5), (5,)], {"alpha": 0.5}, {}),
    ("Gemm", [(3, 4), (4, 5), (5,)], {"alpha": 0.5, "beta": 2.0}, {}), ("Conv", [_PLANE, (4, 3, 3, 3)], {}, {}),
    ("ConvTranspose", [_PLANE, (3, 2, 3, 3)], {}, {}),
    ("InstanceNormalization", [_PLANE], {}, {"a": _THREE, "b": _THREE}),
    ("LayerNormalization", [SHAPE], {}, {"a": np.linspace(0.5, 1, 5, dtype=np.float32)}),
    ("BatchNormalization", [_PLANE], {}, {"a": _THREE, "b": _THREE, "m": _THREE - 2, "v": _THREE}),
)  # fmt: skip
ELSEWHERE = frozenset(
    "ReduceProd Where TopK Split ScatterElements Gelu Erf ArgMax ArgMin Equal Greater GreaterOrEqual Less LessOrEqual "
    "RMSNormalization SimplifiedLayerNormalization".split()
)
"""Ops with other inputs or outputs than float tensors, which the unit here cannot hold, or that HTP refuses."""


def test_the_whole_table_is_here() -> None:
    assert {case[0] for case in CASES} | ELSEWHERE >= set(OPS)


@pytest.mark.parametrize("kind", ["uint16", "int16"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {c[2]}")
def test_within_a_step_or_named(case: Case, kind: str) -> None:
    feeds = fed(case[1])
    if case[0] == "Asin":
        feeds = {name: array / 2.6 for name, array in feeds.items()}
    model, step = unit(case, kind, feeds)
    session = session_of(model, "htp")
    off = np.abs(session.run(None, feeds)[0] - theirs(model, feeds)).max() / step
    named = [said for row in session.placements for said in row.unsafe]
    assert off <= 1.01 or named, f"{off:.1f} steps off onnxruntime, and check says nothing"
    assert not named or off > 0, "named as inexact, and exact"


def test_what_is_named_says_what_would_work() -> None:
    case: Case = ("Sum", [SHAPE, (4, 5), (1,)], {}, {})
    model, _ = unit(case, "uint16", fed(case[1]))
    named = {said for row in session_of(model, "htp").placements for said in row.unsafe}
    assert all(": " in said for said in named)
