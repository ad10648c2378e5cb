# SPDX-License-Identifier: Apache-2.0
"""Advise: the guide's showcase pairs, ranking, verification, what is written, and clear errors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from typer.testing import CliRunner

import hexforge
from hexforge.addons.tuning.advice import advise as module
from hexforge.addons.tuning.advice.advise import AdviceRequest, advise_and_rewrite
from hexforge.addons.tuning.advice.agreement import (
    MOST_NOISE,
    ROUNDINGS_OF_ONE,
    TOLERANCE,
    ReferenceOutputs,
    relative_difference,
)
from hexforge.addons.tuning.advice.mixed_precision import attention_nodes, mixed_us
from hexforge.addons.tuning.rewrites import RULES, RewriteRule
from hexforge.addons.tuning.rewrites.rule import Place, Rewrite
from hexforge.analysis.estimate import estimate
from hexforge.analysis.random_inputs import random_inputs
from hexforge.analysis.timed_graphs import graph_of
from hexforge.backends.htp.time import cost
from hexforge.chips.deployment import Deployment
from hexforge.cli import app
from hexforge.errors import CallError, UnsupportedError
from hexforge.model.extraction import model_bytes
from hexforge.model.reader import read
from hexforge.patterns.language import op
from tests.digits import MODEL as DIGITS
from tests.light import light
from tests.models import showcase
from tests.ort.models import FLOAT, model, node

PAIRS = {
    "sub": (showcase.sub, "ElementWiseSubtract", "sub-to-conv"),
    "div": (showcase.div, "ElementWiseDivide", "div-to-mul"),
    "prelu": (showcase.prelu, "Prelu", "prelu-to-relu"),
}
each_pair = pytest.mark.parametrize("pair", PAIRS)
each_chip = pytest.mark.parametrize("soc", ["SM8650", "SM8550"])
each_precision = pytest.mark.parametrize("precision", ["w8a8", "float"])


@pytest.mark.feature("Showcase models 1-3", guide="1809-2379")
@each_pair
@each_chip
@each_precision
def test_showcase_bottleneck_first_and_optimised_faster(pair: str, soc: str, precision: str) -> None:
    make, op, _ = PAIRS[pair]
    original, optimised = (graph_of(data) for data in make())
    before, after = estimate(original, Deployment(soc, precision)), estimate(optimised, Deployment(soc, precision))
    assert after.latency_ms < before.latency_ms
    first = estimate(original, Deployment(soc, precision)).timeline.bottlenecks()[0]
    assert first.op == op
    # the guide's profile lists inputs and outputs apart from the ops, as `parts_us` does
    longest = max(before.rows, key=lambda row: sum(row.parts_us))
    assert any(op in (n.op.name for n in original if n.name == name) for name in longest.ops)
    assert op not in {share.op for share in estimate(optimised, Deployment(soc, precision)).timeline.bottlenecks()}


OF_ANY_MODEL = ("quantize", "samples-per-call")
"""Advice on how a model is brought to the chip, not on what is in it."""


@each_pair
@each_chip
@each_precision
def test_advise_finds_the_showcase_first(pair: str, soc: str, precision: str) -> None:
    make, _, rule = PAIRS[pair]
    found = hexforge.advise(make()[0], Deployment(soc, precision), verify=False)
    assert [a.gain_us for a in found] == sorted((a.gain_us for a in found), reverse=True)
    first = next(a for a in found if a.rule not in OF_ANY_MODEL)
    assert first.rule == rule
    assert first.gain > 0.01
    assert first.before_us - first.gain_us == pytest.approx(first.after_us)


def test_the_shares_of_nodes_are_the_time_of_the_rows_without_packing() -> None:
    graph = graph_of(attention())
    timeline = estimate(graph, Deployment("SM8650", "w8a8")).timeline
    executed = {name: row.us - row.wait_us for row in timeline.rows for name in row.ops if len(row.ops) == 1}
    shares = {share.node: share.us for share in timeline.bottlenecks()}
    assert executed
    assert all(shares[name] == pytest.approx(us) for name, us in executed.items())
    assert sum(shares.values()) <= sum(row.us - row.wait_us for row in timeline.rows) * (1 + 1e-9)


def test_showcase_optimised_by_advise_computes_the_same() -> None:
    data, _ = showcase.sub(64)
    found = advise_and_rewrite(data, Deployment("SM8650", "w8a8"), request=AdviceRequest(min_gain=0))
    assert "sub-to-conv" in found.applied
    assert found.after_us < found.before_us
    assert found.error is not None
    assert found.error < 1e-4
    kinds = [n.op_type for n in found.rewritten.ir.graph]
    assert "Sub" not in kinds
    assert "Concat" not in kinds, "the branches run as one"


def small(nodes: list[onnx.NodeProto], sizes: tuple[int, ...] = (1, 8, 64, 64), **constants: np.ndarray) -> bytes:
    """A model from x to y."""
    return model(nodes, {"x": (FLOAT, sizes)}, {"y": (FLOAT, None)}, constants)


def divided() -> bytes:
    """A normalised image before a padded convolution."""
    random = np.random.default_rng(1)
    return small(
        [
            node("Sub", ["x", "mean"], ["u"], name="sub"),
            node("Div", ["u", "std"], ["v"], name="div"),
            node("Conv", ["v", "w"], ["y"], name="conv", pads=[1] * 4),
        ],
        (1, 3, 224, 224),
        mean=random.random((1, 3, 1, 1)).astype(np.float32),
        std=(random.random((1, 3, 1, 1)) + 0.2).astype(np.float32),
        w=random.standard_normal((32, 3, 3, 3)).astype(np.float32),
    )


def test_input_normalisation_is_folded_as_far_as_exact_and_advised_for_the_rest() -> None:
    found = advise_and_rewrite(divided(), Deployment("SM8650", "float"))
    rules = {a.rule: a for a in found.advice}
    assert not rules["input-normalisation"].keeps_function
    assert rules["input-normalisation"].nodes == ("sub", "div")
    assert rules["fold-before-conv"].keeps_function
    assert rules["div-by-constant"].gain_us > 0
    assert [n.op_type for n in found.rewritten.ir.graph] == ["Sub", "Conv"]
    assert found.after_us <= min(a.after_us for a in found.advice if a.keeps_function)


def attention(tokens: int = 197, width: int = 192, heads: int = 3) -> bytes:
    """One layer of attention."""
    random = np.random.default_rng(5)
    shape = np.array([1, tokens, heads, width // heads])
    nodes = []
    for name in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"], name=f"{name}_product"),
            node("Reshape", [f"{name}0", "heads"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [name], perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["scores"], name="scores"),
        node("Mul", ["scores", "scale"], ["scaled"], name="scale"),
        node("Softmax", ["scaled"], ["p"], name="softmax", axis=-1),
        node("MatMul", ["p", "v"], ["o"], name="mix"),
        node("Transpose", ["o"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "flat"], ["y"]),
    ]
    constants = {f"w{n}": (random.standard_normal((width, width)) / 14).astype(np.float32) for n in "qkv"}
    constants |= {"heads": shape, "flat": np.array([1, tokens, width]), "scale": np.float32(0.125)}  # type: ignore[dict-item]
    return small(nodes, (1, tokens, width), **constants)


def test_attention_of_an_8_bit_model_is_advised_at_16_bit_where_that_is_faster(tmp_path: Path) -> None:
    graph = graph_of(attention())
    names = {n.op.name for n in attention_nodes(graph)}
    assert {"MatMul", "Softmax"} <= names
    assert "FullyConnected" not in names

    def advised_at(precision: str, cost_file: str = "") -> dict[str, module.Advice]:  # type: ignore[name-defined]
        deployment = Deployment(precision=precision, cost_file=cost_file)
        return {a.rule: a for a in hexforge.advise(attention(), deployment, verify=False)}

    # by the fitted costs the conversions cost more than 16 bit saves; products that were slower at 8 bit would pay them
    assert "attention-at-16-bit" not in advised_at("w8a8")
    fitted = cost.fitted()
    slow = tmp_path / "slow_products.json"
    parameters = {**fitted["parameters"], "hmx.w8a8": 60 * fitted["parameters"]["hmx.w8a8"]}
    slow.write_text(json.dumps({**fitted, "parameters": parameters}))
    found = advised_at("w8a8", str(slow))["attention-at-16-bit"]
    assert not found.keeps_function
    assert any("softmax" in name for name in found.nodes)
    assert "attention-at-16-bit" not in advised_at("w8a16", str(slow))


def test_mixed_precision_lies_between_and_pays_for_conversions() -> None:
    graph = graph_of(attention())
    everything = [n.name for n in graph]
    whole = mixed_us(graph, Deployment("SM8650", "w8a8"), everything)
    wide = estimate(graph, Deployment("SM8650", "w8a16")).latency_ms * 1e3
    assert whole == pytest.approx(wide)
    assert mixed_us(graph, Deployment("SM8650", "w8a16"), everything) is None
    assert mixed_us(graph, Deployment("SM8650", "w8a8"), []) is None


def test_channel_last_inputs_are_advised_for_onnx_only() -> None:
    image = small(
        [node("Conv", ["x", "w"], ["u"]), node("GlobalAveragePool", ["u"], ["y"])],
        (1, 3, 512, 512),
        w=np.ones((32, 3, 3, 3), np.float32),
    )
    rules = {
        r: {a.rule for a in hexforge.advise(image, Deployment(precision="float", runtime=r))}
        for r in ("onnx", "qnn_dlc")
    }
    assert "channel-last-input" in rules["onnx"]
    assert "channel-last-input" not in rules["qnn_dlc"]


def _wrong(place: Place) -> Rewrite:
    """Not what Div means."""
    return place.instead("Div", lambda: place.add("Mul", *place.node.inputs))


def test_a_rewrite_that_changes_the_outputs_is_dropped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = RewriteRule("wrong", "Div is Mul", "It is not.", "nobody", "Do not.", True, op("Div"), _wrong)
    kept = [rule for rule in RULES if rule.name == "div-by-constant"]
    monkeypatch.setattr(module, "RULES", (wrong, *kept))
    found = advise_and_rewrite(divided(), Deployment("SM8650", "float"))
    assert found.applied == ("div-by-constant",)
    assert [rule for rule, _ in found.dropped] == ["wrong"]
    assert "differ" in found.dropped[0][1]


def test_a_rewrite_that_is_slower_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def slower(place: Place) -> Rewrite:
        x = place.node.inputs[0]
        return place.instead("Relu", lambda: place.add("Mul", x, place.add("Sigmoid", x)))

    slow = RewriteRule("slow", "Relu as Sigmoid", "It is slower.", "nobody", "Do not.", True, op("Relu"), slower)
    monkeypatch.setattr(module, "RULES", (slow,))
    data = small([node("Conv", ["x", "w"], ["u"]), node("Relu", ["u"], ["y"])], w=np.ones((32, 8, 3, 3), np.float32))
    found = advise_and_rewrite(data, Deployment("SM8650", "float"), request=AdviceRequest(min_gain=0))
    assert found.applied == ()
    assert found.after_us == found.before_us
    assert "slow" not in {a.rule for a in found.advice}


def test_quantized_weights_are_advised_whatever_they_gain() -> None:
    random = np.random.default_rng(2)
    data = small(
        [
            node("QuantizeLinear", ["x", "s", "z"], ["q"]),
            node("DequantizeLinear", ["q", "s", "z"], ["u"]),
            node("DequantizeLinear", ["codes", "s", "wz"], ["w"]),
            node("Conv", ["u", "w"], ["v"]),
            node("QuantizeLinear", ["v", "t", "z"], ["r"]),
            node("DequantizeLinear", ["r", "t", "z"], ["y"]),
        ],
        s=np.array(0.05, np.float32),
        t=np.array(0.5, np.float32),
        z=np.array(128, np.uint8),
        wz=np.array(128, np.uint8),
        codes=random.integers(0, 256, (8, 8, 3, 3)).astype(np.uint8),
    )
    found = advise_and_rewrite(data)
    (advice,) = [a for a in found.advice if a.rule != "samples-per-call"]
    assert advice.rule == "symmetric-weights"
    assert advice.accuracy
    assert found.applied == ("symmetric-weights",)
    assert found.error == 0


def test_files_without_weights_are_advised_on() -> None:
    shape = numpy_helper.from_array(np.array([32, 3, 3, 3], np.int64), "size")
    proto = onnx.load_from_string(divided())
    del proto.graph.initializer[[t.name for t in proto.graph.initializer].index("w")]
    proto.graph.initializer.append(shape)
    value = numpy_helper.from_array(np.array([0.01], np.float32))
    proto.graph.node.insert(0, node("ConstantOfShape", ["size"], ["w"], value=value))
    found = advise_and_rewrite(proto, Deployment("SM8650", "float"))
    assert "input-normalisation" in [a.rule for a in found.advice]
    assert found.error is not None


# -- comparing --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0.0, 2.0], [0.0, 1.9], 0.05),
        ([3.0, 3.0], [3.0, 3.3], 0.1),
        ([1.0, np.inf], [1.0, np.inf], 0.0),
        ([1.0, np.inf], [1.0, -np.inf], np.inf),
        ([1.0, np.nan], [1.0, 2.0], np.inf),
        ([np.nan], [np.nan], np.nan),
        ([1.0], [1.0, 1.0], np.inf),
    ],
)
def test_difference_is_relative_to_the_range(a: list[float], b: list[float], expected: float) -> None:
    found = relative_difference(np.array(a, np.float32), np.array(b, np.float32))
    assert found == pytest.approx(expected, rel=1e-5, nan_ok=True)


def test_samples_repeat() -> None:
    loaded = read(divided())
    for one, other in zip(random_inputs(loaded), random_inputs(loaded), strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in one)
    assert ReferenceOutputs(loaded).error(loaded) == (0, True)


def test_a_model_is_excused_for_roundings_it_enlarges_and_no_more() -> None:
    nodes = [
        node("Mul", ["x", "many"], ["turns"]),
        node("Sin", ["turns"], ["y"]),  # moves by hundreds of roundings for each of its input
        node("Mul", ["x", "two"], ["z"]),
    ]
    constants = {"many": np.array(300, np.float32), "two": np.array(2, np.float32)}
    loaded = read(model(nodes, {"x": (FLOAT, [64])}, {"y": (FLOAT, [64]), "z": (FLOAT, [64])}, constants))
    for allowed in ReferenceOutputs(loaded).allowed:
        assert allowed["z"] == pytest.approx(TOLERANCE)
        assert allowed["z"] < allowed["y"] <= MOST_NOISE


def test_inputs_that_roundings_move_are_left_out_where_there_are_others() -> None:
    # sin(90 x) + 1000 max(-x, 0): only where all inputs are above 0 is the first part all there is
    nodes = [
        node("Mul", ["x", "many"], ["u"]),
        node("Sin", ["u"], ["v"]),
        node("Mul", ["x", "back"], ["w"]),
        node("Relu", ["w"], ["r"]),
        node("Add", ["v", "r"], ["y"]),
    ]
    constants = {"many": np.array(90, np.float32), "back": np.array(-1000, np.float32)}
    loaded = read(model(nodes, {"x": (FLOAT, [4096])}, {"y": (FLOAT, [4096])}, constants))
    reference = ReferenceOutputs(loaded)
    assert len(reference.samples) == 1
    assert [allowed["y"] for allowed in reference.allowed] == [TOLERANCE]


def test_small_results_of_a_sigmoid_may_differ_by_the_roundings_of_one() -> None:
    nodes = [node("Add", ["x", "far"], ["u"]), node("Sigmoid", ["u"], ["y"])]
    loaded = read(model(nodes, {"x": (FLOAT, [64])}, {"y": (FLOAT, [64])}, {"far": np.array(-12, np.float32)}))
    for outputs, allowed in zip((r := ReferenceOutputs(loaded)).outputs, r.allowed, strict=True):
        assert TOLERANCE < allowed["y"] == pytest.approx(ROUNDINGS_OF_ONE / np.ptp(outputs["y"]))


# -- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "model.onnx"
    found.write_bytes(divided())
    return found


def invoke(*arguments: object) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, ["advise", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_gelu_with_constants_of_float16_is_advised_to_be_one_op() -> None:
    half = 10  # TensorProto.FLOAT16
    nodes = [
        node("Div", ["x", "root"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["a"]),
        node("Mul", ["x", "a"], ["m"]), node("Mul", ["m", "half"], ["y"]),
    ]  # fmt: skip
    constants = {name: np.array(n, np.float16) for name, n in (("root", 2**0.5), ("one", 1), ("half", 0.5))}
    data = model(nodes, {"x": (half, (1, 64))}, {"y": (half, (1, 64))}, constants)
    found = advise_and_rewrite(data, "SM8650")
    assert "gelu" in [advice.rule for advice in found.advice]
    refused = [
        [p.op_type for p in hexforge.InferenceSession(m, providers=["QNNExecutionProvider"]).placements if p.reason]
        for m in (data, model_bytes(found.rewritten))
    ]
    assert refused == [["Erf"], []]


def test_the_command_prints_advice(path: Path) -> None:
    out = invoke(path, "--soc", "SM8650", "--precision", "w8a8", "--report")
    assert "Normalisation of the input moves to pre-processing" in out
    assert "source:" in out
    assert "model.onnx on SM8650, w8a8, qnn_dlc" in out
    assert "div-by-constant" not in invoke(path, "--precision", "w8a8", "--min-gain", "99%")


def test_the_command_writes_what_computes_the_same(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    found = json.loads(invoke(path, "--precision", "float", "--apply", out, "--json"))
    assert found["written"] == str(out)
    assert found["after_us"] < found["before_us"]
    assert found["after_us"] == pytest.approx(estimate(out, Deployment("SM8650", "float")).latency_ms * 1e3, abs=0.01)
    x = np.random.default_rng(0).random((1, 3, 224, 224)).astype(np.float32)
    a, b = (onnxruntime.InferenceSession(str(p)).run(None, {"x": x})[0] for p in (path, out))
    np.testing.assert_allclose(b, a, atol=1e-4 * np.ptp(a))


def test_nothing_to_gain_writes_nothing(tmp_path: Path) -> None:
    given, out = tmp_path / "plain.onnx", tmp_path / "out.onnx"
    given.write_bytes(small([node("Relu", ["x"], ["y"])]))
    assert "not written" in invoke(given, "--precision", "w8a8", "--apply", out)
    assert not out.exists()


Call = Callable[[Path], object]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda p: invoke(p, "--apply", p), "another file"),
        (lambda p: invoke(p, "--min-gain", "much"), "percentage"),
        (lambda p: invoke(p, "--min-gain", "100"), "below 100"),
        (lambda p: invoke(p, "--no-verify", "--apply", p.parent / "o.onnx"), "verified"),
        (lambda p: advise_and_rewrite(p, request=AdviceRequest(min_gain=2)), "min_gain"),
        (lambda p: advise_and_rewrite(p, "SM1"), "SM1"),
        (lambda p: advise_and_rewrite(p, Deployment(precision="w3a3")), "w3a3"),
        (lambda p: advise_and_rewrite(p, Deployment(precision="w8a8", runtime="snpe")), "snpe"),
    ],
)
def test_wrong_calls_are_said(call: Call, words: str, path: Path) -> None:
    data = path.read_bytes()
    with pytest.raises(CallError, match=words):
        call(path)
    assert path.read_bytes() == data


def test_an_op_that_cannot_be_timed_is_said() -> None:
    with pytest.raises(UnsupportedError, match="Det"):
        advise_and_rewrite(small([node("Det", ["x"], ["y"])], (2, 3, 3)))


def test_advice_reads_as_json() -> None:
    found = advise_and_rewrite(divided(), Deployment("SM8650", "w8a8"), request=AdviceRequest(verify=False))
    assert json.loads(json.dumps(found.to_json()))["advice"][0]["gain_percent"] > 1
    assert dataclasses.is_dataclass(found.advice[0])


def test_a_normalization_that_every_path_folds_is_no_advice() -> None:
    found = {a.rule for a in hexforge.advise(light("resnet50"), verify=False)}
    assert "fold-after-conv" not in found
    rows = estimate(light("resnet50")).rows
    assert not any("BatchNorm" in op for row in rows for op in (row.op, *row.ops))


def test_a_float_model_is_told_to_be_quantized_with_the_promised_gain() -> None:
    source = light("squeezenet")
    (advice,) = [a for a in hexforge.advise(source, verify=False) if a.rule == "quantize"]
    promised = min(estimate(source, Deployment(precision=p), built=True).latency_ms for p in ("w8a8", "w8a16"))
    assert advice.after_us == pytest.approx(promised * 1e3)
    assert "hexforge quantize" in advice.how
    assert not advice.keeps_function
    quantized = hexforge.quantize(source, "random:1").model
    assert quantized is not None
    for other, deployment in ((quantized, Deployment()), (source, Deployment(precision="w8a8"))):
        assert "quantize" not in {a.rule for a in hexforge.advise(other, deployment, verify=False)}


def test_advice_on_the_hosts_share_is_for_models_that_wait_for_it() -> None:
    small = {a.rule: a for a in hexforge.advise(DIGITS, verify=False)}
    assert small["samples-per-call"].gain > 0.3
    assert "samples-per-call" not in {a.rule for a in hexforge.advise(light("resnet50"), verify=False)}


def test_folding_the_normalisation_is_advised_and_the_built_file_has_it() -> None:
    image = small(
        [node("Sub", ["x", "m"], ["c"]), node("Div", ["c", "s"], ["n"]), node("Conv", ["n", "w"], ["u"]),
         node("GlobalAveragePool", ["u"], ["y"])],
        (1, 3, 224, 224),
        m=np.full((1, 3, 1, 1), 0.4, np.float32), s=np.full((1, 3, 1, 1), 0.2, np.float32),
        w=np.ones((32, 3, 3, 3), np.float32),
    )  # fmt: skip
    advice = {a.rule: a for a in hexforge.advise(image, Deployment(precision="w8a8"))}
    assert advice["fold-before-conv"].gain_us > 50  # a converter keeps the division, `quantize` folds it
    as_built = hexforge.estimate(image, Deployment(precision="w8a8"), built=True, quantized_io=True)
    assert as_built.latency_ms * 1e3 < advice["fold-before-conv"].before_us - 50
