# SPDX-License-Identifier: Apache-2.0
"""Random models against onnxruntime and between the backends; `python -m fuzz differential_float` runs thousands."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ort.arbiter import rulings
from tests.ort.differential import Feeds, arbitrated_ops, float_disagreements, onnxruntime_outputs, qdq_disagreements
from tests.ort.random_qdq import random_qdq


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_float_models(first: int) -> None:
    assert not [str(d) for seed in range(first, first + 10) for d in float_disagreements(seed)]


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_quantized_models(first: int) -> None:
    assert not [str(d) for seed in range(first, first + 10) for d in qdq_disagreements(seed)]


@pytest.mark.parametrize("first", range(0, 20, 5))
def test_each_quantized_op_is_what_its_text_says(first: int) -> None:
    assert not [str(d) for seed in range(first, first + 5) for d in arbitrated_ops(seed)]


def test_the_arbiter_tells_a_wrong_op() -> None:
    model, feeds = random_qdq(2, "uint8", 6)
    assert not any(ruling.is_wrong for ruling in rulings(model, feeds, onnxruntime_outputs))

    def last_doubled(exposed: bytes, given: Feeds) -> list[np.ndarray]:
        *before, last = onnxruntime_outputs(exposed, given)
        return [*before, 2 * last + 1]

    wrong = [ruling for ruling in rulings(model, feeds, last_doubled) if ruling.is_wrong]
    assert len(wrong) == 1
