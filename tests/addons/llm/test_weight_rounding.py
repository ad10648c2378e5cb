# SPDX-License-Identifier: Apache-2.0
"""Rounding of weights: LPBQ's scales, and errors that other weights make up for; judged on text that was held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from hexforge.addons.llm import ExportRequest, export, load
from hexforge.addons.llm.exporting.evaluate import evaluate_bundle
from hexforge.addons.llm.exporting.precision import PRECISIONS
from hexforge.addons.llm.exporting.weight_rounding import InputCorrelations, expanded, rounded_weight
from hexforge.errors import CallError
from hexforge.ir import BlockwiseExpansion
from hexforge.model.reader import read
from tests.addons.llm import REFERENCE, SMALL
from tests.frontends.onnx.parts import build, units

HELD_OUT = (SMALL / "held_out.txt").read_text()


def correlations(inputs: np.ndarray) -> InputCorrelations:
    seen = InputCorrelations()
    for rows in np.array_split(inputs, 3):
        seen.observe("layer.0.gated", rows)
        seen.observe("layer.0.scores", rows[:, :2])
    return seen


def real(weight: np.ndarray, name: str, factor: np.ndarray | None = None) -> np.ndarray:
    made = rounded_weight(weight, PRECISIONS[name], factor)
    scales = np.atleast_2d(made.scales)
    scales = scales if made.expansion is None else scales * made.expansion
    return made.integers * np.repeat(scales, len(weight) // len(scales), 0)


def test_scales_of_blocks_are_whole_numbers_of_their_outputs() -> None:
    scales = np.random.default_rng(0).uniform(0.1, 1, (7, 5)).astype(np.float32)
    whole, largest = expanded(scales)
    assert whole.dtype == np.uint8
    assert (whole.max(0) == 16).all()
    assert whole.min() >= 1
    assert (np.abs(whole * largest - scales) <= largest * 0.5001).all()


@pytest.mark.parametrize("name", ["w4a16", "w4a16_lpbq", "w4a16_channel", "w8a16"])
def test_products_of_compensated_weights_are_nearer(name: str) -> None:
    random = np.random.default_rng(1)
    inputs = (random.standard_normal((400, 12)) @ random.standard_normal((12, 160))).astype(np.float32)
    inputs += random.standard_normal(inputs.shape).astype(np.float32) * 0.3
    weight = random.standard_normal((160, 24)).astype(np.float32)
    factor = correlations(inputs).factor("down", 0)
    lost = [float(np.square(inputs @ (real(weight, name, f) - weight)).mean()) for f in (None, factor)]
    assert lost[1] < 0.5 * lost[0]


def test_compensation_is_its_definition() -> None:
    """One input after the other, where the others are done 128 at a time."""
    random = np.random.default_rng(2)
    inputs = random.standard_normal((600, 160)).astype(np.float32)
    inputs[:, 1:] += inputs[:, :-1]
    weight = random.standard_normal((160, 8)).astype(np.float32)
    factor = correlations(inputs).factor("down", 0)
    made = rounded_weight(weight, PRECISIONS["w4a16"], factor)
    left = weight.astype(np.float64)
    for row in range(160):
        scale = made.scales[row // 32]
        assert np.array_equal(made.integers[row], np.clip(np.rint(left[row] / scale), -8, 7))
        error = (left[row] - made.integers[row] * scale.astype(np.float64)) / factor[row, row]
        left[row + 1 :] -= np.outer(factor[row, row + 1 :], error)


def test_inputs_that_do_not_go_together_change_nothing() -> None:
    weight = np.random.default_rng(3).standard_normal((64, 8)).astype(np.float32)
    nearest, same = (rounded_weight(weight, PRECISIONS["w4a16"], f) for f in (None, np.eye(64)))
    assert np.array_equal(nearest.integers, same.integers)


def test_lpbq_is_what_the_chip_gets_and_onnxruntime_runs_it(tmp_path: Path) -> None:
    request = ExportRequest(context=64, tokens=(1,), precision="w4a16_lpbq", compiled=False, compensated=True)
    export(SMALL, tmp_path / "b", request)
    model = read(tmp_path / "b" / "ar1.onnx").ir
    graph = build(units(model), "lpbq", [o.name or "" for o in model.graph.outputs])
    read_by = [
        v.encoding for node in graph if node.op.name in ("FullyConnected", "MatMul") for v in node.inputs[1:2] if v
    ]
    encodings = [encoding for encoding in read_by if isinstance(encoding, BlockwiseExpansion)]
    assert len(encodings) == 3 * 7 + 1
    assert {(e.bitwidth, e.block_scale_bitwidth) for e in encodings} == {(4, 4)}
    session = onnxruntime.InferenceSession(tmp_path / "b" / "ar1.onnx", providers=["CPUExecutionProvider"])
    feeds = {}
    for value in session.get_inputs():
        cache = value.name.startswith("past")
        feeds[value.name] = np.full(value.shape, 128 if cache else 0, np.uint8 if cache else np.int32)
    feeds["input_ids"][:] = token = REFERENCE["generated"][0]["ids"][0]
    (theirs,) = session.run(["logits"], feeds)
    ours = load(tmp_path / "b").session().feed([token])
    assert np.abs(ours - theirs[0, 0]).max() < 0.02 * np.abs(theirs).max()
    kinds = {t.name.rpartition(".")[2]: t.data_type for t in onnx.load(tmp_path / "b" / "ar1.onnx").graph.initializer}
    assert kinds["expansion"] == onnx.TensorProto.UINT8


def test_compensation_pays_on_text_that_was_held_out(tmp_path: Path) -> None:
    """Calibrated on Python's language reference, judged on docstrings; the whole text is in docs/language_models.md."""
    lost = []
    for compensated in (False, True):
        folder = tmp_path / str(compensated)
        export(SMALL, folder, ExportRequest(context=256, precision="w4a16_lpbq", compensated=compensated))
        result = evaluate_bundle(folder, SMALL, HELD_OUT, rows=12)
        assert abs(result.perplexity / result.float_perplexity - 1) < 0.04
        lost.append(result.divergence)
    assert lost[1] < 0.85 * lost[0]


def test_floats_are_not_compensated(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="floats are not rounded to integers"):
        export(SMALL, tmp_path / "b", ExportRequest(context=64, tokens=(1,), precision="float", compensated=True))
