# SPDX-License-Identifier: Apache-2.0
"""The graph that is timed is the graph that is run, and the graph that a context holds: node by node, by the public
functions alone, of real graphs and of small ones of every kind, float and quantized."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.demo import MODEL as NIGHT
from hexforge.ir import Graph, Value
from hexforge.model.declarations import fix_shapes
from hexforge.model.save import to_bytes
from tests.backends.htp.test_graph_options import quantized_conv
from tests.digits import MODEL as DIGITS
from tests.light import light
from tests.models import showcase
from tests.models.fetch import FILES, stored
from tests.ort.models import mixed, quantized, sandwich
from tests.quant.networks import Network

SOC = "SM8650"


def _normalized() -> bytes:
    """Convolutions, each with a normalization: dense with a Relu, depthwise, and one whose result is read twice."""
    net = Network((1, 8, 16, 16))

    def norm(x: str, count: int) -> str:
        return net.node("BatchNormalization", x, *(net.constant(np.abs(net.normal(count)) + 0.5) for _ in range(4)))

    x = net.node("Relu", norm(net.conv("x", 8, 16), 16))
    x = net.node(
        "Clip", norm(net.conv(x, 16, 16, group=16), 16), net.constant(np.float32(0)), net.constant(np.float32(6))
    )
    y = net.conv(x, 16, 16, 1)
    return to_bytes(net.model(net.node("Add", norm(y, 16), y)))


def _residual() -> bytes:
    net = Network((1, 3, 32, 32))
    x = net.node("Relu", net.conv("x", 3, 16, strides=[2, 2]))
    y = net.conv(net.node("Relu", net.conv(x, 16, 16)), 16, 16)
    x = net.node("MaxPool", net.node("Relu", net.node("Add", x, y)), kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    return to_bytes(
        net.model(net.node("Gemm", x, net.constant(net.normal(10, 16)), net.constant(net.normal(10)), transB=1))
    )


def _upsampling() -> bytes:
    net = Network((1, 8, 8, 8))
    x = net.node("LeakyRelu", net.conv("x", 8, 16), alpha=0.1)
    wide = net.node("ConvTranspose", x, net.constant(net.normal(16, 8, 2, 2)), strides=[2, 2])
    near = net.node(
        "Resize", net.conv(x, 16, 8, 1), "", net.constant(np.array([1, 1, 2, 2], np.float32)), mode="nearest"
    )
    joined = net.node("Concat", wide, near, axis=1)
    return to_bytes(net.model(net.node("Sigmoid", net.conv(joined, 16, 3))))


def _transformer() -> bytes:
    net, width, tokens = Network((1, 16, 32)), 32, 16

    def product(x: str) -> str:
        y = net.node("MatMul", x, net.constant(net.normal(width, width)))
        return net.node("Add", y, net.constant(net.normal(width)))

    def heads(x: str, order: list[int]) -> str:
        split = net.node("Reshape", product(x), net.constant(np.array([1, tokens, 4, 8])))
        return net.node("Transpose", split, perm=order)

    normal = net.node("LayerNormalization", "x", net.constant(net.normal(width) + 1), net.constant(net.normal(width)))
    scores = net.node("MatMul", heads(normal, [0, 2, 1, 3]), heads(normal, [0, 2, 3, 1]))
    shares = net.node("Softmax", net.node("Mul", scores, net.constant(np.float32(0.35))), axis=-1)
    mixed_heads = net.node("Transpose", net.node("MatMul", shares, heads(normal, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    x = net.node("Add", "x", product(net.node("Reshape", mixed_heads, net.constant(np.array([1, tokens, width])))))
    half = net.node("Mul", x, net.constant(np.float32(0.5)))
    erf = net.node("Erf", net.node("Div", x, net.constant(np.float32(np.sqrt(2)))))
    return to_bytes(net.model(product(net.node("Mul", half, net.node("Add", erf, net.constant(np.float32(1)))))))


def _recurrent() -> bytes:
    net = Network((6, 1, 8))
    y = net.node(
        "GRU", "x", net.constant(net.normal(1, 24, 8)), net.constant(net.normal(1, 24, 8)), hidden_size=8, outputs=1
    )
    flat = net.node("Squeeze", y, net.constant(np.array([1])))
    return to_bytes(net.model(net.node("Tanh", net.node("MatMul", flat, net.constant(net.normal(8, 4))))))


def _left_to_the_cpu() -> bytes:
    """Quantized parts around an op that the NPU does not take: a Dequantize before it is a graph of its own or not."""
    net = Network((2, 4, 4))
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.uint8(128))
    x = net.node("DequantizeLinear", net.node("QuantizeLinear", "x", scale, zero), scale, zero)
    det = net.node("Det", net.node("Relu", net.node("Neg", x)))
    return to_bytes(net.model(net.node("DequantizeLinear", net.node("QuantizeLinear", det, scale, zero), scale, zero)))


FLOATS: dict[str, Callable[[], Path | bytes]] = {
    **{name: partial(light, name) for name in ("inception_v1", "resnet50", "shufflenet", "squeezenet")},
    "digits": lambda: DIGITS,
    "night": lambda: NIGHT,
    "sub": lambda: showcase.sub(32)[0],
    "div": lambda: showcase.div(32)[0],
    "prelu": lambda: showcase.prelu(32)[0],
    "normalized": _normalized,
    "residual": _residual,
    "upsampling": _upsampling,
    "transformer": _transformer,
    "recurrent": _recurrent,
    "mixed": mixed,
    "sandwich": sandwich,
}
QUANTIZED = {
    **{
        f"{name}, w8a8": (name, "w8a8")
        for name in ("squeezenet", "digits", "sub", "normalized", "residual", "upsampling", "transformer", "recurrent")
    },
    **{f"{name}, w8a16": (name, "w8a16") for name in ("digits", "normalized", "transformer")},
}
"""Float models that `quantize` makes QDQ models of."""
MADE_QUANTIZED: dict[str, Callable[[], bytes]] = {
    "a sigmoid": quantized,
    "a Relu with room in its encoding": lambda: quantized_conv(np.full((8, 8, 3, 3), 3, np.int8), relu_zero=50),
    "a part on the CPU": _left_to_the_cpu,
}
REAL: dict[str, dict[str, tuple[int, ...]]] = {
    "nudenet/320n.onnx": {"images": (1, 3, 64, 64)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx": {"x": (1, 3, 64, 64)},
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx": {"x": (1, 3, 48, 64)},
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx": {"x": (1, 3, 48, 64)},
    "magika/models/standard_v3_3/model.onnx": {"bytes": (1, 2048)},
    "silero_vad/data/silero_vad_openvino_16k.onnx": {"input": (1, 576), "state": (2, 1, 128)},
    "silero_vad/data/silero_vad_16k_op15.onnx": {"input": (1, 576), "state": (2, 1, 128)},
}
"""Models out of PyPI wheels, at sizes that are quick to compile."""


@cache
def _quantized(name: str, recipe: str) -> bytes:
    found = hexforge.quantize(FLOATS[name](), "random:1", recipe).model
    assert found is not None
    return found


def _nodes(graph: Graph) -> list[Any]:
    """Everything that a node is, the numbers of constants aside."""

    def described(value: Value | None) -> Any:
        return None if value is None else (value.name, value.role, value.type)

    return [
        (node.name, node.op.name, {key: repr(value) for key, value in node.params.items()},
         [described(value) for value in node.inputs], [described(value) for value in node.outputs])
        for node in graph
    ]  # fmt: skip


def _check(model: Path | bytes, *, quantized_io: bool) -> None:
    """What is timed, run and compiled has the same nodes, in the same order, in as many graphs."""
    estimate = hexforge.estimate(model, SOC, quantized_io=quantized_io)
    options = {"backend_type": "htp", "soc_model": SOC, "offload_graph_io_quantization": str(int(quantized_io))}
    source = model if isinstance(model, bytes) else str(model)
    session = hexforge.InferenceSession(source, providers=[("QNNExecutionProvider", options)])
    request = hexforge.ContextRequest(quantized_io=quantized_io, allow_partial=True)
    compiled = hexforge.compile(model, None, SOC, request)
    timed = [_nodes(graph) for graph in estimate.graphs]
    assert timed
    assert timed == [_nodes(graph) for graph in session.graphs]
    assert timed == [_nodes(compiled.program(graph.name).graph) for graph in compiled.info.graphs]
    on_cpu = {row.node for row in session.placements if row.where == "CPUExecutionProvider"}
    assert {row.node for row in estimate.left_on_cpu} <= on_cpu
    names = {node.name for graph in estimate.graphs for node in graph}
    assert {name for row in estimate.rows for name in row.ops} <= names


@pytest.mark.parametrize("name", FLOATS)
def test_of_a_float_model(name: str) -> None:
    _check(FLOATS[name](), quantized_io=False)


@pytest.mark.parametrize("quantized_io", [False, True], ids=["float io", "quantized io"])
@pytest.mark.parametrize("name", [*QUANTIZED, *MADE_QUANTIZED])
def test_of_a_quantized_model(name: str, quantized_io: bool) -> None:
    made = MADE_QUANTIZED[name]() if name in MADE_QUANTIZED else _quantized(*QUANTIZED[name])
    _check(made, quantized_io=quantized_io)


@pytest.mark.models
@pytest.mark.parametrize("recipe", ["float", "w8a8"])
@pytest.mark.parametrize("file", REAL)
def test_of_a_model_that_people_use(file: str, recipe: str, tmp_path: Path) -> None:
    assert file in {name for names in FILES.values() for name in names}
    path = tmp_path / "model.onnx"
    fix_shapes(stored(file), path, REAL[file])
    made: Any = path if recipe == "float" else hexforge.quantize(path, "random:1", recipe).model
    _check(made, quantized_io=False)


def test_a_session_of_its_own_accord_runs_what_is_timed_with_quantized_inputs() -> None:
    """By default a session leaves the quantization of inputs and outputs to the CPU, as the EP does."""
    model = _quantized("digits", "w8a8")
    session = hexforge.InferenceSession(model, providers=[("QNNExecutionProvider", {"backend_type": "htp"})])
    timed = hexforge.estimate(model, SOC, quantized_io=True)
    assert [_nodes(graph) for graph in timed.graphs] == [_nodes(graph) for graph in session.graphs]
    assert timed.latency_ms < hexforge.estimate(model, SOC).latency_ms


def test_the_comparison_sees_what_differs() -> None:
    model = MADE_QUANTIZED["a Relu with room in its encoding"]()
    folded = hexforge.Deployment(SOC, config=hexforge.GraphConfig(exact_relu=False))
    kept, cut = (hexforge.estimate(model, deployment).graphs for deployment in (hexforge.Deployment(SOC), folded))
    assert [_nodes(graph) for graph in kept] != [_nodes(graph) for graph in cut]
    assert "Batchnorm" not in {node.op.name for node in hexforge.estimate(light("resnet50"), SOC).graphs[0]}
