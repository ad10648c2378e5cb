# SPDX-License-Identifier: Apache-2.0
"""Estimates: of the very graph that the program runs, whole or in parts, with what is left out said."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hexforge
from hexforge.analysis.estimate import estimate_all_chips
from hexforge.analysis.timed_graphs import TimedSource, built_graphs, graphs_of
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, UnsupportedError
from hexforge.model.reader import read
from hexforge.quant.decide.assign import assign
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend_for, timed_backend
from tests.digits import MODEL as DIGITS
from tests.frontends.onnx.single_node import model
from tests.models import showcase
from tests.ort.models import node, quantized


def test_a_chip_by_its_keyword() -> None:
    assert hexforge.estimate(DIGITS, soc="SM8550").latency_ms == hexforge.estimate(DIGITS, "SM8550").latency_ms
    with pytest.raises(CallError, match="give one of them"):
        hexforge.estimate(DIGITS, "SM8550", soc="SM8650")


def test_placing_leaves_the_model_alone() -> None:
    loaded = read(quantized())
    before = [(n.op_type, [v.name for v in n.inputs if v is not None]) for n in loaded.ir.graph]
    prepare_model(loaded, backend_for(Deployment("SM8650")))
    assert [(n.op_type, [v.name for v in n.inputs if v is not None]) for n in loaded.ir.graph] == before


def test_what_the_npu_does_not_take_is_left_out_and_said() -> None:
    x = np.zeros((2, 3, 3), np.float32)
    nodes = [
        node("Relu", ["x"], ["a"], name="first"),
        node("Det", ["a"], ["b"], name="det"),
        node("Reshape", ["b", "shape"], ["c"], name="reshape"),
        node("Sigmoid", ["c"], ["y"], name="last"),
    ]
    proto = model(nodes, {"x": x}, {"shape": np.array([2, 1])}, {"y": np.float32})
    found = hexforge.estimate(proto, "SM8650")
    assert [row.node for row in found.left_on_cpu] == ["det"]
    assert found.to_json()["left_out"][0]["op"] == "Det"
    parts = [hexforge.estimate(graph) for graph in graphs_of(proto, timed_backend(Deployment())).graphs]
    assert len(parts) == 2
    assert found.latency_ms == pytest.approx(sum(part.latency_ms for part in parts))
    assert found.timeline.accelerator_us == pytest.approx(sum(row.us for row in found.timeline.rows))
    assert found.timeline.rows[-1].start_us >= parts[0].timeline.accelerator_us


def test_a_model_of_which_nothing_is_taken_is_refused_with_the_reasons() -> None:
    proto = model(
        [node("Det", ["x"], ["y"], name="det")], {"x": np.zeros((2, 3, 3), np.float32)}, {}, {"y": np.float32}
    )
    with pytest.raises(UnsupportedError, match=r"cannot be timed on the HTP:\n  .*Det"):
        hexforge.estimate(proto, "SM8650")


def test_a_promised_precision_needs_no_floats() -> None:
    """A float model that will be quantized is timed on a chip without float16; as it is, it is refused there."""
    assert hexforge.estimate(DIGITS, Deployment("QCS6490", "w8a8")).latency_ms > 0
    with pytest.raises(UnsupportedError, match="has no float math"):
        hexforge.estimate(DIGITS, "QCS6490")


def test_an_estimate_is_shown_in_one_line_and_as_a_small_page() -> None:
    timed = hexforge.estimate(DIGITS)
    assert repr(timed).startswith("<Estimate: ")
    assert f"{timed.latency_ms:.3f} ms" in repr(timed)
    assert "\n" not in repr(timed)
    assert len(repr(timed)) < 200
    page = timed._repr_html_()
    longest = max(timed.rows, key=lambda row: row.us)
    assert page.count("<rect") == min(12, len(timed.rows))
    assert f"{longest.us:,.1f} µs" in page


def test_names_in_the_small_page_are_escaped() -> None:
    x = np.zeros((1, 4), np.float32)
    timed = hexforge.estimate(
        model([node("Relu", ["x"], ["y"], name="<script>alert(1)</script>")], {"x": x}, {}, {"y": np.float32})
    )
    assert "<script>" not in timed._repr_html_()


def test_tables_and_plots_need_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    timed = hexforge.estimate(DIGITS)
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(UnsupportedError, match="pip install pandas"):
        timed.to_dataframe()
    with pytest.raises(UnsupportedError, match="pip install matplotlib"):
        timed.plot()


def test_tables_and_plots() -> None:
    timed = hexforge.estimate(DIGITS)
    table = pytest.importorskip("pandas", reason="pandas is not installed").DataFrame
    made = timed.to_dataframe()
    assert isinstance(made, table)
    assert list(made["us"]) == [round(row.us, 3) for row in timed.rows]
    axes = pytest.importorskip("matplotlib.axes", reason="matplotlib is not installed").Axes
    assert isinstance(timed.plot(), axes)


def test_the_public_names_alone_are_listed() -> None:
    shown = [name for name in dir(hexforge) if not name.startswith("__")]
    assert shown == sorted(hexforge.__all__)


SEVERAL = [
    Deployment(chip, precision, runtime)
    for chip in ("SM8650", "SM8350", "QCS6490", "QCM6690", "SXR1230P", "SAR2230P", "SM8850", "SC8480XP")
    for precision, runtime in (("float", "qnn_dlc"), ("w8a8", "onnx"), ("w8a16", "tflite"))
]
"""Chips of every kind: with and without float math, products of 16 bits, bfloat16."""


def _partly_refused() -> onnx.ModelProto:
    """Two products of run-time tensors, which old chips take with 8 bits only, and a node that no chip takes."""
    nodes = [
        node("MatMul", ["x", "y"], ["a"], name="product"),
        node("Det", ["a"], ["b"], name="det"),
        node("Add", ["a", "b"], ["c"], name="add"),
        node("MatMul", ["c", "x"], ["z"], name="again"),
    ]
    ones = np.ones((3, 3), np.float32)
    return model(nodes, {"x": ones, "y": ones}, {}, {"z": np.float32})


@pytest.mark.parametrize("given", [lambda: DIGITS, _partly_refused, quantized], ids=["digits", "parts", "quantized"])
def test_estimates_of_several_chips_are_those_of_each(given: Callable[[], Any]) -> None:
    alone: list[hexforge.Estimate | str] = []
    for deployment in SEVERAL:
        try:
            alone.append(hexforge.estimate(given(), deployment, cpu_part=False))
        except hexforge.HexforgeError as error:
            alone.append(str(error))
    together = hexforge.estimates(given(), SEVERAL, cpu_part=False)
    assert [e if isinstance(e, hexforge.Estimate) else str(e) for e in together] == alone
    assert any(isinstance(e, hexforge.Estimate) for e in together)
    assert {e.soc for e in together if isinstance(e, hexforge.Estimate)} <= {d.soc for d in SEVERAL}


def test_a_model_is_placed_once_for_chips_that_take_it_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    placed: list[str] = []

    def counted(*given: Any) -> Any:
        placed.append("")
        return prepare_model(*given)

    monkeypatch.setattr("hexforge.runtime.shared_placing.prepare_model", counted)
    chips = timed_backend(Deployment()).chips
    assert len(estimate_all_chips(DIGITS, Deployment(precision="w8a8"))) == len(chips)
    assert len(placed) == 1
    placed.clear()
    each = estimate_all_chips(DIGITS, Deployment(precision="float"))
    assert len(placed) == 2  # with float math and without
    for chip, why in (one for one in each if isinstance(one, tuple)):
        assert f"{chip} (v" in why
        assert "has no float math" in why


def test_a_model_is_promised_once_for_chips_of_one_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(*given: Any, **named: Any) -> Any:
        made.append(named["arithmetic"])
        return assign(*given, **named)

    monkeypatch.setattr("hexforge.quant.as_if_quantized.assign", counted)
    shared = TimedSource(_partly_refused())
    for chip in timed_backend(Deployment()).chips:
        assert built_graphs(shared, Deployment(chip, "w8a16")).built
    assert len(made) == len(set(made)) <= 8  # with and without float math, wide products, and nodes on the CPU
    assert len({(one.wide_products, one.floats) for one in made}) == 4


def test_cycles_are_collected_again_after_an_estimate_and_after_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    collected: list[bool] = []

    def observed(*given: Any) -> Any:
        collected.append(gc.isenabled())
        return prepare_model(*given)

    monkeypatch.setattr("hexforge.runtime.shared_placing.prepare_model", observed)
    hexforge.estimate(DIGITS)
    assert collected == [False]
    assert gc.isenabled()
    with pytest.raises(hexforge.HexforgeError):
        hexforge.estimate("missing.onnx")
    assert gc.isenabled()


def test_a_fault_of_one_deployment_is_told_in_its_place() -> None:
    one, other = hexforge.estimates(DIGITS, ["SM8650", Deployment("SM8650", runtime="trt")])
    assert isinstance(one, hexforge.Estimate)
    assert isinstance(other, CallError)
    with pytest.raises(hexforge.HexforgeError, match="missing"):
        hexforge.estimates("missing.onnx", ["SM8650"])


@pytest.mark.feature("A16W16", guide="2668-2694")
@pytest.mark.parametrize("soc", ["SM8350", "SM8450"])
def test_a_chip_that_refuses_16_bit_weights_has_no_time_for_them(soc: str) -> None:
    """As `check` and `compile` refuse them; what has no weights is timed."""
    weighted = showcase.sub(32)[0]
    with pytest.raises(UnsupportedError, match="16-bit weights need v73; choose precision w8a16 instead of w16a16"):
        hexforge.estimate(weighted, hexforge.Deployment(soc, "w16a16"))
    assert hexforge.estimate(weighted, hexforge.Deployment("SM8550", "w16a16")).latency_ms > 0
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in "xy"]
    plain = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=9)
    plain.opset_import[0].version = 17
    assert hexforge.estimate(plain, hexforge.Deployment(soc, "w16a16")).latency_ms > 0
