# SPDX-License-Identifier: Apache-2.0
"""Written models: every op is one unit, onnxruntime and our backend agree, and little is lost."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import ModelError
from hexforge.ir import AxisScaleOffset, BlockwiseExpansion, DType, ScaleOffset
from hexforge.model.op_table import OPS
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.fold import fold
from hexforge.quant.write import bias_fixed, write
from tests.frontends.onnx.parts import units
from tests.quant.graphs import CASES, emulated, model, quantized, reference, samples, single, sqnr_db, step, stray


def test_every_rule_has_a_case() -> None:
    assert sorted(CASES) == sorted(op for op, row in OPS.items() if row.writable)


@pytest.mark.parametrize("op", sorted(CASES))
def test_one_op(op: str) -> None:
    case = CASES[op]
    proto = single(op, case)
    float_model = read(proto).ir
    feeds = samples(float_model, 6, low=case.low, high=case.high)
    exact = [reference(proto, f) for f in feeds]
    losses = {}
    for text in ("w8a8", "w16a16"):
        plan, data = quantized(float_model, text, feeds)
        assert set(plan.floats) == ({op} if op == "Log" else set())  # a logarithm needs the digits of small numbers
        assert not stray(data), [u.target.name for u in stray(data)]
        found = [reference(data, f) for f in feeds]
        for f, expected in zip(feeds[:2], found, strict=False):
            for name, ours, theirs in zip(plan_outputs(data), emulated(data, f), expected, strict=True):
                atol = 1.01 * step(plan, name) if name in plan.tensors else 0.0
                np.testing.assert_allclose(ours, theirs, atol=atol, rtol=1e-6 if plan.floats else 0)
        losses[text] = min(sqnr_db(e[0], f[0]) for e, f in zip(exact, found, strict=True))
    if OPS[op].rule.output != "never":
        assert losses["w8a8"] > 20, losses
        assert losses["w16a16"] > 60, losses


def plan_outputs(data: bytes) -> list[str]:
    return [str(v.name) for v in read(data).ir.graph.outputs]


# -- random graphs --------------------------------------------------------------------------------------------------

UNARY = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Abs", "Softmax", "HardSwish", "Neg", "Transpose2", "Slice", "Conv")
BINARY = ("Add", "Mul", "Sub", "Concat", "Max")


@st.composite
def graphs(draw: st.DrawFn) -> object:
    """Nodes on pictures of 4 channels, each reading any before it; the last ones are outputs."""
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    nodes, constants, values = [], [], ["x"]
    for i in range(draw(st.integers(2, 9))):
        op = draw(st.sampled_from(UNARY + BINARY))
        ins = [draw(st.sampled_from(values[-4:])) for _ in range(1 + (op in BINARY))]
        name, out = f"n{i}", f"v{i}"
        if op == "Conv":
            group = draw(st.sampled_from([1, 4]))
            weight = generator.standard_normal((4, 4 // group, 3, 3)).astype(np.float32) * 0.3
            constants += [numpy_helper.from_array(weight, f"w{i}")]
            ins.append(f"w{i}")
            if draw(st.booleans()):
                constants.append(numpy_helper.from_array(generator.standard_normal(4).astype(np.float32), f"b{i}"))
                ins.append(f"b{i}")
            nodes.append(helper.make_node("Conv", ins, [out], name=name, pads=[1, 1, 1, 1], group=group))
        elif op == "Concat":  # and back to 4 channels
            bounds = [numpy_helper.from_array(np.array([n], np.int64), f"{name}_{n}") for n in (2, 6, 1)]
            constants += bounds
            nodes.append(helper.make_node("Concat", ins, [f"{out}_wide"], name=f"{name}_concat", axis=1))
            sliced = [f"{out}_wide", *(b.name for b in bounds)]
            nodes.append(helper.make_node("Slice", sliced, [out], name=name))
        elif op == "Slice":
            bounds = [numpy_helper.from_array(np.array([n], np.int64), f"{name}_{n}") for n in (-1, -9, 3)]
            steps = numpy_helper.from_array(np.array([-1], np.int64), f"{name}_step")
            constants += [*bounds, steps]
            nodes.append(helper.make_node("Slice", [*ins, *(b.name for b in bounds), steps.name], [out], name=name))
        elif op == "Transpose2":
            nodes.append(helper.make_node("Transpose", ins, [out], name=name, perm=[0, 1, 3, 2]))
        else:
            nodes.append(helper.make_node(op, ins, [out], name=name))
        values.append(out)
    read_by = {i for node in nodes for i in node.input}
    outputs = [v for v in values[1:] if v not in read_by] + draw(st.sampled_from([[], [values[1]]]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4, 5, 5))]
    return model(nodes, inputs, list(dict.fromkeys(outputs)), constants)


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from(["w8a16", "w16a16", "w8a8_channel", "w8a8; Conv=w8a16", "w8a16; Mul=w8a8; Add=float"]))
def test_random_graphs(proto: object, text: str) -> None:
    float_model = read(proto).ir  # type: ignore[arg-type]
    ops = {node.op_type for node in float_model.graph}
    text = "; ".join(part for part in text.split("; ") if "=" not in part or part.split("=")[0] in ops)
    feeds = samples(float_model, 3)
    plan, data = quantized(float_model, text, feeds)
    floats = set(plan.floats)
    around = [u.target.name for u in stray(data)]
    assert bool(floats) or not around, around
    for f in feeds:
        exact, theirs, ours = reference(proto, f), reference(data, f), emulated(data, f)  # type: ignore[arg-type]
        for name, e, t, o in zip(plan_outputs(data), exact, theirs, ours, strict=True):
            scale = step(plan, name) if name in plan.tensors else 0.0
            # one step of each tensor on the way, at most
            assert np.abs(o - t).max() <= 8 * scale + 0.05 * np.abs(t).max() + 1e-5, name
            if text == "w16a16":
                assert sqnr_db(e, t) > 45, name


def test_more_bits_lose_less() -> None:
    proto = single("Conv", CASES["Conv"])
    float_model = read(proto).ir
    feeds = samples(float_model, 4)
    exact = np.concatenate([reference(proto, f)[0].ravel() for f in feeds])

    def loss(text: str) -> float:
        data = quantized(float_model, text, feeds)[1]
        return sqnr_db(exact, np.concatenate([reference(data, f)[0].ravel() for f in feeds]))

    assert loss("w4a16") < loss("w8a8") < loss("w8a16") < loss("w16a16")
    assert loss("w16a16") > loss("w8a8") + 25
    assert loss("w8a16_channel") > loss("w8a16")


# -- forms ----------------------------------------------------------------------------------------------------------


def test_conv_and_relu_are_one_unit_with_an_int32_bias() -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    constants = [
        numpy_helper.from_array(np.random.default_rng(0).standard_normal((3, 2, 1, 1)).astype(np.float32), "w"),
        numpy_helper.from_array(np.array([1, -2, 3], np.float32), "b"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 4, 4))]
    float_model = read(model(nodes, inputs, ["y"], constants)).ir
    plan, data = quantized(float_model, "w8a8_channel", samples(float_model, 3))
    assert "c" not in plan.tensors
    (unit,) = (u for u in units(read(data).ir) if u.kind == "qdq")
    assert unit.clip is not None
    x, weight, bias = unit.inputs
    assert x is not None and weight is not None and bias is not None  # noqa: PT018
    assert isinstance(x.encoding, ScaleOffset)
    assert isinstance(weight.encoding, AxisScaleOffset)
    assert isinstance(bias.encoding, AxisScaleOffset)
    np.testing.assert_allclose(bias.encoding.scales, np.multiply(x.encoding.scale, weight.encoding.scales), rtol=1e-6)
    assert bias.value.const_value is not None
    assert bias.value.const_value.dtype == onnx_ir.DataType.INT32


def test_a_product_its_row_and_relu_are_one_unit() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="m"),
        helper.make_node("Add", ["b", "m"], ["a"], name="a"),
        helper.make_node("Relu", ["a"], ["y"], name="r"),
    ]
    generator = np.random.default_rng(0)
    constants = [
        numpy_helper.from_array(generator.standard_normal((8, 6)).astype(np.float32), "w"),
        numpy_helper.from_array(generator.standard_normal((1, 1, 6)).astype(np.float32), "b"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8))]
    proto = model(nodes, inputs, ["y"], constants)
    float_model = read(proto).ir
    feeds = samples(float_model, 4)
    plan, data = quantized(float_model, "w8a8", feeds)
    assert {"m", "a", "b"}.isdisjoint(plan.tensors)
    kinds = [u.kind for u in units(read(data).ir)]
    assert kinds.count("MatMulAdd") == 1  # type: ignore[arg-type]
    assert len(kinds) == 3
    assert sqnr_db(reference(proto, feeds[0])[0], emulated(data, feeds[0], "htp")[0]) > 30


@pytest.mark.parametrize("op", ["Gemm", "MatMul"])
def test_blocks_of_a_matrix(op: str) -> None:
    generator = np.random.default_rng(0)
    weight = generator.standard_normal((64, 8)).astype(np.float32) * np.repeat([0.1, 1.0], 32)[:, None].astype(
        np.float32
    )
    nodes = [helper.make_node(op, ["x", "w"], ["y"], name="p")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 64))]
    proto = model(nodes, inputs, ["y"], [numpy_helper.from_array(weight, "w")])
    float_model = read(proto).ir
    feeds = samples(float_model, 4)
    plan, data = quantized(float_model, "w4a16_block[32]", feeds)
    assert isinstance(plan.tensors["w"].encoding, BlockwiseExpansion)
    found = [u for u in units(read(data).ir) if u.kind == "qdq"]
    assert [type(u.inputs[1].encoding) for u in found if u.inputs[1] is not None] == [BlockwiseExpansion]
    ours, theirs = emulated(data, feeds[0], "htp")[0], reference(data, feeds[0])[0]
    np.testing.assert_allclose(ours, theirs, atol=1.01 * step(plan, "y"))


@pytest.mark.parametrize(
    ("opset", "text", "domain"),
    [(13, "w8a8", ""), (13, "w8a16", "com.microsoft"), (21, "w8a16", ""), (11, "w8a8_channel", "com.microsoft")],
)
def test_older_opsets(opset: int, text: str, domain: str) -> None:
    case = CASES["Conv"]
    proto = single("Conv", case)
    proto.opset_import[0].version = opset
    float_model = read(proto).ir
    feeds = samples(float_model, 3)
    plan, data = quantized(float_model, text, feeds)
    assert {n.domain for n in read(data).ir.graph if n.op_type == "QuantizeLinear"} == {domain}
    assert not stray(data)
    np.testing.assert_allclose(
        emulated(data, feeds[0])[0], reference(data, feeds[0])[0], atol=1.01 * step(plan, "out0")
    )


def test_blocks_need_opset_21() -> None:
    proto = single("MatMul", CASES["MatMul"])
    proto.opset_import[0].version = 13
    float_model = read(proto).ir
    statistics = calibrate(float_model, samples(float_model, 2))
    with pytest.raises(ModelError, match="opset 21"):
        write(float_model, assign(float_model, statistics, recipe("w4a16_block[4]")))


def test_the_model_given_is_left_alone() -> None:
    float_model = read(single("Conv", CASES["Conv"])).ir
    before = to_bytes(float_model)
    quantized(float_model, "w8a8", samples(float_model, 2))
    assert to_bytes(float_model) == before


def test_constants_and_integers_of_the_plan_are_written() -> None:
    proto = single("Gemm", CASES["Gemm"])
    float_model = read(proto).ir
    plan, _ = quantized(float_model, "w8a8", samples(float_model, 2))
    plan.integers["in1"] = np.full((6, 8), 7, np.int8)
    plan.constants["in2"] = np.zeros(6, np.float32)
    unit = next(u for u in units(read(to_bytes(write(float_model, plan))).ir) if u.kind == "qdq")
    weight, bias = unit.inputs[1], unit.inputs[2]
    assert weight is not None and bias is not None  # noqa: PT018
    assert weight.value.const_value is not None and bias.value.const_value is not None  # noqa: PT018
    assert (weight.value.const_value.numpy() == 7).all()
    assert not bias.value.const_value.numpy().any()


def test_a_wrong_plan_is_refused() -> None:
    float_model = read(single("Relu", CASES["Relu"])).ir
    with pytest.raises(ModelError, match="lacks: nothing"):
        write(float_model, EncodingPlan(tensors={"nothing": Fixed(DType.UINT8, ScaleOffset(1.0))}))
    with pytest.raises(ModelError, match="no constant"):
        write(float_model, EncodingPlan(constants={"in0": np.zeros(3, np.float32)}))


def test_bias_counts_in_steps_of_the_product() -> None:
    data = Fixed(DType.UINT8, ScaleOffset(0.5, -3))
    assert bias_fixed(data, Fixed(DType.INT8, ScaleOffset(0.25))).encoding == ScaleOffset(0.125)
    per_channel = Fixed(DType.INT8, AxisScaleOffset(1, (0.5, 2.0), (0, 0)))
    assert bias_fixed(data, per_channel).encoding == AxisScaleOffset(0, (0.25, 1.0), (0, 0))


@pytest.mark.parametrize("form", ["half of x", "half at the end", "half in the middle"])
@pytest.mark.parametrize("exact", [True, False])
def test_gelu_spelled_out_is_one_unit(form: str, exact: bool) -> None:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["s"], name="div"),
        helper.make_node("Erf", ["s"], ["e"], name="erf"),
        helper.make_node("Add", ["e", "one"], ["p"], name="add"),
    ]
    orders = {
        "half of x": [("x", "half", "h"), ("h", "p", "y")],
        "half at the end": [("x", "p", "m"), ("m", "half", "y")],
        "half in the middle": [("p", "half", "m"), ("x", "m", "y")],
    }
    nodes += [helper.make_node("Mul", [a, b], [out], name=f"mul_{out}") for a, b, out in orders[form]]
    values = {"root": 2**0.5 if exact else 1.5, "one": 1.0, "half": 0.5}
    constants = [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in values.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, 8))]
    proto = model(nodes, inputs, ["y"], constants, 17)
    folded = fold(read(proto).ir)
    assert [n.op_type for n in folded.graph].count("Gelu") == exact
    feeds = samples(folded, 3)
    plan, data = quantized(folded, "w8a16", feeds)
    assert ("erf" in plan.floats) != exact  # Erf by itself is no QNN op
    np.testing.assert_allclose(reference(data, feeds[0])[0], reference(proto, feeds[0])[0], atol=1e-3)
