# SPDX-License-Identifier: Apache-2.0
"""Improve: steps are kept where samples kept apart agree, and the result is never worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir
import pytest

from hexforge.errors import CallError
from hexforge.ir import ScaleOffset
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.feeds import Feeds, SampleRunner
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.recipe import Recipe
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.quant.improve import tune
from hexforge.quant.improve.side_by_side import session
from hexforge.quant.improve.tune import Judge, Score, improve
from tests.quant.networks import Network

ALL = "w8a8+equalize+range+adaround+bias"


def _load(model: onnx_ir.Model) -> SampleRunner:
    run = session(model)
    names = [output.name for output in run.get_outputs()]
    return lambda feeds: dict(zip(names, run.run(None, dict(feeds)), strict=True))


def _network() -> tuple[onnx_ir.Model, list[Feeds], list[Feeds]]:
    net = Network((1, 3, 10, 10))
    x = net.node("Relu", net.conv("x", 3, 12, spread=True))
    x = net.node("Relu", net.conv(x, 12, 12, spread=True))
    x = net.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return net.model(net.conv(x, 12, 4, 1)), net.samples(18), net.samples(8, seed=9)


def test_all_of_it_is_better_on_samples_nobody_saw() -> None:
    model, samples, unseen = _network()
    statistics, judge = calibrate(model, samples), Judge(model, unseen, _load)
    before = improve(model, statistics, samples, recipe("w8a8"), _load)
    assert not before.tried
    said: list[tuple[str, int, int]] = []
    after = improve(model, statistics, samples, recipe(ALL), _load, progress=lambda *words: said.append(words))
    assert judge(after.model, after.plan) > judge(before.model, before.plan) + 3
    assert {t.name.split(":")[0].split(",")[0] for t in after.tried} == {"equalize", "range", "adaround", "bias"}
    assert {what for what, _, _ in said} >= {"correcting biases", "rounding weights", "calibrating, equalized"}
    for earlier, later in zip(after.tried, after.tried[1:], strict=False):
        assert later.before_db == (earlier.after_db if earlier.kept else earlier.before_db)
        assert not earlier.kept or earlier.after_db > earlier.before_db


def test_a_gain_by_chance_is_no_gain() -> None:
    before = Score(30.0, np.array([30, 30, 30, 30], np.float64))
    assert Score(31.0, np.array([31, 31, 30.8, 31.2], np.float64)).better(before, 0.5)
    assert not Score(30.4, np.array([30.4, 30.4, 30.4, 30.4], np.float64)).better(before, 0.5)
    assert not Score(35.0, np.array([45, 25, 28, 29], np.float64)).better(before, 0.5)  # one sample's luck


def test_the_same_samples_give_the_same_plan() -> None:
    model, samples, _ = _network()
    statistics = calibrate(model, samples)
    first, second = (improve(model, statistics, samples, recipe(ALL), _load) for _ in range(2))
    assert first.plan.tensors == second.plan.tensors
    assert all(np.array_equal(first.plan.integers[k], second.plan.integers[k]) for k in first.plan.integers)


@pytest.mark.parametrize("step", ["round_weights", "equalize", "correct_biases"])
def test_a_step_that_makes_it_worse_is_dropped_and_said(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def harmful(model: onnx_ir.Model, *rest: Any, **more: Any) -> Any:
        if step == "equalize":
            first = next(v for v in model.graph.initializers.values() if len(v.shape or ()) == 4)
            assert first.const_value is not None
            first.const_value = onnx_ir.tensor(0 * first.const_value.numpy(), name=first.name)
            return 1
        plan = rest[0]
        found = plan.copied()
        for name, value in model.graph.initializers.items():
            if step == "round_weights" and name in found.tensors:
                found.integers[name] = np.zeros(tuple(value.shape or ()), np.int8)  # type: ignore[type-var]
            elif step == "correct_biases" and len(value.shape or ()) == 1:
                found.constants[name] = np.full(tuple(value.shape or ()), 9, np.float32)  # type: ignore[type-var]
        return found

    monkeypatch.setattr(tune, step, harmful)
    model, samples, unseen = _network()
    word = {"round_weights": "adaround", "equalize": "equalize", "correct_biases": "bias"}[step]
    statistics, judge = calibrate(model, samples), Judge(model, unseen, _load)
    found = improve(model, statistics, samples, recipe(f"w8a8+{word}"), _load)
    bad = found.tried[-1]
    assert bad.name.split(":")[0] == word
    assert not bad.kept
    plain = improve(model, statistics, samples, recipe("w8a8"), _load)
    assert judge(found.model, found.plan) == judge(model, plain.plan)


def test_of_ranges_proposed_the_part_that_helps_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first tensors are better with the proposal, the last one is much worse."""
    real, (model, samples, unseen) = tune.assign, _network()  # type: ignore[attr-defined]
    wide, spoiled = str(model.graph.inputs[0].name), str(model.graph.outputs[0].name)

    def scaled(fixed: Fixed, factor: float) -> Fixed:
        assert isinstance(fixed.encoding, ScaleOffset)
        return replace(fixed, encoding=replace(fixed.encoding, scale=fixed.encoding.scale * factor))

    def proposing(of: Any, statistics: Any, chosen: Recipe, *, given: Any, **more: Any) -> EncodingPlan:
        plan = real(of, statistics, chosen, given=given, **more)
        if chosen.method == "mse":
            plan.tensors[spoiled] = scaled(plan.tensors[spoiled], 1 / 30)
        elif wide not in given:
            plan.tensors[wide] = scaled(plan.tensors[wide], 8)
        return plan

    monkeypatch.setattr(tune, "assign", proposing)
    monkeypatch.setattr(tune, "METHODS", ("mse",))
    found = improve(model, calibrate(model, samples), samples, recipe("w8a8+range"), _load)
    tried = [t for t in found.tried if "encodings" in t.name]
    assert not tried[0].kept
    assert any(t.kept for t in tried[1:])
    assert Judge(model, unseen, _load)(model, found.plan) > found.tried[0].before_db + 3


