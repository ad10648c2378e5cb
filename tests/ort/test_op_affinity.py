# SPDX-License-Identifier: Apache-2.0
"""op_affinity pins op types to a backend; what is pinned elsewhere runs on the CPU, and a bad file is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.errors import HexforgeError

QNN = "QNNExecutionProvider"


def model() -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["a"], "relu"), helper.make_node("Gelu", ["a"], ["y"], "gelu")]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(made.SerializeToString())


def session(path: Path, data: Any) -> hexforge.InferenceSession:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    options = {"backend_type": "htp", "soc_model": "57", "op_affinity": str(path)}
    return hexforge.InferenceSession(model(), providers=[(QNN, options)])


def test_what_is_pinned_elsewhere_is_left_to_the_cpu(tmp_path: Path) -> None:
    made = session(tmp_path / "a.json", {"op_type": {"Gelu": "CPU", "Relu": "HTP"}})
    reasons = {row.op_type: row.reason for row in made.placements}
    assert reasons["Relu"] is None
    assert reasons["Gelu"] is not None
    assert "op_affinity pins Gelu to the cpu backend" in reasons["Gelu"]
    assert np.isfinite(made.run(None, {"x": np.ones((1, 8), np.float32)})[0]).all()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "line 1"),
        ({"ops": {}}, "expected"),
        ({"op_type": {"Gelu": 1}}, "expected"),
        ({"op_type": {"Gelu": "HTPP"}}, "did you mean 'HTP'"),
    ],
)
def test_a_bad_file_is_an_error(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(HexforgeError, match=words):
        session(tmp_path / "a.json", data)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    options = {"backend_type": "htp", "soc_model": "57", "op_affinity": str(tmp_path / "absent.json")}
    with pytest.raises(HexforgeError, match="there is no such file"):
        hexforge.InferenceSession(model(), providers=[(QNN, options)])


def test_ceiled_pools_left_to_the_cpu_have_onnxruntimes_shapes(tmp_path: Path) -> None:
    given: dict[str, Any] = {"kernel_shape": [2, 3], "strides": [3, 2], "auto_pad": "SAME_UPPER"}
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("AveragePool", ["a"], ["b"], ceil_mode=1, count_include_pad=1, **given),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 9, 6])
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    (tmp_path / "a.json").write_text(json.dumps({"op_type": {"AveragePool": "CPU"}}))
    options = {"backend_type": "htp", "op_affinity": str(tmp_path / "a.json")}
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 2, 9, 6)).astype(np.float32)}
    got = hexforge.InferenceSession(made, providers=[(QNN, options)]).run(None, feeds)[0]
    want = onnxruntime.InferenceSession(made, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    np.testing.assert_allclose(got, want, atol=0.01)
