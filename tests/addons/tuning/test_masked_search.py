# SPDX-License-Identifier: Apache-2.0
"""A search over a model with a mask: every mix has the mask limited."""

from __future__ import annotations

from pathlib import Path

import onnx

from hexforge.addons.tuning.requests import Scoring, SearchSpace
from hexforge.addons.tuning.search import search
from tests.quant.padded_encoder import padded_encoder, texts


def test_searching_keeps_the_limit(tmp_path: Path) -> None:
    onnx.save(padded_encoder(), tmp_path / "encoder.onnx")
    samples, space = texts(15, padded=True), SearchSpace("w8a8", "w8a16", 1, budget=2)
    found = search(tmp_path / "encoder.onnx", samples, "SM8650", space, Scoring(samples=4))
    assert found.mixes.high.quality > 15
