# SPDX-License-Identifier: Apache-2.0
"""What estimate promises of a float model at a precision is what quantize builds."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime
import pytest

import hexforge
from hexforge.analysis.timed_graphs import timed_graphs
from hexforge.chips.deployment import Deployment
from tests.light import NAMES, light

MOST = 0.05
"""Part of the whole that promised and built may differ by."""


def check_promise(source: Path, samples: object, precision: str) -> None:
    """Promise, build, load, compare."""
    promised = hexforge.estimate(source, Deployment(precision=precision))
    built = hexforge.quantize(source, samples, f"{precision}_channel")
    assert built.model is not None
    onnx.checker.check_model(onnx.load_from_string(built.model))
    onnxruntime.InferenceSession(built.model, providers=["CPUExecutionProvider"])
    timed = hexforge.estimate(built.model)
    assert timed.latency_ms == pytest.approx(promised.latency_ms, rel=MOST)
    assert len(timed.left_on_cpu) == len(promised.left_on_cpu)


@pytest.mark.parametrize("precision", ["w8a8", "w8a16"])
@pytest.mark.parametrize("name", NAMES)
def test_light_models(name: str, precision: str) -> None:
    check_promise(light(name), "random:1", precision)


def test_the_promise_has_the_quantization_of_inputs_and_outputs() -> None:
    graphs = timed_graphs(light("squeezenet"), Deployment(precision="w8a8")).graphs
    ops = [node.op.name for graph in graphs for node in graph]
    assert ops.count("Quantize") >= 1
    assert ops.count("Dequantize") >= 1


def test_the_promise_says_its_precision() -> None:
    assert hexforge.estimate(light("squeezenet"), Deployment(precision="w8a8")).precision == "w8a8"


def test_a_quantized_model_is_no_promise() -> None:
    built = hexforge.quantize(light("squeezenet"), "random:1", "w8a8_channel")
    assert built.model is not None
    assert not timed_graphs(built.model, Deployment(precision="w8a16")).promised
