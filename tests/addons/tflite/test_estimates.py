# SPDX-License-Identifier: Apache-2.0
"""What is timed of a .tflite is the graph that the file is: its operators, its layout, its activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.analysis.timed_graphs import timed_graphs
from tests.addons.tflite.tflite_files import Made, MadeModel, MadeOperator, MadeSubgraph

RANDOM = np.random.default_rng(4)
MEAN, SPREAD = np.array([0.48, 0.45, 0.4], np.float32), np.array([0.22, 0.23, 0.24], np.float32)
STEM, DEPTH, POINT = (
    RANDOM.normal(0, 0.2, s).astype(np.float32) for s in ((32, 3, 3, 3), (1, 3, 3, 32), (32, 1, 1, 32))
)
HEAD, BIAS = RANDOM.normal(0, 0.2, (10, 32)).astype(np.float32), np.zeros(32, np.float32)
SAME, RELU, RELU6 = ("b", 0), ("b", 1), ("b", 3)


def as_tflite() -> bytes:
    """A picture, normalised; a stem, a block with a residual, and a classifier."""
    tensors = [
        Made((1, 224, 224, 3), name="image"),
        Made((3,), data=MEAN),
        Made((1, 224, 224, 3), name="centred"),
        Made((3,), data=SPREAD),
        Made((1, 224, 224, 3), name="normal"),
        Made(STEM.shape, data=STEM),
        Made((32,), data=BIAS),
        Made((1, 112, 112, 32), name="stem"),
        Made(DEPTH.shape, data=DEPTH),
        Made((1, 112, 112, 32), name="depth"),
        Made(POINT.shape, data=POINT),
        Made((1, 112, 112, 32), name="point"),
        Made((1, 112, 112, 32), name="sum"),
        Made((2,), np.int32, np.array([1, 2])),
        Made((1, 32), name="mean"),
        Made(HEAD.shape, data=HEAD),
        Made((1, 10), name="scores"),
    ]
    one, two = [("i", 1), ("i", 1)], [("i", 2), ("i", 2)]
    operators = [
        MadeOperator("SUB", [0, 1], [2], [("b", 0)]),
        MadeOperator("DIV", [2, 3], [4], [("b", 0)]),
        MadeOperator("CONV_2D", [4, 5, 6], [7], [SAME, *two, RELU]),
        MadeOperator("DEPTHWISE_CONV_2D", [7, 8, 6], [9], [SAME, *one, ("i", 1), RELU6]),
        MadeOperator("CONV_2D", [9, 10, 6], [11], [SAME, *one, ("b", 0)]),
        MadeOperator("ADD", [7, 11], [12], [("b", 0)]),
        MadeOperator("MEAN", [12, 13], [14], [("?", False)]),
        MadeOperator("FULLY_CONNECTED", [14, 15, -1], [16], [("b", 0)]),
    ]
    return MadeModel([MadeSubgraph(tensors, operators, [0], [16])]).content()


def as_onnx() -> onnx.ModelProto:
    """The same as an export of torch has it: channels first."""
    constants = {
        "mean": MEAN[:, None, None], "spread": SPREAD[:, None, None], "stem": STEM.transpose(0, 3, 1, 2),
        "depth": DEPTH.transpose(3, 0, 1, 2), "point": POINT.transpose(0, 3, 1, 2), "bias": BIAS, "head": HEAD,
        "low": np.float32(0), "high": np.float32(6), "axes": np.array([2, 3]),
    }  # fmt: skip
    make = helper.make_node
    nodes = [
        make("Sub", ["image", "mean"], ["centred"]),
        make("Div", ["centred", "spread"], ["normal"]),
        make("Conv", ["normal", "stem", "bias"], ["a"], kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1]),
        make("Relu", ["a"], ["b"]),
        make("Conv", ["b", "depth", "bias"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=32),
        make("Clip", ["c", "low", "high"], ["d"]),
        make("Conv", ["d", "point", "bias"], ["e"], kernel_shape=[1, 1]),
        make("Add", ["b", "e"], ["f"]),
        make("ReduceMean", ["f", "axes"], ["g"], keepdims=0),
        make("Gemm", ["g", "head"], ["scores"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(np.ascontiguousarray(values), name) for name, values in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("estimates") / "net.tflite"
    path.write_bytes(as_tflite())
    return path


def test_the_timed_graph_is_that_of_the_file(file: Path) -> None:
    timed = timed_graphs(file, hexforge.Deployment("SM8650", "float", "tflite"))
    (graph,) = timed.graphs
    assert [node.op.name for node in graph.nodes] == [
        "ElementWiseSubtract", "ElementWiseDivide", "Conv2d", "Relu", "DepthWiseConv2d", "ReluMinMax", "Conv2d",
        "ElementWiseAdd", "ReduceMean", "FullyConnected",
    ]  # fmt: skip
    images = [node.outputs[0].shape for node in graph.nodes if len(node.outputs[0].shape) == 4]
    assert images == [(1, 224, 224, 3)] * 2 + [(1, 112, 112, 32)] * 6
    assert not timed.left_on_cpu


@pytest.mark.parametrize("precision", ["float", "w8a8", "w8a16"])
def test_it_takes_as_long_as_the_same_net_in_onnx(file: Path, precision: str) -> None:
    deployment = hexforge.Deployment("SM8650", precision, "tflite")
    of_file, of_onnx = (hexforge.estimate(model, deployment).latency_ms for model in (file, as_onnx()))
    assert of_file == pytest.approx(of_onnx, rel=0.02)


def test_a_division_of_the_picture_folds_at_8_bits_alone(file: Path) -> None:
    def milliseconds(precision: str, runtime: str) -> float:
        return hexforge.estimate(file, hexforge.Deployment("SM8650", precision, runtime)).latency_ms

    assert milliseconds("w8a8", "tflite") < 0.8 * milliseconds("w8a8", "qnn_dlc")
    assert milliseconds("float", "tflite") == pytest.approx(milliseconds("float", "qnn_dlc"), rel=0.05)
