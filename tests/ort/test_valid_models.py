# SPDX-License-Identifier: Apache-2.0
"""Models that are valid, and unusual: each runs as onnxruntime runs it, on both backends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import FormatError

FLOAT = TensorProto.FLOAT
node = helper.make_node


def value(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, Any], opset: int = 17) -> bytes:
    made = [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, made)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def agree(made: bytes, feeds: dict[str, np.ndarray], tolerance: float, strict: bool = True) -> None:
    plain = onnxruntime.SessionOptions()
    plain.log_severity_level = 4
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = onnxruntime.InferenceSession(made, plain, providers=["CPUExecutionProvider"]).run(None, feeds)
    for backend in ("htp", "cpu"):
        options = hexforge.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(strict)))
        providers = [("QNNExecutionProvider", {"backend_type": backend})]
        got = hexforge.InferenceSession(made, options, providers=providers).run(None, feeds)
        for ours, theirs in zip(got, want, strict=True):
            assert isinstance(ours, np.ndarray), backend
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance, err_msg=backend)


def halves(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16).astype(np.float32)


# -- an input that is an output ------------------------------------------------------------------------------------


def test_an_input_may_be_an_output_too() -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", (2, 3))], [value("x", (2, 3)), value("y", (2, 3))], {})
    agree(made, {"x": halves(2, 3)}, 0)


def test_an_input_may_be_an_output_of_a_compiled_model(tmp_path: Path) -> None:
    made = model([node("Relu", ["x"], ["y"])], [value("x", (2, 3))], [value("x", (2, 3)), value("y", (2, 3))], {})
    options = hexforge.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(tmp_path / "c.onnx"))
    hexforge.InferenceSession(made, options, providers=["QNNExecutionProvider"])
    session = hexforge.InferenceSession(tmp_path / "c.onnx", providers=["QNNExecutionProvider"])
    x = halves(2, 3)
    for ours, want in zip(session.run(["x", "y"], {"x": x}), (x, np.maximum(x, 0)), strict=True):
        np.testing.assert_array_equal(ours, want)


# -- pools ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 13, 18, 19, 22])
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize("window", [(1, 2, 0, 4), (2, 3, 1, 5), (2, 3, 0, 6), (1, 3, 0, 5), (3, 2, 1, 6), (2, 3, 1, 4)])
def test_no_window_of_ceil_mode_starts_beyond_the_input(kind: str, opset: int, window: tuple[int, ...]) -> None:
    if kind == "LpPool" and opset < 18:
        pytest.skip("LpPool has ceil_mode from opset 18 on")
    kernel, stride, pad, size = window
    for more in ({}, {"count_include_pad": 1}) if kind == "AveragePool" else ({},):
        pool = node(
            kind,
            ["x"],
            ["p"],
            kernel_shape=[kernel] * 2,
            strides=[stride] * 2,
            pads=[pad] * 4,
            ceil_mode=1,
            **more,  # type: ignore[arg-type]
        )
        made = model(
            [pool, node("Relu", ["p"], ["y"])], [value("x", (1, 2, size, size))], [value("y", None)], {}, opset
        )
        agree(made, {"x": halves(1, 2, size, size)}, 2e-3)


# -- quantized -----------------------------------------------------------------------------------------------------


def both(name: str, source: str, kind: Any) -> list[Any]:
    domain = "com.microsoft" if np.dtype(kind).itemsize == 2 else ""
    return [
        node("QuantizeLinear", [source, "s", "z"], [f"{name}_q"], domain=domain),
        node("DequantizeLinear", [f"{name}_q", "s", "z"], [name], domain=domain),
    ]


@pytest.mark.parametrize("kind", ["uint8", "int8", "uint16", "int16"])
def test_quantized_numbers_without_axes_cross_to_the_cpu_and_back(kind: str) -> None:
    """NonZero runs on the CPU; what it reads is one quantized number."""
    *_, whole = both("m", "most", kind)[:1]
    nodes = [
        *both("xr", "x", kind), node("ReduceMax", ["xr"], ["most"], keepdims=0), whole,
        node("Cast", ["m_q"], ["i"], to=TensorProto.INT64), node("NonZero", ["i"], ["where"]),
        node("DequantizeLinear", ["m_q", "s", "z"], ["m"], domain=whole.domain),
        node("Mul", ["m", "m"], ["square"]), *both("y", "square", kind),
    ]  # fmt: skip
    made = model(
        nodes,
        [value("x", (2, 3))],
        [value("y", ()), value("where", None, TensorProto.INT64)],
        {"s": np.float32(0.02), "z": np.asarray(10, kind)},
    )
    agree(made, {"x": np.abs(halves(2, 3))}, 0, strict=False)


@pytest.mark.parametrize("zero_in", ["bias", "channels of the bias", "weights"])
def test_a_scale_of_0_means_zeros(zero_in: str) -> None:
    """onnxruntime's quantizer writes it for a bias of zeros under an activation without range."""
    rng = np.random.default_rng(0)
    per = zero_in.startswith("channels")
    constants = {
        "s": np.float32(0.02), "z": np.uint8(10), "w": rng.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.float32(0 if zero_in == "weights" else 0.01), "wz": np.int8(0),
        "b": np.array([1, 200, 3, 400], np.int32),
        "bs": np.array([0, 2e-4, 0, 2e-4], np.float32) if per else np.float32(0),
        "bz": np.zeros(4 if per else (), np.int32),
    }  # fmt: skip
    nodes = [
        *both("xr", "x", "uint8"), node("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
        node("DequantizeLinear", ["b", "bs", "bz"], ["br"], axis=0),
        node("Conv", ["xr", "wr", "br"], ["c"], pads=[1] * 4), *both("y", "c", "uint8"),
    ]  # fmt: skip
    made = model(nodes, [value("x", (1, 3, 5, 5))], [value("y", (1, 4, 5, 5))], constants)
    agree(made, {"x": np.abs(halves(1, 3, 5, 5))}, 0.0201)


# -- external data -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "text"), [("offset", "abc"), ("offset", "-4"), ("offset", ""), ("length", "1e3")])
def test_places_in_external_data_that_are_no_numbers_are_named(tmp_path: Path, key: str, text: str) -> None:
    tensor = TensorProto(name="w", data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for k, v in ({"location": "w.bin", "offset": "0", "length": "16"} | {key: text}).items():
        tensor.external_data.add(key=k, value=v)
    (tmp_path / "w.bin").write_bytes(bytes(64))
    graph = helper.make_graph([node("Add", ["x", "w"], ["y"])], "g", [value("x", (4,))], [value("y", (4,))], [tensor])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with pytest.raises(FormatError, match=rf"external data of 'w' has the {key} '{text}'"):
        hexforge.InferenceSession(tmp_path / "m.onnx", providers=["QNNExecutionProvider"])


# -- shapes, places and sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("window", [(2, 3, 1, 4), (2, 2, 1, 4), (3, 4, 2, 3), (3, 3, 1, 2), (2, 4, 1, 4), (3, 2, 1, 4)])
def test_same_pads_take_output_padding_away(auto: str, window: tuple[int, ...]) -> None:
    stride, kernel, extra, size = window
    weight = np.random.default_rng(1).integers(-2, 3, (2, 3, kernel, kernel)).astype(np.float32)
    sides = {"strides": [stride] * 2, "output_padding": [extra] * 2}
    nodes = [node("ConvTranspose", ["x", "w"], ["c"], auto_pad=auto, **sides), node("Relu", ["c"], ["y"])]  # type: ignore[arg-type]
    made = model(nodes, [value("x", (1, 2, size, size))], [value("y", None)], {"w": weight})
    agree(made, {"x": halves(1, 2, size, size)}, 2e-2)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("region", [(0.7, 0.9, -0.2, -0.1), (0, 0, 1, 1), (-0.3, -0.6, 0.6, 0.3), (0.5, 0.5, 0, 0)])
def test_crops_are_inside_where_float32_says_so(mode: str, region: tuple[float, ...]) -> None:
    """0.7 - 7 * 0.1 is not 0 in float64."""
    roi = np.array([0, 0, *region[:2], 1, 1, *region[2:]], np.float32)
    for size in (3, 4, 7, 10):
        how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.0}
        nodes = [node("Resize", ["x", "roi", "", "sizes"], ["y"], mode=mode, **how)]  # type: ignore[arg-type]
        constants = {"roi": roi, "sizes": np.array([1, 2, size, size])}
        made = model(nodes, [value("x", (1, 2, 5, 5))], [value("y", None)], constants)
        agree(made, {"x": halves(1, 2, 5, 5)}, 1e-2, strict=False)


def test_an_index_of_an_axis_above_31_bits_keeps_its_value() -> None:
    """Such an axis has no room in a test: the constant indices of the graph are looked at."""
    from hexforge.backends.cpu import CpuBackend
    from hexforge.model.reader import read
    from hexforge.runtime.prepare import prepare_model

    size, places = 2**31 + 10, np.array([3, 2**31 + 5, -1])
    for op, indices in (("Gather", places), ("GatherElements", places), ("GatherND", places[:, None])):
        made = model(
            [node(op, ["x", "i"], ["y"])],
            [value("x", (size,), TensorProto.UINT8)],
            [value("y", None, TensorProto.UINT8)],
            {"i": indices},
        )
        (placement,) = prepare_model(read(made), CpuBackend()).placements
        assert placement.graph is not None, placement.reason
        read_by = placement.graph.nodes[0].inputs[1]
        assert read_by is not None
        assert read_by.data is not None
        np.testing.assert_array_equal(read_by.data.ravel(), [3, 2**31 + 5, size - 1])


@pytest.mark.parametrize("quantized", [False, True])
def test_a_constant_of_terabytes_is_not_spread_out(quantized: bool) -> None:
    nodes = [node("ConstantOfShape", ["n"], ["c"])]
    if quantized:
        nodes += both("d", "c", "uint8")
    nodes += [node("ReduceMax", ["d" if quantized else "c"], ["m"], keepdims=0), node("Add", ["x", "m"], ["y"])]
    constants = {"n": np.array([2**20, 2**20]), "s": np.float32(0.1), "z": np.uint8(3)}
    made = model(nodes, [value("x", (2,))], [value("y", (2,))], constants)
    from hexforge.backends.htp.backend import HtpBackend
    from hexforge.model.reader import read
    from hexforge.runtime.prepare import prepare_model

    assert prepare_model(read(made), HtpBackend()).placements
