# SPDX-License-Identifier: Apache-2.0
"""Real models quantized by our own rules: placed whole or with a reason, unit by unit as onnxruntime computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnxruntime.quantization import QuantType

import hexforge
from hexforge.quant.compare import sqnr_db
from tests.models.quantize import quantized
from tests.models.test_models import fixed, sample  # noqa: F401 - a fixture
from tests.models.unitwise import unit_agreements
from tests.quant.graphs import stray

pytestmark = pytest.mark.models

LEFT_FLOAT = {"silero_openvino": {"LSTM"}, "magika": {"Cast", "Max"}, "nudenet": {"Concat"}}
"""Op types with no fixed-point form, or (Max) a constant that no scale spans; boxes and scores are joined in float."""
NAMES = ("nudenet", "ocr_det", "ocr_rec", "ocr_cls", "magika", "silero_openvino")


@pytest.mark.parametrize("recipe", ["w8a8_channel", "w8a16"])
@pytest.mark.parametrize("name", NAMES)
def test_placed_whole(name: str, recipe: str, fixed: Any, tmp_path: Path) -> None:  # noqa: F811
    source, target = fixed(name), tmp_path / "q.onnx"
    samples = [sample(name, source, seed=i) for i in range(3)]
    found = hexforge.quantize(source, samples, recipe, target)
    assert found.placed_whole, found.refused
    assert len(found.plan.floats) == len(LEFT_FLOAT.get(name, ())), found.plan.floats
    if name not in LEFT_FLOAT:
        assert not stray(target.read_bytes())
    agreements = unit_agreements(target, sample(name, source, seed=9))
    total = sum(size for _, _, size in agreements)
    assert sum(share * size for _, share, size in agreements) / total >= 0.999
    assert min(share for _, share, _ in agreements) >= 0.99


@pytest.mark.parametrize(("name", "recipe"), [("nudenet", "w8a8"), ("nudenet", "w8a16"), ("magika", "w8a16")])
def test_no_worse_than_onnxruntimes_tool(name: str, recipe: str, fixed: Any, tmp_path: Path) -> None:  # noqa: F811
    """The same scheme (8-bit symmetric weights of one scale, min-max) on the same samples, run by the same session."""
    source, ours, theirs = fixed(name), tmp_path / "ours.onnx", tmp_path / "theirs.onnx"
    samples = [sample(name, source, seed=i) for i in range(3)]
    activation = QuantType.QUInt8 if recipe == "w8a8" else QuantType.QUInt16
    quantized(source, theirs, (activation, QuantType.QInt8), samples)
    hexforge.quantize(source, samples, recipe, ours)
    tests = [sample(name, source, seed=i) for i in range(5, 9)]

    def outputs(path: Path) -> np.ndarray:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        return np.concatenate([np.ravel(session.run(None, feeds)[-1]) for feeds in tests])

    exact = outputs(source)
    found = sqnr_db(exact, outputs(ours)), sqnr_db(exact, outputs(theirs))
    print(f"{name} {recipe}: ours {found[0]:.1f} dB, onnxruntime's {found[1]:.1f} dB")
    assert found[0] > found[1] - 0.5
