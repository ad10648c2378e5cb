# SPDX-License-Identifier: Apache-2.0
"""What estimate promises of a float model at a precision is what quantize builds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import hexforge
from hexforge.analysis.timed_graphs import built_graphs, timed_graphs
from hexforge.chips.deployment import Deployment
from hexforge.model.save import to_bytes
from tests.light import NAMES, light
from tests.quant.networks import Network

MOST = 0.02
"""Part of the promise that the built file may be off by."""
PRECISIONS = ("w8a8", "w8a16", "w4a16", "w16a16")


def check_promises(source: Path | bytes, samples: object, folder: Path, precisions: Sequence[str] = PRECISIONS) -> None:
    """Promise, build, load, compare, at each precision; the model is calibrated once."""
    for precision in precisions:
        promised = hexforge.estimate(source, Deployment(precision=precision), built=True)
        built = hexforge.quantize(source, samples, f"{precision}_channel", state=folder / "calibration")
        assert built.model is not None
        onnx.checker.check_model(onnx.load_from_string(built.model))
        onnxruntime.InferenceSession(built.model, providers=["CPUExecutionProvider"])
        timed = hexforge.estimate(built.model)
        assert timed.latency_ms == pytest.approx(promised.latency_ms, rel=MOST), precision
        assert len(timed.left_on_cpu) == len(promised.left_on_cpu), precision


@pytest.mark.parametrize("name", NAMES)
def test_light_models(name: str, tmp_path: Path) -> None:
    check_promises(light(name), "random:1", tmp_path, ["w8a8", "w8a16"])


def _slices_of_the_picture() -> bytes:
    """YOLOX's first nodes (Focus): every second pixel of the input, four times, and a convolution of all of them."""
    net = Network((1, 3, 64, 64))

    def every_second(x: str, first: int, axis: int) -> str:
        bounds = (net.constant(np.array([number])) for number in (first, 2**31 - 1, axis, 2))
        return net.node("Slice", x, *bounds)

    parts = [every_second(every_second("x", row, 2), column, 3) for column in (0, 1) for row in (0, 1)]
    x = net.conv(net.node("Concat", *parts, axis=1), 12, 16)
    return to_bytes(net.model(net.node("Mul", x, net.node("Sigmoid", x))))


def _bounded_result() -> bytes:
    net = Network((1, 8, 32, 32))
    x = net.node("Add", net.conv("x", 8, 8), "x")
    x = net.node("Clip", net.node("Mul", x, "x"), net.constant(np.float32(0)), net.constant(np.float32(1)))
    return to_bytes(net.model(x))


def test_parts_of_one_tensor_keep_its_encoding_in_a_concat(tmp_path: Path) -> None:
    model = _slices_of_the_picture()
    check_promises(model, "random:2", tmp_path)
    ops = {node.op.name for graph in built_graphs(model, Deployment(precision="w8a8")).graphs for node in graph}
    assert "SpaceToDepth" in ops
    assert not {"StridedSlice", "Convert", "Concat"} & ops


def test_what_a_clip_bounds_is_promised_within_its_bounds() -> None:
    model = _bounded_result()
    built = hexforge.quantize(model, "random:2", "w8a16_channel").model
    assert built is not None
    promised, timed = built_graphs(model, Deployment(precision="w8a16")), timed_graphs(built, Deployment())
    ops = [[node.op.name for node in timed.graphs[0]] for timed in (promised, timed)]
    assert "ReluMinMax" not in ops[1]
    assert ops[0] == ops[1]


def test_the_promise_has_the_quantization_of_inputs_and_outputs() -> None:
    graphs = built_graphs(light("squeezenet"), Deployment(precision="w8a8")).graphs
    ops = [node.op.name for graph in graphs for node in graph]
    assert ops.count("Quantize") >= 1
    assert ops.count("Dequantize") >= 1


def test_the_promise_says_its_precision() -> None:
    assert hexforge.estimate(light("squeezenet"), Deployment(precision="w8a8")).precision == "w8a8"


def test_a_quantized_model_is_no_promise() -> None:
    built = hexforge.quantize(light("squeezenet"), "random:1", "w8a8_channel")
    assert built.model is not None
    assert not built_graphs(built.model, Deployment(precision="w8a16")).built


@pytest.mark.feature("A16W16", guide="2668-2694")
@pytest.mark.parametrize("build", [False, True], ids=["promised", "built"])
def test_sixteen_bit_weights_count_as_sixteen_bits(build: bool) -> None:
    net = Network((1, 32, 32, 32))
    model = to_bytes(net.model(net.conv(net.conv("x", 32, 64), 64, 64)))

    def timed(precision: str) -> hexforge.Estimate:
        if precision == "float" or not build:
            return hexforge.estimate(model, Deployment(precision=precision))
        built = hexforge.quantize(model, "random:2", precision).model
        assert built is not None
        return hexforge.estimate(built)

    narrow, wide, floats = (timed(p).timeline for p in ("w8a16", "w16a16", "float"))
    assert wide.weight_bytes == 2 * narrow.weight_bytes == floats.weight_bytes
    assert narrow.accelerator_us < wide.accelerator_us
