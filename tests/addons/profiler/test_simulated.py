# SPDX-License-Identifier: Apache-2.0
"""Simulated profiles: the invariants of linting hold on models of every kind, showcase bottlenecks come first."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import average_reports, parse, reports
from hexforge.addons.profiler.record import (
    CHECKPOINT_WAIT,
    FIRST_NODE,
    READ,
    SERVICES,
    SYNC,
    SYSTEM,
    GraphProfile,
    Profile,
)
from hexforge.addons.profiler.recording.simulated import CoRunning, profile
from hexforge.analysis.estimate import estimate
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import MODES as POWER_MODES
from hexforge.chips.power import Power
from hexforge.errors import CallError
from tests import ROOT
from tests.addons.profiler.test_linting import check_invariants
from tests.models import showcase
from tests.models.test_models import MODELS as REAL_MODELS

SHAPES = {real.file: real.shapes for real in REAL_MODELS.values()}
MODELS = [
    *sorted((ROOT / ".models" / "qdq").glob("*.onnx")),
    *sorted(path for file in SHAPES for path in (ROOT / ".models").glob(f"*-{file}")),
]
SHOWCASES: dict[str, tuple[Callable[..., tuple[bytes, bytes]], str]] = {
    "sub": (showcase.sub, "ElementWiseSubtract"),
    "div": (showcase.div, "ElementWiseDivide"),
    "prelu": (showcase.prelu, "Prelu"),
}


def check_profile(found: Profile) -> None:
    """All that any profile of a chip keeps."""
    assert log.from_bytes(log.to_bytes(found)) == found
    for graph, report in zip(found.graphs, average_reports(found), strict=True):
        assert parse(str(report)) == report
        check_invariants(report)
        check_activities(graph)


def check_activities(graph: GraphProfile) -> None:
    """Activities fill the accelerator's time, units do one thing at a time, and cycles are those of the clock."""
    run = graph.runs[0]
    assert run.critical_cycles == pytest.approx(run.accelerator_us * graph.clock_mhz, abs=len(graph.ops) + 1)
    edges = sorted((a.start_us, a.end_us) for a in run.activities if a.us > 0)
    at = 0.0
    for start, end in edges:
        assert start <= at + 1e-6, f"nothing is at work at {at} us"
        at = max(at, end)
    assert at == pytest.approx(run.accelerator_us, abs=0.03)
    for unit in ("HMX", "HVX", "DMA"):
        ordered = sorted((a.start_us, a.end_us) for a in run.activities if a.unit == unit)
        assert all(b[0] >= a[1] - 1e-6 for a, b in pairwise(ordered))
    assert all(a.op >= 0 for a in run.activities if a.name != SYSTEM)
    assert {a.name for a in run.activities if a.unit == "service"} <= set(SERVICES)


@pytest.mark.feature("Showcase models 1-3", guide="1809-2379")
@pytest.mark.parametrize("pair", SHOWCASES)
@pytest.mark.parametrize("precision", ["w8a8", "float"])
def test_showcase_bottleneck_is_first(pair: str, precision: str) -> None:
    make, bottleneck = SHOWCASES[pair]
    before, after = (profile(m, Deployment("SM8650", precision)) for m in make())
    for found in (before, after):
        check_profile(found)
    graph = before.graphs[0]
    nodes = [i for i, op in enumerate(graph.ops) if op.id >= FIRST_NODE]  # bringing the result out is no node's work
    most = max(nodes, key=lambda i: graph.runs[0].costs[i].cycles)
    assert graph.ops[most].type == bottleneck
    assert after.graphs[0].runs[0].critical_cycles < graph.runs[0].critical_cycles


@pytest.mark.models
@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_real_models(path: Path) -> None:
    shapes = next((shapes for file, shapes in SHAPES.items() if path.name.endswith(f"-{file}")), None)
    check_profile(profile(path, Deployment("SM8650", runtime="onnx"), shapes=shapes))


def test_times_are_the_estimates() -> None:
    model, _ = showcase.sub(64)
    for runtime in ("qnn_dlc", "onnx"):
        deployment = Deployment("SM8550", runtime=runtime)
        run, expected = profile(model, deployment).graphs[0].runs[0], estimate(model, deployment)
        assert run.netrun_us == pytest.approx(expected.latency_ms * 1e3)
        moved = sum(a.bytes for a in run.activities if a.unit == "DMA")
        assert moved == expected.timeline.dram_bytes


@pytest.mark.feature("Detailed profile", guide="1747")
@pytest.mark.feature("Basic profile", guide="1660-1668")
def test_levels_hold_more_and_more() -> None:
    model, _ = showcase.sub(64)
    basic, detailed, linting, optrace = (
        profile(model, "SM8650", level=level) for level in ("basic", "detailed", "linting", "optrace")
    )
    runs = [p.graphs[0].runs[0] for p in (basic, detailed, linting, optrace)]
    assert [bool(r.costs) for r in runs] == [False, True, True, True]
    assert [any(c.resources for c in r.costs) for r in runs] == [False, False, True, True]
    assert [bool(r.activities) for r in runs] == [False, False, False, True]
    assert len({r.critical_cycles for r in runs}) == 1
    assert average_reports(basic)[0].ops == ()
    assert average_reports(detailed)[0].ops[3].wait is None
    assert "critical path" in str(average_reports(linting)[0])


