# SPDX-License-Identifier: Apache-2.0
"""Random models of ops the backend takes and ops it refuses compute what onnxruntime computes, however they are cut."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnxruntime
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ort.models import FLOAT, model, node, session

UNARY = ("Relu", "Neg", "Shrink", "Sigmoid", "Celu")  # Shrink and Celu are refused
BINARY = ("Add", "Mul", "Max")
REFUSED = ("Shrink", "Celu")


@st.composite
def models(draw: st.DrawFn) -> tuple[bytes, int]:
    """A model, and how many of its nodes are refused."""
    values = ["x0", "x1"]
    nodes = []
    for i in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(UNARY + BINARY))
        inputs = [draw(st.sampled_from(values)) for _ in range(2 if op in BINARY else 1)]
        nodes.append(node(op, inputs, [f"t{i}"], name=f"n{i}"))
        values.append(f"t{i}")
    outputs = draw(st.lists(st.sampled_from(values[2:]), min_size=1, max_size=4, unique=True))
    kinds: Any = {name: (FLOAT, [2, 3]) for name in values}
    source = model(nodes, {k: kinds[k] for k in values[:2]}, {k: kinds[k] for k in outputs}, opset=18)
    return source, sum(n.op_type in REFUSED for n in nodes)


@settings(max_examples=40, deadline=None)
@given(models(), st.integers(0, 1 << 16))
def test_same_as_onnxruntime(made: tuple[bytes, int], seed: int) -> None:
    source, refused = made
    feeds = {k: np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32) for k in ("x0", "x1")}
    mine = session(source)
    theirs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    for a, b in zip(mine.run(None, feeds), theirs.run(None, feeds), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert sum(row.reason is not None for row in mine.placements) <= refused
    taken = [stage.part.taken for stage in mine.stages]
    assert all(a != b for a, b in itertools.pairwise(taken))
