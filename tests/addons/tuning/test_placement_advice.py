# SPDX-License-Identifier: Apache-2.0
"""Advice on placement comes first: the rewrite, the input to pin or the op that brings nodes onto the NPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

import hexforge
from hexforge.addons.tuning.advice import placement_advice
from hexforge.addons.tuning.advice.advise import AdviceRequest, advise_and_rewrite
from hexforge.addons.tuning.advice.command import advise
from hexforge.addons.tuning.advice.result import SLOWER
from hexforge.addons.tuning.advice.whole_cost import IMPOSSIBLE, WholeCost
from hexforge.cli.request_options import CommandGroup
from hexforge.model.reader import read
from hexforge.patterns.input_numbers import setting_values
from tests.addons.tuning.test_rewrites import built, conv, numbers
from tests.ort.models import FLOAT, model, node

INT64, BOOL = TensorProto.INT64, TensorProto.BOOL
Inputs = dict[str, tuple[int, Sequence[Any] | None]]
app = CommandGroup()
app.command()(advise)


def energies() -> bytes:
    """An audio front end: a sum of squares between convolutions."""
    nodes = [
        conv("x", "c", "w"),
        node("ReduceSumSquare", ["c"], ["e"], axes=[1], name="energy"),
        node("Add", ["e", "one"], ["s"]),
        node("Div", ["c", "s"], ["y"]),
    ]
    return built(nodes, w=numbers(8, 8, 1, 1), one=np.float32(1))


def gated(length: int = 3) -> bytes:
    """A GRU whose lengths are an input."""
    nodes = [node("Relu", ["x"], ["a"]), node("GRU", ["a", "w", "r", "", "lens"], ["y"], hidden_size=4, name="gru")]
    inputs: Inputs = {"x": (FLOAT, (length, 2, 4)), "lens": (TensorProto.INT32, (2,))}
    return model(nodes, inputs, {"y": (FLOAT, None)}, {"w": numbers(1, 12, 4), "r": numbers(1, 12, 4)})


def test_a_rewrite_that_brings_nodes_comes_first_with_the_whole_gain(measured: list[dict[str, Any]]) -> None:
    result = advise_and_rewrite(energies(), "SM8650")
    first = result.advice[0]
    assert (first.rule, first.brings, first.keeps_function) == ("reduction-written-out", 1, True)
    timed = result.timed
    assert first.before_us == pytest.approx(timed.npu_us + (timed.cpu_us_rough or 0))
    assert first.gain_us > (timed.cpu_us_rough or 0)  # the calls and copies around it are gained as well
    assert "reduction-written-out" in result.applied
    assert result.cpu_nodes_after == 0
    assert hexforge.estimate(result.rewritten, "SM8650", cpu_part=False).left_on_cpu == ()
    written = result.to_json()
    assert (written["cpu_nodes"], written["cpu_nodes_after"]) == (1, 0)
    assert (written["advice"][0]["brings_to_npu"], written["advice"][0]["rough"]) == (1, True)
    assert not any(row["rough"] for row in written["advice"] if not row["brings_to_npu"])


def test_without_measuring_fewer_nodes_on_the_cpu_are_the_gain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hexforge.runtime.cpu_timing._timed", lambda part, feeds: pytest.fail("measured"))
    result = advise_and_rewrite(energies(), "SM8650", AdviceRequest(cpu_part=False))
    assert result.advice[0].rule == "reduction-written-out"
    assert result.cpu_nodes_after == 0
    assert result.timed.cpu_us_rough is None


def test_rewrites_that_help_only_together_are_applied_together(measured: list[dict[str, Any]]) -> None:
    nodes = [
        conv("x", "c", "w"),
        node("Reshape", ["c", "six"], ["u"]),
        node("ReduceL1", ["u"], ["e"], axes=[3, 4], name="sizes"),
        node("Reshape", ["e", "flat"], ["y"]),
    ]
    data = built(nodes, w=numbers(8, 8, 1, 1), six=np.array([1, 2, 4, 6, 3, 2]), flat=np.array([8, 2]))
    result = advise_and_rewrite(data, "SM8650")
    assert result.advice[0].rule == "onto-the-npu"
    assert result.cpu_nodes_after == 0
    assert result.error is not None
    assert result.error < 1e-5


def test_the_input_to_pin_is_named_with_its_value(measured: list[dict[str, Any]]) -> None:
    result = advise_and_rewrite(gated(), "SM8650")
    first = result.advice[0]
    assert (first.rule, first.brings, first.keeps_function) == ("pin-input", 1, False)
    assert "lens" in first.title
    assert "--pin lens=3" in first.how
    assert first.gain_us > 0
    assert not any(advice.rule == "refused-op" for advice in result.advice)
    pinned = hexforge.advise(gated(), "SM8650", constants={"lens": 3})
    assert not any(advice.brings for advice in pinned)


def test_what_is_slower_on_the_npu_says_so(monkeypatch: pytest.MonkeyPatch, measured: list[dict[str, Any]]) -> None:
    slow = WholeCost(0, 1e9)
    monkeypatch.setattr(placement_advice, "whole_cost", lambda *given: slow)
    (advice,) = [a for a in hexforge.advise(gated(), "SM8650") if a.rule == "pin-input"]
    assert advice.gain_us < 0
    assert advice.title.endswith(SLOWER)


def test_an_op_that_nothing_brings_is_named_with_what_it_costs_at_most(measured: list[dict[str, Any]]) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Det", ["a"], ["y"], name="det")]
    result = advise_and_rewrite(built(nodes, (2, 3, 3)), "SM8650")
    first = result.advice[0]
    assert (first.rule, first.nodes, first.keeps_function) == ("refused-op", ("det",), False)
    assert first.gain_us == pytest.approx((result.timed.cpu_us_rough or 0) + result.timed.transfers_us)
    assert "op builder" in first.places[0]
    assert first.how.startswith("Rewrite it with ops")


def test_a_model_that_is_whole_on_the_npu_has_no_such_advice() -> None:
    result = advise_and_rewrite(built([conv("x", "c", "w"), node("Relu", ["c"], ["y"])], w=numbers(8, 8, 1, 1)))
    assert not any(advice.brings for advice in result.advice)
    assert result.before_us == result.timed.npu_us


def test_a_node_of_unknown_time_outweighs_any_time() -> None:
    assert WholeCost(0, 1e6) < WholeCost(1, 1.0) < IMPOSSIBLE
    assert WholeCost(0, 1.0, 5) == WholeCost(0, 1.0, 0)


def test_which_inputs_may_be_settings() -> None:
    nodes = [
        node("Equal", ["rate", "known"], ["is"]), node("And", ["is", "on"], ["both"]),
        node("Cast", ["both"], ["number"], to=FLOAT), node("Gather", ["table", "index"], ["row"]),
        node("Add", ["row", "number"], ["sum"]), node("Mul", ["sum", "gain"], ["scaled"]),
        node("Add", ["scaled", "x"], ["y"], name="last"),
    ]  # fmt: skip
    inputs: Inputs = {"x": (FLOAT, (1, 99)), "rate": (INT64, ()), "on": (BOOL, ()), "index": (INT64, ())}
    inputs["gain"] = (FLOAT, (1,))
    held = {"known": np.array(16000), "table": numbers(7, 99)}
    loaded = read(model(nodes, inputs, {"y": (FLOAT, None)}, held))
    assert setting_values(loaded.ir, {"last"}) == {"rate": 16000, "on": True, "gain": 1.0}
    assert setting_values(loaded.ir, set()) == {}


def test_the_command_says_what_is_on_the_cpu_and_writes_the_model(
    tmp_path: Path, measured: list[dict[str, Any]]
) -> None:
    given, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    given.write_bytes(energies())
    done = CliRunner().invoke(app, [str(given), "--apply", str(out)])
    text = " ".join(done.stdout.split())
    assert done.exit_code == 0, done.output
    assert "NPU part only, 1 node on the CPU" in text
    assert "no nodes on the CPU" in text
    x = np.random.default_rng(0).standard_normal((1, 8, 6, 6)).astype(np.float32)
    before, after = (
        onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        for path in (given, out)
    )
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5, atol=1e-6)
    pinned = tmp_path / "gru.onnx"
    pinned.write_bytes(gated())
    found = json.loads(CliRunner().invoke(app, [str(pinned), "--pin", "lens=3", "--json", "--no-cpu"]).stdout)
    assert found["cpu_nodes"] == 0
    unmeasured = CliRunner().invoke(app, [str(pinned), "--no-cpu"]).stdout
    assert "not measured" in unmeasured
