# SPDX-License-Identifier: Apache-2.0
"""What HTP takes: every rule applies where it says and nowhere else; chips by name and number."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.backends.htp import support
from hexforge.backends.htp.backend import HtpBackend
from hexforge.backends.htp.support import (
    FIXED_ONLY,
    FLOAT_ONLY,
    RULES,
    WEIGHTED,
    NodeOnChip,
    columns,
    require_fit,
    unsupported,
)
from hexforge.chips.htp_config import HtpConfig
from hexforge.chips.soc import DEFAULT_ARCH, SESSION_BYTES, SOCS, ChipTarget, find_chip, target
from hexforge.errors import CallError, CapacityError
from hexforge.ir import (
    AxisScaleOffset,
    BlockwiseExpansion,
    DType,
    Encoding,
    Graph,
    Node,
    Role,
    ScaleOffset,
    TensorType,
    Value,
    table,
)
from tests import ROOT
from tests.digits import MODEL, held_out
from tests.ops.test_samples import SAMPLES

ARCHS = (68, 69, 73, 75, 79, 81, 85)
U8, U16 = ScaleOffset(0.1, -128), ScaleOffset(0.001, -32768)
SYMMETRIC = ScaleOffset(0.01)
FLOAT = DType.FLOAT32


class Net:
    """A graph to write nodes into."""

    def __init__(self) -> None:
        self.graph = Graph("g")

    def value(self, dtype: DType, shape: tuple[int, ...], encoding: Encoding | None = None) -> Value:
        return self.graph.value(self.graph.unique("t"), TensorType(dtype, shape, encoding))

    def static(self, dtype: DType, shape: tuple[int, ...], encoding: Encoding | None = None, fill: int = 1) -> Value:
        return self.graph.static(np.full(shape, fill, dtype.numpy), encoding)

    def node(self, op: str, *inputs: Value, out: TensorType | None = None, **params: Any) -> Node:
        outputs = None if out is None else [self.graph.value(self.graph.unique("out"), out)]
        return self.graph.node(op, inputs, outputs, **params)


def reason(node: Node, arch: int = 73) -> str:
    return unsupported(node, ChipTarget(arch)) or ""


def unary(op: str, dtype: DType = FLOAT, shape: tuple[int, ...] = (1, 2, 2, 4), **params: Any) -> Node:
    net = Net()
    return net.node(op, net.value(dtype, shape), **params)


def matmul(
    a: tuple[DType, Encoding | None],
    b: tuple[DType, Encoding | None],
    *,
    constant: bool = False,
    fill: int = 1,
    out: tuple[DType, Encoding | None] | None = None,
) -> Node:
    net = Net()
    weight = net.static(b[0], (4, 3), b[1], fill) if constant else net.value(b[0], (4, 3), b[1])
    return net.node(
        "MatMul", net.value(a[0], (2, 4), a[1]), weight, out=TensorType((out or a)[0], (2, 3), (out or a)[1])
    )


# -- rules ----------------------------------------------------------------------------------------------------------


def broken() -> dict[str, Node]:
    """A node that breaks each rule, by how the rule's reason begins and its ops."""
    net = Net()
    big = net.value(FLOAT, (1 << 14, 1 << 16))
    axis = AxisScaleOffset(0, (0.1, 0.2), (0, 0))
    wide = net.static(DType.INT64, (2,), fill=1 << 40)
    scatter = [net.value(FLOAT, (4,)), net.value(DType.INT32, (2,)), net.value(FLOAT, (2,))]
    scatter_nd = [net.value(FLOAT, (4,)), net.value(DType.INT32, (2, 1)), net.value(FLOAT, (2,))]
    five = net.value(FLOAT, (1, 2, 2, 2, 4))
    four = net.static(FLOAT, (4,))
    resize = {"interpolation_mode": 0, "transformation_mode": 0}
    bf16 = net.value(DType.BFLOAT16, (1, 2, 2, 4))
    products = " ".join(sorted({op for row in WEIGHTED for op in row.ops.split()}))
    return {
        "ReduceProd: not on HTP": unary("ReduceProd", axes=(1,)),
        "PoolMax3d: not on HTP": unary(
            "PoolMax3d", shape=(1, 4, 4, 4, 2), filter_size=(2,) * 3, stride=(2,) * 3, pad_amount=((0, 0),) * 3
        ),
        "IsInf: other than of float16": unary("IsInf"),
        "Inverse: matrices other than 2 x 2": unary("Inverse", shape=(1, 3, 3)),
        ": tensors of more than 5 dimensions": unary("Relu", shape=(1,) * 6),
        ": tensors of more than 3.75 GB": net.node("Relu", big),
        ": uint64, and int64 constants beyond int32": net.node("ElementWiseAdd", net.value(DType.INT64, (2,)), wide),
        ": run-time fixed point of several scales, or of other than 8, 16 or (a bias) 32 bits": net.node(
            "Relu", net.value(DType.UINT8, (2,), axis), out=TensorType(DType.UINT8, (2,), axis)
        ),
        ": bfloat16 before v81 with soc_model 88": unary("Relu", DType.BFLOAT16),
        ": float math on chips that the vendor's library refuses it for (soc.py)": unary("Relu"),
        "Resize: bfloat16 but for linear interpolation": net.node(
            "Resize", bf16, out=TensorType(DType.BFLOAT16, (1, 4, 4, 4)), **resize
        ),
        "Batchnorm: more than 4 dimensions": net.node("Batchnorm", five, four, four),
        "InstanceNorm Lrn RmsNorm: more than 4 dimensions": net.node("RmsNorm", five, axes=(4,)),
        "LayerNorm RmsNorm: axes other than the last ones": unary("LayerNorm", axes=(1,)),
        "ScatterElements: a reduction but for add, mul and max": net.node("ScatterElements", *scatter, reduction=4),
        "ScatterNd: a reduction but for add and mul": net.node("ScatterNd", *scatter_nd, reduction=3),
        f"{products}: data types of data and weights that are no pair of the table": matmul(
            (DType.UINT8, U8), (FLOAT, None)
        ),
        f"{products}: a pair of data types on an older chip than the table has it for": matmul(
            (DType.UINT16, U16), (DType.INT16, SYMMETRIC)
        ),
        f"{products}: fixed-point data with a float result": matmul(
            (DType.UINT8, U8), (DType.INT8, SYMMETRIC), out=(FLOAT, None)
        ),
        f"{products}: int16 weights with a zero point": matmul(
            (DType.UINT16, U16), (DType.INT16, ScaleOffset(0.01, 3)), constant=True
        ),
        f"{products}: int16 weights above 0x7F7F": matmul(
            (DType.UINT16, U16), (DType.INT16, SYMMETRIC), constant=True, fill=0x7FFF
        ),
    }


