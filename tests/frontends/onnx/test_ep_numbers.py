# SPDX-License-Identifier: Apache-2.0
"""`check` remarks where the EP computes other numbers than a QDQ model says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import hexforge
from tests.frontends.onnx.qdq import Case, Operand, Quant, covering


def _remarks(case: Case, folder: Path) -> list[str]:
    onnx.save(case.model([e.shape for e in case.reference()])[0], folder / "model.onnx")
    return [remark for node in hexforge.check(folder / "model.onnx", "SM8650").nodes for remark in node.remarks]


@pytest.mark.parametrize(("scale", "remarked"), [(0.0006, True), (0.02, False)])
def test_a_reciprocal_whose_input_ends_below_1(scale: float, remarked: bool, tmp_path: Path) -> None:
    case = Case(
        "Reciprocal", [Operand(np.arange(9, 99, dtype=np.uint8), Quant("uint8", scale))], (covering("uint8", 0, 9),)
    )
    assert [f"ends at {255 * scale:.3g}" in remark for remark in _remarks(case, tmp_path)] == [True] * remarked


def test_a_quantized_batch_normalization(tmp_path: Path) -> None:
    x = Operand(np.zeros((1, 4, 3, 3), np.uint8), covering("uint8", -2, 2))
    constants = [Operand(np.full(4, 50, np.uint8), Quant("uint8", 0.01), constant=True) for _ in range(4)]
    (remark,) = _remarks(Case("BatchNormalization", [x, *constants], (covering("uint8", -9, 9),)), tmp_path)
    assert "fold it into the layer before it" in remark
