# SPDX-License-Identifier: Apache-2.0
"""Ops as onnxruntime's QNN provider writes them: absent tensors, states of a layer, parameters that ask for nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams
from hexforge.addons.qnn_graphs.graph import build_fragment, build_graph
from hexforge.errors import ModelError
from hexforge.ir import ScaleOffset
from hexforge.runtime import registry


def tensor(name: str, shape: tuple[int, ...], kind: str = "NATIVE", data: bool = False) -> QnnTensor:
    values = np.ones(shape, np.float32) if data else None
    return QnnTensor(name, f"QNN_TENSOR_TYPE_{kind}", "QNN_DATATYPE_FLOAT_32", shape, data=values)


def test_an_absent_tensor_is_an_input_that_is_not_given() -> None:
    names = [(f"w{i}", (5, 4) if i < 3 else (5, 5)) for i in range(6)]
    weights = [tensor(name, shape, "STATIC", data=True) for name, shape in names]
    absent = QnnTensor("null_tensor", "QNN_TENSOR_TYPE_NULL", "QNN_DATATYPE_UNDEFINED", ())
    op = QnnOp(
        "gru", "Gru", (tensor("x", (1, 3, 4), "APP_WRITE"), *weights, *[absent] * 6),
        (tensor("y", (1, 3, 5), "APP_READ"), tensor("h", (1, 3, 5), "APP_READ")), {"time_major": True},
    )  # fmt: skip
    graph = build_graph("g", [op])
    assert [v.shape for v in graph.outputs] == [(1, 3, 5), (1, 3, 5)]  # the op's own state is [3, 5]
    assert next(n for n in graph.nodes if n.op.name == "Gru").inputs[7:] in ((), (None,) * 6)


@pytest.mark.parametrize(("given", "taken"), [(20.0, True), (1.0, False)])
def test_a_parameter_that_asks_for_nothing_is_left_out(given: float, taken: bool) -> None:
    params = {"operation": 7, "beta": 1.0, "threshold": given}
    op = QnnOp("s", "ElementWiseNeuron", (tensor("x", (3,), "APP_WRITE"),), (tensor("y", (3,), "APP_READ"),), params)
    if taken:
        assert build_graph("g", [op]).nodes[0].op.name == "ElementWiseNeuron"
    else:
        with pytest.raises(ModelError, match="no parameter named threshold"):
            build_graph("g", [op])


def test_the_older_spelling_of_an_axis() -> None:
    op = QnnOp("n", "L2Norm", (tensor("x", (2, 3), "APP_WRITE"),), (tensor("y", (2, 3), "APP_READ"),), {"axis": 1})
    assert build_graph("g", [op]).nodes[0].params["axes"] == (1,)


def test_a_cell_is_a_sequence_of_one_step() -> None:
    weights = [tensor(f"w{i}", (5, 4) if i < 3 else (5, 5), "STATIC", data=True) for i in range(6)]
    bias = [tensor(f"b{i}", (5,), "STATIC", data=True) for i in range(3)]
    state = [tensor(name, (2, 5), "APP_WRITE") for name in ("h0", "c0")]
    outputs = tuple(tensor(name, (2, 5), "APP_READ") for name in ("y", "c", "h"))
    op = QnnOp("cell", "Lstm", (tensor("x", (2, 4), "APP_WRITE"), *weights, *bias, *state), outputs)
    graph = build_graph("g", [op])
    assert [v.shape for v in graph.outputs] == [(2, 5)] * 3
    assert next(n for n in graph.nodes if n.op.name == "Lstm").params["time_major"] is True


def uint8(name: str, shape: tuple[int, ...], kind: str = "NATIVE", scale: float | None = None) -> QnnTensor:
    encoding = None if scale is None else QuantizeParams("QNN_QUANTIZATION_ENCODING_SCALE_OFFSET", [scale], [0])
    return QnnTensor(name, f"QNN_TENSOR_TYPE_{kind}", "QNN_DATATYPE_UFIXED_POINT_8", shape, encoding)


def run(op: QnnOp, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(registry.backend("htp").compile(build_graph("g", [op])).run(feeds).values())


def test_a_sigmoid_without_an_encoding_has_that_of_0_to_1() -> None:
    x, middle, y = uint8("x", (3,), "APP_WRITE", 0.02), uint8("s", (3,)), uint8("y", (3,), "APP_READ", 0.02)
    product = QnnOp("p", "ElementWiseMultiply", (x, middle), (y,))
    graph = build_graph("g", [QnnOp("s", "Sigmoid", (x,), (middle,)), product])
    assert graph.values["s"].encoding == ScaleOffset(1 / 256, 0)
    assert len(build_fragment([product])) == 1  # a node is asked about before it is known who writes its input
    with pytest.raises(ModelError, match="no encoding"):
        build_graph("g", [QnnOp("r", "Relu", (x,), (middle,))])


def test_random_numbers_take_their_seed_from_a_constant() -> None:
    sizes = QnnTensor(
        "n", "QNN_TENSOR_TYPE_STATIC", "QNN_DATATYPE_UINT_32", (1,), data=np.array([64], np.uint32)
    )  # fmt: skip
    seed = QnnTensor("s", "QNN_TENSOR_TYPE_STATIC", "QNN_DATATYPE_FLOAT_32", (1,), data=np.array([3], np.float32))
    op = QnnOp(
        "r", "RandomUniformLike", (sizes, seed), (uint8("y", (64,), "APP_READ", 1 / 255),), {"low": 0, "high": 1}
    )
    first, second = run(op)[0], run(op)[0]
    assert np.array_equal(first, second)
    assert first.dtype == np.uint8
    assert np.unique(first).size > 30


def test_frames_are_as_long_as_their_window() -> None:
    window = tensor("w", (16,), "STATIC", data=True)
    op = QnnOp(
        "f", "Stft", (tensor("x", (1, 128, 1), "APP_WRITE"), window), (tensor("y", (1, 15, 9, 2), "APP_READ"),),
        {"frame_step": 8, "onesided": True},
    )  # fmt: skip
    assert build_graph("g", [op]).nodes[0].params["frame_length"] == 16


@pytest.mark.parametrize(("rows", "padding"), [(9, (0, 0)), (10, (1, 1)), (13, None)])
def test_rows_that_no_input_reaches_pad_the_output(rows: int, padding: tuple[int, int] | None) -> None:
    op = QnnOp(
        "t", "TransposeConv2d",
        (tensor("x", (1, 3, 3, 1), "APP_WRITE"), tensor("w", (3, 3, 1, 2), "STATIC", data=True)),
        (tensor("y", (1, rows, rows - 2, 2), "APP_READ"),),
        {"stride": [3, 2], "output_padding": [0, 0], "pad_amount": [[0, 0], [0, 0]]},
    )  # fmt: skip
    if padding is None:
        with pytest.raises(ModelError, match="shape"):
            build_graph("g", [op])
    else:
        assert build_graph("g", [op]).nodes[0].params["output_padding"] == padding


def test_boxes_are_counted_for_each_batch() -> None:
    boxes, scores = tensor("boxes", (2, 3, 4), "APP_WRITE"), tensor("scores", (2, 1, 3), "APP_WRITE")
    outputs = (
        QnnTensor("rows", "QNN_TENSOR_TYPE_APP_READ", "QNN_DATATYPE_INT_32", (6, 3)),
        QnnTensor("count", "QNN_TENSOR_TYPE_APP_READ", "QNN_DATATYPE_UINT_32", (2,)),
    )
    op = QnnOp("n", "NonMaxSuppression", (boxes, scores), outputs, {"max_boxes_selected": 3, "score_threshold": 0.4})
    apart = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [4, 4, 5, 5]], np.float32)
    feeds = {"boxes": np.stack([apart, apart]), "scores": np.array([[[0.9, 0.5, 0.1]], [[0.1, 0.8, 0.2]]], np.float32)}
    for backend in ("htp", "cpu"):
        made = registry.backend(backend).compile(build_graph("g", [op])).run(feeds)
        assert made["count"].tolist() == [2, 1]
        assert made["rows"].tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 1], *[[-1] * 3] * 3]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("by_position", [False, True])
def test_a_rotary_embedding_turns_pairs(interleaved: bool, by_position: bool) -> None:
    random = np.random.default_rng(4)
    x, angles = random.standard_normal((2, 3, 5, 8)).astype(np.float32), random.random((9, 2))
    positions = random.integers(0, 9, (2, 5)).astype(np.int32)
    rows = angles[positions]
    given = angles if by_position else rows
    inputs = [tensor("x", x.shape, "APP_WRITE"), *(tensor(n, given.shape, "APP_WRITE") for n in ("cos", "sin"))]
    feeds: dict[str, np.ndarray] = {
        "x": x,
        "cos": np.cos(given).astype(np.float32),
        "sin": np.sin(given).astype(np.float32),
    }
    if by_position:
        inputs.append(QnnTensor("at", "QNN_TENSOR_TYPE_APP_WRITE", "QNN_DATATYPE_INT_32", positions.shape))
        feeds["at"] = positions
    op = QnnOp(
        "r", "RotaryEmbedding", tuple(inputs), (tensor("y", x.shape, "APP_READ"),),
        {"interleaved": interleaved, "rotary_embedding_dim": 4},
    )  # fmt: skip
    made = next(iter(registry.backend("cpu").compile(build_graph("g", [op])).run(feeds).values()))
    wanted = x.copy()
    first, second = ([0, 2], [1, 3]) if interleaved else ([0, 1], [2, 3])
    turned = (x[..., first] + 1j * x[..., second]) * np.exp(1j * rows)[:, None]
    wanted[..., first], wanted[..., second] = turned.real, turned.imag
    assert np.allclose(made, wanted, atol=1e-5)
