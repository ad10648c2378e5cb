# SPDX-License-Identifier: Apache-2.0
"""Pictures as samples: what is done to them is an option, is said, and is doubted where the first layer disagrees."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import CallError
from hexforge.model.reader import read
from hexforge.quant.data.pictures import PictureFolder, PictureOptions
from hexforge.quant.data.samples import samples
from tests.cli.test_cli import run

Image = pytest.importorskip("PIL.Image")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random, made = np.random.default_rng(0), tmp_path / "pictures"
    made.mkdir()
    for number in range(5):
        Image.fromarray(random.integers(0, 256, (40, 60, 3)).astype(np.uint8)).save(made / f"{number}.png")
    return made


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A convolution and the normalization that training left behind it, for pictures of mean 0 and deviation 1."""
    random = np.random.default_rng(1)
    weight = random.normal(size=(8, 3, 3, 3)).astype(np.float32)
    deviation = np.sqrt((weight**2).sum((1, 2, 3)))  # of its results, for such pictures
    constants = {"w": weight, "scale": np.ones(8), "shift": np.zeros(8), "mean": np.zeros(8), "var": deviation**2 * 1.6}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv"),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["y"], "norm"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 30, 30])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


OPTIONS = ("--mean", "0.485,0.456,0.406", "--std", "0.229,0.224,0.225", "--resize", "36", "--crop", "32")


def test_options_reach_the_samples(folder: Path, model: Path) -> None:
    options = {"mean": MEAN, "std": STD, "resize": 36, "crop": 32}
    (first, *_) = samples(PictureFolder(folder, options), read(model).ir)
    with Image.open(folder / "0.png") as file:
        small = file.resize((54, 36), Image.Resampling.BILINEAR).crop((11, 2, 43, 34))
    expected = ((np.asarray(small) / 255 - MEAN) / STD).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(first["x"], expected, rtol=1e-5, atol=1e-6)
    (folder / "images.json").write_text(json.dumps(options))
    (again, *_) = samples(folder, read(model).ir)
    np.testing.assert_array_equal(first["x"], again["x"])


def test_what_was_done_is_said_and_a_range_that_does_not_fit_is_a_warning(
    folder: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "q.onnx")
    assert run("quantize", str(model), "--data", str(folder), "-o", out, *OPTIONS) == 0
    said = capsys.readouterr().out
    assert "shorter side resized to 36, middle 32 x 32 taken, pixels / 255, less (0.485, 0.456, 0.406)" in said
    assert "warning" not in said
    for wrong in ((), ("--scale", "1", "--mean", "0")):
        assert run("quantize", str(model), "--data", str(folder), "-o", out, *wrong) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "no mean and std" in said
        assert "warning: input 'x' is fed" in said
        assert "in training" in said


def test_an_input_that_the_model_itself_normalizes(tmp_path: Path, folder: Path) -> None:
    nodes = [
        helper.make_node("Sub", ["x", "m"], ["a"]),
        helper.make_node("Div", ["a", "s"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 8, 8])],
        [numpy_helper.from_array(np.full((1, 3, 1, 1), v, np.float32), n) for n, v in (("m", 123.0), ("s", 58.0))],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (said,) = hexforge.quantize(proto, folder).warnings
    assert "spans only" in said
    assert not hexforge.quantize(proto, PictureFolder(folder, {"scale": 1.0})).warnings


def test_options_for_pictures_without_pictures_are_an_error(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("quantize", str(model), "--data", "random:2", "--mean", "0.5") == 2
    assert "--mean: is about pictures" in capsys.readouterr().err
    with pytest.raises(CallError, match="expected 'stretch', 'crop' or 'pad' or a whole number of at least 1"):
        PictureOptions.of({"resize": 0.5}, "here")
