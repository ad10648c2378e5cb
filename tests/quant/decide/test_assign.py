# SPDX-License-Identifier: Apache-2.0
"""Encodings by rule: shared where data moves, fixed where the op fixes them, converted where precisions meet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.errors import CallError, ModelError
from hexforge.ir import AxisScaleOffset, DType, ScaleOffset
from hexforge.model.reader import read
from hexforge.quant.data.observe import Statistics, TensorStatistics
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan, Fixed
from hexforge.quant.decide.recipe_reading import recipe
from tests.quant.graphs import CASES, model, single

Node = tuple[str, str, Sequence[str], dict[str, Any]]


def of_ranges(**ranges: tuple[float, float]) -> Statistics:
    """Statistics of tensors that were seen with these extremes."""
    found = {}
    for name, (low, high) in ranges.items():
        found[name] = TensorStatistics()
        found[name].update(np.linspace(low, high, 101, dtype=np.float32))
    return Statistics(found)


def graph(*nodes: Node, outputs: Sequence[str], constants: Sequence[onnx.TensorProto] = ()) -> onnx.ModelProto:
    """Nodes (name, op, inputs, attributes) that each write `NAME_out`, on inputs x and z of [1, 4, 6, 6]."""
    made = [helper.make_node(op, list(ins), [f"{name}_out"], name=name, **kw) for name, op, ins, kw in nodes]
    used = {i for node in made for i in node.input}
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (1, 4, 6, 6)) for n in ("x", "z") if n in used]
    return model(made, inputs, outputs, constants)


def planned(proto: onnx.ModelProto, text: str, **ranges: tuple[float, float]) -> EncodingPlan:
    ir = read(proto).ir
    names = [str(v.name) for v in (*ir.graph.inputs, *(v for n in ir.graph for v in n.outputs))]
    return assign(ir, of_ranges(**{**dict.fromkeys(names, (-1.0, 1.0)), **ranges}), recipe(text))


def scale(plan: EncodingPlan, name: str) -> float:
    encoding = plan.tensors[name].encoding
    assert isinstance(encoding, ScaleOffset)
    return encoding.scale


# -- data movement --------------------------------------------------------------------------------------------------


def test_moved_data_keeps_its_encoding() -> None:
    proto = graph(
        ("t", "Transpose", ["x"], {"perm": [0, 2, 3, 1]}),
        ("p", "MaxPool", ["x"], {"kernel_shape": [2, 2]}),
        ("n", "Neg", ["t_out"], {}),
        outputs=["n_out", "p_out"],
    )
    plan = planned(proto, "w8a8", x=(-1, 3), t_out=(-1, 3), p_out=(0, 2), n_out=(-3, 1))
    assert plan.tensors["x"] == plan.tensors["t_out"] == plan.tensors["p_out"]
    assert scale(plan, "x") == pytest.approx(4 / 255)
    assert plan.tensors["n_out"] != plan.tensors["x"]


def test_what_only_a_concat_reads_is_made_in_its_encoding() -> None:
    nodes: list[Node] = [
        ("a", "Relu", ["x"], {}),
        ("b", "Neg", ["x"], {}),
        ("c", "Concat", ["a_out", "b_out"], {"axis": 1}),
    ]
    plan = planned(graph(*nodes, outputs=["c_out"]), "w8a8", a_out=(0, 1), b_out=(-4, 1), c_out=(-4, 1))
    assert plan.tensors["a_out"] == plan.tensors["b_out"] == plan.tensors["c_out"]
    assert scale(plan, "a_out") == pytest.approx(5 / 255)
    nodes.append(("d", "Neg", ["a_out"], {}))
    plan = planned(graph(*nodes, outputs=["c_out", "d_out"]), "w8a8", a_out=(0, 1), b_out=(-4, 1), c_out=(-4, 1))
    assert plan.tensors["b_out"] == plan.tensors["c_out"] != plan.tensors["a_out"]
    assert scale(plan, "a_out") == pytest.approx(1 / 255)


def test_a_pad_with_another_number_has_its_own_range() -> None:
    pads = numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "pads")
    far = numpy_helper.from_array(np.array(-9, np.float32), "far")
    proto = graph(("p", "Pad", ["x", "pads", "far"], {}), outputs=["p_out"], constants=[pads, far])
    plan = planned(proto, "w8a8", p_out=(-9, 1))
    assert scale(plan, "p_out") > 4 * scale(plan, "x")


# -- fixed ranges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "text", "seen", "expected"),
    [
        ("Sigmoid", "w8a16", (0.1, 0.2), ScaleOffset(1 / 65536, 0)),
        ("Softmax", "w8a16", (0.1, 0.2), ScaleOffset(1 / 65536, 0)),
        ("Tanh", "w8a16", (-0.1, 0.2), ScaleOffset(1 / 32768, -32768)),
        ("Sigmoid", "w8a8", (0.1, 0.9), ScaleOffset(float(np.float32(1 / 255)), 0)),
        ("Tanh", "w8a8", (-0.9, 0.8), ScaleOffset(float(np.float32(2 / 255)), -127)),
        ("Softmax", "w8a8", (0.0, 0.1), ScaleOffset(float(np.float32(1 / 255)), 0)),
        ("Sigmoid", "w8a8", (0.0, 0.1), ScaleOffset(float(np.float32(np.float32(0.1) / 255)), 0)),
    ],
)
def test_ranges_the_op_knows(op: str, text: str, seen: tuple[float, float], expected: ScaleOffset) -> None:
    plan = planned(graph(("s", op, ["x"], {}), outputs=["s_out"]), text, s_out=seen)
    found = plan.tensors["s_out"].encoding
    assert isinstance(found, ScaleOffset)
    assert (found.scale, found.offset) == (pytest.approx(expected.scale, rel=1e-6), expected.offset)


# -- mixed precision ------------------------------------------------------------------------------------------------

# seed 003: "Op4_out could be an inaccurate tensor that should be upgraded to 16bit"
FIGURE: tuple[Node, ...] = (
    ("Op1", "Neg", ["x"], {}), ("Op2", "Neg", ["Op1_out"], {}), ("Op3", "Abs", ["Op1_out"], {}),
    ("Op4", "Neg", ["Op2_out"], {}), ("Op5", "Add", ["Op3_out", "Op4_out"], {}), ("Op6", "Neg", ["Op5_out"], {}),
    ("Op7", "Neg", ["Op2_out"], {}), ("Op8", "Abs", ["Op2_out"], {}),
)  # fmt: skip


def test_the_published_example_of_mixed_precision() -> None:
    plan = planned(graph(*FIGURE, outputs=["Op6_out", "Op7_out", "Op8_out"]), "w8a8; tensor:Op4_out=a16")
    wide = {name for name, fixed in plan.tensors.items() if fixed.dtype is DType.UINT16}
    assert wide == {"Op4_out", "Op5_out"}
    assert {key: fixed.dtype for key, fixed in plan.converts.items()} == {
        ("Op2_out", "Op4"): DType.UINT16,
        ("Op3_out", "Op5"): DType.UINT16,
        ("Op5_out", "Op6"): DType.UINT8,
    }


def test_a_convert_keeps_the_range() -> None:
    plan = planned(graph(*FIGURE, outputs=["Op6_out", "Op7_out", "Op8_out"]), "w8a8; Op4=a16", Op2_out=(-2, 6))
    wide = plan.converts["Op2_out", "Op4"].encoding
    assert isinstance(wide, ScaleOffset)
    assert wide.scale == pytest.approx(8 / 65535, rel=0.01)


def test_data_between_wide_nodes_moves_wide() -> None:
    nodes: list[Node] = [
        ("a", "Neg", ["x"], {}),
        ("t", "Transpose", ["a_out"], {"perm": [0, 1, 3, 2]}),
        ("b", "Abs", ["t_out"], {}),
    ]
    plan = planned(graph(*nodes, outputs=["b_out"]), "w8a8; a=a16; b=a16")
    assert plan.tensors["t_out"].dtype is DType.UINT16
    assert not plan.converts
    plan = planned(graph(*nodes, outputs=["b_out"]), "w8a8; a=a16")
    assert plan.tensors["t_out"].dtype is DType.UINT8
    assert set(plan.converts) == {("a_out", "t")}


def test_float_nodes_and_tensors() -> None:
    nodes: list[Node] = [("a", "Neg", ["x"], {}), ("b", "Abs", ["a_out"], {}), ("c", "Neg", ["b_out"], {})]
    plan = planned(graph(*nodes, outputs=["c_out"]), "w8a8; b=float; c=float")
    assert set(plan.tensors) == {"x", "a_out"}
    assert set(plan.floats) == {"b", "c"}
    plan = planned(graph(*nodes, outputs=["c_out"]), "w8a8; tensor:a_out=float")
    assert set(plan.tensors) == {"b_out", "c_out"}
    assert set(planned(graph(*nodes, outputs=["c_out"]), "fp16").floats) == {"a", "b", "c"}


def test_rules_that_fit_nothing_are_named() -> None:
    proto = graph(("a", "Neg", ["x"], {}), outputs=["a_out"])
    with pytest.raises(CallError) as caught:
        planned(proto, "w8a8; MatMul=a16; tensor:b_out=a16; node:zz*=a16")
    for part in ("op:MatMul fits nothing", "did you mean 'a_out'?", "node:zz* fits nothing"):
        assert part in str(caught.value)


# -- weights --------------------------------------------------------------------------------------------------------


def conv(text: str, weight: np.ndarray, bias: np.ndarray | None = None, **kw: Any) -> EncodingPlan:
    constants = [numpy_helper.from_array(weight.astype(np.float32), "w")]
    constants += [] if bias is None else [numpy_helper.from_array(bias.astype(np.float32), "b")]
    names = ["x", "w", *(["b"] if bias is not None else [])]
    return planned(graph(("c", "Conv", names, dict(kw)), outputs=["c_out"], constants=constants), text)


@pytest.mark.feature("Symmetric weights, asymmetric activations", guide="2660")
def test_weights() -> None:
    weight = np.linspace(-2, 1, 8 * 4).reshape(8, 4, 1, 1)
    plan = conv("w8a8", weight)
    assert plan.tensors["w"] == Fixed(DType.INT8, ScaleOffset(scale(plan, "w"), 0))
    assert scale(plan, "w") == pytest.approx(2 / 127)
    found = conv("w8a8_channel", weight).tensors["w"].encoding
    assert isinstance(found, AxisScaleOffset)
    assert (found.axis, len(found.scales), set(found.offsets)) == (0, 8, {0})
    wide = conv("w16a16", weight).tensors["w"]
    assert wide.dtype is DType.INT16
    assert isinstance(wide.encoding, ScaleOffset)
    assert round(1.0 / wide.encoding.scale) <= 0x7F7F
    assert conv("w4a16", weight).tensors["w"].dtype is DType.INT4
    assert conv("w16a16; Conv=w16a8", weight).tensors["w"].dtype is DType.INT8  # HTP has no 8 by 16 bits there


def test_a_bias_always_fits_int32() -> None:
    weight = np.full((2, 4, 1, 1), 1e-9)
    weight[0] = 1.0
    plan = conv("w8a8_channel", weight, np.array([1.0, 1e6]))
    found = plan.tensors["w"].encoding
    assert isinstance(found, AxisScaleOffset)
    assert 1e6 / (scale(plan, "x") * found.scales[1]) <= 2**31
    assert "b" not in plan.tensors


def test_a_constant_with_two_roles_is_stored_twice() -> None:
    shared = numpy_helper.from_array(np.linspace(0.5, 2, 16, dtype=np.float32).reshape(4, 4, 1, 1), "w")
    proto = graph(
        ("c", "Conv", ["x", "w"], {}), ("m", "Mul", ["c_out", "w"], {}), outputs=["m_out"], constants=[shared]
    )
    plan = planned(proto, "w8a8")
    kinds = {plan.tensors["w"].dtype, *(f.dtype for (n, _), f in plan.converts.items() if n == "w")}
    assert kinds == {DType.INT8, DType.UINT8}


def test_two_run_time_operands_of_16_bits() -> None:
    ir = read(graph(("m", "MatMul", ["x", "z"], {}), outputs=["m_out"])).ir
    statistics = of_ranges(x=(-1, 1), z=(0, 3), m_out=(-9, 9))
    plan = assign(ir, statistics, recipe("w8a16"))
    second = plan.tensors["z"]
    assert second.dtype is DType.UINT16
    assert isinstance(second.encoding, ScaleOffset)
    assert second.encoding.offset == -32768  # guide: symmetric
    narrow = assign(ir, statistics, recipe("w8a16"), arithmetic=ChipArithmetic(wide_products=False))
    assert narrow.tensors["z"].dtype is DType.UINT8
    assert narrow.tensors["x"].dtype is DType.UINT16


# -- what is given --------------------------------------------------------------------------------------------------


def test_encodings_that_are_given_stand() -> None:
    ir = read(graph(*FIGURE, outputs=["Op6_out", "Op7_out", "Op8_out"])).ir
    statistics = of_ranges(**dict.fromkeys(["x", *(f"Op{i}_out" for i in range(1, 9))], (-1.0, 1.0)))
    given = {"Op4_out": Fixed(DType.UINT16, ScaleOffset(0.5, -7)), "Op2_out": Fixed(DType.UINT8, ScaleOffset(0.25, -9))}
    plan = assign(ir, statistics, recipe("w8a8"), given=given)
    assert {name: plan.tensors[name] for name in given} == given
    assert plan.tensors["Op5_out"].dtype is DType.UINT16
    assert plan.converts["Op2_out", "Op4"].dtype is DType.UINT16
    with pytest.raises(ModelError, match="zero point"):
        assign(ir, statistics, recipe("w8a8"), given={"Op4_out": Fixed(DType.UINT8, ScaleOffset(1.0, -300))})


def test_a_range_can_be_said(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("recipe: w8a8\ntensors: {x: {min: -8, max: 8}}")
    plan = planned(graph(("a", "Neg", ["x"], {}), outputs=["a_out"]), str(path))
    assert scale(plan, "x") == pytest.approx(16 / 255)


def test_statistics_of_another_model() -> None:
    ir = read(single("Relu", CASES["Relu"])).ir
    with pytest.raises(CallError, match="'in0', 'out0'; calibrate this very model"):
        assign(ir, of_ranges(y=(0, 1)), recipe("w8a8"))


def test_constant_tensors_have_a_scale() -> None:
    plan = planned(graph(("a", "Neg", ["x"], {}), outputs=["a_out"]), "w8a8", x=(0.0, 0.0), a_out=(0.0, 0.0))
    assert scale(plan, "x") > 0