def test_a_saturated_output_is_judged_by_what_goes_into_it() -> None:
    net = Network((1, 3, 6, 6))
    x = net.node("Flatten", net.node("GlobalAveragePool", net.conv("x", 3, 4)))
    logits = net.node("Mul", x, net.constant(np.float32(200)))
    net.node("Softmax", logits, axis=1)
    model, samples = net.model(net.nodes[-1].output[0]), net.samples(6)
    plan = improve(model, calibrate(model, samples), samples, recipe("w8a8"), _load).plan
    judge = Judge(model, samples, _load, unsaturated=True)
    assert judge.names == [logits]
    assert Judge(model, samples, _load).names == [net.nodes[-1].output[0]]
    assert 20 < judge(model, plan) < 50
    assert [v.name for v in model.graph.outputs] == [net.nodes[-1].output[0]]  # the model is left as it is


@pytest.mark.parametrize("count", [1, 2, 3, 5, 100])
def test_samples_are_kept_apart_where_there_are_several(count: int) -> None:
    fitted, judged = tune._split([{"x": np.array([i], np.float32)} for i in range(count)])
    ids = [{float(s["x"][0]) for s in part} for part in (fitted, judged)]
    assert ids[0]
    assert ids[1]
    assert count == 1 or not ids[0] & ids[1]
    assert len(fitted) <= tune.FITTED
    assert len(judged) <= tune.JUDGED


def test_no_samples_is_said() -> None:
    model, samples, _ = _network()
    with pytest.raises(CallError, match="at least one sample"):
        improve(model, calibrate(model, samples), [], recipe("w8a8+bias"), _load)


def test_given_encodings_stand() -> None:
    model, samples, _ = _network()
    statistics = calibrate(model, samples)
    name = str(next(iter(model.graph)).inputs[0].name)
    given = improve(model, statistics, samples, recipe("w8a8"), _load).plan.tensors[name]
    given = replace(given, encoding=replace(given.encoding, scale=given.encoding.scale * 1.25))  # type: ignore[arg-type]
    found = improve(model, statistics, samples, recipe(ALL), _load, given={name: given})
    assert found.plan.tensors[name] == given
