# SPDX-License-Identifier: Apache-2.0
"""What quantize says of quality: on samples that calibration did not see."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.analysis.quality.held_out import SplitSamples
from tests.cli.test_cli import run
from tests.digits import MODEL, held_out

DATA = [{"image": picture} for picture in held_out()[0][:20]]


def folder(path: Path, count: int) -> Path:
    path.mkdir()
    for number, feeds in enumerate(DATA[:count]):
        np.save(path / f"{number}.npy", feeds["image"])
    return path


def test_held_out_samples_are_others() -> None:
    split = SplitSamples.of(DATA)
    assert split.held_out
    assert len(split.judged) == 4
    assert len(split.calibration) == 16
    seen = [id(feeds) for feeds in (*split.calibration, *split.judged)]
    assert sorted(seen) == sorted(map(id, DATA))
    few = SplitSamples.of(DATA[:4])
    assert not few.held_out
    assert len(few.calibration) == len(few.judged) == 4


def test_quality_is_that_of_the_held_out_samples() -> None:
    found = hexforge.quantize(MODEL, DATA, quality=True)
    assert found.statistics.samples == 16
    quality = found.quality
    assert quality is not None
    assert (quality.samples, quality.held_out) == (4, True)
    assert found.model is not None
    compared = hexforge.compare(MODEL, found.model, list(SplitSamples.of(DATA).judged))
    assert quality.sqnr_db == pytest.approx(compared.sqnr_db)
    assert len(quality.worst) == 3
    assert hexforge.quantize(MODEL, DATA).quality is None


def test_an_improved_recipe_is_judged_by_samples_that_calibration_has_not_seen() -> None:
    assert hexforge.quantize(MODEL, DATA, "w8a8+range").statistics.samples == 16


def test_the_command_ends_with_quality_and_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "q.onnx"
    assert run("quantize", str(MODEL), "--data", str(folder(tmp_path / "d", 10)), "-o", str(target)) == 0
    said = capsys.readouterr().out
    assert "dB on 2 held-out samples" in said
    assert "worst layers" in said
    assert said.rstrip().splitlines()[-1].startswith("next: hexforge compile")
    assert run("quantize", str(MODEL), "--data", str(tmp_path / "d"), "-o", str(target), "--no-quality") == 0
    assert "held-out" not in capsys.readouterr().out
    assert run("quantize", str(MODEL), "--data", str(folder(tmp_path / "few", 2)), "-o", str(target)) == 0
    assert "the ones it was calibrated on" in capsys.readouterr().out


def normalized(path: Path) -> Path:
    """A convolution whose normalization turns its weights upside down, and a mean of everything, a scalar."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.normal(size=(8, 3, 3, 3)), "scale": -10 * np.ones(8), "shift": np.ones(8), "mean": np.zeros(8),
        "var": np.ones(8),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], "norm"),
        helper.make_node("Relu", ["n"], ["r"], "relu"),
        helper.make_node("ReduceMean", ["r"], ["y"], "all", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_scalar_outputs_and_folded_weights_are_compared(tmp_path: Path) -> None:
    source, target = normalized(tmp_path / "m.onnx"), tmp_path / "q.onnx"
    hexforge.quantize(source, "random:4", "w8a8_channel", target)
    found = hexforge.compare(source, target, "random:2")
    assert [row.name for row in found.outputs] == ["y"]
    assert found.sqnr_db > 15
    (weight,) = [row for row in found.weights if row.op_type == "Conv" and row.dtype == "int8"]
    assert weight.sqnr_db > 35
