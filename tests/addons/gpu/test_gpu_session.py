# SPDX-License-Identifier: Apache-2.0
"""Sessions on the gpu backend: contexts that load bit-equal, attention with groups, many runs without a leak."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("pyopencl")

import hexforge

QNN = "QNNExecutionProvider"
pytestmark = pytest.mark.gpu


def session(model: bytes | str, **entries: str) -> hexforge.InferenceSession:
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in entries.items():
        options.add_session_config_entry(key.replace("__", "."), value)
    return hexforge.InferenceSession(model, options, providers=[(QNN, {"backend_path": "QnnGpu.dll"})])


def network() -> onnx.ModelProto:
    """Two convolutions, a pool, a dense layer and a softmax."""
    random = np.random.default_rng(0)
    shapes = {"a": (8, 3, 3, 3), "b": (8, 8, 3, 3), "w": (8, 5)}
    constants = [
        numpy_helper.from_array((random.standard_normal(s) / 5).astype(np.float32), n) for n, s in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["1"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["1"], ["2"], "relu"),
        helper.make_node("Conv", ["2", "b"], ["3"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["3", "2"], ["4"], "add"),
        helper.make_node("GlobalAveragePool", ["4"], ["5"], "pool"),
        helper.make_node("Flatten", ["5"], ["6"], "flatten"),
        helper.make_node("MatMul", ["6", "w"], ["7"], "dense"),
        helper.make_node("Softmax", ["7"], ["y"], "softmax", axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


X = np.random.default_rng(1).standard_normal((1, 3, 12, 12)).astype(np.float32)


def test_a_context_model_loads_bit_equal(tmp_path: Path) -> None:
    path, written = tmp_path / "m.onnx", tmp_path / "m_ctx.onnx"
    onnx.save(network(), path)
    made = session(str(path), ep__context_enable="1", ep__context_file_path=str(written))
    before = made.run(None, {"x": X})[0]
    reference = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert np.abs(before - reference.run(None, {"x": X})[0]).max() < 1e-6
    assert session(str(written)).run(None, {"x": X})[0].tobytes() == before.tobytes()


def test_many_runs_leak_nothing() -> None:
    made = session(network().SerializeToString())

    def resident_kib() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() // 1024

    first = made.run(None, {"x": X})[0]
    for _ in range(300):
        made.run(None, {"x": X})
    before = resident_kib()
    for _ in range(int(os.environ.get("HEXFORGE_GPU_RUNS", "1000"))):
        last = made.run(None, {"x": X})[0]
    assert last.tobytes() == first.tobytes()
    assert resident_kib() - before < 4096


CASES = [(2, 5, 0, 4, 2, 8, False), (1, 6, 0, 4, 4, 16, True), (2, 1, 9, 4, 2, 16, True), (1, 3, 8, 4, 1, 16, True)]


@pytest.mark.parametrize(("batch", "length", "past", "heads", "kv", "size", "rotary"), CASES)
def test_group_query_attention(
    batch: int, length: int, past: int, heads: int, kv: int, size: int, rotary: bool
) -> None:
    total = past + length
    shapes = {"q": (batch, length, heads * size), "k": (batch, length, kv * size), "v": (batch, length, kv * size)}
    if past:
        shapes |= {"pk": (batch, kv, past, size), "pv": (batch, kv, past, size)}  # type: ignore[dict-item]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    inputs += [helper.make_tensor_value_info(n, TensorProto.INT32, s) for n, s in (("seq", [batch]), ("tot", [1]))]
    names = ["q", "k", "v", "pk" if past else "", "pv" if past else "", "seq", "tot"]
    constants = []
    if rotary:
        angles = np.arange(64)[:, None] * (10000.0 ** (-np.arange(size // 2) / (size // 2)))[None]
        constants = [
            numpy_helper.from_array(f(angles).astype(np.float32), n) for f, n in ((np.cos, "c"), (np.sin, "s"))
        ]
        names += ["c", "s"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["o", "nk", "nv"], "gqa", domain="com.microsoft", num_heads=heads,
        kv_num_heads=kv, do_rotary=int(rotary),
    )  # fmt: skip
    kept = (batch, kv, total, size)
    outputs = [("o", shapes["q"]), ("nk", kept), ("nv", kept)]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", inputs, values, constants)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    random = np.random.default_rng(2)
    feeds = {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    feeds |= {"seq": np.full(batch, total - 1, np.int32), "tot": np.full(1, total, np.int32)}
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, theirs in zip(session(model).run(None, feeds), expected, strict=True):
        assert np.abs(ours - theirs).max() < 1e-5


def test_ops_beyond_qnn_are_refused_or_asked_for() -> None:
    """What a phone's GPU would leave to the CPU is refused, and taken where somebody asks for any op."""
    inputs = [helper.make_tensor_value_info(n, TensorProto.INT32, [2, 5]) for n in "ab"]
    node = helper.make_node("Mod", ["a", "b"], ["y"], "mod")
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.INT32, [2, 5])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    with pytest.raises(hexforge.HexforgeError, match="QNN's GPU has no ElementWiseMod; gpu_ops=any runs it here"):
        session(model)
    feeds = {"a": np.arange(-5, 5, dtype=np.int32).reshape(2, 5), "b": np.full((2, 5), 3, np.int32)}
    chosen = {"backend_type": "gpu", "gpu_ops": "any"}
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    made = hexforge.InferenceSession(model, options, providers=[(QNN, chosen)]).run(None, feeds)[0]
    np.testing.assert_array_equal(made, np.mod(feeds["a"], feeds["b"]))
