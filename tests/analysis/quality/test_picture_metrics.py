# SPDX-License-Identifier: Apache-2.0
"""PSNR and SSIM by their definitions, as metrics of a model whose labels are the wanted pictures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.analysis.quality.picture_metrics import WINDOW, peak_of, psnr_db, ssim
from hexforge.errors import CallError

RANDOM = np.random.default_rng(3)


def ssim_by_its_definition(a: np.ndarray, b: np.ndarray, peak: float) -> float:
    """The mean over every square, its moments taken one square at a time."""
    values = []
    for top in range(a.shape[0] - WINDOW + 1):
        for left in range(a.shape[1] - WINDOW + 1):
            x, y = (p[top : top + WINDOW, left : left + WINDOW].ravel() for p in (a, b))
            covariance = np.cov(x, y)
            c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
            light = (2 * x.mean() * y.mean() + c1) / (x.mean() ** 2 + y.mean() ** 2 + c1)
            values.append(light * (2 * covariance[0, 1] + c2) / (covariance[0, 0] + covariance[1, 1] + c2))
    return float(np.mean(values))


def test_definitions() -> None:
    a = RANDOM.random((20, 17))
    b = np.clip(a + RANDOM.normal(0, 0.1, a.shape), 0, 1)
    assert psnr_db(a, b, 1) == pytest.approx(-10 * math.log10(np.mean((a - b) ** 2)))
    assert psnr_db(255 * a, 255 * b, 255) == pytest.approx(psnr_db(a, b, 1))
    assert psnr_db(a, a, 1) == math.inf
    assert ssim(a, b, 1) == pytest.approx(ssim_by_its_definition(a, b, 1))
    assert ssim(a, a, 1) == pytest.approx(1)
    colours = [np.stack([p, p[::-1], 1 - p]) for p in (a, b)]
    last = [p.transpose(1, 2, 0) for p in colours]
    assert ssim(colours[0][None], colours[1][None], 1) == pytest.approx(ssim(last[0][None], last[1][None], 1))
    with pytest.raises(CallError, match="at least 7 x 7 pixels"):
        ssim(a[:6], b[:6], 1)
    assert [peak_of(p) for p in (a, 255 * a, (255 * a).astype(np.uint8))] == [1, 255, 255]


@pytest.fixture
def halving(tmp_path: Path) -> Path:
    """A model that halves a picture."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 16, 16]) for name in "xy")
    half = helper.make_tensor("half", TensorProto.FLOAT, [], [0.5])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "half"], ["y"], "mul")], "g", [x], [y], [half])
    path = tmp_path / "half.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_labels_are_pictures(halving: Path, tmp_path: Path) -> None:
    shots = RANDOM.random((3, 1, 3, 16, 16)).astype(np.float32)
    wanted = (shots[:, 0] / 2 + 0.1).astype(np.float32)
    np.save(tmp_path / "wanted.npy", wanted)
    feeds = [{"x": shot} for shot in shots]
    found = hexforge.evaluate(halving, feeds, tmp_path / "wanted.npy", "psnr", backend="cpu")
    assert found.metric == "psnr"
    assert found.score == pytest.approx(20, abs=1e-4)  # a tenth off everywhere
    assert 0 < hexforge.evaluate(halving, feeds, list(wanted), "ssim:y", backend="cpu").score < 1
    with pytest.raises(CallError, match=r"the label has the shape \[\] and the output \[1, 3, 16, 16\]"):
        hexforge.evaluate(halving, feeds, [1, 2, 3], "psnr", backend="cpu")
    with pytest.raises(CallError, match="has no output 'z'; it has 'y'"):
        hexforge.evaluate(halving, feeds, list(wanted), "ssim:z", backend="cpu")
    with pytest.raises(CallError, match="psnr needs labels"):
        hexforge.evaluate(halving, feeds, None, "psnr", backend="cpu")
