# SPDX-License-Identifier: Apache-2.0
"""Outputs that join boxes and scores: quantized to 8 bits, both keep their meaning without anybody asking for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir
import pytest

import hexforge
from hexforge.analysis.quality.runners import runner
from hexforge.chips.deployment import Deployment
from hexforge.ir import DType, ScaleOffset
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.improve.tune import Judge
from hexforge.runtime import registry
from tests.quant.networks import Network, run

BOXES, CLASSES, SIDE = 4, 3, 16
ANCHORS = SIDE * SIDE
NO_FLOAT = "QCS6490"


def head(kind: str) -> tuple[Network, onnx_ir.Model]:
    """A detector of one layer whose output has boxes of up to some hundred and scores of 0 to 1."""
    net = Network((1, 3, SIDE, SIDE))
    features = net.node("Relu", net.conv("x", 3, 8))
    grid = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE))).reshape(1, 2, -1).astype(np.float32)

    def flat(x: str, channels: int) -> str:
        return net.node("Reshape", x, net.constant(np.array([1, channels, -1])))

    distances = flat(net.conv(features, 8, BOXES, size=1), BOXES)
    logits = flat(net.conv(features, 8, CLASSES, size=1), CLASSES)
    if kind == "one Sigmoid":  # as YOLOv5: one Sigmoid over everything, boxes are computed of its slices
        both = net.node("Sigmoid", net.node("Concat", distances, logits, axis=1))
        sizes = net.constant(np.array([BOXES, CLASSES]))
        near = net.node("Split", both, sizes, outputs=2, axis=1)
        near, scores = near, f"{near}_1"
    else:
        near, scores = net.node("Relu", distances), net.node("Sigmoid", logits)
    if kind == "multiplied behind":  # boxes of 0 to 1 beside scores, then times (640, 640, 640, 640, 1, 1, 1)
        boxes = net.node("Sigmoid", distances)
        factors = net.constant(np.array([640.0] * BOXES + [1.0] * CLASSES, np.float32).reshape(1, -1, 1))
        return net, net.model(net.node("Mul", net.node("Concat", boxes, scores, axis=1), factors))
    boxes = net.node("Add", near, net.constant(np.concatenate([grid, grid], 1)))
    boxes = net.node("Mul", boxes, net.constant(np.float32(32.0)))
    joined = net.node("Concat", boxes, scores, axis=1)
    match kind:
        case "transposed":
            joined = net.node("Transpose", joined, perm=[0, 2, 1])
        case "joined twice":
            joined = net.node("Concat", joined, joined, axis=2)
        case "scaled":
            joined = net.node("Mul", joined, net.constant(np.float32(0.5)))
    return net, net.model(joined)


KINDS = ("plain", "transposed", "joined twice", "scaled", "one Sigmoid", "multiplied behind")


def parts(output: Any) -> tuple[Any, Any]:
    """Boxes and scores, [channels, anchors] each."""
    array = output[0] if output.shape[1] == BOXES + CLASSES else output[0].T
    return array[:BOXES], array[BOXES:]


@pytest.mark.parametrize("soc", ["", NO_FLOAT])
@pytest.mark.parametrize("kind", KINDS)
def test_boxes_and_scores_survive_eight_bits(kind: str, soc: str) -> None:
    net, model = head(kind)
    samples = net.samples(6)
    built = hexforge.quantize(to_bytes(model), samples, soc=soc or None)
    assert built.model is not None
    assert built.placed_whole
    (told,) = built.plan.mixed_heads.values()
    assert ("16 bits" in told) == bool(soc)
    on_chip = runner(built.model, registry.backend("htp", {"soc_model": soc} if soc else {}))
    for feeds in net.samples(3, seed=1):
        boxes, scores = parts(run(model, feeds)[0])
        (output,) = on_chip(feeds).values()
        coarse_boxes, coarse_scores = parts(output)
        assert scores.std() > 0.1
        assert np.abs(scores - coarse_scores).max() < 0.06
        assert np.abs(boxes - coarse_boxes).max() < 0.03 * np.ptp(boxes)


def planned(model: onnx_ir.Model, net: Network, words: str, *, floats: bool = True) -> EncodingPlan:
    statistics = calibrate(model, net.samples(2))
    return assign(model, statistics, recipe(words), arithmetic=ChipArithmetic(floats=floats))


def node_of(model: onnx_ir.Model, op: str) -> onnx_ir.Node:
    return [node for node in model.graph if node.op_type == op][-1]


def test_large_parts_are_computed_in_16_bits_and_small_ones_in_eight() -> None:
    net, model = head("plain")
    plan = planned(model, net, "w8a8")
    concat = node_of(model, "Concat")
    boxes, scores = (plan.tensors[str(value.name)] for value in concat.inputs if value is not None)
    assert boxes.dtype is DType.UINT16
    assert scores.dtype is DType.UINT8
    assert concat.outputs[0].name not in plan.tensors
    assert plan.mixed_heads == {str(concat.outputs[0].name): plan.floats[str(concat.name)]}


def test_without_float_math_the_join_has_16_bits() -> None:
    net, model = head("transposed")
    plan = planned(model, net, "w8a8", floats=False)
    for op in ("Concat", "Transpose", "Mul", "Add"):
        assert plan.tensors[str(node_of(model, op).outputs[0].name)].dtype is DType.UINT16
    assert not plan.floats


@pytest.mark.parametrize("bits", ["w8a8", "w8a16", "float"])
def test_what_the_recipe_says_of_the_join_stands(bits: str) -> None:
    net, model = head("plain")
    plan = planned(model, net, f"w8a8; op:Concat={bits}")
    fixed = plan.tensors.get(str(node_of(model, "Concat").outputs[0].name))
    assert ("float" if fixed is None else f"w8a{fixed.dtype.bits}") == bits
    if bits != "w8a16":
        assert not plan.mixed_heads


def test_parts_of_like_ranges_share_one_scale() -> None:
    net = Network((1, 3, SIDE, SIDE))
    joined = net.node("Concat", net.conv("x", 3, 4), net.conv("x", 3, 4), axis=1)
    model = net.model(joined)
    plan = planned(model, net, "w8a8")
    assert not plan.mixed_heads
    assert not plan.floats
    assert plan.tensors[joined].dtype is DType.UINT8


def test_a_join_inside_the_network_stays() -> None:
    net = Network((1, 3, SIDE, SIDE))
    large = net.node("Mul", net.conv("x", 3, 4), net.constant(np.float32(100.0)))
    joined = net.node("Concat", large, net.node("Sigmoid", net.conv("x", 3, 4)), axis=1)
    model = net.model(net.conv(joined, 8, 4))
    plan = planned(model, net, "w8a8")
    assert not plan.mixed_heads
    assert plan.tensors[joined].dtype is DType.UINT8


@pytest.mark.parametrize("soc", [Deployment().soc, NO_FLOAT])
@pytest.mark.parametrize("kind", KINDS)
def test_promised_is_built(kind: str, soc: str) -> None:
    net, model = head(kind)
    source = to_bytes(model)
    promised = hexforge.estimate(source, Deployment(soc, precision="w8a8"), built=True)
    built = hexforge.quantize(source, net.samples(2), soc=soc)
    assert built.model is not None
    assert hexforge.estimate(built.model, Deployment(soc)).latency_ms == pytest.approx(promised.latency_ms, rel=0.02)


def sparse_scores(count: int, seed: int) -> tuple[onnx_ir.Model, list[Any]]:
    """A head whose scores are near 0 but for one in a thousand, and samples of it."""
    net = Network((1, 1, SIDE, SIDE))
    scores = net.node("Sigmoid", net.node("Add", "x", net.constant(np.float32(-6.0))))
    boxes = net.node("Mul", net.node("Relu", net.conv("x", 1, 1)), net.constant(np.float32(50.0)))
    random = np.random.default_rng(seed)
    samples = []
    for _ in range(count):
        x = random.standard_normal(net.shape).astype(np.float32)
        x[0, 0, int(random.integers(SIDE)), int(random.integers(SIDE))] = 9.0
        samples.append({"x": x})
    return net.model(net.node("Concat", boxes, scores, axis=1)), samples


@pytest.mark.parametrize("words", ["w8a8+percentile=99", "w8a8+mse", "w8a8+entropy"])
def test_no_method_cuts_rare_scores_off(words: str) -> None:
    model, samples = sparse_scores(10, 1)
    plan = assign(model, calibrate(model, samples), recipe(words))
    scores = plan.tensors[str(node_of(model, "Sigmoid").outputs[0].name)].encoding
    assert isinstance(scores, ScaleOffset)
    assert 255 * scores.scale > 0.9


def test_improvements_are_judged_by_every_part() -> None:
    net, model = head("plain")
    plan = planned(model, net, "w8a8")
    concat = node_of(model, "Concat")
    assert plan.mixed_parts == {str(concat.outputs[0].name): tuple(str(v.name) for v in concat.inputs if v is not None)}
    samples = net.samples(2)
    judge = Judge(model, samples, lambda written: runner(to_bytes(written), "htp"), parts=plan.mixed_parts)
    assert judge.names == [str(v.name) for v in concat.inputs if v is not None]
    assert judge(model, plan) > 20
