# SPDX-License-Identifier: Apache-2.0
"""Bias correction: the outputs of quantized layers have the float layers' means."""

from __future__ import annotations

import numpy as np
import pytest

from hexforge.patterns.layers import layer
from hexforge.quant.decide.encoding_plan import EncodingPlan
from hexforge.quant.improve.bias import bias_of, correct_biases
from hexforge.quant.improve.side_by_side import Walk
from tests.quant.networks import Network, plain, sqnr


def _deep(seed: int = 0) -> Network:
    net = Network((1, 3, 8, 8), seed)
    x = net.node("Relu", net.conv("x", 3, 8, spread=True))
    for _ in range(3):
        x = net.node("Relu", net.conv(x, 8, 8, spread=True))
    x = net.node("Flatten", net.node("GlobalAveragePool", x))
    net.node("Gemm", x, net.constant(net.normal(8, 4)), net.constant(net.normal(4)))
    return net


def _worst_shift(net: Network, plan: EncodingPlan | None) -> float:
    """How far the mean of a layer's channel is off, of all, over the samples it was corrected on."""
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(6)
    plan = plan or correct_biases(model, plain(model, samples, 4), samples)
    worst = 0.0
    for step in Walk(model, plan, samples):
        here = layer(step.node)
        if here is None:
            continue
        means = [
            np.mean([np.moveaxis(o[0], here.channel_axis, 0).reshape(here.outputs, -1).mean(1) for o in outputs], 0)
            for outputs in (step.outputs(True), step.outputs(False))
        ]
        worst = max(worst, float(np.abs(means[0] - means[1]).max()))
    return worst


def test_means_are_the_float_models_behind_corrected_layers() -> None:
    net = _deep()
    before = _worst_shift(net, plain(net.model(net.nodes[-1].output[0]), net.samples(6), 4))
    assert before > 0.05
    assert _worst_shift(net, None) < 1e-4 * before


@pytest.mark.parametrize("seed", range(3))
def test_unseen_samples_come_out_better(seed: int) -> None:
    net = _deep(seed)
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(16)
    before = plain(model, samples, 4)
    after = correct_biases(model, before, samples)
    unseen = net.samples(8, seed=99)
    assert sqnr(model, after, unseen) > sqnr(model, before, unseen) + 2


def test_the_plan_given_is_left_and_two_runs_agree() -> None:
    net = _deep()
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(4)
    plan, said = plain(model, samples), []
    first = correct_biases(model, plan, samples, lambda done, whole: said.append((done, whole)))
    assert not plan.constants
    second = correct_biases(model, plan, samples)
    assert first.constants.keys() == second.constants.keys()
    assert len(first.constants) == 5
    assert all(np.array_equal(first.constants[k], second.constants[k]) for k in first.constants)
    assert said == [(i + 1, len(model.graph)) for i in range(len(model.graph))]


def test_the_row_added_to_a_product_is_its_bias() -> None:
    net = Network((1, 5, 6))
    x = net.node("Add", net.node("MatMul", "x", net.constant(net.normal(6, 8))), net.constant(net.normal(8)))
    x = net.node("MatMul", net.node("Relu", x), net.constant(net.normal(8, 4)))
    model = net.model(x)
    first, second = (found for found in map(layer, model.graph) if found is not None)
    row = bias_of(first)
    assert row is not None
    assert bias_of(second) is None
    samples = net.samples(4)
    plan = correct_biases(model, plain(model, samples, 4), samples)
    assert set(plan.constants) == {row.name}


def test_a_bias_of_two_layers_is_left() -> None:
    net = Network((1, 4, 6, 6))
    bias = net.constant(net.normal(4))
    x = net.node("Conv", "x", net.constant(net.normal(4, 4, 1, 1)), bias)
    x = net.node("Conv", x, net.constant(net.normal(4, 4, 1, 1)), bias)
    model, samples = net.model(x), net.samples(2)
    assert not correct_biases(model, plain(model, samples, 4), samples).constants


def test_means_that_are_known_spare_the_float_model() -> None:
    net = _deep()
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(6)
    plan, means = plain(model, samples, 4), {}
    first = correct_biases(model, plan, samples, means=means)
    assert means
    walked = Walk(model, plan, samples, coarse_only=True)
    for _ in walked:
        pass
    assert set(walked.exact) <= {"x"}
    second = correct_biases(model, plan, samples, means=means)
    assert first.constants.keys() == second.constants.keys()
    assert all(np.array_equal(first.constants[name], second.constants[name]) for name in first.constants)
