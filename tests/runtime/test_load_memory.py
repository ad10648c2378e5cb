# SPDX-License-Identifier: Apache-2.0
"""Loading a model on htp takes at most 2.5 times its file: the file's bytes, the packed weights, and little between.

Float16 weights stay float16: they took 3 times the file before.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

SCRIPT = """
    import os, resource, sys
    import hexforge
    import hexforge.backends.htp.backend, hexforge.ort.session
    peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    before = peak()
    hexforge.InferenceSession(sys.argv[1], providers=["QNNExecutionProvider"])
    print((peak() - before) / os.path.getsize(sys.argv[1]))
"""


def written(path: Path, kind: str) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((5000, 5000), np.float32)
    if kind == "quantized":
        _write_quantized(path, rng)
        return
    if kind == "float16":
        _write_float16(path, rng)
        return
    if kind == "product":
        node, shapes = helper.make_node("MatMul", ["x", "w"], ["y"]), ((TensorProto.FLOAT, (1, 5000)), (1, 5000))
    else:
        node, shapes = helper.make_node("Gather", ["w", "x"], ["y"]), ((TensorProto.INT64, (8,)), (8, 5000))  # type: ignore[assignment]
    values = [
        helper.make_tensor_value_info("x", *shapes[0]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, shapes[1]),
    ]
    graph = helper.make_graph([node], "g", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def _write_quantized(path: Path, rng: np.random.Generator) -> None:
    """A QDQ product of 100 MB of 8-bit weights."""
    nodes, held = [], [numpy_helper.from_array(rng.integers(-127, 128, (10_000, 10_000), np.int8), "w")]
    held += [
        numpy_helper.from_array(np.array(0.01, np.float32), "s"),
        numpy_helper.from_array(np.array(128, np.uint8), "z"),
    ]
    held += [numpy_helper.from_array(np.array(0, np.int8), "wz")]
    for name, target in (("x", "dx"), ("r", "y")):
        nodes.append(helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [target]))
    nodes.insert(2, helper.make_node("DequantizeLinear", ["w", "s", "wz"], ["dw"]))
    nodes.insert(3, helper.make_node("MatMul", ["dx", "dw"], ["r"]))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 10_000)) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


def _write_float16(path: Path, rng: np.random.Generator) -> None:
    """A product of 100 MB of float16 weights."""
    weight = rng.standard_normal((7000, 7000), np.float32).astype(np.float16)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT16, (1, 7000)) for name in ("x", "y")]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("kind", ["product", "table", "quantized", "float16"])
def test_loading_takes_at_most_two_and_a_half_times_the_file(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "m.onnx"
    written(path, kind)
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert float(done.stdout) <= 2.5
