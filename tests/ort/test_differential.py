# SPDX-License-Identifier: Apache-2.0
"""Random models against onnxruntime and between the backends; `python -m fuzz differential_float` runs thousands."""

from __future__ import annotations

import pytest

from tests.ort.differential import float_disagreements, qdq_disagreements


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_float_models(first: int) -> None:
    assert not [str(d) for seed in range(first, first + 10) for d in float_disagreements(seed)]


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_quantized_models(first: int) -> None:
    assert not [str(d) for seed in range(first, first + 10) for d in qdq_disagreements(seed)]