def test_every_rule_applies() -> None:
    nodes = broken()
    assert list(nodes) == [f"{' '.join(sorted(rule.ops))}: {rule.reason.split(';')[0]}" for rule in RULES]
    for rule, node in zip(RULES, nodes.values(), strict=True):
        here = ChipTarget(81 if "Resize" in rule.ops else 68 if "older chip" in rule.reason else 73)
        if rule.reason.startswith("float math"):
            here = target("QCS6490")
        assert rule in RULES.of(node.op.name), rule
        said = rule.refusal(NodeOnChip(node, here))
        assert said, rule
        assert ";" in said, f"{rule.reason}: no word on what would work"
        assert ";" in rule.reason
        assert unsupported(node, here) == said


def test_rules_name_ops_of_the_table() -> None:
    known = {op.name for op in table()}
    for ops in [rule.ops for rule in RULES] + [set(row.ops.split()) for row in WEIGHTED]:
        assert ops <= known
    assert all(rule.evidence for rule in RULES)
    assert all(row.source for row in WEIGHTED)


def test_the_documentation_lists_every_rule() -> None:
    text = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    for rule in RULES:
        ops = "products and normalizations" if "MatMul" in rule.ops else ", ".join(sorted(rule.ops)) or "all"
        assert f"| {ops} | {rule.reason} | {rule.evidence} |" in text
    for row in WEIGHTED:
        ops = ", ".join(row.ops.split())
        assert f"| {row.data} by {row.weight} | {ops} | v{row.since} | {row.source} |" in text


