# SPDX-License-Identifier: Apache-2.0
"""Rounding for a layer's output: less error than to the nearest, integers that fit, every kind of layer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hexforge.ir import AxisScaleOffset, DType, TensorType
from hexforge.ir.fixed_point import encoding_fault
from hexforge.patterns.layers import Layer, layer
from hexforge.patterns.nodes import float_constant
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.ranges import weight_encoding
from hexforge.quant.improve import rounding
from hexforge.quant.improve.rounding import round_weights
from hexforge.quant.improve.side_by_side import Walk
from tests.quant.networks import Network, plain, run, scale_of, sqnr


def _smooth(shape: tuple[int, ...], count: int, seed: int = 1) -> list[Feeds]:
    """Inputs whose neighbours are alike, as in pictures: what compensating lives on."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        array = random.standard_normal(shape)
        for axis in range(1, len(shape)):
            array = np.cumsum(array, axis) / np.sqrt(shape[axis])
        found.append({"x": array.astype(np.float32)})
    return found  # type: ignore[return-value]


def _one(kind: str) -> Network:
    net = Network((8, 12) if kind == "Gemm" else (1, 5, 12) if kind == "MatMul" else (1, 6, 9, 9))
    match kind:
        case "Conv":
            net.conv("x", 6, 8)
        case "strided":
            net.conv("x", 6, 8, strides=[2, 1], pads=[1, 0, 0, 1])
        case "dilated":
            net.conv("x", 6, 8, dilations=[2, 3], pads=[2, 3, 2, 3])
        case "depthwise":
            net.conv("x", 6, 12, group=6)
        case "grouped":
            net.conv("x", 6, 8, group=2)
        case "Gemm":
            net.node("Gemm", "x", net.constant(net.normal(8, 12)), net.constant(net.normal(8)), transB=1)
        case "MatMul":
            net.node("MatMul", "x", net.constant(net.normal(12, 8)))
        case "ConvTranspose":
            net.node("ConvTranspose", "x", net.constant(net.normal(6, 3, 2, 2)), group=2)
    return net


KINDS = ("Conv", "strided", "dilated", "depthwise", "grouped", "Gemm", "MatMul")


