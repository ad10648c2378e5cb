# SPDX-License-Identifier: Apache-2.0
"""Comparing a quantized model with the float one on each backend, and the sensitivity of its layers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest

import hexforge
from hexforge.analysis.quality import compare as module
from hexforge.analysis.quality.runners import runner
from hexforge.errors import CallError
from tests.digits import MODEL, held_out
from tests.models.quantize import quantized

DATA = [{"image": picture} for picture in held_out()[0][:24]]


@pytest.fixture(scope="module")
def qdq(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.qdq.onnx"
    quantized(MODEL, path, "a8w8", DATA[:16])
    return path


@pytest.mark.parametrize("backend", ["htp", "cpu", "ort"])
def test_outputs_first_then_the_worst(qdq: Path, backend: str) -> None:
    seen: list[tuple[int, int]] = []
    found = hexforge.compare(MODEL, qdq, DATA, backend=backend, progress=lambda *said: seen.append(said))
    (logits,) = found.outputs
    exact, coarse = runner(MODEL, "ort"), runner(qdq, backend)
    errors = [(exact(f)["logits"].astype(float), coarse(f)["logits"].astype(float)) for f in DATA]
    signal, noise = sum((a**2).sum() for a, _ in errors), sum(((a - b) ** 2).sum() for a, b in errors)
    assert logits.running is not None
    assert logits.running.sqnr_db == pytest.approx(10 * math.log10(signal / noise), abs=1e-6)
    assert found.sqnr_db == logits.running.sqnr_db
    assert logits.running.max_error == pytest.approx(max(np.abs(a - b).max() for a, b in errors))
    ranked = [row.sqnr_db for row in found.tensors]
    assert ranked == sorted(ranked)
    assert {row.name for row in found.tensors} == {"image", "relu1", "pool1", "relu2", "pool2", "flat"}
    assert found.unmatched == 0
    assert seen == [(i + 1, 24) for i in range(24)]


def test_an_inputs_error_is_its_own_and_later_ones_are_more(qdq: Path) -> None:
    found = {row.name: row for row in hexforge.compare(MODEL, qdq, DATA).tensors}
    image, relu2 = found["image"], found["relu2"]
    assert image.running is not None
    assert image.own is not None
    assert image.running.sqnr_db == pytest.approx(image.own.sqnr_db, abs=0.1)
    assert relu2.running is not None
    assert relu2.own is not None
    assert relu2.running.sqnr_db < relu2.own.sqnr_db - 3


def test_rounds_of_few_tensors_say_the_same(qdq: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hexforge.compare(MODEL, qdq, DATA[:4]).to_json()
    monkeypatch.setattr(module, "WATCHED_BYTES", 9000)  # relu1 alone takes 8192, twice
    assert hexforge.compare(MODEL, qdq, DATA[:4]).to_json() == whole


def test_layers_alone_and_left_out(qdq: Path) -> None:
    one = hexforge.compare(MODEL, qdq, DATA[:16], sensitivity="one")
    assert {layer.name for layer in one.layers} == {"input image", "conv1", "conv2", "fc"}
    figures = [layer.sqnr_db for layer in one.layers]
    assert figures == sorted(figures)
    assert min(figures) > one.sqnr_db, "one layer costs less than all"
    others = hexforge.compare(MODEL, qdq, DATA[:16], sensitivity="all-but-one", jobs=2)
    assert others.layers == hexforge.compare(MODEL, qdq, DATA[:16], sensitivity="all-but-one").layers
    gains = [layer.gain_db for layer in others.layers]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0.5
    # what costs little alone wins little when it is left out
    assert others.layers[-1].name == one.layers[-1].name == "input image"


def test_our_own_writers_names_match(tmp_path: Path) -> None:
    hexforge.quantize(MODEL, DATA[:8], "w8a16", tmp_path / "q.onnx")
    found = hexforge.compare(MODEL, tmp_path / "q.onnx", DATA[:4])
    assert found.unmatched == 0
    assert {row.name for row in found.weights} == {
        "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc.weight", "fc.bias",
    }  # fmt: skip
    assert found.sqnr_db > 25
    assert {row.dtype for row in found.tensors} == {"uint16"}


def test_rescaled_channels_are_no_error(tmp_path: Path, qdq: Path) -> None:
    changed = onnx.load(MODEL)
    factor = np.geomspace(0.1, 10, 16).astype(np.float32)
    for tensor in changed.graph.initializer:
        array, spread = onnx.numpy_helper.to_array(tensor), factor
        if tensor.name in ("conv1.weight", "conv1.bias"):
            spread = factor.reshape(-1, *[1] * (array.ndim - 1))
        elif tensor.name == "conv2.weight":
            spread = 1 / factor.reshape(1, -1, 1, 1)  # type: ignore[assignment]
        else:
            continue
        tensor.CopyFrom(onnx.numpy_helper.from_array((array * spread).astype(np.float32), tensor.name))
    onnx.save(changed, tmp_path / "equalized.onnx")
    quantized(tmp_path / "equalized.onnx", tmp_path / "q.onnx", "a16w8", DATA[:8])
    found = {row.name: row for row in hexforge.compare(MODEL, tmp_path / "q.onnx", DATA[:8]).tensors}
    assert found["relu1"].rescaled_db is not None
    assert found["relu1"].rescaled_db > 15
    assert found["relu1"].running is not None
    assert found["relu1"].running.sqnr_db < 0
    assert found["relu2"].rescaled_db is None
    plain = hexforge.compare(MODEL, qdq, DATA[:8]).tensors
    assert all(row.rescaled_db is None for row in plain)


def test_what_cannot_be_compared(qdq: Path, tmp_path: Path) -> None:
    other = onnx.load(MODEL)
    other.graph.output[0].name = other.graph.node[-1].output[0] = "scores"
    onnx.save(other, tmp_path / "other.onnx")
    with pytest.raises(CallError, match="no output in common"):
        hexforge.compare(tmp_path / "other.onnx", qdq, DATA)
    with pytest.raises(CallError, match="all-but-one"):
        hexforge.compare(MODEL, qdq, DATA, sensitivity="all")
    with pytest.raises(CallError, match="no samples"):
        hexforge.compare(MODEL, qdq, [])
    with pytest.raises(CallError, match="there are htp, cpu, ir, gpu, ort"):
        hexforge.compare(MODEL, qdq, DATA, backend="npu")
    with pytest.raises(hexforge.HexforgeError, match="no QuantizeLinear"):
        hexforge.compare(MODEL, MODEL, DATA[:2], sensitivity="one")