@pytest.mark.parametrize("arch", ARCHS)
def test_integers_run_everywhere(arch: int) -> None:
    assert reason(unary("Relu", DType.INT32), arch) == ""
    net = Net()
    same = TensorType(DType.UINT8, (2, 2), U8)
    assert reason(net.node("Relu", net.value(DType.UINT8, (2, 2), U8), out=same), arch) == ""
    indices = net.value(DType.INT64, (3,))
    gathered = TensorType(DType.UINT16, (3, 2), U16)
    assert reason(net.node("Gather", net.value(DType.UINT16, (2, 2), U16), indices, out=gathered, axis=0), arch) == ""
    both = net.value(DType.BOOL, (2,)), net.value(DType.BOOL, (2,))
    assert reason(net.node("ElementWiseAnd", *both), arch) == ""


@pytest.mark.parametrize("arch", ARCHS)
def test_every_architecture_has_chips_with_floats(arch: int) -> None:
    assert reason(unary("Relu"), arch) == ""


@pytest.mark.parametrize("soc", ["QCS6490", "SXR1230P", "SW6100", "SM8650"])
def test_floats_are_converted_on_every_chip(soc: str) -> None:
    net = Net()
    here, out = target(soc), TensorType(DType.UINT8, (2,), U8)
    assert unsupported(net.node("Quantize", net.value(FLOAT, (2,)), out=out), here) is None
    back = net.node("Dequantize", net.value(DType.UINT8, (2,), U8), out=TensorType(FLOAT, (2,)))
    assert unsupported(back, here) is None


@pytest.mark.feature("Float32 graphs by float16 math", guide="39, 974-986")
def test_floats_by_chip() -> None:
    node = unary("Relu")
    taken = {soc.name: unsupported(node, ChipTarget(soc.htp_arch, soc)) is None for soc in SOCS}
    without = (
        "SC8280XP",
        "QCS6490",
        "QCM6690",
        "SM7750",
        "SXR1230P",
        "SSG2115P",
        "SSG2125P",
        "SAR2230P",
        "SW6100",
        "SM7350",
        "SM7325",
        "SM7315",
        "SM6450",
        "SM7475",
        "SM7435",
        "SM7550",
        "SM8635",
        "SM7675",
        "SM8735",
    )
    assert {name for name, fine in taken.items() if not fine} == set(without)  # as the vendor's library answers
    assert "QCM6690 (v73) has no float math; quantize" in str(unsupported(node, target("QCM6690")))


def test_bfloat16_by_chip() -> None:
    node = unary("Relu", DType.BFLOAT16)
    assert reason(node, 81) == ""
    assert "SM8850 (v81)" in str(unsupported(node, target("87")))
    assert unsupported(node, target("88")) is None


def test_normalizations_over_the_last_axes() -> None:
    assert reason(unary("LayerNorm", axes=(3,))) == ""
    assert reason(unary("LayerNorm", axes=(1, 2, 3))) == ""
    assert reason(unary("RmsNorm", axes=(-1,))) == ""
    assert "transpose" in reason(unary("RmsNorm", axes=(2,)))


def test_small_inverses() -> None:
    assert reason(unary("Inverse", shape=(5, 2, 2))) == ""


def test_int64_within_int32() -> None:
    net = Net()
    node = net.node("ElementWiseAdd", net.value(DType.INT64, (2,)), net.static(DType.INT64, (2,), fill=-(1 << 31)))
    assert reason(node) == ""
    assert "uint64" in reason(unary("ElementWiseAbs", DType.UINT64))


# -- products -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("a", [(DType.UINT8, U8), (DType.UINT16, U16)])
@pytest.mark.parametrize("b", [(DType.UINT8, U8), (DType.UINT16, U16)])
def test_matmul_of_activations(a: Any, b: Any, arch: int) -> None:
    said = reason(matmul(a, b), arch)
    both_wide = a[0] is b[0] is DType.UINT16
    assert (said == "") == (not both_wide or arch >= 73)
    assert "v73" in said or not said


@pytest.mark.parametrize("data", [(DType.UINT8, U8), (DType.INT8, SYMMETRIC), (DType.UINT16, U16), (FLOAT, None)])
@pytest.mark.parametrize("weight", [DType.INT8, DType.UINT8, DType.INT4])
def test_matmul_by_constant_weights(data: Any, weight: DType) -> None:
    offset = -8 if weight is DType.UINT4 else 0
    assert reason(matmul(data, (weight, ScaleOffset(0.1, offset)), constant=True)) == ""


