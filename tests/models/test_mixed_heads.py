# SPDX-License-Identifier: Apache-2.0
"""A real detector whose output joins boxes and scores: 8 bits leave it both, without anybody asking for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import hexforge
from hexforge.analysis.quality.runners import runner
from tests.models.test_models import fixed, sample  # noqa: F401 - a fixture

pytestmark = pytest.mark.models


def test_boxes_and_scores_of_a_yolo_survive_eight_bits(fixed: Any) -> None:  # noqa: F811
    source = fixed("nudenet")
    samples = [sample("nudenet", source, seed=i) for i in range(3)]
    built = hexforge.quantize(source, samples)
    assert built.model is not None
    assert built.placed_whole
    (told,) = built.to_json()["mixed_heads"].values()
    assert "they keep their own encodings" in told
    session = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    (exact,), (coarse,) = session.run(None, samples[0]), runner(built.model, "htp")(samples[0]).values()
    width = float(np.abs(exact[0, :4] - coarse[0, :4]).mean())
    assert width < 4  # pixels of 320
    scores, other = exact[0, 4:].ravel(), coarse[0, 4:].ravel()
    assert other.any()
    assert np.corrcoef(scores, other)[0, 1] > 0.7
