# SPDX-License-Identifier: Apache-2.0
"""Ops between 16-bit tensors are fixed-point units: within a step of onnxruntime, which float16 (11 bits) is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge

Case = tuple[str, list[tuple[int, ...]], dict[str, Any], dict[str, Any]]
SHAPE = (2, 3, 4, 5)
CASES: tuple[Case, ...] = (
    ("Max", [SHAPE] * 3, {}, {}), ("Min", [SHAPE, (4, 1), (5,)], {}, {}), ("Max", [SHAPE], {}, {}),
    ("Sum", [SHAPE] * 5, {}, {}), ("Mean", [SHAPE] * 6, {}, {}), ("Sum", [()] * 3, {}, {}),
    ("Gemm", [(4, 6), (6, 5)], {"alpha": 0.5}, {"c": np.linspace(-2, 2, 5, dtype=np.float32)}),
    ("Sum", [SHAPE] * 2, {}, {}), ("Sum", [SHAPE, (4, 5), (1,), SHAPE], {}, {}), ("Mean", [SHAPE] * 2, {}, {}),
    ("Mean", [SHAPE, (4, 5), SHAPE], {}, {}), ("Selu", [SHAPE], {}, {}), ("Selu", [SHAPE], {"gamma": 3.0}, {}),
    ("ThresholdedRelu", [SHAPE], {"alpha": 0.5}, {}), ("ThresholdedRelu", [SHAPE], {"alpha": -0.25}, {}),
    ("Gemm", [(4, 6), (6, 5)], {"alpha": 0.5}, {}),
    ("Gemm", [(6, 4), (5, 6)], {"alpha": 1.7, "transA": 1, "transB": 1}, {}),
    ("GatherND", [SHAPE], {}, {"i": np.array([[0, 1], [1, 2]])}),
    ("LpPool", [(1, 3, 6, 6)], {"kernel_shape": [2, 2]}, {}),
    ("LpPool", [(1, 3, 6, 6)], {"kernel_shape": [2, 2], "p": 1}, {}), ("ReduceL2", [SHAPE], {"axes": [1]}, {}),
    ("ReduceL2", [SHAPE], {"axes": [2, 3], "keepdims": 0}, {}), ("ReduceL2", [SHAPE], {}, {}),
)  # fmt: skip


def session_of(model: bytes, backend: str) -> hexforge.InferenceSession:
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return hexforge.InferenceSession(model, options, providers=[("QNNExecutionProvider", {"backend_type": backend})])


def theirs(model: bytes, feeds: dict[str, np.ndarray]) -> np.ndarray:
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, plain, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def unit(case: Case, kind: str, feeds: dict[str, np.ndarray]) -> tuple[bytes, np.float32]:
    """The op between Q and DQ, its output's range that of its results; the model and a step of its output."""
    op, shapes, attributes, constants = case
    limits, domain = np.iinfo(kind), "com.microsoft" if np.dtype(kind).itemsize == 2 else ""
    span = int(limits.max) - int(limits.min)
    arrays: dict[str, Any] = {
        "s": np.float32(6 / span),
        "z": np.asarray((int(limits.min) + int(limits.max) + 1) // 2, kind),
    }
    nodes: list[Any] = []

    def convert(source: str, name: str, scale: str, zero: str) -> None:
        nodes.append(helper.make_node("QuantizeLinear", [source, scale, zero], [f"{name}q"], domain=domain))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}q", scale, zero], [name], domain=domain))

    def made(output: str) -> bytes:
        held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (arrays | constants).items()]
        values = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, s) for i, s in enumerate(shapes)]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(nodes, "g", values, outputs, held)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model: onnx.ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=8)
        return model.SerializeToString()

    for i in range(len(shapes)):
        convert(f"x{i}", f"d{i}", "s", "z")
    nodes.append(helper.make_node(op, [*(f"d{i}" for i in range(len(shapes))), *constants], ["r"], **attributes))
    real = theirs(made("r"), feeds)
    real = real[np.isfinite(real)]
    low, high = min(float(real.min()), 0.0), max(float(real.max()), 1e-3)
    step = np.float32((high - low) / span)
    arrays |= {"os": step, "oz": np.asarray(np.clip(round(limits.min - low / step), limits.min, limits.max), kind)}
    convert("r", "y", "os", "oz")
    return made("y"), step


def fed(shapes: list[tuple[int, ...]]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {f"x{i}": rng.uniform(-2.5, 2.5, s).astype(np.float32) for i, s in enumerate(shapes)}


@pytest.mark.parametrize("kind", ["uint16", "int16", "uint8"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_units_are_within_a_step_of_onnxruntime(case: Case, kind: str) -> None:
    feeds = fed(case[1])
    model, step = unit(case, kind, feeds)
    want = theirs(model, feeds)
    for backend in ("htp", "cpu"):
        got = session_of(model, backend).run(None, feeds)[0]
        assert np.abs(got - want).max() <= 1.01 * step, (backend, np.abs(got - want).max() / step)


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize("op", ["Log", "Sqrt"])
def test_what_is_no_number_is_the_lowest_one(op: str, kind: str) -> None:
    feeds = fed([SHAPE])
    model, step = unit((op, [SHAPE], {}, {}), kind, feeds)
    want = theirs(model, feeds)
    for backend in ("htp", "cpu"):
        np.testing.assert_allclose(session_of(model, backend).run(None, feeds)[0], want, rtol=0, atol=1.01 * step)


@pytest.mark.parametrize("p", [1, 2])
def test_a_row_of_zeros_is_normalized_to_zeros(p: int) -> None:
    x = np.array([[1, 2, 3], [0, 0, 0], [4, 0, -4]], np.float32)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph([helper.make_node("LpNormalization", ["x"], ["y"], p=p)], "g", [value], [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    for backend in ("htp", "cpu"):
        np.testing.assert_allclose(
            session_of(model, backend).run(None, {"x": x})[0], theirs(model, {"x": x}), atol=1e-3
        )


@pytest.mark.parametrize("kind", ["float", "uint8", "uint16"])
def test_mish_is_what_its_function_says(kind: str) -> None:
    x = np.linspace(-6, 6, 60, dtype=np.float32).reshape(3, 20)
    value, result = (helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n in "xy")
    held, nodes, step = [], [helper.make_node("Mish", ["x"], ["y"])], np.float32(0)
    if kind != "float":
        step = np.float32(12.5 / np.iinfo(kind).max)
        zero = np.asarray(round(6.2 / float(step)), kind)
        held = [numpy_helper.from_array(np.asarray(a), n) for n, a in (("s", step), ("z", zero))]
        nodes = []
        for source, target in (("x", "d"), ("m", "y")):
            nodes.append(helper.make_node("QuantizeLinear", [source, "s", "z"], [f"{source}q"]))
            nodes.append(helper.make_node("DequantizeLinear", [f"{source}q", "s", "z"], [target]))
        nodes.insert(2, helper.make_node("Mish", ["d"], ["m"]))
    graph = helper.make_graph(nodes, "g", [value], [result], held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    want = x * np.tanh(np.log1p(np.exp(x)))
    for backend in ("htp", "cpu"):
        session = session_of(model, backend)
        got = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(got, want, atol=max(1.01 * float(step), 6e-3))
        assert backend == "cpu" or kind != "uint16" or any(row.unsafe for row in session.placements)
