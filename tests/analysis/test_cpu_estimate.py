# SPDX-License-Identifier: Apache-2.0
"""The CPU's part of an estimate: measured once on one core, scaled by a table of cores, never without need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import hexforge
from hexforge.chips.cpu_cores import CPU_CORES, cpu_core
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import SOCS
from hexforge.cli.commands.estimate import estimate
from hexforge.cli.request_options import CommandGroup
from hexforge.errors import CallError
from hexforge.model.load_check import Extract
from hexforge.report import page
from hexforge.runtime import cpu_timing
from hexforge.runtime.cpu_part import CpuPart
from tests.analysis.conftest import HERE_US
from tests.digits import MODEL as DIGITS
from tests.frontends.onnx.single_node import model
from tests.ort.models import node

app = CommandGroup()
app.command()(estimate)


def in_two_graphs() -> onnx.ModelProto:
    """A determinant, which QNN has no op for, between ops that the NPU takes."""
    nodes = [
        node("Relu", ["x"], ["a"], name="first"),
        node("Det", ["a"], ["b"], name="det"),
        node("Reshape", ["b", "shape"], ["c"], name="reshape"),
        node("Sigmoid", ["c"], ["y"], name="last"),
    ]
    return model(nodes, {"x": np.zeros((2, 3, 3), np.float32)}, {"shape": np.array([2, 1])}, {"y": np.float32})


def test_the_cpu_part_is_scaled_and_the_npu_figure_stays(measured: list[dict[str, Any]]) -> None:
    found = hexforge.estimate(in_two_graphs(), "SM8650")
    alone = hexforge.estimate(in_two_graphs(), "SM8650", cpu_part=False)
    assert found.latency_ms == alone.latency_ms == found.npu_us / 1e3
    assert alone.cpu_us_rough is None
    assert alone.total_us_rough is None
    assert found.cpu_us_rough == pytest.approx(HERE_US / cpu_core("SM8650").speed)
    assert found.total_us_rough == pytest.approx(found.npu_us + HERE_US / cpu_core("SM8650").speed)
    assert found.per_second_rough == pytest.approx(1e6 / (found.npu_us + HERE_US / cpu_core("SM8650").speed))
    slower = hexforge.estimate(in_two_graphs(), "SM8350")
    assert slower.cpu_us_rough is not None
    assert slower.cpu_us_rough > found.cpu_us_rough  # type: ignore[operator]
    (fed,) = measured  # the second chip takes what was measured for the first
    assert list(fed) == ["a"]
    assert (fed["a"] >= 0).all()  # what the Relu before it gives
    written = found.to_json()
    assert written["cpu_nodes"] == 1
    assert written["total_us_rough"] == pytest.approx(written["npu_us"] + written["cpu_us_rough"], abs=1e-2)
    assert written["cpu"]["parts"][0]["nodes"] == ["det"]
    assert written["latency_ms"] == alone.to_json()["latency_ms"]


def test_calls_and_copies_between_npu_and_cpu_are_told(measured: list[dict[str, Any]]) -> None:
    found = hexforge.estimate(in_two_graphs(), "SM8650")
    line = found.timeline
    assert 0 < found.transfers_us < found.npu_us
    assert found.transfers_us >= line.rpc_us / 2  # the second of two calls


def test_samples_of_a_call_multiply_the_cpu_part(measured: list[dict[str, Any]]) -> None:
    one, four = (hexforge.estimate(in_two_graphs(), "SM8650", batch=batch) for batch in (1, 4))
    assert one.cpu_us_rough is not None
    assert four.cpu_us_rough == pytest.approx(4 * one.cpu_us_rough)


def test_a_model_that_is_whole_on_the_npu_is_never_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_timing, "_timed", lambda part, feeds: pytest.fail("something was measured"))
    found = hexforge.estimate(DIGITS, "SM8650")
    assert (found.cpu, found.cpu_us_rough, found.transfers_us) == (None, 0.0, 0.0)
    assert found.total_us_rough == found.npu_us


def test_a_real_measurement_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_timing, "_times", {})
    first, second = (hexforge.estimate(in_two_graphs(), "SM8650") for _ in range(2))
    assert first.cpu is not None
    assert first.cpu.here_us > 0
    assert second.cpu == first.cpu


def test_the_same_work_has_the_same_key_whatever_its_names_are() -> None:
    def key(name: str, size: int) -> str:
        nodes = [node("Relu", [name], ["out"], name=f"of {name}")]
        proto = model(nodes, {name: np.zeros((2, size), np.float32)}, {}, {"out": np.float32})
        return cpu_timing.part_key(Extract(proto))

    assert key("x", 4) == key("other", 4)
    assert key("x", 4) != key("x", 5)


def test_sequences_are_measured_at_their_full_length(measured: list[dict[str, Any]]) -> None:
    weights: dict[str, Any] = {name: np.ones((1, 12, 4), np.float32) for name in ("w", "r")}
    weights["k"] = np.array([2])
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("TopK", ["given", "k"], ["sorted", "order"]),  # as torch packs sequences
        node("Cast", ["sorted"], ["lens"], to=TensorProto.INT32),
        node("GRU", ["a", "w", "r", "", "lens"], ["y"], hidden_size=4),
    ]
    feeds: dict[str, Any] = {"x": np.zeros((7, 2, 4), np.float32), "given": np.zeros(2, np.int64)}
    found = hexforge.estimate(model(nodes, feeds, weights, {"y": np.float32}), "SM8650")
    assert [row.op_type for row in found.left_on_cpu] == ["GRU"]
    assert measured[0]["lens"].tolist() == [7, 7]


def test_what_cannot_be_measured_says_why() -> None:
    nodes = [node("Relu", ["x"], ["a"]), helper.make_node("Unheard", ["a"], ["y"], domain="some.where")]
    proto = model(nodes, {"x": np.zeros((2, 3), np.float32)}, {}, {"y": np.float32})
    proto.opset_import.append(helper.make_opsetid("some.where", 1))
    del proto.graph.output[:]
    proto.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3]))
    found = hexforge.estimate(proto, "SM8650")
    assert found.cpu is not None
    assert found.cpu_us_rough is None
    assert found.total_us_rough is None
    assert "neither QNN nor onnxruntime knows the op" in found.cpu.missing
    assert "not known" in page(found)


def test_a_part_that_does_not_end_is_ended() -> None:
    chain = [node("MatMul", [f"a{i}", "x"], [f"a{i + 1}"]) for i in range(300)]
    proto = model(
        [node("MatMul", ["x", "x"], ["a0"]), *chain], {"x": np.eye(512, dtype=np.float32)}, {}, {"a300": np.float32}
    )
    part = CpuPart(Extract(proto), ("chain",), cpu_timing.one_thread)
    with pytest.raises(hexforge.CapacityError, match=r"more than 0\.01 seconds"):
        cpu_timing.run_bounded(part, {"x": np.eye(512, dtype=np.float32)}, 0.01)


def test_every_chip_has_a_core() -> None:
    assert set(CPU_CORES) == {soc.name for soc in SOCS}
    assert cpu_core("Snapdragon 8 Gen 3").name == "Cortex-X4"
    with pytest.raises(CallError, match="table of chips"):
        cpu_core("0")


def test_the_headline_counts_the_nodes_on_the_cpu(tmp_path: Path, measured: list[dict[str, Any]]) -> None:
    path = tmp_path / "two.onnx"
    onnx.save(in_two_graphs(), path)
    text = " ".join(CliRunner().invoke(app, [str(path)]).stdout.split())
    assert "ms on SM8650, NPU part only, 1 node on the CPU: two" in text
    assert "rough (within a factor of two): the CPU takes about" in text
    without = " ".join(CliRunner().invoke(app, [str(path), "--no-cpu"]).stdout.split())
    assert "nine of ten models; costs" in without  # no rate that leaves a part out
    assert "its measurement was left out" in without
    found = json.loads(CliRunner().invoke(app, [str(path), "--soc", "all", "--json"]).stdout)
    assert found["cpu_nodes"]["SM8650"] == 1
    assert found["total_us_rough"]["SM8650"] > 1e3 * found["latency_ms"]["SM8650"]
    assert "rough" in CliRunner().invoke(app, [str(path), "--soc", "all"]).stdout


def test_the_page_says_it_too(measured: list[dict[str, Any]]) -> None:
    html = page(hexforge.estimate(in_two_graphs(), Deployment("SM8650")))
    assert "NPU part only, 1 node on the CPU" in html
    assert "rough (within a factor of two)" in html
