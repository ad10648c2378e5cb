# SPDX-License-Identifier: Apache-2.0
"""Odd outputs: whatever shapes, types and numbers two models give, they are judged, and never in a traceback."""

from __future__ import annotations

import contextlib
import json
import math

import numpy as np
import pytest

from hexforge.analysis.quality.decisions.graph_facts import ModelFacts, OutputFacts
from hexforge.analysis.quality.decisions.judge import judge
from hexforge.analysis.quality.decisions.metric import KINDS
from hexforge.errors import CallError
from hexforge.ir import Array

OPS = ("", "Sigmoid", "Softmax", "Conv", "Gemm", "LayerNormalization", "Concat", "Relu")
NAMES = ("output0", "boxes", "scores", "labels", "mask", "heatmap", "embedding", "landmarks", "logits", "hm")


def odd_array(random: np.random.Generator) -> Array:
    shape = tuple(int(side) for side in random.choice([1, 1, 1, 2, 3, 4, 5, 7, 16, 33, 85, 100], random.integers(0, 6)))
    if math.prod(shape) > 300_000:
        shape = shape[:2]
    kind = random.integers(6)
    if kind == 0:
        return np.asarray(random.integers(-3, 9, shape), np.int64)
    if kind == 1:
        return np.asarray(random.random(shape) > 0.5)
    if kind == 2:
        return np.asarray(random.random(shape), np.float32)
    if kind == 3:
        return np.asarray(random.normal(0, 100, shape), np.float16)
    if kind == 4:
        array = np.asarray(random.normal(0, 5, shape), np.float32)
        return np.asarray(np.where(random.random(shape) < 0.05, random.choice([np.nan, np.inf, -np.inf]), array))
    return np.zeros(shape, np.float32)


def changed(random: np.random.Generator, array: Array) -> Array:
    """The same, or other numbers, or fewer of them."""
    how = random.integers(5)
    if how == 0 and array.dtype.kind == "f":
        return np.zeros_like(array)
    if how == 1 and array.dtype.kind == "f":
        return np.asarray(array + random.normal(0, 0.1, array.shape).astype(array.dtype))
    if how == 2 and array.ndim and array.shape[-1] > 1:
        return array[..., :-1].copy()
    if how == 3 and array.dtype.kind == "f":
        return np.full_like(array, np.nan)
    return array


@pytest.mark.parametrize("seed", [*range(150), 1841])
def test_any_outputs_are_judged(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = random.choice(NAMES, random.integers(1, 5), replace=False)
    first = {str(name): odd_array(random) for name in names}
    one = [
        {n: a if i == 0 else changed(random, a) for n, a in first.items()} for i in range(int(random.integers(1, 4)))
    ]
    two = [{n: changed(random, a) for n, a in outputs.items()} for outputs in one]
    told = ModelFacts(
        {n: OutputFacts(str(random.choice(OPS))) for n in first}, (320, 320) if random.random() < 0.5 else None
    )
    found = judge(one, two, told)
    assert math.isnan(found.agreement) or -1 <= found.agreement <= 1
    json.dumps(found.to_json(), allow_nan=False)
    assert found.text()
    same = judge(one, one, told)
    assert same.alarms == ()
    assert all(math.isnan(part.agreement) or part.agreement >= 1 - 1e-6 for part in same.parts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_does_not_fit_is_a_clear_error_or_judged(kind: str) -> None:
    random = np.random.default_rng(len(kind))
    for _ in range(12):
        outputs = [{"y": odd_array(random)}]
        with contextlib.suppress(CallError):  # anything else is a fault
            assert judge(outputs, outputs, metric=kind).kind == kind
