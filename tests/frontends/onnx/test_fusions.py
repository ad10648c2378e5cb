# SPDX-License-Identifier: Apache-2.0
"""Fusions: each is matched, gives what the separate ops give, and is left alone where it would swallow a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from hexforge.frontends.onnx.fusions.table import FUSED
from hexforge.frontends.onnx.placing import place
from hexforge.ir import Node
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.qdq import Made, Quant, placed, run

U8 = Quant("uint8", 0.05, 120)


def _const(made: Made, *values: Any) -> str:
    return made.constant(np.array(values[0] if len(values) == 1 else values, np.float32))


def _hard_swish(made: Made, x: str) -> str:
    return str(made.node("Mul", [x, made.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5)]))


def _gelu(order: int, divide: bool) -> Callable[[Made, str], str]:
    def make(made: Made, x: str) -> str:
        if divide:
            inner = made.node("Div", [x, _const(made, math.sqrt(2))])
        else:
            inner = made.node("Mul", [_const(made, math.sqrt(0.5)), x])
        plus = made.node("Add", [made.node("Erf", [inner]), _const(made, 1)])
        half = _const(made, 0.5)
        if order == 1:
            return str(made.node("Mul", [made.node("Mul", [x, plus]), half]))
        if order == 2:
            return str(made.node("Mul", [made.node("Mul", [x, half]), plus]))
        return str(made.node("Mul", [x, made.node("Mul", [half, plus])]))

    return make


def _softmax(op: str) -> Callable[[Made, str], str]:
    def make(made: Made, x: str) -> str:
        return str(made.node("Softmax", [made.node(op, [x, _const(made, 0.3)])], axis=-1))

    return make


def _layer_norm(made: Made, x: str, affine: bool = True, power: bool = True) -> str:
    axes = made.constant(np.array([-1], np.int64))
    centered = made.node("Sub", [x, made.node("ReduceMean", [x, axes])])
    square = made.node("Pow", [centered, _const(made, 2)]) if power else made.node("Mul", [centered, centered])
    variance = made.node("ReduceMean", [square, axes])
    root = made.node("Sqrt", [made.node("Add", [variance, _const(made, 1e-5)])])
    y = str(made.node("Div", [centered, root]))
    if affine:
        y = made.node("Mul", [y, made.constant(np.linspace(0.5, 2, 8, dtype=np.float32))])
        y = made.node("Add", [y, made.constant(np.linspace(-1, 1, 8, dtype=np.float32))])
    return y


def _group_norm(made: Made, x: str, affine: bool = True) -> str:
    scale, shift = made.constant(np.array([0.5, 2], np.float32)), made.constant(np.array([1, -1], np.float32))
    grouped = made.node("Reshape", [x, made.constant(np.array([0, 2, -1], np.int64))])
    y = made.node("InstanceNormalization", [grouped, scale, shift], epsilon=1e-3)
    y = str(made.node("Reshape", [y, made.constant(np.array([2, 6, 4, 3], np.int64))]))
    if affine:
        y = made.node("Mul", [y, made.constant(np.linspace(0.5, 2, 6, dtype=np.float32).reshape(6, 1, 1))])
        y = made.node("Add", [y, made.constant(np.linspace(-1, 1, 6, dtype=np.float32).reshape(1, 6, 1, 1))])
    return y


def _l2_norm(made: Made, x: str) -> str:
    norm = made.node("ReduceL2", [x, made.constant(np.array([1], np.int64))], keepdims=1)
    return str(made.node("Div", [x, made.node("Clip", [norm, _const(made, 1e-12)])]))


def _matmul_add(made: Made, x: str) -> str:
    weight = np.random.default_rng(3).standard_normal((8, 5)).astype(np.float32)
    return str(made.node("Add", [made.constant(np.arange(5, dtype=np.float32)),
                                 made.node("MatMul", [x, made.constant(weight)])]))  # fmt: skip


def _conv_norm(weight: tuple[int, ...], bias: bool = True, group: int = 1) -> Callable[[Made, str], str]:
    def make(made: Made, x: str) -> str:
        rng, count = np.random.default_rng(3), weight[0]
        inputs = [x, made.constant(rng.standard_normal(weight).astype(np.float32))]
        inputs += [made.constant(rng.standard_normal(count).astype(np.float32))] if bias else []
        parameters = [made.constant(rng.uniform(0.5, 2, count).astype(np.float32)) for _ in range(4)]
        y = made.node("Conv", inputs, group=group, pads=[1] * (2 * (len(weight) - 2)))
        return str(made.node("BatchNormalization", [y, *parameters], epsilon=1e-3))

    return make


def _conv_then(op: str, constant: tuple[int, ...], first: bool = False) -> Callable[[Made, str], str]:
    def make(made: Made, x: str) -> str:
        rng = np.random.default_rng(4)
        weight, values = (rng.standard_normal(size).astype(np.float32) for size in ((4, 3, 3, 3), constant))
        y, c = made.node("Conv", [x, made.constant(weight)], pads=[1] * 4), made.constant(np.asarray(values))
        return str(made.node(op, [c, y] if first else [y, c]))

    return make


def _reshape_gemm(made: Made, x: str) -> str:
    weight = np.random.default_rng(3).standard_normal((6, 24)).astype(np.float32)
    flat = made.node("Reshape", [x, made.constant(np.array([2, 24], np.int64))])
    return str(made.node("Gemm", [flat, made.constant(weight), made.constant(np.ones(6, np.float32))], transB=1))


def _moved(inner: tuple[int, ...], perm: tuple[int, ...], after: tuple[int, ...]) -> Callable[[Made, str], str]:
    def make(made: Made, x: str) -> str:
        y = made.node("Reshape", [x, made.constant(np.array(inner, np.int64))])
        return str(
            made.node("Reshape", [made.node("Transpose", [y], perm=perm), made.constant(np.array(after, np.int64))])
        )

    return make


def _gather(made: Made, x: str) -> str:
    y = made.node("Gather", [x, made.constant(np.array([[0, 2], [-1, 1]], np.int64))], axis=4)
    y = made.node("Transpose", [y], perm=[0, 4, 5, 1, 2, 3])
    return str(made.node("Reshape", [y, made.constant(np.array([4, -1], np.int64))]))


def _focus(order: list[tuple[int, int]], chained: bool) -> Callable[[Made, str], str]:
    def cut(made: Made, x: str, starts: list[int], axes: list[int]) -> str:
        many = len(axes)
        parts = (starts, [2**31 - 1] * many, axes, [2] * many)
        return str(made.node("Slice", [x, *(made.constant(np.array(p, np.int64)) for p in parts)]))

    def make(made: Made, x: str) -> str:
        cuts = [
            cut(made, cut(made, x, [h], [2]), [w], [3]) if chained else cut(made, x, [h, w], [2, 3]) for h, w in order
        ]
        return str(made.node("Concat", cuts, axis=1))

    return make


def _made(make: Callable[[Made, str], str], shape: tuple[int, ...]) -> tuple[Made, str]:
    made = Made()
    x = made.input("float32", shape)
    return made, make(made, x)


def _infer(made: Made, y: str) -> onnx.ModelProto:
    made.outputs.append(helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT, None))
    return onnx.shape_inference.infer_shapes(made.proto())


def _expected(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


ROWS, COLUMNS = [(0, 0), (0, 1), (1, 0), (1, 1)], [(0, 0), (1, 0), (0, 1), (1, 1)]
CASES: dict[str, tuple[str, Callable[[Made, str], str], tuple[int, ...], tuple[str, ...]]] = {
    "hard_swish": ("Activation", _hard_swish, (2, 3, 8), ("HardSwish",)),
    **{
        f"gelu_{order}_{divide}": ("Activation", _gelu(order, divide), (2, 3, 8), ("Gelu",))
        for order in (1, 2, 3)
        for divide in (True, False)
    },
    "softmax_mul": ("ScaledSoftmax", _softmax("Mul"), (2, 3, 8), ("Softmax",)),
    "softmax_div": ("ScaledSoftmax", _softmax("Div"), (2, 3, 8), ("Softmax",)),
    "layer_norm": ("LayerNorm", _layer_norm, (2, 3, 8), ("LayerNorm",)),
    "layer_norm_plain": ("LayerNorm", lambda m, x: _layer_norm(m, x, False, False), (2, 3, 8), ("LayerNorm",)),
    "group_norm": ("GroupNorm", _group_norm, (2, 6, 4, 3), ("Transpose", "GroupNorm", "Transpose")),
    "group_norm_plain": (
        "GroupNorm", lambda m, x: _group_norm(m, x, False), (2, 6, 4, 3), ("Transpose", "GroupNorm", "Transpose"),
    ),
    "l2_norm": ("L2Norm", _l2_norm, (2, 3, 8), ("L2Norm",)),
    "conv_norm": ("ScaledConv", _conv_norm((4, 3, 3, 3)), (1, 3, 5, 6), ("Transpose", "Conv2d", "Transpose")),
    "conv_norm_depthwise": (
        "ScaledConv", _conv_norm((6, 1, 3, 3), False, 6), (2, 6, 5, 4),
        ("Transpose", "DepthWiseConv2d", "Transpose"),
    ),
    "conv_norm_volume": (
        "ScaledConv", _conv_norm((4, 3, 3, 3, 3)), (1, 3, 4, 5, 4), ("Transpose", "Conv3d", "Transpose"),
    ),
    "conv_norm_line": (
        "ScaledConv", _conv_norm((4, 3, 3)), (1, 3, 8),
        ("Transpose", "Reshape", "Conv2d", "Reshape", "Transpose"),
    ),
    "conv_add": (
        "ScaledConv", _conv_then("Add", (1, 4, 1, 1)), (1, 3, 5, 6), ("Transpose", "Conv2d", "Transpose"),
    ),
    "conv_mul": ("ScaledConv", _conv_then("Mul", (4, 1, 1)), (1, 3, 5, 6), ("Transpose", "Conv2d", "Transpose")),
    "conv_mul_scalar": ("ScaledConv", _conv_then("Mul", ()), (1, 3, 5, 6), ("Transpose", "Conv2d", "Transpose")),
    "matmul_add": ("MatMulAdd", _matmul_add, (2, 3, 8), ("FullyConnected",)),
    "matmul_add_2d": ("MatMulAdd", _matmul_add, (3, 8), ("FullyConnected",)),
    "reshape_gemm": ("ReshapeGemm", _reshape_gemm, (2, 3, 2, 4), ("FullyConnected",)),
    "shuffle": (
        "SpaceMove", _moved((2, 3, 2, 4, 5), (0, 2, 1, 3, 4), (2, 6, 4, 5)), (2, 6, 4, 5),
        ("Transpose", "ChannelShuffle", "Transpose"),
    ),
    "shuffle_last": (
        "SpaceMove", _moved((2, 4, 5, 3, 2), (0, 1, 2, 4, 3), (2, 4, 5, 6)), (2, 4, 5, 6), ("ChannelShuffle",),
    ),
    "space_to_depth": (
        "SpaceMove", _moved((2, 3, 2, 2, 3, 2), (0, 3, 5, 1, 2, 4), (2, 12, 2, 3)), (2, 3, 4, 6),
        ("Transpose", "SpaceToDepth", "Transpose"),
    ),
    "space_to_depth_crd": (
        "SpaceMove", _moved((2, 3, 2, 2, 3, 2), (0, 1, 3, 5, 2, 4), (2, 12, 2, 3)), (2, 3, 4, 6),
        ("Transpose", "SpaceToDepth", "Transpose"),
    ),
    "space_to_depth_last": (
        "SpaceMove", _moved((2, 2, 2, 3, 2, 5), (0, 1, 3, 2, 4, 5), (2, 2, 3, 20)), (2, 4, 6, 5), ("SpaceToDepth",),
    ),
    "depth_to_space": (
        "SpaceMove", _moved((1, 2, 3, 5, 4, 3), (0, 3, 4, 1, 5, 2), (1, 5, 8, 9)), (1, 30, 4, 3),
        ("Transpose", "DepthToSpace", "Transpose"),
    ),
    "depth_to_space_crd": (
        "SpaceMove", _moved((1, 5, 2, 3, 4, 3), (0, 1, 4, 2, 5, 3), (1, 5, 8, 9)), (1, 30, 4, 3),
        ("Transpose", "DepthToSpace", "Transpose"),
    ),
    "depth_to_space_last": (
        "SpaceMove", _moved((2, 4, 3, 2, 2, 5), (0, 1, 3, 2, 4, 5), (2, 8, 6, 5)), (2, 4, 3, 20), ("DepthToSpace",),
    ),
    "rank_6": (
        "LowRank", _moved((2, 1, 3, 2, 4, 2), (0, 2, 4, 1, 5, 3), (2, 48)), (2, 3, 16),
        ("Reshape", "Transpose", "Reshape"),
    ),
    "gather": ("LowRank", _gather, (1, 2, 3, 4, 5), ("Gather", "Reshape", "Transpose", "Reshape")),
    **{
        f"focus_{name}_{chained}": (
            "Focus", _focus(order, chained), (1, 3, 4, 6), ("Transpose", "SpaceToDepth", "Transpose"),
        )
        for name, order in (("rows", ROWS), ("columns", COLUMNS))
        for chained in (True, False)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_fusion_gives_what_its_ops_give(name: str) -> None:
    kind, make, shape, ops = CASES[name]
    model = _infer(*_made(make, shape))
    feeds = {model.graph.input[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 2}
    found, placements = placed(model)
    assert [u.kind for u in found] == [kind]
    assert placements[0].taken, placements[0].reason
    assert placements[0].ops == ops
    assert len(found[0].nodes) == len(read(model).ir.graph)
    (got,), (want,) = run(model, feeds), _expected(model, feeds)
    # Processors sum in different orders: the tolerance is one of the largest number.
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6 * max(1.0, float(np.abs(want).max())))
    single = units(read(model).ir.graph, fuse=False)
    assert [u.kind for u in single] == ["node"] * len(single)


@pytest.mark.parametrize("name", CASES)
def test_no_fusion_swallows_an_output(name: str) -> None:
    _, make, shape, _ = CASES[name]
    made, y = _made(make, shape)
    inner = [o for n in made.nodes for o in n.output if o != y]
    for swallowed in {inner[0], inner[-1]}:
        again, last = _made(make, shape)
        again.outputs.append(helper.make_tensor_value_info(swallowed, onnx.TensorProto.FLOAT, None))
        model = _infer(again, last)
        found = units(read(model).ir.graph)
        kept = {o.value.name for u in found for o in u.outputs if o is not None}
        assert {swallowed, last} <= kept


def test_every_kind_of_fusion_has_a_case() -> None:
    assert {kind for kind, *_ in CASES.values()} | {"Convert", "CastConvert", "Dynamic"} == set(FUSED)


def test_a_refused_fusion_is_placed_as_its_parts() -> None:
    model = _infer(*_made(_hard_swish, (2, 3)))
    found = units(read(model).ir.graph)

    def no_hard_swish(node: Node) -> str | None:
        return "not here" if node.op.name == "HardSwish" else None

    placements = place(found, no_hard_swish)
    assert [(p.unit.kind, p.unit.op, p.taken) for p in placements] == [
        ("node", "HardSigmoid", True),
        ("node", "Mul", True),
    ]
    assert [p.unit for p in placements] == list(found[0].parts)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda m, x: m.node("Mul", [x, m.node("HardSigmoid", [x], alpha=0.2, beta=0.5)]), (2, 3)),
        (_moved((2, 3, 2, 4, 5), (0, 2, 1, 4, 3), (2, 6, 4, 5)), (2, 6, 4, 5)),
        (_focus([(0, 0), (1, 1), (0, 1), (1, 0)], False), (1, 3, 4, 6)),
        (_conv_then("Add", ()), (1, 3, 5, 6)),
        (_conv_then("Mul", (1,)), (1, 3, 5, 6)),
        (_conv_then("Add", (1, 4, 1, 1), first=True), (1, 3, 5, 6)),
    ],
)
def test_what_only_looks_alike_is_left(make: Callable[[Made, str], str], shape: tuple[int, ...]) -> None:
    model = _infer(*_made(make, shape))
    feeds = {model.graph.input[0].name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    assert {u.kind for u in units(read(model).ir.graph)} == {"node"}
    np.testing.assert_allclose(run(model, feeds)[0], _expected(model, feeds)[0], rtol=1e-5, atol=1e-6)


def test_tanh_gelu_keeps_its_own_numbers() -> None:
    made = Made()
    x = made.input("float32", (2, 3))
    cube = made.node("Mul", [made.node("Pow", [x, _const(made, 3)]), _const(made, 0.044715)])
    inner = made.node("Mul", [made.node("Add", [x, cube]), _const(made, math.sqrt(2 / math.pi))])
    plus = made.node("Add", [made.node("Tanh", [inner]), _const(made, 1)])
    model = _infer(made, made.node("Mul", [made.node("Mul", [x, plus]), _const(made, 0.5)]))
    assert {u.kind for u in units(read(model).ir.graph)} == {"node"}


def _quantized(make: Callable[[Made, str], str], shape: tuple[int, ...], out: Quant) -> tuple[Made, str]:
    made = Made()
    x = made.dequantize(made.input("uint8", shape), U8)
    y = made.quantize(make(made, x), out)
    made.outputs.append(helper.make_tensor_value_info(y, onnx.TensorProto.UINT8, None))
    return made, y


@pytest.mark.parametrize("name", ["hard_swish", "gelu_1_True", "softmax_mul", "l2_norm", "layer_norm_plain"])
def test_a_dequantize_before_and_a_quantize_after_are_taken_in(name: str) -> None:
    kind, make, shape, ops = CASES[name]
    made, _ = _quantized(make, shape, Quant("uint8", 0.02, 60))
    model = onnx.shape_inference.infer_shapes(made.proto())
    found, placements = placed(model)
    assert [(u.kind, p.ops) for u, p in zip(found, placements, strict=True)] == [(kind, ops)]
    assert found[0].quantized
    feeds = {made.inputs[0].name: np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)}
    (got,), (want,) = run(model, feeds), _expected(model, feeds)
    assert np.abs(got.astype(int) - want).max() <= 1
    assert (got == want).mean() > 0.95


def test_a_quantize_between_the_ops_keeps_them_apart() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 3)), U8)
    gate = made.quantize(made.node("HardSigmoid", [x], alpha=1 / 6, beta=0.5), Quant("uint8", 1 / 255, 0))
    y = made.node("Mul", [x, made.dequantize(gate, Quant("uint8", 1 / 255, 0))])
    made.output(made.quantize(y, U8), "uint8", (2, 3))
    assert [u.kind for u in placed(made.proto())[0]] == ["qdq", "qdq"]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("zero", [0, 90])
def test_matmul_add_relu_between_dequantize_and_quantize(relu: bool, zero: int) -> None:
    rng = np.random.default_rng(0)
    made = Made()
    x = made.dequantize(made.input("uint8", (4, 8)), U8)
    weight = Quant("int8", np.array([0.01, 0.02, 0.03, 0.04, 0.05], np.float32), np.zeros(5), axis=1)
    w = made.dequantize(made.constant(rng.integers(-127, 128, (8, 5)).astype(np.int8)), weight)
    bias = Quant("int32", np.float32(0.05) * np.asarray(weight.scale, np.float32), np.zeros(5), axis=0)
    b = made.dequantize(made.constant(rng.integers(-900, 900, 5).astype(np.int32)), bias)
    y = made.node("Add", [made.node("MatMul", [x, w]), b])
    out = Quant("uint8", 0.3, zero)
    made.output(made.quantize(made.node("Relu", [y]) if relu else y, out), "uint8", (4, 5))
    model = onnx.shape_inference.infer_shapes(made.proto())
    found, placements = placed(model)
    assert [u.kind for u in found] == ["MatMulAdd"]
    assert placements[0].ops == ("FullyConnected", *(("ReluMinMax",) if relu and zero else ()))
    feeds = {made.inputs[0].name: rng.integers(0, 256, (4, 8)).astype(np.uint8)}
    assert np.abs(run(model, feeds)[0].astype(int) - _expected(model, feeds)[0]).max() <= 1


def test_dequantize_to_quantize_is_a_convert() -> None:
    made = Made()
    x = made.input("uint8", (2, 128))
    made.output(made.quantize(made.dequantize(x, U8), Quant("uint16", 0.0004, 21000)), "uint16", (2, 128))
    found, placements = placed(made.proto())
    assert [(u.kind, p.ops) for u, p in zip(found, placements, strict=True)] == [("Convert", ("Convert",))]
    data = np.arange(256, dtype=np.uint8).reshape(2, 128)
    (got,) = run(made.proto(), {x: data})
    exact = (data.astype(np.float64) - 120) * np.float32(0.05) / np.float32(0.0004) + 21000
    assert np.abs(got - np.clip(exact, 0, 65535)).max() <= 0.501


@pytest.mark.parametrize("name", ["shuffle", "space_to_depth", "rank_6"])
def test_quantized_units_that_move_data_are_fused_where_their_encodings_are_equal(name: str) -> None:
    kind, make, shape, ops = CASES[name]
    for quant in (U8, Quant("uint8", 0.1, 120)):
        made, _ = _made(make, shape)
        made.inputs[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
        nodes, made.nodes = made.nodes, []
        value = made.inputs[0].name
        for i, node in enumerate(nodes):
            real = made.dequantize(value, U8 if i < 2 else quant)
            node.input[0] = real
            made.nodes.append(node)
            value = made.quantize(node.output[0], U8 if i < 1 else quant)
        made.outputs.append(helper.make_tensor_value_info(value, onnx.TensorProto.UINT8, None))
        model = onnx.shape_inference.infer_shapes(made.proto())
        found, placements = placed(model)
        kinds = [u.kind for u in found]
        assert all(p.taken for p in placements)
        if quant is U8:
            assert kinds == [kind]
            assert placements[0].ops == ops
        else:
            assert kind not in kinds
        feeds = {made.inputs[0].name: np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)}
        np.testing.assert_array_equal(run(model, feeds)[0], _expected(model, feeds)[0])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_a_cast_before_a_quantize_is_a_convert(dtype: str) -> None:
    made = Made()
    x = made.input(dtype, (2, 128))
    real = made.node("Cast", [x], to=onnx.TensorProto.FLOAT)
    made.output(made.quantize(real, Quant("uint8", 0.7, 31)), "uint8", (2, 128))
    found, placements = placed(onnx.shape_inference.infer_shapes(made.proto()))
    assert [(u.kind, p.ops) for u, p in zip(found, placements, strict=True)] == [("CastConvert", ("Convert",))]
    info = np.iinfo(dtype)
    data = np.linspace(max(info.min, -300), min(info.max, 300), 256).astype(dtype).reshape(2, 128)
    model = onnx.shape_inference.infer_shapes(made.proto())
    np.testing.assert_array_equal(run(model, {x: data})[0], _expected(model, {x: data})[0])


def test_a_cast_that_others_read_too_is_left() -> None:
    made = Made()
    x = made.input("uint8", (2, 8))
    real = made.node("Cast", [x], to=onnx.TensorProto.FLOAT)
    made.output(made.quantize(real, Quant("uint8", 0.7, 31)), "uint8", (2, 8))
    made.output(made.node("Abs", [real]), "float32", (2, 8))
    assert {u.kind for u in placed(onnx.shape_inference.infer_shapes(made.proto()))[0]} == {"node"}


def _dynamic(
    weights: list[np.ndarray], scales: list[np.ndarray], extra: str = "", shape: tuple[int, ...] = (), **how: int
) -> tuple[onnx.ModelProto, str]:
    """Products of one input that is quantized at run time, as onnxruntime's quantizer writes them."""
    made = Made()
    conv = weights[0].ndim >= 4
    shape = shape or ((1, 3, 6, 6) if conv else (2, 5, 8))
    x = made.input("float32", shape)
    made.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "s", "z"], "dynamic"))
    for i, (weight, scale) in enumerate(zip(weights, scales, strict=True)):
        zero = made.constant(np.asarray(3, weight.dtype))
        steps = made.node("Mul", ["s", made.constant(scale)])
        product = made.node("ConvInteger" if conv else "MatMulInteger", ["q", made.constant(weight), "z", zero], **how)  # type: ignore[arg-type]
        real = made.node("Mul", [made.node("Cast", [product], to=onnx.TensorProto.FLOAT), steps])
        made.outputs.append(helper.make_tensor_value_info(real, onnx.TensorProto.FLOAT, None))
        assert i < 3
    if extra:
        made.outputs.append(helper.make_tensor_value_info(extra, onnx.TensorProto.UINT8, None))
    return onnx.shape_inference.infer_shapes(made.proto()), x


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("conv", [False, True])
def test_products_of_an_input_quantized_at_run_time_are_real_ones(dtype: str, channels: bool, conv: bool) -> None:
    random = np.random.default_rng(0)
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    weights = [random.integers(low, high, (4, 3, 3, 3) if conv else (8, 4)).astype(dtype) for _ in range(2)]
    size = ((4, 1, 1) if conv else (4,)) if channels else ()
    scales = [np.asarray(random.uniform(0.01, 0.02, size), np.float32) for _ in range(2)]
    model, x = _dynamic(weights, scales)
    found, placements = placed(model)
    assert [u.kind for u in found] == ["Dynamic"]
    assert placements[0].taken, placements[0].reason
    data = random.standard_normal((1, 3, 6, 6) if conv else (2, 5, 8)).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    rounded = session.run(None, {x: data})
    for got, weight, scale, near in zip(run(model, {x: data}), weights, scales, rounded, strict=True):
        real = (weight.astype(np.float64) - 3) * scale.reshape((-1, 1, 1, 1) if conv and channels else scale.shape)
        if conv:
            windows = np.lib.stride_tricks.sliding_window_view(data[0].astype(np.float64), (3, 3), (1, 2))
            want = np.einsum("chwij,ocij->ohw", windows, real)[None]
        else:
            want = data.astype(np.float64) @ real
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
        assert np.abs(got - near).max() < 0.05 * np.abs(want).max()  # by the rounding of the input that is left out


