# SPDX-License-Identifier: Apache-2.0
"""Views of a profile: dominant path, summary and its schema, trace, zoom, Netron's graph; they agree."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hexforge.addons.profiler.chrometrace import ViewerFeatures, chrometrace
from hexforge.addons.profiler.profile_files import topology
from hexforge.addons.profiler.profile_text import average_reports
from hexforge.addons.profiler.record import DMA, HMX, HVX, SERVICES, Activity, Profile
from hexforge.addons.profiler.recording.simulated import CoRunning, profile
from hexforge.addons.profiler.recording.zoom import zoom_profile
from hexforge.addons.profiler.summary import schema, summary
from hexforge.addons.profiler.verdict import PRIORITIES, dominant_path
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, FormatError
from tests import ROOT
from tests.addons.profiler.traces import check_trace
from tests.models import showcase

SUB = profile(showcase.sub(128)[0], "SM8650")
QDQ = sorted((ROOT / ".models" / "qdq").glob("*a8w8-uint8.onnx"))
FLOWS = ViewerFeatures(enable_input_output_flow_events=True, enable_sequencer_flow_events=True)


def check_views(found: Profile) -> dict[str, Any]:
    """The summary is what its schema says, and its figures are the linting report's and the activities'."""
    content = json.loads(json.dumps(summary(found)))
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(content, schema())
    graph, run, report = found.graphs[0], found.graphs[0].runs[0], average_reports(found)[0]
    linted = {op.label: op for op in report.ops}
    assert {row["qnn_op"]: row["cycles"] for row in content["qnn_ops"]} == {k: op.cycles for k, op in linted.items()}
    assert {row["qnn_op"]: row["wait_cycles"] for row in content["qnn_ops"]} == {k: op.wait for k, op in linted.items()}
    overall = content["htp_overall_summary"]
    for rows in (content["qnn_op_types"], content["qnn_ops"]):
        assert sum(row["cycles"] + row["wait_cycles"] for row in rows) == overall["critical_path_cycles"]
        assert sum(row["share"] for row in rows) == pytest.approx(1, abs=1e-3)
        assert sum(row["dram_read_bytes"] for row in rows) == overall["dram_read_bytes"]
    check_dominant(run.activities, run.accelerator_us)
    path = content["dominant_path"]
    assert sum(p["us"] for p in path) == pytest.approx(overall["accelerator_us"], abs=1e-4 * len(path) + 0.03)
    assert len(content["htp_ops"]) == len(run.activities)
    check_trace(chrometrace(found, FLOWS))
    check_netron(topology(graph, run))
    return content


def check_dominant(activities: Any, whole_us: float) -> None:
    path = dominant_path(activities)
    assert all(a.end_us <= b.start_us for a, b in pairwise(path))
    assert sum(p.us for p in path) == pytest.approx(whole_us, abs=0.03)
    for piece in path:
        a = activities[piece.activity]
        assert a.start_us <= piece.start_us < piece.end_us <= a.end_us


def check_netron(made: dict[str, Any]) -> None:
    """What Netron's reader of QNN's JSON asks of a file."""
    assert "model.cpp" in made
    tensors, nodes = made["graph"]["tensors"], made["graph"]["nodes"]
    assert any(tensor["type"] == 1 for tensor in tensors.values())
    known = {0x0008, 0x0016, 0x0032, 0x0064, 0x0108, 0x0116, 0x0132, 0x0164, 0x0216, 0x0232, 0x0508, 0x0608, 0x7FFFFFFF}
    for tensor in tensors.values():
        assert tensor["type"] in (0, 1, 3, 4)
        assert tensor["data_type"] in known
    written = [name for node in nodes.values() for name in node["output_names"]]
    assert len(set(written)) == len(written)
    for node in nodes.values():
        assert set(node["input_names"]) | set(node["output_names"]) <= tensors.keys()
        assert all(len(value) == 1 and int(next(iter(value))) in known for value in node["scalar_params"].values())


def test_views_agree() -> None:
    check_views(SUB)


@pytest.mark.models
@pytest.mark.parametrize("path", QDQ, ids=lambda p: p.stem)
def test_views_agree_on_real_models(path: Path) -> None:
    check_views(profile(path, "SM8750"))


@pytest.mark.feature("System services", guide="2505-2521")
def test_dominant_path_by_priority() -> None:
    made = [
        Activity(DMA, "DramToTcm", 0, 0.0, 10.0),
        Activity(HVX, "Relu", 0, 2.0, 8.0),
        Activity(HMX, "Conv2d", 0, 4.0, 6.0),
        Activity(DMA, "TcmToDram", 0, 9.0, 12.0),
        Activity("service", "Sync Op", 0, 11.0, 14.0),
        Activity("service", "DmaCheckpointWait", 0, 13.0, 15.0),
    ]
    found = [(p.priority, p.start_us, p.end_us) for p in dominant_path(made)]
    assert found == [
        ("DMA read", 0, 2), ("HVX", 2, 4), ("HMX", 4, 6), ("HVX", 6, 8), ("DMA read", 8, 10), ("DMA write", 10, 12),
        ("sync", 12, 13), ("checkpoint", 13, 15),
    ]  # fmt: skip
    assert PRIORITIES[:6] == ("HMX", "HVX", "DMA read", "DMA write", "checkpoint", "sync")


def test_flow_events_only_where_asked_for() -> None:
    none = check_trace(chrometrace(SUB))
    assert not none["s"]
    both = check_trace(chrometrace(SUB, FLOWS))
    assert {e["cat"] for e in both["s"]} == {"input-output", "sequencer"}
    one = check_trace(chrometrace(SUB, ViewerFeatures(enable_input_output_flow_events=True)))
    assert {e["cat"] for e in one["s"]} == {"input-output"}


@pytest.mark.feature("Memory graphs", guide="2553-2561")
def test_features_of_the_trace() -> None:
    plain = check_trace(chrometrace(SUB))
    without = ViewerFeatures(runtrace=False, memory_info=False, traceback=False)
    bare = check_trace(chrometrace(SUB, without))
    lanes = {e["args"]["name"] for e in plain["M"] if e["name"] == "thread_name"}
    assert {"QNN ops", "HMX", "HVX", "DMA", "System services", f"{SUB.graphs[0].name} Runtraces"} <= lanes
    assert {e["name"] for e in plain["C"]} == {"DRAM read", "DRAM write", "VTCM read", "VTCM write", "VTCM alloc"}
    assert not bare["C"]
    assert not any("Runtraces" in e["args"]["name"] for e in bare["M"] if e["name"] == "thread_name")
    assert any("framework_ops" in e["args"] for e in plain["X"])
    assert not any("framework_ops" in e["args"] for e in bare["X"])
    assert {e["name"] for e in plain["X"]} & set(SERVICES)


def test_qnn_ops_fill_the_accelerators_time() -> None:
    run = SUB.graphs[0].runs[0]
    by = check_trace(chrometrace(SUB))
    lane = next(e["tid"] for e in by["M"] if e["name"] == "thread_name" and e["args"]["name"] == "QNN ops")
    ops = [e for e in by["X"] if e["tid"] == lane and e["pid"] == 1]
    waits = sum(c.wait for c in run.costs) / SUB.graphs[0].clock_mhz
    assert sum(e["dur"] for e in ops) + waits == pytest.approx(run.accelerator_us, abs=0.1)


@pytest.mark.feature("Runtrace", guide="2583-2593")
def test_runs_and_yields_have_lanes(tmp_path: Path) -> None:
    large, small = tmp_path / "large.onnx", tmp_path / "small.onnx"
    large.write_bytes(showcase.div(256)[0])
    small.write_bytes(showcase.sub(32)[0])
    found = profile(large, "SM8650", priority="low", co_running=[CoRunning(str(small), "high")])
    by = check_trace(chrometrace(found))
    lanes = {e["args"]["name"] for e in by["M"] if e["name"] == "thread_name"}
    assert {"large Runtraces", "large Yields", "small Runtraces"} <= lanes


@pytest.mark.feature("Framework names and zoom", guide="2523-2535")
def test_zoom_by_either_name() -> None:
    by_qnn = zoom_profile(SUB, "convLeft1_Conv2d", "sub_ElementWiseSubtract")
    by_onnx = zoom_profile(SUB, "convLeft1", "sub")
    assert by_qnn == by_onnx
    graph = by_qnn.graphs[0]
    names = {op.name for op in graph.ops}
    assert {"convLeft1_Conv2d", "convLeft2_Conv2d", "sub_ElementWiseSubtract"} <= names
    assert not any("Right" in name or "Start" in name for name in names)
    content = summary(by_qnn)
    whole = {row["qnn_op"]: row["cycles"] for row in summary(SUB)["qnn_ops"]}
    assert {row["qnn_op"] for row in content["qnn_ops"]} == {op.label for op in graph.ops}
    assert all(whole[row["qnn_op"]] == row["cycles"] for row in content["qnn_ops"])
    total = sum(row["cycles"] + row["wait_cycles"] for row in content["qnn_ops"])
    assert content["htp_overall_summary"]["critical_path_cycles"] == total < SUB.graphs[0].runs[0].critical_cycles
    labels = {op.label for op in graph.ops}
    assert {row["qnn_op"] for row in content["htp_ops"]} <= labels
    assert {row["qnn_op"] for row in content["dominant_path"]} <= labels
    jsonschema.validate(content, schema())
    check_trace(chrometrace(by_qnn, FLOWS))
    check_netron(topology(graph, graph.runs[0]))


def test_zoom_from_or_to_only() -> None:
    until = {op.name for op in zoom_profile(SUB, "", "convStart").graphs[0].ops}
    assert "convStart_Conv2d" in until
    assert "sub_ElementWiseSubtract" not in until
    after = {op.name for op in zoom_profile(SUB, "sub", "").graphs[0].ops}
    assert after >= {"sub_ElementWiseSubtract", "add_ElementWiseAdd", "Output"}
    assert zoom_profile(SUB, "", "") is SUB


def test_zoom_refusals() -> None:
    with pytest.raises(CallError, match="did you mean"):
        zoom_profile(SUB, "convLeft", "sub")
    with pytest.raises(CallError, match="other way round"):
        zoom_profile(SUB, "sub", "convLeft1")


def test_a_float_profile_and_one_without_activities() -> None:
    check_views(profile(showcase.prelu(64)[0], Deployment("SM8550", "w8a16")))
    basic = profile(showcase.prelu(64)[0], "SM8650", level="basic")
    jsonschema.validate(json.loads(json.dumps(summary(basic))), schema())
    check_trace(chrometrace(basic))


def test_several_runs_follow_each_other() -> None:
    graph = SUB.graphs[0]
    three = replace(SUB, graphs=(replace(graph, runs=graph.runs * 3),))
    by = check_trace(chrometrace(three, FLOWS))
    assert [e["name"] for e in by["X"]].count("NetRun") == 3


@pytest.mark.parametrize(
    ("config", "kind", "says"),
    [
        ([], FormatError, "expected an object with features"),
        ({"feature": {}}, CallError, "did you mean 'features'"),
        ({"features": {"htp_jsn": True}}, CallError, "did you mean 'htp_json'"),
        ({"features": {"gzip": 1}}, CallError, "true or false"),
    ],
)
def test_config_refusals(config: Any, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says):
        ViewerFeatures.parse(config)


@pytest.mark.feature("Viewer config", guide="2465-2497")
def test_config() -> None:
    assert ViewerFeatures.parse({}) == ViewerFeatures()
    assert ViewerFeatures.parse({"features": {"gzip": True, "htp_json": False}}) == ViewerFeatures(
        gzip=True, htp_json=False
    )
