# SPDX-License-Identifier: Apache-2.0
"""NonMaxSuppression against the plain definition: keep a box unless a better one kept overlaps it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import ModelError
from hexforge.ir import Call, DType, TensorType, lookup
from hexforge.ops.evaluate import evaluate

_OP = lookup("NonMaxSuppression")


def _run(boxes: np.ndarray, scores: np.ndarray, rows: int, counted: bool, **params: float) -> tuple[np.ndarray, ...]:
    types = (TensorType(DType.FLOAT32, boxes.shape), TensorType(DType.FLOAT32, scores.shape))
    outs = (TensorType(DType.INT32, (rows, 3)), TensorType(DType.INT32, (1,)))[: 1 + counted]
    call = Call(_OP, types, outs, _OP.complete(params))
    assert _OP.infer(call) == outs
    return evaluate(call, [boxes, scores])


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    shared = float(np.prod(np.maximum(high - low, 0)))
    return shared / float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - shared)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), most=st.integers(1, 4), iou=st.sampled_from([0.1, 0.5]))
def test_greedy(seed: int, most: int, iou: float) -> None:
    rng = np.random.default_rng(seed)
    corner, size = rng.uniform(0, 1, (2, 6, 2)), rng.uniform(0.3, 1, (2, 6, 2))
    boxes = np.concatenate([corner, corner + size], axis=2).astype(np.float32)
    scores = rng.permuted(np.linspace(0, 1, 36)).reshape(2, 3, 6).astype(np.float32)
    want = []
    for n in range(2):
        for c in range(3):
            kept: list[int] = []
            for i in np.argsort(-scores[n, c]):
                better = all(_overlap(boxes[n, i], boxes[n, j]) <= iou for j in kept)
                if scores[n, c, i] > 0.2 and better and len(kept) < most:
                    kept.append(int(i))
            want += [(n, c, i) for i in kept]
    params = {"iou_threshold": iou, "score_threshold": 0.2, "max_boxes_selected": most}
    got, count = _run(boxes, scores, len(want) + 2, True, **params)
    assert [*map(tuple, got.tolist())] == [*want, (-1, -1, -1), (-1, -1, -1)]
    assert count.tolist() == [len(want)]
    np.testing.assert_array_equal(_run(boxes, scores, len(want), False, **params)[0], got[:-2])


def test_another_number_of_rows_is_an_error() -> None:
    boxes = np.array([[[0, 0, 1, 1], [5, 5, 6, 6]]], np.float32)
    with pytest.raises(ModelError, match="2 boxes are selected"):
        _run(boxes, np.ones((1, 1, 2), np.float32), 3, False, max_boxes_selected=5)