@pytest.mark.parametrize(
    ("weight", "shape", "group", "op"),
    [
        ((4, 1, 3, 3), (1, 4, 6, 6), 4, "DepthWiseConv2d"),
        ((4, 2, 2, 2, 2), (1, 2, 4, 4, 4), 1, "Conv3d"),
        ((2, 8, 4), (2, 5, 8), 0, "MatMul"),
    ],
)
def test_other_products_of_such_an_input(weight: tuple[int, ...], shape: tuple[int, ...], group: int, op: str) -> None:
    random = np.random.default_rng(0)
    how = {"group": group} if group else {}
    model, x = _dynamic(
        [random.integers(-128, 128, weight).astype(np.int8)],
        [np.array(0.02, np.float32)],
        shape=shape,
        **how,  # type: ignore[arg-type]
    )
    found, placements = placed(model)
    assert [u.kind for u in found] == ["Dynamic"]
    assert op in placements[0].ops
    data = random.standard_normal(shape).astype(np.float32)
    (got,), want = run(model, {x: data}), ReferenceEvaluator(model).run(None, {x: data})[0]  # type: ignore[index]
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_codes_that_something_else_reads_keep_the_dynamic_quantization() -> None:
    model, _ = _dynamic([np.ones((8, 4), np.int8)], [np.array(0.1, np.float32)], extra="q")
    assert {u.kind for u in placed(model)[0]} == {"node"}


def test_what_is_quantized_at_run_time_and_back_is_itself() -> None:
    made = Made()
    x = made.input("float32", (2, 8))
    made.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "s", "z"], "dynamic"))
    made.output(made.node("DequantizeLinear", ["q", "s", "z"]), "float32", (2, 8))
    model = onnx.shape_inference.infer_shapes(made.proto())
    assert [u.kind for u in placed(model)[0]] == ["Dynamic"]
    data = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
    np.testing.assert_array_equal(run(model, {x: data})[0], data)
