# SPDX-License-Identifier: Apache-2.0
"""Odd models end in onnxruntime's results or in a HexforgeError; `python -m fuzz odd_models` runs thousands."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import hexforge
from fuzz.odd_models import FAMILIES, difference, odd_model, odd_models


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_a_short_round(first: int) -> None:
    assert [fault for seed in range(first, first + 20) for fault in odd_models(seed)] == []


def test_the_models_are_of_many_ops_and_always_the_same() -> None:
    ops = {node.op_type for seed in range(300) for node in onnx.load_from_string(odd_model(seed)[0]).graph.node}
    assert len(ops) > 60
    assert len(FAMILIES) == 10
    assert odd_model(17)[0] == odd_model(17)[0]


def test_results_that_differ_are_faults() -> None:
    ones = np.ones(4, np.float32)
    assert difference(ones, ones, 0, "cpu") == ""
    assert difference(ones, ones * 1.1, 0, "htp")
    assert difference(ones, ones + 0.2, 0.05, "cpu")
    assert difference(ones, np.ones(3, np.float32), 0, "cpu")
    assert difference(ones, ones * np.nan, 0, "cpu")
    assert difference(np.arange(4), np.arange(1, 5), 0, "htp")


@pytest.mark.parametrize("backend", ["cpu", "htp"])
def test_a_scalar_between_q_and_dq(backend: str) -> None:
    """Found by the fuzzer: the conversions at a model's border took a scalar for a list of one."""
    node = [
        onnx.helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        onnx.helper.make_node("Relu", ["d"], ["y"]),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, 1, []) for name in "xy"]
    constants = [
        onnx.numpy_helper.from_array(np.array(0.5, np.float32), "s"),
        onnx.numpy_helper.from_array(np.array(8, np.uint8), "z"),
    ]
    graph = onnx.helper.make_graph(node, "g", ends[:1], ends[1:], constants)
    opset = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", {"backend_type": backend})])
    got = session.run(None, {"x": np.array(2.2, np.float32)})[0]
    assert got.shape == ()
    assert got == 2.0