def _layer(net: Network) -> tuple[Layer, str]:
    found = layer(next(iter(net.model(net.nodes[-1].output[0]).graph)))
    assert found is not None
    return found, str(found.weight.name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("per_channel", [False, True])
def test_each_step_lowers_the_error(kind: str, per_channel: bool) -> None:
    net = _one(kind)
    model = net.model(net.nodes[-1].output[0])
    here, name = _layer(net)
    samples, unseen = _smooth(net.shape, 12), _smooth(net.shape, 6, 77)
    plan = plain(model, samples, 4)
    if per_channel:
        weight = float_constant(here.weight)
        assert weight is not None
        plan.tensors[name] = Fixed(DType.INT4, weight_encoding(weight, DType.INT4, axis=here.output_axis))
    plan.tensors.pop(str(model.graph.outputs[0].name))  # what is left is the weight's own error
    scaled = round_weights(model, plan, samples, compensate=False)
    compensated = round_weights(model, plan, samples, compensate=True)
    nearest, best, compensated_db = (sqnr(model, p, unseen) for p in (plan, scaled, compensated))
    assert best > nearest - 0.3
    assert compensated_db > max(nearest + 1, best)
    for found in (scaled, compensated):
        fixed, integers = found.tensors[name], found.integers[name]
        assert encoding_fault(TensorType(fixed.dtype, integers.shape, fixed.encoding)) is None
        assert integers.shape == tuple(here.weight.shape or ())
        assert integers.dtype == DType.INT4.numpy
        assert isinstance(fixed.encoding, AxisScaleOffset) == per_channel


@pytest.mark.parametrize("kind", KINDS)
def test_patches_are_what_outputs_are_made_of(kind: str) -> None:
    net = _one(kind)
    model = net.model(net.nodes[-1].output[0])
    here, _ = _layer(net)
    feeds = net.samples(1)[0]
    x = np.asarray(feeds["x"])
    found = rounding._patches(here, [x, 2 * x], 1 << 30, np.random.default_rng(0))
    assert found is not None
    weight, bias = float_constant(here.weight), float_constant(here.bias)
    assert weight is not None
    matrix = here.matrix(weight).reshape(here.group, here.outputs // here.group, -1)
    made = (found[0] @ matrix.swapaxes(1, 2)).swapaxes(0, 1).reshape(-1, here.outputs)
    made = made + (0 if bias is None else bias)
    expected = np.moveaxis(run(model, feeds)[0], here.channel_axis, -1).reshape(-1, here.outputs)
    np.testing.assert_allclose(np.sort(made, 0), np.sort(expected, 0), rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(found[1], 2 * found[0])


def test_a_layer_without_patches_is_rounded_to_the_nearest() -> None:
    net = _one("ConvTranspose")
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(2)
    plan = plain(model, samples)
    assert round_weights(model, plan, samples, compensate=True) == plan


def test_long_rows_are_rounded_in_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    net = _one("Conv")
    model, samples = net.model(net.nodes[-1].output[0]), _smooth(net.shape, 8)
    plan, unseen = plain(model, samples, 4), _smooth(net.shape, 4, 5)
    monkeypatch.setattr(rounding, "COLUMNS", 20)
    assert [s.stop - s.start for s in rounding.parts(54)] == [18, 18, 18]
    assert sqnr(model, round_weights(model, plan, samples, compensate=True), unseen) > sqnr(model, plan, unseen) + 1


def test_later_layers_see_earlier_ones_rounded_and_the_whole_is_better() -> None:
    net = Network((1, 3, 10, 10))
    x = net.node("Relu", net.conv("x", 3, 12, spread=True))
    x = net.node("Relu", net.conv(x, 12, 12, spread=True))
    model = net.model(net.conv(x, 12, 4, 1))
    samples, unseen = _smooth(net.shape, 12), _smooth(net.shape, 6, 31)
    plan = plain(model, samples, 4)
    better = round_weights(model, plan, samples, compensate=True, correct_bias=True)
    assert sqnr(model, better, unseen) > sqnr(model, plan, unseen) + 3
    assert len(better.constants) == 3
    assert not plan.integers


def test_the_same_seed_gives_the_same_plan() -> None:
    net = _one("Conv")
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(3)
    name, plan = _layer(net)[1], plain(model, samples, 4)
    first, second = (round_weights(model, plan, samples, compensate=True, seed=5) for _ in range(2))
    assert np.array_equal(first.integers[name], second.integers[name])
    assert scale_of(first, name) == scale_of(second, name)


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    net = Network((1, 4, 5, 5))
    model = net.model(net.conv("x", 4, 4))
    samples: list[Feeds] = [{"x": np.zeros(net.shape, np.float32)}]
    found = round_weights(model, plain(model, samples), samples, compensate=True)
    assert np.isfinite(Walk(model, found, samples).samples[0]["x"]).all()
    assert all(np.isfinite(a.astype(np.float32)).all() for a in found.integers.values())


def test_weights_that_are_not_quantized_are_left() -> None:
    net = _one("Conv")
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(2)
    assert round_weights(model, EncodingPlan(), samples, compensate=True) == EncodingPlan()


@settings(max_examples=25)
@example(seed=3, groups=1, size=3, outputs=1)  # where greedy rounding alone loses to the nearest
@given(st.integers(0, 2**31), st.integers(1, 3), st.integers(1, 30), st.integers(1, 4))
def test_compensated_integers_are_in_range_and_no_worse_in_the_measure_they_minimize(
    seed: int, groups: int, size: int, outputs: int
) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_normal((groups, 50, size)) @ random.standard_normal((groups, size, size))
    moments = (x.swapaxes(1, 2) @ x / 50).astype(np.float32)
    weight = random.standard_normal((groups, outputs, size)).astype(np.float32)
    step = np.full_like(weight, np.abs(weight).max() / 7)
    grid = rounding._Grid(step, np.zeros_like(step), -8, 7)
    found = rounding._compensated(weight, grid, moments)
    assert ((found >= -8) & (found <= 7) & (found == np.rint(found))).all()

    def loss(integers: np.ndarray) -> float:
        lack = weight - grid.real(integers)
        return float(((lack @ moments) * lack).sum())

    assert loss(found) <= loss(grid.nearest(weight)) * (1 + 1e-5) + 1e-6


@pytest.mark.parametrize("together", [False, True])
def test_scales_are_the_best_of_all_factors(together: bool) -> None:
    random = np.random.default_rng(7)
    wanted = random.standard_normal((2, 5, 24)).astype(np.float32) ** 3
    inputs = random.standard_normal((2, 64, 24)).astype(np.float32)
    seen = rounding._LayerInputs(inputs, inputs, inputs, inputs)
    scale = np.abs(wanted).max(-1, keepdims=True) / 7 * np.ones_like(wanted)
    grid = rounding._Grid(scale, np.zeros_like(wanted), -8, 7)
    losses = []
    for factor in rounding._FACTORS:
        tried = rounding._Grid(scale * factor, grid.offset, -8, 7)
        lack = wanted - tried.real(tried.nearest(wanted))
        loss = np.square(inputs @ lack.swapaxes(1, 2)).mean(1)
        losses.append(np.full_like(loss, loss.sum()) if together else loss)
    found = rounding._factors(grid, wanted, seen, together=together)
    least = np.min(losses, 0)
    picked = [list(rounding._FACTORS).index(f) for f in found.ravel()]
    reached = np.array([losses[k].ravel()[i] for i, k in enumerate(picked)])
    # two factors in a row that are no better end the search: what it finds is the best, or very nearly
    assert (reached <= 1.1 * least.ravel()).all()
    assert np.mean(reached == least.ravel()) >= 0.8


def test_columns_make_up_for_those_before_them() -> None:
    random = np.random.default_rng(11)
    inputs = np.cumsum(random.standard_normal((1, 256, 12)), axis=2).astype(np.float32)
    moments = inputs.swapaxes(1, 2) @ inputs / 256
    wanted = random.uniform(-4, 4, (1, 6, 12)).astype(np.float32)
    grid = rounding._Grid(np.ones_like(wanted), np.zeros_like(wanted), -8, 7)
    moved = rounding._compensated(wanted, grid, moments)
    assert np.array_equal(moved, np.rint(moved))
    before, after = (rounding._losses(wanted - q, moments) for q in (grid.nearest(wanted), moved))
    assert (after <= before).all()
    assert after.sum() < 0.3 * before.sum()
