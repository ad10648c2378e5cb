# SPDX-License-Identifier: Apache-2.0
"""The EP's limits: each applies where it says, and not on the same node without what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from benchmarks.placement import control_flow
from hexforge.frontends.onnx.ep_limits import EP_VERSION, LIMITS, Evidence, Refuser, ep_refuses
from hexforge.frontends.onnx.ep_limits.subject import Subject
from hexforge.model.reader import read
from tests.frontends.onnx.limited_node import RANK, Node, Tensor
from tests.frontends.onnx.parts import units


def real(rank: int, type: str = "float32") -> Tensor:
    return Tensor(RANK[rank], type)


def fixed(rank: int, type: str = "uint8") -> Tensor:
    return Tensor(RANK[rank], fixed=type)


def known(*numbers: Any, type: str = "int64") -> Tensor:
    return Tensor((len(numbers),), type, numbers=numbers)


def scalar(number: Any, type: str = "float32") -> Tensor:
    return Tensor((), type, numbers=number)


def weights(*shape: int, fixed: str = "") -> Tensor:
    return Tensor(shape, fixed=fixed, constant=True)


def resize(rank: int = 4, scale: float = 2.0, changed: int = 1, **attributes: Any) -> Node:
    scales = [1.0] * (rank - changed) + [scale] * changed
    return Node("Resize", (real(rank), None, known(*scales, type="float32")), attributes)


PICTURE = Tensor((1, 4, 8, 8))
FIXED_PICTURE = Tensor((1, 4, 8, 8), fixed="uint8")
WORDS = Tensor((1, 2, 4, 8))
HIDDEN = {"hidden_size": 4}
RECURRENT = (Tensor((3, 2, 5)), weights(1, 16, 5), weights(1, 16, 4))
BOXES = (Tensor((1, 6, 4)), Tensor((1, 1, 6)))
TWO = (("float32", None), ("float32", None))
INDEX = ("int64", None)


# what is refused, the same without it
ROWS: tuple[tuple[Node, Node], ...] = (
    (Node("Relu", (real(3),), opset=6), Node("Relu", (real(3),), opset=7)),
    (Node("ReduceSum", (Tensor((2, 0, 4)), known(1))), Node("ReduceSum", (Tensor((2, 3, 4)), known(1)))),
    (
        Node("Add", (real(3, "uint8"),) * 2, outputs=(("uint8", None),)),
        Node("Add", (real(3, "int32"),) * 2, outputs=(("int32", None),)),
    ),
    (
        Node("Add", (real(3, "int16"),) * 2, outputs=(("int16", None),)),
        Node("Add", (fixed(3, "uint16"),) * 2, quantized="uint16"),
    ),
    (Node("Neg", (fixed(3, "int8"),), quantized="int8"), Node("Neg", (fixed(3),), quantized="uint8")),
    (Node("Exp", (fixed(3, "int16"),), quantized="int16"), Node("Exp", (fixed(3, "uint16"),), quantized="uint16")),
    (Node("Tanh", (real(5),)), Node("Tanh", (real(4),))),
    (Node("CumSum", (real(5), scalar(1, "int64"))), Node("CumSum", (fixed(5), scalar(1, "int64")), quantized="uint8")),
    (Node("Max", (real(5),) * 2), Node("Max", (fixed(5),) * 2, quantized="uint8")),
    (Node("Gelu", (fixed(5),), quantized="uint8"), Node("Gelu", (real(5),))),
    (Node("Transpose", (real(5, "int32"),), outputs=(("int32", None),)), Node("Transpose", (real(5),))),
    (
        Node("Tile", (real(5, "bool"), known(1, 1, 1, 1, 2)), outputs=(("bool", None),)),
        Node("Tile", (real(4, "bool"), known(1, 1, 1, 2)), outputs=(("bool", None),)),
    ),
    (
        Node("Abs", (real(5, "int64"),), outputs=(("int64", None),)),
        Node("Abs", (real(4, "int64"),), outputs=(("int64", None),)),
    ),
    (
        Node("Transpose", (real(3, "int64"),), outputs=(("int64", None),)),
        Node("Transpose", (real(3, "int32"),), outputs=(("int32", None),)),
    ),
    (
        Node("GatherND", (real(3, "int64"), Tensor((3, 2), "int64")), outputs=(("int64", None),)),
        Node("GatherND", (real(3, "int32"), Tensor((3, 2), "int64")), outputs=(("int32", None),)),
    ),
    (Node("Asin", (real(3),)), Node("Asin", (fixed(3),), quantized="uint8")),
    (Node("IsInf", (real(3, "float16"),)), Node("IsNaN", (real(3, "float16"),))),
    (
        Node("Cast", (real(3, "int8"),), {"to": TensorProto.FLOAT}),
        Node("Cast", (real(3, "uint8"),), {"to": TensorProto.FLOAT}),
    ),
    (
        Node("Cast", (real(3),), {"to": TensorProto.INT64}, (("int64", None),)),
        Node("Cast", (real(3, "int32"),), {"to": TensorProto.INT64}, (("int64", None),)),
    ),
    (Node("Clip", (real(3), Tensor(()))), Node("Clip", (real(3), scalar(0.0)))),
    (Node("Clip", (real(3), scalar(2.0), scalar(1.0))), Node("Clip", (real(3), scalar(1.0), scalar(1.0)))),
    (Node("Sum", (real(3),)), Node("Sum", (real(3),) * 3)),
    (Node("Mean", (real(3, "float16"),) * 2, outputs=(("float16", None),)), Node("Mean", (real(3),) * 2)),
    (Node("Mod", (real(3),) * 2, {"fmod": 1}), Node("Mod", (real(3, "int32"),) * 2, outputs=(("int32", None),))),
    (Node("Pow", (real(3), real(3, "int32"))), Node("Pow", (real(3), real(3)))),
    (Node("Pow", (real(1), real(5))), Node("Pow", (real(5), real(1)))),
    (
        Node("PRelu", (fixed(3, "uint16"),) * 2, quantized="uint16"),
        Node("PRelu", (fixed(3, "uint16"), fixed(1, "uint16")), quantized="uint16"),
    ),
    (
        Node("ArgMax", (real(3),), {"axis": 1, "select_last_index": 1}, (INDEX,)),
        Node("ArgMax", (real(3),), {"axis": 1}, (INDEX,)),
    ),
    (
        Node("ReduceSum", (real(3),), {"noop_with_empty_axes": 1}),
        Node("ReduceSum", (real(3), known(1)), {"noop_with_empty_axes": 1}),
    ),
    (Node("ReduceLogSumExp", (fixed(3), known(1)), quantized="uint8"), Node("ReduceLogSumExp", (real(3), known(1)))),
    (Node("ReduceMax", (real(5), known(0, 4))), Node("ReduceMax", (real(5), known(4)))),
    (
        Node("ReduceMin", (fixed(5), known(0, 4)), quantized="uint8"),
        Node("ReduceMax", (fixed(5, "uint16"), known(0, 4)), quantized="uint16"),
    ),
    (Node("ReduceL2", (real(5), known(4))), Node("ReduceL2", (real(5), known(4)), {"keepdims": 0})),
    (Node("LogSoftmax", (real(5),), {"axis": 1}), Node("LogSoftmax", (real(5),), {"axis": 1}, opset=11)),
    (Node("LayerNormalization", (real(3), weights(6)), outputs=TWO), Node("LayerNormalization", (real(3), weights(6)))),
    (
        Node("LayerNormalization", (real(3), weights(4, 6)), {"axis": 1}),
        Node("LayerNormalization", (real(3), weights(6)), {"axis": 2}),
    ),
    (Node("LayerNormalization", (real(3), weights(1))), Node("LayerNormalization", (real(3), weights(6)))),
    (
        Node("LayerNormalization", (fixed(3, "uint16"), Tensor((6,), fixed="uint16")), quantized="uint16"),
        Node("LayerNormalization", (fixed(3, "uint16"), weights(6, fixed="uint8")), quantized="uint16"),
    ),
    (
        Node("BatchNormalization", (real(4), *[weights(4)] * 4), {"training_mode": 1}, TWO + TWO[:1]),
        Node("BatchNormalization", (real(4), *[weights(4)] * 4)),
    ),
    (
        Node("BatchNormalization", (real(5), *[weights(2)] * 4)),
        Node("BatchNormalization", (real(3), *[weights(4)] * 4)),
    ),
    (
        Node("BatchNormalization", (real(4), *[Tensor((4,))] * 4)),
        Node("BatchNormalization", (real(4), *[weights(4)] * 4)),
    ),
    (
        Node("InstanceNormalization", (real(4), weights(4), weights(4)), {"epsilon": 0.0}),
        Node("InstanceNormalization", (real(4), weights(4), weights(4))),
    ),
    (Node("LpNormalization", (real(3),), {"p": 1}), Node("LpNormalization", (real(3),), {"p": 2})),
    (Node("LRN", (real(2),), {"size": 3}), Node("LRN", (real(3),), {"size": 3})),
    (Node("LRN", (real(4),), {"size": 2}), Node("LRN", (real(4),), {"size": 3})),
    (Node("LRN", (real(4),), {"size": 3, "alpha": 0.0}), Node("LRN", (real(4),), {"size": 3})),
    (
        Node("LRN", (fixed(4, "uint16"),), {"size": 3}, quantized="uint16"),
        Node("LRN", (fixed(4),), {"size": 3}, quantized="uint8"),
    ),
    (
        Node("Conv", (Tensor((1, 4, 8, 8, 8)), weights(4, 4, 3, 3, 3)), {"dilations": [2, 2, 2]}),
        Node("Conv", (PICTURE, weights(4, 4, 3, 3)), {"dilations": [2, 2]}),
    ),
    (
        Node("Conv", (FIXED_PICTURE, weights(4, 4, 3, 3, fixed="uint8"), Tensor((4,))), quantized="uint8"),
        Node("Conv", (FIXED_PICTURE, weights(4, 4, 3, 3, fixed="uint8"), weights(4, fixed="int32")), quantized="uint8"),
    ),
    (
        Node("Conv", (Tensor((1, 4, 8), fixed="uint16"), Tensor((4, 4, 3), fixed="uint16")), quantized="uint16"),
        Node("Conv", (Tensor((1, 4, 8, 8), fixed="uint16"), Tensor((4, 4, 3, 3), fixed="uint16")), quantized="uint16"),
    ),
    (
        Node("ConvTranspose", (PICTURE, weights(4, 4, 3, 3)), {"dilations": [2, 2]}),
        Node("ConvTranspose", (PICTURE, weights(4, 4, 3, 3)), {"dilations": [1, 1]}),
    ),
    (
        Node("MaxPool", (PICTURE,), {"kernel_shape": [2, 2], "dilations": [2, 2]}),
        Node("MaxPool", (PICTURE,), {"kernel_shape": [2, 2], "dilations": [1, 1]}),
    ),
    (
        Node("MaxPool", (PICTURE,), {"kernel_shape": [2, 2]}, (("float32", None), INDEX)),
        Node("MaxPool", (PICTURE,), {"kernel_shape": [2, 2]}),
    ),
    (
        Node(
            "MaxPool",
            (PICTURE,),
            {"kernel_shape": [1, 1], "strides": [2, 2], "ceil_mode": 1},
            (("float32", (1, 4, 4, 4)),),
            22,
        ),
        Node("MaxPool", (PICTURE,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, opset=22),
    ),
    (
        Node("LpPool", (PICTURE,), {"kernel_shape": [2, 2], "p": 3}),
        Node("LpPool", (PICTURE,), {"kernel_shape": [2, 2], "p": 1}),
    ),
    (
        Node("LpPool", (PICTURE,), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        Node("LpPool", (PICTURE,), {"kernel_shape": [3, 3], "strides": [2, 2]}),
    ),
    (Node("LpPool", (real(5),), {"kernel_shape": [2, 2, 2]}), Node("LpPool", (real(4),), {"kernel_shape": [2, 2]})),
    (
        Node("GridSample", (PICTURE, Tensor((1, 3, 4, 2))), {"mode": "cubic"}),
        Node("GridSample", (PICTURE, Tensor((1, 3, 4, 2))), {"mode": "nearest"}),
    ),
    (
        Node("GridSample", (real(5), Tensor((1, 3, 4, 5, 3)))),
        Node("GridSample", (fixed(5), Tensor((1, 3, 4, 5, 3), fixed="uint8")), quantized="uint8"),
    ),
    (
        Node("RoiAlign", (PICTURE, Tensor((3, 4)), Tensor((3,), "int64")), {"mode": "max"}),
        Node("RoiAlign", (PICTURE, Tensor((3, 4)), Tensor((3,), "int64")), {"mode": "avg"}),
    ),
    (
        Node("MaxRoiPool", (PICTURE, Tensor((3, 5))), {"pooled_shape": [2, 2]}),
        Node("MaxRoiPool", (PICTURE, weights(3, 5)), {"pooled_shape": [2, 2]}),
    ),
    (resize(scale=0.5, mode="linear", antialias=1), resize(scale=0.5, mode="linear")),
    (
        resize(mode="linear", coordinate_transformation_mode="half_pixel_symmetric"),
        resize(mode="linear", coordinate_transformation_mode="align_corners"),
    ),
    (resize(2, mode="linear"), resize(3, mode="linear")),
    (resize(4, changed=3, mode="linear"), resize(4, changed=2, mode="linear")),
    (
        resize(coordinate_transformation_mode="asymmetric", nearest_mode="ceil"),
        resize(coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
    ),
    (resize(3, nearest_mode="ceil"), resize(3, nearest_mode="floor")),
    (
        resize(5, nearest_mode="round_prefer_ceil"),
        resize(5, nearest_mode="round_prefer_ceil", coordinate_transformation_mode="align_corners"),
    ),
    (
        Node("Upsample", (real(3), known(1.0, 1.0, 2.0, type="float32")), opset=9),
        Node("Upsample", (real(4), known(1.0, 1.0, 2.0, 2.0, type="float32")), opset=9),
    ),
    (resize(scale=0.6, mode="cubic"), resize(scale=0.5, mode="cubic")),
    (Node("Gemm", (real(2), weights(6, 5)), {"alpha": 0.5}), Node("Gemm", (real(2), weights(6, 5)), {"alpha": 1.0})),
    (
        Node("Gemm", (real(2), weights(6, 5), weights(5)), {"beta": 0.5}),
        Node("Gemm", (real(2), weights(6, 5), weights(5)), {"beta": 0.0}),
    ),
    (
        Node("Gemm", (fixed(2), weights(6, 5, fixed="uint8"), weights(4, 5, fixed="int32")), quantized="uint8"),
        Node("Gemm", (fixed(2), weights(6, 5, fixed="uint8"), weights(5, fixed="int32")), quantized="uint8"),
    ),
    (
        Node("Gemm", (fixed(2, "uint16"), Tensor((6, 5), fixed="uint16")), quantized="uint16"),
        Node("Gemm", (fixed(2, "uint16"), weights(6, 5, fixed="uint8")), quantized="uint16"),
    ),
    (Node("MatMul", (real(5), weights(6, 5))), Node("MatMul", (real(4), weights(6, 5)))),
    (Node("MatMul", (real(5), Tensor((6,)))), Node("MatMul", (real(5), Tensor((6, 5))))),
    (
        Node("Einsum", (real(3), Tensor((6, 5))), {"equation": "bij,jk->bik"}),
        Node("Einsum", (real(3), Tensor((2, 6, 5))), {"equation": "bij,bjk->bik"}),
    ),
    (
        Node("Einsum", (fixed(4), Tensor((6, 5, 6), fixed="uint8")), {"equation": "bhwc,wkc->bhwk"}, quantized="uint8"),
        Node("Einsum", (real(4), Tensor((6, 5, 6))), {"equation": "bhwc,wkc->bhwk"}),
    ),
    (
        Node("MatMulInteger", (real(2, "uint8"), Tensor((6, 5), "uint8")), outputs=(("int32", None),)),
        Node("MatMul", (real(2), Tensor((6, 5)))),
    ),
    (Node("Pad", (real(2), known(1, 1), None, known(1))), Node("Pad", (real(2), known(0, 1, 0, 1)))),
    (
        Node("Pad", (real(2), known(0, 1, 0, 1)), {"mode": "wrap"}),
        Node("Pad", (real(2), known(0, 1, 0, 1)), {"mode": "edge"}),
    ),
    (
        Node("Pad", (real(2), known(0, 6, 0, 0)), {"mode": "reflect"}),
        Node("Pad", (real(2), known(0, 5, 0, 0)), {"mode": "reflect"}),
    ),
    (Node("Pad", (real(5), known(*[0] * 9, 1)), {"mode": "edge"}), Node("Pad", (real(5), known(*[0] * 9, 1)))),
    (
        Node("CumSum", (real(3), scalar(1, "int64")), {"reverse": 1}),
        Node("CumSum", (real(3), scalar(1, "int64")), {"reverse": 0}),
    ),
    (Node("Gather", (real(5), Tensor((2,), "int64"))), Node("Gather", (real(5), Tensor((2,), "int64")), {"axis": 2})),
    (Node("Gather", (real(4), Tensor((2, 2), "int64"))), Node("Gather", (real(4), Tensor((2,), "int64")))),
    (
        Node("Gather", (real(5), Tensor((), "int64")), {"axis": 1}),
        Node("Gather", (Tensor((2, 2, 4, 6, 6)), Tensor((), "int64")), {"axis": 1}),
    ),
    (
        Node("Gather", (known(*range(9)), Tensor((2,), "int64")), outputs=(INDEX,)),
        Node("Gather", (weights(9, 6), Tensor((2,), "int64"))),
    ),
    (
        Node("GatherElements", (real(5), Tensor(RANK[5], "int32"))),
        Node("GatherElements", (real(5), Tensor(RANK[5], "int32")), {"axis": 2}),
    ),
    (
        Node("GatherND", (real(3), Tensor((2, 3, 1), "int64")), {"batch_dims": 1}),
        Node("GatherND", (real(3), Tensor((2, 3, 1), "int64"))),
    ),
    (
        Node("ScatterElements", (real(2), Tensor(RANK[2], "int64"), real(2)), {"reduction": "add"}),
        Node("ScatterElements", (real(2), Tensor(RANK[2], "int64"), real(2))),
    ),
    (
        Node(
            "ScatterElements",
            (fixed(2, "uint16"), Tensor(RANK[2], "int64"), fixed(2, "uint16")),
            {"reduction": "max"},
            quantized="uint16",
        ),
        Node(
            "ScatterElements", (fixed(2), Tensor(RANK[2], "int64"), fixed(2)), {"reduction": "max"}, quantized="uint8"
        ),
    ),
    (
        Node("OneHot", (Tensor((2, 3, 4), "int64"), scalar(5, "int64"), known(0, 1, type="float32"))),
        Node("OneHot", (Tensor((2, 3), "int64"), scalar(5, "int64"), known(0, 1, type="float32"))),
    ),
    (
        Node("OneHot", (Tensor((2, 3), "int64"), scalar(5, "int64"), known(0, 1, type="float32")), {"axis": 1}),
        Node("OneHot", (Tensor((2, 3), "int64"), scalar(5, "int64"), known(0, 1, type="float32")), {"axis": 0}),
    ),
    (
        Node("OneHot", (Tensor((2,), "int64"), scalar(5, "int64"), known(0, 1)), outputs=(INDEX,)),
        Node(
            "OneHot", (Tensor((2,), "int64"), scalar(5, "int64"), known(0, 1, type="int32")), outputs=(("int32", None),)
        ),
    ),
    (
        Node("DequantizeLinear", (real(3, "int32"), scalar(0.1))),
        Node("DequantizeLinear", (real(3, "uint8"), scalar(0.1))),
    ),
    (Node("LSTM", RECURRENT, {**HIDDEN, "activations": ["Sigmoid", "Tanh", "Tanh"]}), Node("LSTM", RECURRENT, HIDDEN)),
    (
        Node("LSTM", (Tensor((2, 3, 5)), *RECURRENT[1:]), {**HIDDEN, "layout": 1}),
        Node("LSTM", RECURRENT, {**HIDDEN, "layout": 0}),
    ),
    (
        Node("Attention", (WORDS, WORDS, WORDS, Tensor((4, 4), "bool")), opset=23),
        Node("Attention", (WORDS, WORDS, WORDS, Tensor((4, 4))), opset=23),
    ),
    (
        Node("Attention", (WORDS, WORDS, WORDS, None, None, None, Tensor((1,), "int64")), opset=24),
        Node("Attention", (WORDS, WORDS, WORDS), opset=24),
    ),
    (
        Node("Attention", (WORDS, WORDS, WORDS), {"softmax_precision": TensorProto.FLOAT}, opset=23),
        Node("Attention", (WORDS, WORDS, WORDS), opset=23),
    ),
    (
        Node("NonMaxSuppression", (*BOXES, known(2)), {"center_point_box": 1}, (("int64", (2, 3)),)),
        Node("NonMaxSuppression", (*BOXES, known(2)), {}, (("int64", (2, 3)),)),
    ),
    (
        Node("NonMaxSuppression", (*BOXES, known(7)), {}, (("int64", (2, 3)),)),
        Node("NonMaxSuppression", (*BOXES, known(6)), {}, (("int64", (2, 3)),)),
    ),
    (
        Node(
            "STFT",
            (Tensor((1, 16, 1)), scalar(4, "int64"), weights(8, fixed="uint8")),
            {},
            (("float32", (1, 3, 5, 2)),),
            17,
        ),
        Node("STFT", (Tensor((1, 16, 1)), scalar(4, "int64"), weights(8)), {}, (("float32", (1, 3, 5, 2)),), 17),
    ),
)


def _names() -> list[str]:
    return [f"{i}-{refused.op}" for i, (refused, _) in enumerate(ROWS)]


@pytest.mark.parametrize(("refused", "free"), ROWS, ids=_names())
def test_a_limit_applies_where_it_says_and_nowhere_else(refused: Node, free: Node) -> None:
    reason = ep_refuses(*refused.unit())
    assert reason is not None
    assert reason.startswith(f"QNN EP {EP_VERSION} ")
    assert ep_refuses(*free.unit()) is None


def test_every_limit_has_a_sample() -> None:
    refused = set()
    for sample, _ in ROWS:
        unit, opset = sample.unit()
        subject = Subject(unit, opset)
        refused.update(row.reason for row in LIMITS.of(subject.op) if row.applies(subject))
    # QLinearConv is a unit of its own kind, GroupQueryAttention of another domain, If has bodies; samples are below
    left = {row.reason for row in LIMITS if "If" not in row.ops} - refused
    assert {reason.partition("; ")[0] for reason in left} <= {"weights computed at run time", "GroupQueryAttention"}


CONTROL_FLOW = {
    "If of own values": None,
    "If of own constants": None,
    "If of an outer initializer in one": "fails: a branch that reads a constant of the graph around",
    "If of an outer value and an outer initializer": "refuses it: branches that read a constant and a result",
    "If in an If that reads an outer initializer": "fails: a branch that reads a constant",
    "If of an outer computed value": None,
}
"""As the EP answers, of the models of `python -m benchmarks.placement --set "control flow"`."""


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_branches_that_read_constants_of_the_graph_around(name: str) -> None:
    model = next(model for known, _, model in control_flow.models() if known == f"{name}, opset 17")
    said = [ep_refuses(unit) for unit in units(read(model).ir) if unit.target.op_type == "If"]
    assert len(said) == 1
    wanted = CONTROL_FLOW[name]
    assert (said[0] is None) if wanted is None else wanted in (said[0] or "")


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize(("tokens", "past"), [(1, 7), (8, 0)])
def test_attention_of_grouped_queries_stays_with_the_cpu(kind: int, tokens: int, past: int) -> None:
    """As the EP leaves it in 20 forms: float32 and float16, one token and many, rotated, packed, without a past."""
    names = ["q", "k", "v", "pk" if past else "", "pv" if past else "", "seqlens", "total"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["o", "nk", "nv"], domain="com.microsoft", num_heads=4, kv_num_heads=2
    )
    shapes: dict[str, tuple[int, ...]] = {"q": (1, tokens, 64), "k": (1, tokens, 32), "v": (1, tokens, 32)}
    shapes |= {"pk": (1, 2, past, 16), "pv": (1, 2, past, 16)} if past else {}
    outputs = {"o": (1, tokens, 64), "nk": (1, 2, past + tokens, 16), "nv": (1, 2, past + tokens, 16)}
    graph = helper.make_graph(
        [node], "attention",
        [helper.make_tensor_value_info(n, kind, s) for n, s in shapes.items()],
        [helper.make_tensor_value_info(n, kind, s) for n, s in outputs.items()],
        [numpy_helper.from_array(np.array([past + tokens - 1], np.int32), "seqlens"),
         numpy_helper.from_array(np.array(past + tokens, np.int32), "total")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = read(helper.make_model(graph, opset_imports=opsets, ir_version=8))
    assert all("refuses it: GroupQueryAttention; write" in (ep_refuses(unit) or "") for unit in units(model.ir))


def test_a_quantized_convolution_op_needs_constant_weights() -> None:
    encoding = (scalar(0.1), scalar(0, "uint8"))
    inputs = (Tensor((1, 1, 7, 7), "uint8"), *encoding, Tensor((1, 1, 1, 1), "uint8"), *encoding, *encoding)
    computed = Node("QLinearConv", inputs, outputs=(("uint8", None),))
    assert "weights" in (ep_refuses(*computed.unit()) or "")
    stored = (*inputs[:3], Tensor((1, 1, 1, 1), "uint8", constant=True), *inputs[4:])
    assert ep_refuses(*Node("QLinearConv", stored, outputs=(("uint8", None),)).unit()) is None


def test_dynamic_quantization_is_refused_but_for_the_pattern_the_ep_fuses() -> None:
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["f", "s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 5))],
        [numpy_helper.from_array(np.ones((6, 5), np.uint8), "w")],
    )
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    assert not any(ep_refuses(unit) for unit in units(model.ir))
    bias = numpy_helper.from_array(np.ones(5, np.int32), "b")
    added = [nodes[0], nodes[1], helper.make_node("Add", ["i", "b"], ["j"])]
    added += [helper.make_node("Cast", ["j"], ["f"], to=TensorProto.FLOAT), nodes[3]]
    graph = helper.make_graph(added, "bias", graph.input, graph.output, [*graph.initializer, bias])
    model = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    refused = {unit.target.op_type for unit in units(model.ir) if ep_refuses(unit)}
    assert refused == {"DynamicQuantizeLinear", "MatMulInteger"}  # as the EP 2.7.0 leaves them with such a bias
    rounded_bias = parser.parse_model("""<ir_version: 10, opset_import: ["": 17]>
        g (float[1, 3, 8, 8] x, float[1, 4, 1, 1] b) => (float[1, 4, 6, 6] y) {
        q, s, z = DynamicQuantizeLinear(x) k = Mul(s, f) d = Div(b, k) r = Floor(d) c = Cast<to = 6>(r)
        i = ConvInteger(q, w, z, o) j = Add(i, c) t = Cast<to = 1>(j) y = Mul(t, k) }""")
    del rounded_bias.graph.input[1]
    constants = {"w": np.ones((4, 3, 3, 3), np.uint8), "o": np.uint8(1), "f": np.float32(0.1)}
    constants["b"] = np.ones((1, 4, 1, 1), np.float32)
    rounded_bias.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items())
    (joined,) = units(read(rounded_bias).ir)
    assert "dynamic quantization" in (ep_refuses(joined) or "")  # the OCR packages' way to add a bias
    alone = Node("DynamicQuantizeLinear", (real(2),), {}, (("uint8", None), ("float32", None), ("uint8", None)))
    assert "dynamic quantization" in (ep_refuses(*alone.unit()) or "")


def test_reasons_say_what_would_work() -> None:
    for row in LIMITS:
        assert ";" in row.reason, row.reason
        assert isinstance(row.refuser, Refuser)
        assert isinstance(row.evidence, Evidence)


def test_a_session_that_fails_is_told_from_a_refusal() -> None:
    failing, refusing = (ROWS[i][0] for i in (1, 0))
    assert " fails: " in (ep_refuses(*failing.unit()) or "")
    assert " refuses it: " in (ep_refuses(*refusing.unit()) or "")


def test_a_model_onnx_knows(tmp_path: Any) -> None:
    """Nothing of an ordinary float convolution net is refused."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["c"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2))],
        [numpy_helper.from_array(np.ones(s, np.float32), n) for n, s in {"w": (4, 3, 3, 3), "v": (4, 2)}.items()],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    assert [ep_refuses(unit, 17) for unit in units(read(path).ir)] == [None] * 6
