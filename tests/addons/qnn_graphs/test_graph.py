# SPDX-License-Identifier: Apache-2.0
"""Graphs handed over as QNN ops: each op, encoding and kind of tensor, and what is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hexforge.addons.qnn_graphs.declarations import QnnOp, QnnTensor, QuantizeParams
from hexforge.addons.qnn_graphs.graph import build_fragment, build_graph
from hexforge.addons.qnn_graphs.table_forms import OPERATIONS
from hexforge.errors import ModelError
from hexforge.ir import AxisScaleOffset, BlockwiseExpansion, Graph, Role, ScaleOffset
from hexforge.ir.op import table
from hexforge.runtime import registry

ENCODING = "QNN_QUANTIZATION_ENCODING_"


def tensor(name: str, shape: tuple[int, ...], kind: str = "NATIVE", dtype: str = "FLOAT_32", **more: Any) -> QnnTensor:
    return QnnTensor(name, f"QNN_TENSOR_TYPE_{kind}", f"QNN_DATATYPE_{dtype}", shape, **more)


def run(graph: Graph, **feeds: np.ndarray) -> list[np.ndarray]:
    return list(registry.backend("cpu").compile(graph).run(feeds).values())


def unary(op: str, x: QnnTensor, y: QnnTensor, **params: Any) -> QnnOp:
    return QnnOp("node", op, (x,), (y,), params)


def test_tensors_keep_their_names_and_order() -> None:
    a, b = tensor("input_1_b@0", (2,), "APP_WRITE"), tensor("input_0_a@0", (2,), "APP_WRITE")
    middle, out = tensor("sum@0", (2,)), tensor("output_neg@0", (2,), "APP_READ")
    graph = build_graph(
        "forward",
        [QnnOp("sum", "ElementWiseAdd", (a, b), (middle,)), QnnOp("neg", "ElementWiseNeg", (middle,), (out,))],
    )
    assert graph.name == "forward"
    assert [v.name for v in graph.inputs] == ["input_1_b@0", "input_0_a@0"]
    assert [v.name for v in graph.outputs] == ["output_neg@0"]
    assert [n.name for n in graph] == ["sum", "neg"]
    x = np.array([1, 2], np.float32)
    assert run(graph, **{"input_1_b@0": x, "input_0_a@0": x})[0].tolist() == [-2, -4]


def test_an_op_chosen_by_a_number_is_that_op() -> None:
    names = {op.name for op in table()}
    assert {name for row in OPERATIONS.values() for name in row if name} <= names
    x, y = tensor("x", (3,), "APP_WRITE"), tensor("y", (3,), "APP_READ")
    data = np.array([-2, 0.5, 4], np.float32)
    for number, expected in ((0, np.abs(data)), (8, -data), (10, 1 / data), (13, np.sign(data))):
        graph = build_graph("g", [unary("ElementWiseUnary", x, y, operation=np.uint32(number))])
        assert np.allclose(run(graph, x=data)[0], expected)
    for number, expected in ((0, data + data), (4, [1, 1, 1]), (13, data * data), (18, data - data)):  # type: ignore[assignment]
        graph = build_graph("g", [QnnOp("n", "ElementWiseBinary", (x, x), (y,), {"operation": np.uint32(number)})])
        assert np.allclose(run(graph, x=data)[0], expected)
    neuron = unary("ElementWiseNeuron", x, y, operation=2, alpha=np.float32(0.2), beta=np.float32(0.5))
    assert np.allclose(run(build_graph("g", [neuron]), x=data)[0], [0.1, 0.6, 1])
    relu = build_graph("g", [unary("ElementWiseNeuron", x, y, operation=4)])
    assert relu.nodes[0].op.name == "Relu"


def test_encodings_become_those_of_the_ir() -> None:
    x = tensor(
        "x", (1, 4), "APP_WRITE", "UFIXED_POINT_8",
        quantization=QuantizeParams(f"{ENCODING}SCALE_OFFSET", [0.1], [-128]),
    )  # fmt: skip
    rows = QuantizeParams(f"{ENCODING}AXIS_SCALE_OFFSET", [0.5, 0.25], [0, 0], axis=0)
    weight = tensor("w", (2, 4), "STATIC", "SFIXED_POINT_8", quantization=rows, data=np.ones((2, 4), np.int8))
    y = tensor(
        "y", (1, 2), "APP_READ", "UFIXED_POINT_8", quantization=QuantizeParams(f"{ENCODING}SCALE_OFFSET", [1], [0])
    )
    graph = build_graph("g", [QnnOp("fc", "FullyConnected", (x, weight), (y,))])
    assert graph.values["x"].encoding == ScaleOffset(float(np.float32(0.1)), -128)
    assert graph.values["w"].encoding == AxisScaleOffset(0, (0.5, 0.25), (0, 0))
    assert run(graph, x=np.full((1, 4), 158, np.uint8))[0].tolist() == [[6, 3]]  # 4 * 3.0 * 0.5 and * 0.25


@pytest.mark.parametrize(("bits", "values"), [(4, [-7, -1, 0, 7]), (2, [-2, -1, 0, 1])])
def test_masked_bits_are_extended(bits: int, values: list[int]) -> None:
    masked = np.array([values], np.int8) & ((1 << bits) - 1)
    narrow = QuantizeParams(f"{ENCODING}BW_AXIS_SCALE_OFFSET", [1.0], [0], axis=0, bitwidth=bits)
    x = tensor("x", (1, 4), "APP_WRITE")
    weight = tensor("w", (1, 4), "STATIC", "SFIXED_POINT_8", quantization=narrow, data=masked)
    graph = build_graph("g", [QnnOp("fc", "FullyConnected", (x, weight), (tensor("y", (1, 1), "APP_READ"),))])
    found = graph.values["w"]
    assert isinstance(found.encoding, AxisScaleOffset)
    assert found.encoding.bitwidth == bits
    assert found.data is not None
    assert found.data.tolist() == [values]
    assert run(graph, x=np.array([[1, 10, 100, 1000]], np.float32))[0].tolist() == [
        [values[0] + 10 * values[1] + 100 * values[2] + 1000 * values[3]]
    ]


def test_blocks_run_along_the_input_channels() -> None:
    blocks = QuantizeParams(
        f"{ENCODING}BLOCKWISE_EXPANSION", [0.5, 1.0], [0, 0], axis=3, block_scales=[1, 2, 3, 4], blocks_per_axis=2
    )
    x = tensor("x", (1, 1, 1, 4), "APP_WRITE")
    data = np.ones((1, 1, 4, 2), np.int8)
    weight = tensor("w", data.shape, "STATIC", "SFIXED_POINT_8", quantization=blocks, data=data)
    y = tensor("y", (1, 1, 1, 2), "APP_READ")
    params = {"stride": np.array([1, 1], np.uint32), "pad_amount": np.zeros((2, 2), np.uint32)}
    graph = build_graph("g", [QnnOp("conv", "Conv2d", (x, weight), (y,), params)])
    encoding = graph.values["w"].encoding
    assert isinstance(encoding, BlockwiseExpansion)
    assert (encoding.axis, encoding.block_axis) == (3, 2)
    out = run(graph, x=np.array([1, 1, 10, 10], np.float32).reshape(1, 1, 1, 4))[0]
    assert out.ravel().tolist() == [0.5 * (2 * 1 + 20 * 2), 2 * 3 + 20 * 4]


def test_rank_0_is_one_element() -> None:
    x, y = tensor("x", (2, 3), "APP_WRITE"), tensor("y", (1,), "APP_READ")
    graph = build_graph("g", [unary("ReduceSum", x, y, axes=np.array([0, 1], np.uint32), keep_dims=False)])
    assert run(graph, x=np.ones((2, 3), np.float32))[0].tolist() == [6]


def test_another_integer_type_is_cast() -> None:
    x = tensor("x", (2, 3), "APP_WRITE")
    data = np.array([[1, 9, 3], [7, 2, 5]], np.float32)
    for dtype in ("INT_64", "INT_32", "UINT_32"):
        y = tensor("y", (2,), "APP_READ", dtype)
        graph = build_graph("g", [unary("Argmax", x, y, axis=1, keep_dims=False)])
        assert run(graph, x=data)[0].tolist() == [1, 0]
    scalar = tensor("y", (1,), "APP_READ", "INT_64")
    flat = tensor("f", (3,), "APP_WRITE")
    graph = build_graph("g", [unary("Argmax", flat, scalar, axis=0, keep_dims=False)])
    assert run(graph, f=data[0])[0].tolist() == [1]


@pytest.mark.parametrize("backend", ["cpu", "htp"])
@pytest.mark.parametrize("dtype", ["UFIXED_POINT_8", "UFIXED_POINT_16"])
def test_integers_are_cast_to_fixed_point_by_their_values(backend: str, dtype: str) -> None:
    params = QuantizeParams(f"{ENCODING}SCALE_OFFSET", [0.5], [-20])
    x, y = tensor("x", (4,), "APP_WRITE", "INT_64"), tensor("y", (4,), "APP_READ", dtype, quantization=params)
    middle = tensor("middle", (4,), dtype="INT_32", quantization=params)  # an encoding that says nothing
    graph = build_graph("g", [QnnOp("a", "Cast", (x,), (middle,)), QnnOp("b", "Cast", (middle,), (y,))])
    made = registry.backend(backend).compile(graph).run({"x": np.array([-9, -1, 0, 7], np.int64)})["y"]
    assert made.tolist() == [2, 18, 20, 34]


def test_a_constant_may_be_declared_twice() -> None:
    x, y = tensor("x", (2,), "APP_WRITE"), tensor("y", (2,), "APP_READ")
    middle = tensor("middle", (2,))
    one = [tensor("c", (2,), "STATIC", data=np.array([1, 1], np.float32)) for _ in range(2)]
    other = tensor("c", (2,), "STATIC", data=np.array([5, 5], np.float32))
    for second, expected in ((one[1], 2), (other, 6)):
        ops = [
            QnnOp("a", "ElementWiseAdd", (x, one[0]), (middle,)),
            QnnOp("b", "ElementWiseAdd", (middle, second), (y,)),
        ]
        assert run(build_graph("g", ops), x=np.zeros(2, np.float32))[0].tolist() == [expected] * 2


X, Y = tensor("x", (2,), "APP_WRITE"), tensor("y", (2,), "APP_READ")
SCALE = QuantizeParams(f"{ENCODING}SCALE_OFFSET", [0.5], [0])


@pytest.mark.feature("Graph building", guide="17")
@pytest.mark.parametrize(
    ("op", "told"),
    [
        (unary("Relux", X, Y), "'node' (Relux)"),
        (QnnOp("node", "Relu", (X,), (Y,), package="my.package"), "no op package 'my.package'"),
        (unary("Relu", tensor("bad", (2,), "APP_WRITE", "UFIXED_POINT_8"), Y), "'bad': is QNN_DATATYPE_UFIXED_POINT_8"),
        (unary("Relu", tensor("bad", (2,), "APP_WRITE", quantization=SCALE), Y), "'bad': has an encoding"),
        (unary("Relu", tensor("bad", (2,), "APP_WRITE", "UNDEFINED"), Y), "'bad': hexforge has no tensors of"),
        (unary("Relu", tensor("bad", (2,), "NULL"), Y), "Relu: input in is missing"),
        (unary("Relu", tensor("bad", (2,), "STATIC"), Y), "'bad': is STATIC but has no data"),
        (unary("Relu", tensor("bad", (2,), "STATIC", data=np.zeros(3)), Y), "'bad': is float32[2] but has 3 elements"),
        (unary("Relu", X, tensor("bad", (3,), "APP_READ")), "'bad'"),
        (unary("Relu", tensor("bad", (2,)), Y), "'bad'"),
        (unary("ElementWiseUnary", X, Y), "'node' (ElementWiseUnary): parameter operation is missing"),
        (unary("ElementWiseUnary", X, Y, operation=77), "operation 77 is not one of 0 to 15"),
        (unary("Relu", X, Y, alpha=1.0), "'node' (Relu): Relu: no parameter named alpha"),
        (unary("Concat", X, Y), "parameter axis is missing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_said_by_its_name(op: QnnOp, told: str) -> None:
    with pytest.raises(ModelError, match="graph") as error:
        build_graph("g", [op])
    assert told in str(error.value)


def test_a_tensor_has_one_type() -> None:
    first, second = tensor("t", (2,)), tensor("t", (2,), dtype="FLOAT_16")
    with pytest.raises(ModelError, match=r"'t': is float32.* NATIVE in one op, float16"):
        build_graph("g", [unary("Relu", X, first), QnnOp("b", "Relu", (second,), (Y,))])


def test_a_fragment_needs_no_data() -> None:
    weight = tensor("w", (1, 2), "STATIC", data=np.array([]))
    op = QnnOp("fc", "FullyConnected", (tensor("x", (1, 2)), weight), (tensor("y", (1, 1)),))
    (node,) = build_fragment([op])
    assert node.inputs[1] is not None
    assert node.inputs[1].role is Role.STATIC


def test_int16_weights_fit_the_matrix_unit() -> None:
    wide = QuantizeParams(f"{ENCODING}SCALE_OFFSET", [0.5], [0])
    data = np.array([[32767, -32767, 1, 0]], np.int16)
    weight = tensor("w", (1, 4), "STATIC", "SFIXED_POINT_16", quantization=wide, data=data)
    op = QnnOp("fc", "FullyConnected", (tensor("x", (1, 4), "APP_WRITE"), weight), (tensor("y", (1, 1), "APP_READ"),))
    found = build_graph("g", [op]).values["w"]
    assert found.data is not None
    assert isinstance(found.encoding, ScaleOffset)
    assert found.data.max() == 0x7F7F
    assert np.abs(found.data * found.encoding.scale - data * 0.5).max() <= found.encoding.scale / 2


def test_coefficients_of_channels_lie_along_them() -> None:
    data = np.full((1, 2, 1, 3), -1, np.float32)
    x, y = tensor("x", data.shape, "APP_WRITE"), tensor("y", data.shape, "APP_READ")
    coeff = tensor("c", (2,), "STATIC", data=np.array([0.25, 0.5], np.float32))
    graph = build_graph("g", [QnnOp("prelu", "Prelu", (x, coeff), (y,))])
    assert run(graph, x=data)[0].ravel().tolist() == [-0.25] * 3 + [-0.5] * 3
    last = tensor("c", (3,), "STATIC", data=np.array([1, 2, 3], np.float32))
    graph = build_graph("g", [QnnOp("prelu", "Prelu", (x, last), (y,))])
    assert run(graph, x=data)[0].ravel().tolist() == [-1, -2, -3] * 2


@pytest.mark.parametrize(("encoding", "bits"), [("AXIS_SCALE_OFFSET", 0), ("BW_AXIS_SCALE_OFFSET", 4)])
def test_grouped_transposed_convolutions_keep_a_scale_per_channel(encoding: str, bits: int) -> None:
    per_tensor = QuantizeParams(f"{ENCODING}SCALE_OFFSET", [1.0], [0])
    x = tensor("x", (1, 1, 1, 4), "APP_WRITE", "UFIXED_POINT_8", quantization=per_tensor)
    y = tensor("y", (1, 1, 1, 4), "APP_READ", "UFIXED_POINT_8", quantization=per_tensor)
    rows = QuantizeParams(f"{ENCODING}{encoding}", [0.5, 2.0], [0, 0], axis=3, bitwidth=bits)
    data = np.array([[1, 0], [0, 1], [2, 0], [0, 2]], np.int8).reshape(1, 1, 4, 2)
    weight = tensor("w", data.shape, "STATIC", "SFIXED_POINT_8", quantization=rows, data=data)
    params = {
        "stride": np.array([1, 1], np.uint32),
        "pad_amount": np.zeros((2, 2), np.uint32),
        "group": np.uint32(2),
        "output_padding": np.array([0, 0], np.uint32),
    }
    graph = build_graph("g", [QnnOp("conv", "TransposeConv2d", (x, weight), (y,), params)])
    out = run(graph, x=np.array([2, 3, 4, 5], np.uint8).reshape(1, 1, 1, 4))[0]
    assert out.ravel().tolist() == [1, 6, 4, 20]
