# SPDX-License-Identifier: Apache-2.0
"""Node units: the selectors of the QDQ table, what breaks a group, and whole models made by onnxruntime's quantizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model

from hexforge.errors import ModelError
from hexforge.frontends.onnx.unit import Unit
from hexforge.ir import AxisScaleOffset, Block, BlockwiseExpansion, ScaleOffset
from hexforge.model.op_table import ROWS
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.qdq import CONTRIB, Made, Quant, numpy_type, placed, run

U8 = Quant("uint8", 0.1, 3)
I8 = Quant("int8", 0.1, -3)
OTHER = Quant("uint8", 0.2, 3)


def _kinds(model: onnx.ModelProto, **options: Any) -> list[tuple[str, str]]:
    return [(u.kind, u.op) for u in placed(model, **options)[0]]


def _unary(made: Made, op: str, before: Quant = U8, after: Quant = U8, shape: tuple[int, ...] = (2, 3)) -> str:
    x = made.dequantize(made.input(before.dtype, shape), before)
    y = made.quantize(made.node(op, [x]), after)
    made.output(y, after.dtype, shape)
    return y


def test_no_op_is_in_two_rows() -> None:
    ops = [op for names, _ in ROWS for op in names.split()]
    assert len(ops) == len(set(ops))


@pytest.mark.parametrize("domain", ["", CONTRIB])
@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
def test_a_group_of_either_domain_and_any_opset(domain: str, opset: int) -> None:
    made = Made(opset, domain)
    _unary(made, "Sigmoid")
    (unit,) = placed(made.proto())[0]
    assert (unit.kind, unit.op) == ("qdq", "Sigmoid")
    assert [n.op_type for n in unit.nodes] == ["DequantizeLinear", "Sigmoid", "QuantizeLinear"]
    assert unit.inputs[0] is not None
    assert unit.inputs[0].encoding == ScaleOffset(float(np.float32(0.1)), -3)
    assert unit.inputs[0].value.name == made.inputs[0].name


def test_a_missing_zero_point_is_uint8_zero_or_of_the_output_type() -> None:
    made = Made(21)
    _unary(made, "Relu", Quant("uint8", 0.1, None), Quant("uint8", 0.1, None))
    assert _kinds(made.proto()) == [("qdq", "Relu")]
    made = Made(21)
    x = made.dequantize(made.input("int16", (2, 3)), Quant("int16", 0.1, None))
    relu = made.node("Relu", [x])
    scale = made.constant(np.float32(0.1))
    y = made.node("QuantizeLinear", [relu, scale], output_dtype=TensorProto.INT16)
    made.output(y, "int16", (2, 3))
    (unit,) = placed(made.proto())[0]
    assert unit.kind == "qdq"
    assert unit.outputs[0] is not None
    assert unit.outputs[0].encoding == ScaleOffset(float(np.float32(0.1)), 0)


def test_other_types_break_a_group() -> None:
    made = Made()
    _unary(made, "Sigmoid", U8, I8)
    assert [k for k, _ in _kinds(made.proto())] == ["node"] * 3


def test_data_movement_needs_one_encoding() -> None:
    made = Made()
    _unary(made, "Flatten", U8, OTHER)
    assert [k for k, _ in _kinds(made.proto())] == ["node"] * 3
    made = Made()
    _unary(made, "Flatten", U8, U8)
    assert _kinds(made.proto()) == [("qdq", "Flatten")]


def test_a_target_that_is_a_graph_output_is_not_grouped() -> None:
    made = Made()
    _unary(made, "Relu")
    made.output("relu6", "float32", (2, 3))
    assert "relu6" in [o for n in made.nodes for o in n.output]
    assert [k for k, _ in _kinds(made.proto())] == ["node"] * 3


def test_two_readers_of_a_target_are_not_grouped() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 3)), U8)
    relu = made.node("Relu", [x])
    for quant in (U8, OTHER):
        made.output(made.quantize(relu, quant), "uint8", (2, 3))
    assert sorted(_kinds(made.proto())) == [
        ("node", "DequantizeLinear"), ("node", "QuantizeLinear"), ("node", "QuantizeLinear"), ("node", "Relu"),
    ]  # fmt: skip


def test_a_shared_dequantize_is_copied_for_each_unit() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 3)), U8)
    for op in ("Relu", "Sigmoid", "Tanh"):
        made.output(made.quantize(made.node(op, [x]), U8), "uint8", (2, 3))
    made.output(x, "float32", (2, 3))
    found, placements = placed(made.proto())
    assert sorted((u.kind, u.op) for u in found) == [
        ("node", "DequantizeLinear"), ("qdq", "Relu"), ("qdq", "Sigmoid"), ("qdq", "Tanh"),
    ]  # fmt: skip
    nodes = [n for u in found for n in u.nodes]
    assert len(nodes) == len(set(nodes)) == 10
    assert all(p.taken for p in placements)
    feeds = {made.inputs[0].name: np.arange(6, dtype=np.uint8).reshape(2, 3)}
    relu, *_, real = run(made.proto(), feeds)
    np.testing.assert_allclose(real, (np.arange(6).reshape(2, 3) - 3) * np.float32(0.1), rtol=1e-6)
    np.testing.assert_array_equal(relu, np.maximum(np.arange(6), 3).reshape(2, 3))


def test_one_dequantize_read_twice_by_one_target() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 3)), U8)
    made.output(made.quantize(made.node("Mul", [x, x]), U8), "uint8", (2, 3))
    (unit,) = placed(made.proto())[0]
    assert [n.op_type for n in unit.nodes] == ["DequantizeLinear", "Mul", "QuantizeLinear"]


@pytest.mark.parametrize(("clip", "zero", "expected"), [("Relu", 0, ()), ("Relu", 128, ("ReluMinMax",))])
def test_a_clip_before_the_quantize_belongs_to_the_unit(clip: str, zero: int, expected: tuple[str, ...]) -> None:
    made = Made()
    quant = Quant("uint8", 0.1, zero)
    a, b = (made.dequantize(made.input("uint8", (2, 3)), U8) for _ in range(2))
    y = made.quantize(made.node(clip, [made.node("Add", [a, b])]), quant)
    made.output(y, "uint8", (2, 3))
    (unit,), (placement,) = placed(made.proto())
    assert (unit.kind, unit.op, unit.clip and unit.clip.op_type) == ("qdq", "Add", clip)
    assert placement.ops == ("ElementWiseAdd", *expected)


def test_a_clip_with_run_time_bounds_does_not() -> None:
    made = Made()
    a, b = (made.dequantize(made.input("uint8", (2, 3)), U8) for _ in range(2))
    low = made.input("float32", ())
    made.output(made.quantize(made.node("Clip", [made.node("Add", [a, b]), low]), U8), "uint8", (2, 3))
    assert all(k == "node" for k, _ in _kinds(made.proto()))


def _gemm(made: Made, bias: np.ndarray | None, quant: Quant | None, out: Quant | None, beta: float = 1.0) -> None:
    x = made.dequantize(made.input("uint8", (2, 4)), U8)
    w = made.dequantize(made.constant(np.ones((4, 3), np.int8)), Quant("int8", 0.1))
    inputs = [x, w]
    if bias is not None:
        name = made.constant(bias)
        inputs.append(name if quant is None else made.dequantize(name, quant))
    y = made.node("Gemm", inputs, beta=beta)
    made.output(y if out is None else made.quantize(y, out), "float32" if out is None else out.dtype, (2, 3))


@pytest.mark.parametrize("out", [None, U8])
@pytest.mark.parametrize("bias", [None, np.ones(3, np.int32), np.ones(3, np.float32)])
def test_gemm_with_and_without_bias_and_quantize(bias: np.ndarray | None, out: Quant | None) -> None:
    made = Made()
    _gemm(made, bias, Quant("int32", 0.01) if bias is not None and bias.dtype == np.int32 else None, out)
    assert _kinds(made.proto()) == [("qdq", "Gemm")]


def test_gemm_with_another_beta_or_bias_type_is_not_grouped() -> None:
    for bias, quant, beta in ((np.ones(3, np.int32), Quant("int32", 0.01), 0.5), (np.ones(3, np.uint8), U8, 1.0)):
        made = Made()
        _gemm(made, bias, quant, U8, beta)
        assert ("node", "Gemm") in _kinds(made.proto())


def test_signed_activations_need_a_signed_weight() -> None:
    for dtype, kind in (("int8", "qdq"), ("uint8", "node")):
        made = Made()
        x = made.dequantize(made.input("int8", (2, 4)), I8)
        w = made.dequantize(made.constant(np.ones((4, 3), dtype)), Quant(dtype, 0.1))
        made.output(made.quantize(made.node("MatMul", [x, w]), I8), "int8", (2, 3))
        assert (kind, "MatMul") in _kinds(made.proto())


def test_matmul_without_quantize_is_not_grouped() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 4)), U8)
    w = made.dequantize(made.constant(np.ones((4, 3), np.int8)), Quant("int8", 0.1))
    made.output(made.node("MatMul", [x, w]), "float32", (2, 3))
    assert sorted(k for k, _ in _kinds(made.proto())) == ["node"] * 3


def _weights(quant: Quant, shape: tuple[int, int] = (8, 3)) -> Unit:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, shape[0])), U8)
    integers = np.arange(shape[0] * shape[1]).reshape(shape) % 7
    w = made.dequantize(made.constant(integers.astype(np.int8).astype(numpy_type(quant.dtype))), quant)
    made.output(made.quantize(made.node("MatMul", [x, w]), U8), "uint8", (2, shape[1]))
    (unit,), (placement,) = placed(made.proto())
    assert placement.taken, placement.reason
    return unit


def test_weights_per_axis_blocked_and_of_four_bits() -> None:
    weight = _weights(Quant("int8", np.array([0.1, 0.2, 0.3], np.float32), np.zeros(3), axis=1)).inputs[1]
    assert weight is not None
    assert isinstance(weight.encoding, AxisScaleOffset)
    blocked = np.full((4, 3), 0.25, np.float32)
    weight = _weights(Quant("int4", blocked, np.zeros((4, 3)), axis=0, block=2)).inputs[1]
    assert weight is not None
    assert weight.encoding == Block((2, 1), (0.25,) * 12, (0,) * 12)
    assert _weights(Quant("int16", 0.01)).kind == "qdq"


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
@pytest.mark.parametrize("folded", [False, True])
def test_scales_that_are_quantized_themselves_are_blockwise_expansion(op: str, folded: bool) -> None:
    made = Made(21)
    x = made.dequantize(made.input("uint16", (2, 8)), Quant("uint16", 0.01, 100))
    steps, per_channel = np.array([[1, 2, 3], [4, 5, 16]], np.uint8), np.array([0.1, 0.2, 0.3], np.float32)
    weight = np.arange(24).reshape(8, 3) % 15 - 7
    real = weight * np.repeat(steps * per_channel, 4, axis=0)
    flip = op == "Gemm"
    scale = Quant("uint8", per_channel, np.zeros(3), axis=0 if flip else 1)
    scales = made.dequantize(made.constant(steps.T if flip else steps), scale)
    blocks = {"axis": 1 if flip else 0, "block_size": 4}
    stored = real.astype(np.float32) if folded else weight.astype(numpy_type("int4"))
    w = made.constant(stored.T if flip else stored)
    if folded:
        zero = np.zeros((3, 2) if flip else (2, 3), np.int8).astype(numpy_type("int4"))
        w = made.node("QuantizeLinear", [w, scales, made.constant(zero)], **blocks)  # type: ignore[arg-type]
    w = made.node("DequantizeLinear", [w, scales], **blocks)  # type: ignore[arg-type]
    y = made.node(op, [x, w], **({"transB": 1} if flip else {}))  # type: ignore[arg-type]
    made.output(made.quantize(y, Quant("uint16", 0.02, 30000)), "uint16", (2, 3))
    (unit,), (placement,) = placed(made.proto())
    assert placement.taken, placement.reason
    operand = unit.inputs[1]
    assert operand is not None
    assert isinstance(operand.encoding, BlockwiseExpansion)
    assert operand.encoding.axis == (0 if flip else 1)
    assert operand.encoding.block_scales == (1, 4, 2, 5, 3, 16)
    assert len(unit.nodes) == 5
    data = np.random.default_rng(0).integers(0, 65536, (2, 8)).astype(np.uint16)
    (got,) = run(made.proto(), {made.inputs[0].name: data})
    exact = (data.astype(np.float64) - 100) * np.float32(0.01) @ real / np.float32(0.02) + 30000
    assert np.abs(got - np.clip(exact, 0, 65535)).max() <= 0.51


def test_the_tensors_of_qlinear_ops_carry_their_encodings() -> None:
    made = Made()
    x = made.input("uint8", (1, 2, 4, 4))

    def linear(scale: Any, zero: Any) -> list[str]:
        return [made.constant(np.float32(scale)), made.constant(zero)]

    w = made.constant(np.arange(54).reshape(3, 2, 3, 3).astype(np.int8))
    y = made.node(
        "QLinearConv",
        [x, *linear(0.1, np.uint8(3)), w, *linear([0.1, 0.2, 0.3], np.zeros(3, np.int8)), *linear(3, np.uint8(7))],
    )
    made.output(made.dequantize(y, Quant("uint8", 3.0, 7)), "float32", (1, 3, 2, 2))
    found, placements = placed(made.proto())
    assert all(p.taken for p in placements), [p.reason for p in placements]
    conv = found[0]
    encodings = [None if o is None else o.encoding for o in (conv.inputs[0], conv.inputs[3], conv.outputs[0])]
    assert encodings[0] == ScaleOffset(float(np.float32(0.1)), -3)
    assert isinstance(encodings[1], AxisScaleOffset)
    assert encodings[1].axis == 0
    assert encodings[2] == ScaleOffset(3.0, -7)
    run(made.proto(), {x: np.zeros((1, 2, 4, 4), np.uint8)})


def test_quantize_of_a_constant_is_a_constant() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (2, 3)), U8)
    w = made.dequantize(made.quantize(made.constant(np.array([0.5, -0.2, 30], np.float32)), U8), U8)
    made.output(made.quantize(made.node("Add", [x, w]), U8), "uint8", (2, 3))
    (unit,) = placed(made.proto())[0]
    weight = unit.inputs[1]
    assert weight is not None
    assert weight.value.const_value is not None
    np.testing.assert_array_equal(weight.value.const_value.numpy(), np.array([8, 1, 255], np.uint8))


@pytest.mark.parametrize(
    ("scale", "zero", "reason"),
    [(np.nan, 0, "not a positive finite number"), (0.0, 0, "not a positive"), (-1.0, 0, "not a positive")],
)
def test_a_bad_scale_is_refused_with_its_reason(scale: float, zero: int, reason: str) -> None:
    made = Made()
    _unary(made, "Relu", Quant("uint8", scale, zero), U8)
    found, placements = placed(made.proto())
    assert [(u.kind, u.op) for u in found] == [
        ("node", "DequantizeLinear"), ("node", "Relu"), ("node", "QuantizeLinear"),
    ]  # fmt: skip
    assert reason in (placements[0].reason or "")
    assert placements[1].taken


def test_a_scale_computed_at_run_time_is_refused() -> None:
    made = Made()
    scale = made.input("float32", (), "scale")
    x = made.node("DequantizeLinear", [made.input("uint8", (2, 3)), scale])
    made.output(made.quantize(made.node("Relu", [x]), U8), "uint8", (2, 3))
    _, placements = placed(made.proto())
    assert "run time" in (placements[0].reason or "")


def test_offloading_leaves_input_and_output_quantization_to_the_cpu() -> None:
    made = Made()
    x = made.input("float32", (2, 3))
    y = made.dequantize(made.quantize(x, U8), U8)
    z = made.dequantize(made.quantize(made.node("Sigmoid", [y]), U8), U8)
    made.output(z, "float32", (2, 3))
    assert all(p.taken for p in placed(made.proto())[1])
    _, placements = placed(made.proto(), offload_io_quantization=True)
    assert [(p.unit.op, p.taken) for p in placements] == [
        ("QuantizeLinear", False), ("Sigmoid", True), ("DequantizeLinear", False),
    ]  # fmt: skip
    assert "offload_graph_io_quantization" in (placements[0].reason or "")


def test_a_tensor_used_with_two_encodings_is_refused_once() -> None:
    made = Made()
    x = made.input("uint8", (2, 3))
    for quant in (U8, OTHER):
        made.output(made.quantize(made.node("Relu", [made.dequantize(x, quant)]), U8), "uint8", (2, 3))
    _, placements = placed(made.proto())
    assert [p.taken for p in placements] == [True, False]
    assert "two different encodings" in (placements[1].reason or "")


def test_unnamed_outputs_and_optional_inputs_stay_absent() -> None:
    made = Made()
    x = made.dequantize(made.input("uint8", (1, 2, 4, 4)), U8)
    y = made.node("Resize", [x, "", made.constant(np.array([1, 1, 2, 2], np.float32))], mode="nearest")
    made.output(made.quantize(y, U8), "uint8", (1, 2, 8, 8))
    (unit,) = placed(made.proto())[0]
    assert unit.kind == "qdq"
    assert unit.inputs[1] is None


def test_a_cycle_is_an_error() -> None:
    a, b = onnx_ir.Value(name="a"), onnx_ir.Value(name="b")
    nodes = [onnx_ir.Node("", "Relu", [a], outputs=[b]), onnx_ir.Node("", "Relu", [b], outputs=[a])]
    graph = onnx_ir.Graph([], [b], nodes=nodes, opset_imports={"": 21}, name="ring")
    with pytest.raises(ModelError, match="cycle"):
        units(graph)


class _Samples(CalibrationDataReader):
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._left = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)]

    def get_next(self) -> dict[str, np.ndarray] | None:
        return self._left.pop() if self._left else None


def _conv_net(path: Path) -> None:
    rng = np.random.default_rng(0)

    def tensor(name: str, *shape: int) -> onnx.TensorProto:
        return onnx.numpy_helper.from_array((rng.standard_normal(shape) / 3).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], pads=[1, 1, 1, 1], group=4),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("Mul", ["c2", "s2"], ["m2"]),
        helper.make_node("Add", ["m2", "p1"], ["a2"]),
        helper.make_node("GlobalAveragePool", ["a2"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [tensor("w1", 4, 3, 3, 3), tensor("b1", 4), tensor("w2", 4, 1, 3, 3), tensor("b2", 4), tensor("w3", 5, 4),
         tensor("b3", 5)],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.mark.parametrize(
    ("activation", "weight", "per_channel"),
    [
        (QuantType.QUInt8, QuantType.QUInt8, False),
        (QuantType.QUInt16, QuantType.QUInt8, False),
        (QuantType.QUInt8, QuantType.QInt8, True),
        (QuantType.QInt8, QuantType.QInt8, False),
        (QuantType.QUInt16, QuantType.QInt8, True),
    ],
    ids=lambda v: str(v),
)
def test_a_net_from_onnxruntimes_quantizer(
    tmp_path: Path, activation: QuantType, weight: QuantType, per_channel: bool
) -> None:
    _conv_net(tmp_path / "net.onnx")
    source = tmp_path / "net.onnx"
    if qnn_preprocess_model(source, tmp_path / "pre.onnx"):
        source = tmp_path / "pre.onnx"
    config = get_qnn_qdq_config(
        source, _Samples(), activation_type=activation, weight_type=weight, per_channel=per_channel
    )
    quantize(source, tmp_path / "qdq.onnx", config)
    model = onnx.load(tmp_path / "qdq.onnx")
    found, placements = placed(model)
    assert all(p.taken for p in placements), [p.reason for p in placements]
    by_kind = {u.op: u.kind for u in found if u.target.op_type[-6:] != "Linear"}
    assert set(by_kind.values()) == {"qdq"}, by_kind
    graph = read(model).ir.graph
    again = units(graph)
    nodes = [n for u in again for n in u.nodes]
    assert len(nodes) == len(set(nodes)) == len(list(graph))

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feeds = {"x": np.random.default_rng(2).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    (want,), (got,) = session.run(None, feeds), run(model, feeds)
    last = next(u for u in reversed(found) if u.kind == "qdq").outputs[0]
    assert last is not None
    assert isinstance(last.encoding, ScaleOffset)
    assert np.abs(got - want).max() <= 1.01 * last.encoding.scale
