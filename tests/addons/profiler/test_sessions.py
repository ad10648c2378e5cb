# SPDX-License-Identifier: Apache-2.0
"""A session's profile: the provider's CSV, the log beside it, schematics, spans of ops, and the dumps."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import hexforge
from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import average_reports
from hexforge.addons.profiler.session_csv import HEADER
from hexforge.analysis.estimate import estimate
from hexforge.chips.deployment import Deployment
from tests.addons.profiler.test_linting import check_invariants
from tests.models import showcase
from tests.ort import models

CPU, QNN = "CPUExecutionProvider", "QNNExecutionProvider"
MODEL, _ = showcase.sub(32)
FEED = {"image": np.linspace(-1, 1, 32 * 32 * 32, dtype=np.float32).reshape(1, 32, 32, 32)}


def session(model: Any = MODEL, sess_options: Any = None, **options: str) -> hexforge.InferenceSession:
    return hexforge.InferenceSession(model, sess_options, providers=[(QNN, {"soc_model": "SM8650", **options})])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


FINALIZE_STEPS = [
    "Graph Preparation Initializing",
    "Graph Optimizations",
    "Graph Sequencing for Target",
    "VTCM Allocation",
]


@pytest.mark.feature("Basic profile", guide="1660-1668")
@pytest.mark.parametrize("level", ["basic", "detailed", "linting", "optrace"])
def test_csv_and_log(tmp_path: Path, level: str) -> None:
    path = tmp_path / "p.csv"
    made = session(profiling_level=level, profiling_file_path=str(path))
    plain = session().run(None, FEED)
    for _ in range(3):
        np.testing.assert_array_equal(made.run(None, FEED)[0], plain[0])
    assert path.read_text().splitlines()[0] == HEADER
    found = rows(path)
    assert {row["Timing Source"] for row in found} == {"BACKEND"}
    assert {row["Event Level"] for row in found} == ({"ROOT"} if level == "basic" else {"ROOT", "SUB-EVENT"})
    assert [row["Message"] for row in found].count("EXECUTE") == 3
    assert found[0]["Message"] == "FINALIZE"
    finalized = {row["Event Identifier"]: row for row in found if row["Message"] == "FINALIZE"}
    steps = [name for name, row in finalized.items() if row["Event Level"] == "SUB-EVENT"]
    assert steps == ([] if level == "basic" else FINALIZE_STEPS)
    parts = [int(finalized[name]["Time"]) for name in steps[:3]]
    assert sum(parts) == (0 if level == "basic" else int(finalized["QNN (finalize) time"]["Time"]))
    assert all(us > 0 for us in parts)
    assert {row["Unit of Measurement"] for row in found} == {"US", "CYCLES", "COUNT"}
    graph = made.graphs[0]
    nodes = [row for row in found if row["Message"] == "NODE" and row["Event Identifier"].endswith("(cycles)")]
    assert len(nodes) == (0 if level == "basic" else 3 * (len(graph) + 3))
    stamps = [int(row["Msg Timestamp"]) for row in found]
    assert stamps == sorted(stamps)
    if level != "basic":
        whole = next(int(r["Time"]) for r in found if r["Event Identifier"] == "Accelerator (execute) time (cycles)")
        assert 0 < sum(int(row["Time"]) for row in nodes) <= 3 * whole
    if level in ("linting", "optrace"):
        waits = [int(r["Time"]) for r in found if r["Event Identifier"] == "Wait (Scheduler) time"]
        assert sum(int(row["Time"]) for row in nodes) + sum(waits) == 3 * whole

    profile = log.read(tmp_path / "p_qnn.log")
    assert (profile.level, profile.source, len(profile.graphs[0].runs)) == (level, "simulated", 3)
    assert profile.graphs[0].name == graph.name
    if level in ("linting", "optrace"):
        check_invariants(average_reports(profile)[0])
    schematics = list(tmp_path.glob("*_schematic.bin"))
    assert [s.name for s in schematics] == ([f"{graph.name}_schematic.bin"] if level == "optrace" else [])
    if schematics:
        assert log.read(schematics[0]).graphs[0].ops == profile.graphs[0].ops
    name = made.stages[0].name
    del made
    assert rows(path)[-1]["Message"] == "DE-INIT"
    assert name == graph.name


def test_times_are_the_estimates(tmp_path: Path) -> None:
    made = session(profiling_level="basic", profiling_file_path=str(tmp_path / "p.csv"), htp_performance_mode="burst")
    made.run(None, FEED)
    run = log.read(tmp_path / "p_qnn.log").graphs[0].runs[0]
    expected = estimate(MODEL, Deployment("SM8650", runtime="onnx"))
    assert run.netrun_us == pytest.approx(expected.latency_ms * 1e3, rel=0.2)  # the session's border differs a little
    assert run.hvx_threads == 4


def test_off_writes_nothing_and_keeps_the_short_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = session()
    assert not made._record.active
    made.run(None, FEED)
    assert list(tmp_path.iterdir()) == []


def test_measured_kernels_of_the_cpu_backend(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    options = {"backend_type": "cpu", "profiling_level": "optrace", "profiling_file_path": str(path)}
    made = hexforge.InferenceSession(MODEL, providers=[(QNN, options)])
    made.run(None, FEED)
    made.run(None, FEED)
    profile = log.read(tmp_path / "p_qnn.log")
    graph = profile.graphs[0]
    assert (profile.source, graph.backend, len(graph.runs)) == ("measured", "cpu", 2)
    assert graph.runs[0].costs != graph.runs[1].costs
    for report in average_reports(profile):
        assert report.figure("RPC (execute) time") is not None
    for run in graph.runs:
        assert run.netrun_us > run.rpc_us >= run.accelerator_us > 0
        assert sum(c.cycles + c.wait for c in run.costs) == run.critical_cycles
        assert {a.unit for a in run.activities} == {"CPU"}
        assert len(run.activities) == len(made.graphs[0])


def test_sources_of_ops(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    options = {"enable_framework_op_trace": "1", "framework_op_trace_dir": str(tmp_path / "made" / "here")}
    made = session(profiling_level="detailed", profiling_file_path=str(path), **options)
    made.run(None, FEED)
    assert path.read_text().splitlines()[0] == f"{HEADER},ONNX Source Ops"
    by_name = {row["Event Identifier"]: row["ONNX Source Ops"] for row in rows(path)}
    assert by_name[next(name for name in by_name if name.startswith("sub_ElementWiseSubtract:OpId_"))] == "sub"


def test_spans_of_ops_in_onnxruntimes_profile(tmp_path: Path) -> None:
    for backend in ("htp", "cpu"):
        options = hexforge.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / backend)
        made = hexforge.InferenceSession(MODEL, options, providers=[(QNN, {"backend_type": backend})])
        made.run(None, FEED)
        events = json.loads(Path(made.end_profiling()).read_text())
        ops = [e for e in events if e["name"].endswith("_kernel_time")]
        assert len(ops) == len(made.graphs[0])
        assert {e["args"]["clock"] for e in ops} == {"measured" if backend == "cpu" else "simulated SM8550"}
        whole = next(e for e in events if e["name"] == made.stages[0].name)
        for e in ops:
            assert (e["cat"], e["ph"], e["args"]["provider"]) == ("Node", "X", QNN)
            assert whole["ts"] <= e["ts"]
            assert e["ts"] + e["dur"] <= whole["ts"] + whole["dur"] + 1 or backend == "htp"
        assert any(e["args"]["op_name"] == "ElementWiseSubtract" and e["args"]["onnx_nodes"] == "sub" for e in ops)


def test_dumps(tmp_path: Path) -> None:
    for name in ("graphs", "trace", "input"):
        (tmp_path / name).mkdir()
    made = session(
        dump_json_qnn_graph="1", json_qnn_graph_dir=str(tmp_path / "graphs"), enable_framework_op_trace="1",
        framework_op_trace_dir=str(tmp_path / "trace"), dump_qnn_ep_input_graph="1",
        dump_qnn_ep_input_graph_dir=str(tmp_path / "input"),
    )  # fmt: skip
    graph = made.graphs[0]
    dumped = json.loads((tmp_path / "graphs" / f"{graph.name}.json").read_text())
    assert {"model.cpp", "model.bin", "converter_command", "op_types", "Total parameters", "graph"} <= dumped.keys()
    assert dumped["graph"]["nodes"].keys() == {node.name for node in graph}
    conv = dumped["graph"]["nodes"]["convStart_Conv2d"]
    assert (conv["type"], conv["macs_per_inference"]) == ("Conv2d", str(32 * 32 * 32 * 32))
    assert all(name in dumped["graph"]["tensors"] for name in (*conv["input_names"], *conv["output_names"]))
    assert dumped["graph"]["tensors"]["image"]["type"] == 0
    assert dumped["graph"]["tensors"]["image"]["data_type"] == 0x0232
    tensors = json.loads((tmp_path / "graphs" / f"{graph.name}_tensor_log.json").read_text())["tensors"]
    assert tensors["image"]["data_type"] == "QNN_DATATYPE_FLOAT_32"

    trace = json.loads((tmp_path / "trace" / "qnn_op_trace.json").read_text())
    assert (trace["schema_version"], trace["backend_type"]) == (2, "htp")
    soc = trace["soc_traces"][0]
    assert soc["compilation_target"] == {"htp_arch": "V75", "soc_model": 57, "device_id": 0}
    assert soc["summary"]["total_qnn_ops"] == len(graph) == len(soc["subgraph_traces"][0]["op_mappings"])
    subs = [m for m in soc["subgraph_traces"][0]["op_mappings"] if m["dst_qnn_op_type"] == "ElementWiseSubtract"]
    assert [m["sources"] for m in subs] == [[{"name": "sub", "type": "OP"}]]

    (asked,) = (tmp_path / "input").glob("*.1_qnn_ep_input_graph.json")
    nodes = json.loads(asked.read_text())["nodes"]
    assert [n["op_type"] for n in nodes].count("Conv") == 5


def test_a_context_model_is_profiled_too(tmp_path: Path) -> None:
    source, compiled, path = tmp_path / "m.onnx", tmp_path / "m_ctx.onnx", tmp_path / "p.csv"
    source.write_bytes(MODEL)
    options = hexforge.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(compiled))
    session(str(source), options)
    made = session(str(compiled), profiling_level="optrace", profiling_file_path=str(path))
    made.run(None, FEED)
    assert rows(path)[0]["Message"] == "INIT"
    graph = log.read(tmp_path / "p_qnn.log").graphs[0]
    assert {"sub"} <= {s for op in graph.ops for s in op.sources}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"profiling_level": "basic"}, "profiling_file_path"),
        ({"profiling_level": "lint", "profiling_file_path": "x.csv"}, "linting"),
        ({"profiling_level": "basic", "profiling_file_path": "/nowhere/at/all/x.csv"}, "no folder"),
        ({"dump_json_qnn_graph": "1", "json_qnn_graph_dir": "/nowhere/at/all"}, "no such folder"),
    ],
)
def test_refusals(options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        session(**options)


def test_another_file_is_not_added_to(tmp_path: Path) -> None:
    path = tmp_path / "notes.csv"
    path.write_text("mine,own\n1,2\n")
    with pytest.raises(Exception, match="name another"):
        session(profiling_level="basic", profiling_file_path=str(path))
    assert path.read_text() == "mine,own\n1,2\n"


def test_rows_are_added_to_a_profile_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    for _ in range(2):
        session(profiling_level="basic", profiling_file_path=str(path)).run(None, FEED)
    assert path.read_text().count(HEADER) == 1
    assert [row["Message"] for row in rows(path)].count("EXECUTE") == 2


def test_other_providers_profile_as_before() -> None:
    made = hexforge.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    assert isinstance(made, onnxruntime.InferenceSession)
    assert made.end_profiling() == ""


def test_onnxruntimes_own_trace(tmp_path: Path) -> None:
    options = hexforge.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    made = models.session(models.sandwich(), sess_options=options)
    made.run(None, {"x": np.zeros((2, 3, 3), np.float32)})
    assert made.get_profiling_start_time_ns() > 0
    events = json.loads(Path(made.end_profiling()).read_text(encoding="utf-8"))
    ops = [e for e in events if e["name"].endswith("_kernel_time")]
    assert [e["args"].get("provider") for e in events if e not in ops] == [None, QNN, CPU, QNN, None]
    assert {e["args"]["provider"] for e in ops} == {QNN}
    assert list(tmp_path.iterdir()) == [Path(made.end_profiling())]


@pytest.mark.parametrize("kind", [hexforge.SessionOptions, onnxruntime.SessionOptions])
def test_a_session_that_is_profiled_leaves_its_options_as_they_are(kind: type[Any], tmp_path: Path) -> None:
    options = kind()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    made = models.session(models.mixed(), sess_options=options)
    made.run(None, {"x": np.zeros((2, 3), np.float32)})
    assert list(tmp_path.iterdir()) == []
    assert options.enable_profiling