@pytest.mark.feature("Basic profile", guide="1660-1668")
@pytest.mark.parametrize("mode", POWER_MODES)
@pytest.mark.parametrize("latency_us", [0, 100, 1000])
def test_the_rpc_holds_the_power_on_and_the_cpus_wake_up(mode: str, latency_us: int) -> None:
    power = Power(mode, rpc_control_latency_us=latency_us)
    deployment = Deployment("SM8650", power=power)
    run = profile(showcase.sub(64)[0], deployment, level="basic").graphs[0].runs[0]
    line = estimate(showcase.sub(64)[0], deployment).timeline
    cpu_us = power.cpu_wake_us(run.accelerator_us)
    assert run.rpc_us == pytest.approx(run.accelerator_us + line.rpc_us + run.power_us + cpu_us)
    assert run.netrun_us == pytest.approx(run.rpc_us + line.io_us + 2 * power.vote_us)
    assert (run.power_us > 0) == (mode not in ("burst", "sustained_high_performance"))


def test_sources_lead_back_to_the_model() -> None:
    graph = profile(showcase.sub(64)[0], "SM8650").graphs[0]
    by_type = {op.type: op for op in graph.ops}
    assert by_type["ElementWiseSubtract"].sources == ("sub",)
    sub = graph.ops.index(by_type["ElementWiseSubtract"])
    assert sub in by_type["ElementWiseAdd"].reads


def layers() -> bytes:
    """Two products of a row with large matrices: their weights take longer to fetch than to multiply."""
    weights = [numpy_helper.from_array(np.full((2048, 2048), 0.01, np.float32), name) for name in ("a", "b")]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["m"], name="first"),
        helper.make_node("MatMul", ["m", "b"], ["y"], name="second"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2048]) for name in "xy"]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.feature("System services", guide="2505-2521")
def test_waits_are_checkpoints_and_their_transfers_no_overlap() -> None:
    graph = profile(layers(), "SM8650").graphs[0]
    run = graph.runs[0]
    waited = sum(a.us for a in run.activities if a.name in (CHECKPOINT_WAIT, SYNC))
    waits = sum(c.wait for c in run.costs)
    assert waits > 0
    assert waited * graph.clock_mhz == pytest.approx(waits, abs=2)
    assert any(a.name == READ for a in run.activities)


def test_beside_another_model_it_yields(tmp_path: Path) -> None:
    large, small = tmp_path / "large.onnx", tmp_path / "small.onnx"
    large.write_bytes(showcase.div(256)[0])
    small.write_bytes(showcase.sub(32)[0])
    alone = profile(large, "SM8650").graphs[0].runs[0]
    found = profile(large, "SM8650", priority="low", co_running=[CoRunning(str(small), "high")]).graphs[0].runs[0]
    assert alone.yields == 0 < found.yields
    assert found.netrun_us > alone.netrun_us
    lanes = {(s.lane, s.graph) for s in found.spans}
    assert {("Runtraces", "large"), ("Yields", "large"), ("Runtraces", "small")} <= lanes
    assert {s.name for s in found.spans if s.lane == "Yields"} == {"save VTCM", "re-acquire", "restore VTCM"}


def test_several_runs_and_their_average() -> None:
    found = profile(showcase.sub(64)[0], "SM8650", level="linting", runs=3)
    assert [r.title for r in reports(found)] == ["Run 1 of 3", "Run 2 of 3", "Run 3 of 3"]
    assert average_reports(found)[0].ops == reports(found)[0].ops
    stamps = [run.timestamp_us for run in found.graphs[0].runs]
    assert stamps == sorted(stamps)


def test_refusals() -> None:
    model, _ = showcase.sub(32)
    with pytest.raises(CallError, match="linting"):
        profile(model, "SM8650", level="lintin")
    with pytest.raises(CallError, match="runs 0"):
        profile(model, "SM8650", runs=0)


@pytest.mark.feature("Showcase models 1-3", guide="1938-2040")
def test_what_the_graphs_output_takes_is_no_nodes_blame() -> None:
    """In QNN's report of the optimised first model the convolution for Sub is small, on HMX, and Output is on HVX."""
    graph = profile(showcase.sub()[1], "SM8650", level="linting").graphs[0]
    costs = {op.name: cost for op, cost in zip(graph.ops, graph.runs[0].costs, strict=True)}
    whole = graph.runs[0].critical_cycles
    sub, output = costs["subConv_Conv2d"], costs["Output"]
    assert (sub.cycles + sub.wait) / whole < 0.25
    assert (sub.resources, output.resources) == (("HMX", "DMA"), ("HVX",))
    assert output.cycles > 0
    assert sub.overlap / sub.cycles > 0.1