@pytest.mark.feature("A16W16", guide="2668-2694")
def test_int16_weights() -> None:
    data, weight = (DType.UINT16, U16), (DType.INT16, SYMMETRIC)
    assert reason(matmul(data, weight, constant=True, fill=0x7F7F), 73) == ""
    assert "needs v73, this is v69; quantize" in reason(matmul(data, weight, constant=True), 69)
    assert "0x7F7F" in reason(matmul(data, weight, constant=True, fill=0x7F80))
    assert "symmetrically" in reason(matmul(data, (DType.INT16, ScaleOffset(0.01, 5)), constant=True))
    channels = AxisScaleOffset(1, (0.1, 0.2, 0.3), (0, 0, 0))
    assert reason(matmul(data, (DType.INT16, channels), constant=True)) == ""


@pytest.mark.feature("A16W16", guide="2668-2694")
def test_int16_weights_only_in_the_listed_ops() -> None:
    net = Net()
    x = net.value(DType.UINT16, (1, 4, 4, 4, 2), U16)
    weight = net.static(DType.INT16, (1, 1, 1, 2, 3), SYMMETRIC)
    out = TensorType(DType.UINT16, (1, 4, 4, 4, 3), U16)
    node = net.node("Conv3d", x, weight, out=out, stride=(1,) * 3, pad_amount=((0, 0),) * 3)
    assert "16-bit by 8-bit, 16-bit by 4-bit" in reason(node, 81)
    flat = net.value(DType.UINT16, (1, 4, 4, 2), U16)
    weight = net.static(DType.INT16, (1, 1, 2, 3), SYMMETRIC)
    out = TensorType(DType.UINT16, (1, 4, 4, 3), U16)
    node = net.node("Conv2d", flat, weight, out=out, stride=(1, 1), pad_amount=((0, 0), (0, 0)))
    assert reason(node, 81) == ""


def test_fixed_point_in_float_out() -> None:
    assert "quantize the output" in reason(matmul((DType.UINT8, U8), (DType.UINT8, U8), out=(FLOAT, None)))


@pytest.mark.parametrize("arch", ARCHS)
def test_block_scales_are_taken_everywhere(arch: int) -> None:
    blocks = BlockwiseExpansion(1, 0, (0.1,) * 3, (0,) * 3, (1, 2) * 3)
    node = matmul((DType.UINT16, U16), (DType.INT4, blocks), constant=True)
    assert reason(node, arch) == ""


def test_normalization_constants_beside_fixed_point() -> None:
    net = Net()
    same = TensorType(DType.UINT8, (1, 2, 2, 4), U8)
    node = net.node(
        "Batchnorm",
        net.value(DType.UINT8, (1, 2, 2, 4), U8),
        net.static(FLOAT, (4,)),
        net.static(FLOAT, (4,)),
        out=same,
    )
    assert reason(node, 68) == ""


def test_integer_products() -> None:
    assert reason(matmul((DType.INT32, None), (DType.INT32, None))) == ""


