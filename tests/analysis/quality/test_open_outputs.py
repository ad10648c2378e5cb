# SPDX-License-Identifier: Apache-2.0
"""Outputs whose lengths depend on the data: compared, and never a traceback or pages of warnings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.tuning.optimize import optimize
from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.quant.compare import ErrorSums
from tests.quant.networks import Network


def _model(folder: Path, chosen: str) -> Path:
    """Two convolutions, and of their results those above a threshold, or the boxes that suppression leaves."""
    net = Network((1, 3, 16, 16))
    x = net.conv(net.node("Relu", net.conv("x", 3, 16)), 16, 8)
    if chosen == "elements":
        above = net.node("Greater", x, net.constant(np.float32(0.5)))
        flat = net.node("Reshape", above, net.constant(np.array([-1])))
        outputs: dict[str, list[int | None]] = {net.node("Compress", x, flat): [None]}
    else:
        boxes = net.node("Reshape", x, net.constant(np.array([1, -1, 4])))
        best = net.node("ReduceMax", boxes, axes=[2], keepdims=0)
        scores = net.node("Unsqueeze", net.node("Sigmoid", best), net.constant(np.array([1])))
        limits = (net.constant(np.asarray(n)) for n in (np.int64(500), np.float32(0.3), np.float32(0.75)))
        kept = net.node("NonMaxSuppression", boxes, scores, *limits)
        place = net.constant(np.array([2])), net.constant(np.array([3])), net.constant(np.array([1]))
        index = net.node("Squeeze", net.node("Slice", kept, *place), place[2])
        outputs = {net.node("Gather", boxes, index, axis=1): [1, None, 4]}
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph(
        net.nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, net.shape)], declared, net.constants
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


@pytest.mark.parametrize("chosen", ["elements", "boxes"])
def test_every_command_compares_them(chosen: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, target = _model(tmp_path, chosen), tmp_path / "quantized.onnx"
    built = hexforge.quantize(path, "random:6", output=target, quality=True)
    assert built.quality is not None
    assert np.isfinite(built.quality.sqnr_db)
    (warning,) = built.warnings
    assert "the length depends on the data" in warning
    assert np.isfinite(hexforge.compare(path, target, "random:3").sqnr_db)
    made = optimize(path, tmp_path / "out", OptimizeRequest(data="random:6", groups=1, budget=2, samples=2))
    assert np.isfinite(made.score)
    assert np.isfinite(hexforge.evaluate(target, "random:3", metric=f"sqnr:{path}").score)
    assert "onnxruntime" not in capfd.readouterr().err


def test_a_length_that_only_the_file_declares_is_refused_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As exporters write it that trace a model once: onnxruntime warns at every run."""
    model = onnx.load(_model(tmp_path, "elements"))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 900
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(0.5, np.float32), "half"))
    model.graph.node.append(helper.make_node("Mul", [model.graph.output[0].name, "half"], ["y"], "last"))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [900]))
    with pytest.raises(hexforge.HexforgeError, match=r"must be float32\[900\]"):
        hexforge.quantize(model, "random:4", quality=True)
    assert "onnxruntime" not in capfd.readouterr().err


def test_what_only_one_has_counts_as_an_error() -> None:
    sums = ErrorSums()
    sums.update(np.ones((2, 3), np.float32), np.ones((2, 2), np.float32))
    assert sums.count == 6
    assert sums.sqnr_db == pytest.approx(10 * np.log10(6 / 2))
    nothing = ErrorSums()
    nothing.update(np.ones((4, 2), np.float32), np.zeros((0, 2), np.float32))
    assert nothing.sqnr_db == pytest.approx(0.0)