def test_constants_that_do_not_fit() -> None:
    graph = Graph("huge")
    graph.static(np.broadcast_to(np.float32(1), (SESSION_BYTES // 8, 1)), name="half")
    require_fit(graph)
    graph.static(np.broadcast_to(np.float32(1), (SESSION_BYTES // 8 + 1, 1)), name="other")
    with pytest.raises(CapacityError, match=r"3\.75 GB; split the model"):
        require_fit(graph)


# -- chips and options ----------------------------------------------------------------------------------------------


def test_chips_are_found() -> None:
    assert len({s.soc_model for s in SOCS}) == len({s.name for s in SOCS}) == len(SOCS)
    for soc in SOCS:
        for key in (soc.name, soc.name.lower(), str(soc.soc_model), *soc.aliases):
            assert find_chip(key) is soc
    assert find_chip("0") is find_chip("") is None
    with pytest.raises(CallError, match="did you mean SM8650"):
        find_chip("SM8651")


@pytest.mark.feature("SOC wins over ARCH", guide="529")
@pytest.mark.feature("Device config ARCH", guide="71-77, 99-108")
@pytest.mark.feature("Device config SOC", guide="63-69, 83-97")
@pytest.mark.parametrize(
    ("options", "arch"),
    [
        ({}, DEFAULT_ARCH),
        ({"htp_arch": "69"}, 69),
        ({"soc_model": "57"}, 75),
        ({"soc_model": "SM8750", "htp_arch": "73"}, 79),
        ({"soc_model": "SM8850,SM8650"}, 81),
        ({"soc_model": "4711", "htp_arch": "75"}, 75),
    ],
)
def test_target_of_options(options: dict[str, str], arch: int) -> None:
    assert HtpBackend(HtpConfig.parse(options)).target.arch == arch


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"soc_model": "SM8751"}, "did you mean SM8750? (Snapdragon 8 Elite); or give htp_arch"),
        ({"soc_model": "4711"}, "'4711' is not a known chip"),
        ({"soc_model": "SM8850", "htp_bf16_enable": "1"}, "needs soc_model 88 or newer, this is SM8850"),
        ({"soc_model": "QCS6490", "htp_bf16_enable": "1"}, "needs soc_model 88 or newer"),
    ],
)
def test_chips_that_cannot(options: dict[str, str], words: str) -> None:
    with pytest.raises(CallError) as error:
        HtpBackend(HtpConfig.parse(options))
    assert words in str(error.value)


def logits(**options: str) -> np.ndarray[Any, Any]:
    config = hexforge.SessionOptions()
    config.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = hexforge.InferenceSession(MODEL, config, providers=[("QNNExecutionProvider", options)])
    return np.concatenate([session.run(None, {"image": picture})[0] for picture in held_out()[0][:20]])


def test_optimization_modes_change_no_number() -> None:
    found = [logits(htp_graph_finalization_optimization_mode=str(mode)) for mode in range(4)]
    assert all(np.array_equal(found[0], other) for other in found[1:])


def test_bfloat16_math() -> None:
    exact, narrow = logits(backend_type="cpu"), logits(soc_model="SC8480XP", htp_bf16_enable="1")
    assert narrow.dtype == np.float32
    assert np.array_equal(narrow, narrow.astype(DType.BFLOAT16.numpy).astype(np.float32))
    assert not np.array_equal(narrow, logits())
    assert np.abs(narrow - exact).max() < 0.02 * np.abs(exact).max()


def test_rules_look_at_nothing_of_a_chip_but_its_traits() -> None:
    """Chips of the same traits share how a model is placed, so a rule that looks at more must add it to them."""
    tree = ast.parse(Path(support.__file__).read_text())
    rules = [n for n in tree.body if not (isinstance(n, ast.FunctionDef) and n.name == "traits")]
    looked_at = {
        (n.attr, f.name)
        for f in rules
        if isinstance(f, ast.FunctionDef)
        for n in ast.walk(f)
        if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "target"
    }
    assert {name for name, _ in looked_at} == {"name", "arch", "float16", "bfloat16", "bfloat16_math"}
    assert {rule for name, rule in looked_at if name == "arch"} == {"_too_new"}  # by the rows of WEIGHTED


def _half(type: TensorType) -> TensorType:
    return TensorType(DType.FLOAT16, type.shape) if type.dtype is DType.FLOAT32 else type


@pytest.mark.feature("Supported-ops list with columns HTP and HTP_FP16", guide="35-41")
@pytest.mark.parametrize("op", [row.name for row in table()])
def test_columns_are_what_the_rules_take(op: str) -> None:
    """An op is in a column where some sample of it, of that kind of numbers, is taken; kinds without sample count."""
    chip = target("SM8650")
    taken: dict[bool, list[bool]] = {True: [], False: []}
    for sample in (s for s in SAMPLES if s.op == op):
        node = sample.node()
        floating = any(v.dtype.is_float for v in (*node.inputs, *node.outputs) if v is not None)
        taken[floating].append(unsupported(node, chip) is None)
        if floating:
            graph = Graph("halves")
            given = [None if v is None else graph.value(v.name, _half(v.type), v.role) for v in node.inputs]
            made = [graph.value(v.name, _half(v.type), v.role) for v in node.outputs]
            taken[True].append(unsupported(graph.node(op, given, made, **sample.params), chip) is None)
        if sample.quantizable:
            _, ins, outs = sample.quantized(DType.UINT8)
            graph = Graph("quantized")
            given = [None if t is None else graph.value(f"i{i}", t, Role.APP_WRITE) for i, t in enumerate(ins)]
            made = [graph.value(f"o{i}", t, Role.APP_READ) for i, t in enumerate(outs)]
            taken[False].append(unsupported(graph.node(op, given, made, **sample.params), chip) is None)
    for says, seen in zip(columns(op), (taken[False], taken[True]), strict=True):
        if says and seen:
            assert any(seen)
        elif not says and op not in FLOAT_ONLY | FIXED_ONLY:
            assert not any(seen)
