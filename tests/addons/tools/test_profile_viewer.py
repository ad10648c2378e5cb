# SPDX-License-Identifier: Apache-2.0
"""qnn-profile-viewer: readers by their libraries' names, config files, zoom, three ways to compress a trace."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.addons.profiler import log
from hexforge.addons.profiler.profile_text import parse, parse_all
from hexforge.addons.profiler.record import Profile
from hexforge.addons.profiler.recording.simulated import profile
from hexforge.addons.tools import tool_command
from hexforge.errors import HexforgeError
from tests.addons.profiler.test_linting import check_invariants
from tests.addons.profiler.traces import check_trace
from tests.models import showcase
from tests.ort.models import quantized

RAW, AVERAGE, OPTRACE = (
    f"/sdk/lib/x86_64-linux-clang/libQnn{name}ProfilingReader.so" for name in ("Htp", "Chrometrace", "HtpOptrace")
)
MODEL = showcase.sub(64)[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with logs of two levels and a schematic; the tool runs in it."""
    monkeypatch.chdir(tmp_path)
    made = profile(MODEL, "SM8650", runs=2)
    log.write(Path("optrace.log"), made)
    log.write(Path("qnn-profiling-data_0.log"), profile(MODEL, "SM8650", level="linting", runs=2))
    graph = log.without_runs(made.graphs[0])
    log.write(Path("sub_schematic.bin"), Profile(made.model, made.level, made.source, (graph,)))
    return tmp_path


def view(*arguments: str) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        tool_command("qnn-profile-viewer").main(list(arguments), standalone_mode=False)
    return said.getvalue()


@pytest.mark.feature("Chrometrace reader", guide="1762, 1805")
def test_every_run_or_their_average(folder: Path) -> None:
    each = parse_all(view("--reader", RAW, "--input_log", "./qnn-profiling-data_0.log"))
    assert [r.title for r in each] == ["Run 1 of 2", "Run 2 of 2"]
    mean = parse(view("--reader", AVERAGE, "--input_log", "./qnn-profiling-data_0.log"))
    assert mean.title == "Average"
    check_invariants(mean)
    assert mean.ops == each[0].ops
    assert parse(view("--input_log", "qnn-profiling-data_0.log")) == mean


@pytest.mark.feature("Linting profile", guide="1749-1807")
def test_a_trace_of_linting(folder: Path) -> None:
    view("--reader", AVERAGE, "--input_log", "qnn-profiling-data_0.log", "--output", "./chromeTrace.json")
    by = check_trace(json.loads(Path("chromeTrace.json").read_text()))
    assert any(e["name"].startswith("sub_ElementWiseSubtract") for e in by["X"])
    assert not list(folder.glob("*.html"))


@pytest.mark.feature("System services", guide="2505-2521")
@pytest.mark.feature("Optrace capture", guide="2411-2463")
def test_optrace(folder: Path) -> None:
    Path("config.json").write_text(
        '{"features": {"enable_input_output_flow_events": true, // arrows\n"enable_sequencer_flow_events": true,'
        '"htp_json": true, "runtrace": true, "memory_info": true, "traceback": true, "qhas_schema": true,'
        '"qhas_json": true}}'
    )
    view("--config", "config.json", "--reader", OPTRACE, "--input_log", "./optrace.log", "--schematic",
         "./sub_schematic.bin", "--output", "./chrometrace.json")  # fmt: skip
    by = check_trace(json.loads(Path("chrometrace.json").read_text()))
    assert by["s"]
    assert by["C"]
    names = {path.name for path in folder.iterdir()}
    assert {"chrometrace_qnn_htp_analysis_summary.html", "sub_qnn_htp_analysis_summary.json", "qhas_schema.json",
            "chrometrace_htp.json"} <= names  # fmt: skip
    summary = json.loads(Path("sub_qnn_htp_analysis_summary.json").read_text())
    jsonschema.validate(summary, json.loads(Path("qhas_schema.json").read_text()))


@pytest.mark.feature("Viewer config", guide="2465-2497")
def test_defaults_of_features(folder: Path) -> None:
    view("--reader", OPTRACE, "--input_log", "optrace.log", "--output", "t.json")
    assert {p.name for p in folder.glob("t*")} == {"t.json", "t_htp.json", "t_qnn_htp_analysis_summary.html"}
    assert not check_trace(json.loads(Path("t.json").read_text()))["s"]


@pytest.mark.feature("Gzip", guide="2563-2577")
def test_three_ways_to_compress(folder: Path) -> None:
    base = ("--reader", OPTRACE, "--input_log", "optrace.log", "--output")
    view(*base, "plain.json")
    view(*base, "a.json.gz")
    view(*base, "b.json", "--gzip")
    Path("c.cfg").write_text('{"features": {"gzip": true}}')
    view(*base, "c.json", "--config", "c.cfg")
    plain = Path("plain.json").read_bytes()
    for name in ("a", "b", "c"):
        packed = Path(f"{name}.json.gz").read_bytes()
        assert gzip.decompress(packed) == plain
        assert len(packed) < len(plain) / 3
        assert not Path(f"{name}.json").exists()


@pytest.mark.feature("Framework names and zoom", guide="2523-2535")
def test_zoom_by_either_name(folder: Path) -> None:
    base = ("--reader", OPTRACE, "--input_log", "optrace.log", "--output")
    view(*base, "a.json", "--zoom_start", "convLeft1", "--zoom_end", "sub")
    view(*base, "b.json", "--zoom-start=convLeft1_Conv2d", "--zoom-end=sub_ElementWiseSubtract")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    labels = {e["name"] for e in json.loads(Path("a.json").read_text())["traceEvents"]}
    assert not any("Right" in name for name in labels)


def test_a_sessions_log(folder: Path) -> None:
    options = {"soc_model": "SM8650", "profiling_level": "optrace", "profiling_file_path": "s.csv",
               "enable_framework_op_trace": "1"}  # fmt: skip
    session = hexforge.InferenceSession(MODEL, providers=[("QNNExecutionProvider", options)])
    from hexforge.cli.runnable import feeds_for

    session.run(None, feeds_for(session.get_inputs(), {}))
    (schematic,) = (p for p in folder.glob("QNN*_schematic.bin"))
    view("--reader", OPTRACE, "--input_log", "s_qnn.log", "--schematic", schematic.name, "--dlc", "qnn_op_trace.json",
         "--output", "s.json")  # fmt: skip
    by = check_trace(json.loads(Path("s.json").read_text()))
    assert any(e["args"].get("framework_ops") == ["sub"] for e in by["X"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--input_log"),
        (["--input_log", "none.log"], "no such file"),
        (["--input_log", "sub_schematic.bin"], "schematic"),
        (["--input_log", "qnn-profiling-data_0.log", "--reader", "libQnnHtpProfileReader.so"], "did you mean"),
        (["--input_log", "qnn-profiling-data_0.log", "--reader", OPTRACE, "--output", "x"], "optrace"),
        (["--input_log", "optrace.log", "--reader", OPTRACE], "--output"),
        (["--input_log", "optrace.log", "--reader", RAW, "--output", "x.json"], "prints text"),
        (["--input_log", "optrace.log", "--zoom_start", "sub"], "--reader"),
        (["--input_log", "optrace.log", "--dlc", "model.dlc"], "Qualcomm"),
        (["--input_log", "optrace.log", "--dlc", "none.dlc"], "no such file"),
        (["--input_log", "optrace.log", "--dlc", "other.onnx"], "of another model"),
        (["--input_log", "optrace.log", "--reader", OPTRACE, "--output", "nowhere/x.json"], "no folder"),
        (["--input_log", "optrace.log", "--standardized_json_output"], "published nowhere"),
        (["--input_log", "optrace.log", "--readr", "x"], "did you mean"),
    ],
)
def test_refusals(folder: Path, arguments: list[str], says: str) -> None:
    (folder / "model.dlc").write_bytes(b"PK\3\4")  # the vendor's are archives
    (folder / "other.onnx").write_bytes(quantized())
    before = {p.name for p in folder.iterdir()}
    with pytest.raises(HexforgeError, match=says):
        tool_command("qnn-profile-viewer").main(arguments, standalone_mode=False)
    assert {p.name for p in folder.iterdir()} == before


@pytest.mark.feature("Framework names and zoom", guide="2523-2535")
@pytest.mark.parametrize("kind", ["model.onnx", "model.dlc", "context.bin", "recording"])
def test_framework_names_come_from_a_model_a_context_or_a_recording(folder: Path, kind: str) -> None:
    known = log.read(Path("optrace.log"))
    bare = [replace(graph, ops=tuple(replace(op, sources=()) for op in graph.ops)) for graph in known.graphs]
    log.write(Path("bare.log"), replace(known, graphs=tuple(bare)))
    if kind.startswith("model"):
        Path(kind).write_bytes(MODEL)
    elif kind == "context.bin":
        hexforge.compile(MODEL, kind, "SM8650")
    else:
        saver = {"backend_type": "htp", "soc_model": "SM8650", "qnn_saver_path": "libQnnSaver.so"}
        hexforge.InferenceSession(MODEL, providers=[("QNNExecutionProvider", saver)])
        kind = "saver_output"
    view("--reader", OPTRACE, "--input_log", "bare.log", "--dlc", kind, "--output", "named.json")
    traced = json.loads(Path("named.json").read_text())["traceEvents"]
    named = {tuple(e["args"].get("framework_ops", ())) for e in traced if e["ph"] == "X" and "args" in e} - {()}
    wanted = {op.sources for graph in known.graphs for op in graph.ops if op.sources}
    if kind != "saver_output":  # a recording has QNN's names only
        assert named <= wanted
    assert len(named) >= len(wanted) // 2


def test_a_schematic_of_another_graph(folder: Path) -> None:
    other = profile(showcase.prelu(64)[0], "SM8650")
    log.write(Path("other.bin"), Profile(other.model, other.level, other.source, (log.without_runs(other.graphs[0]),)))
    with pytest.raises(HexforgeError, match="do not fit"):
        tool_command("qnn-profile-viewer").main(
            ["--input_log", "optrace.log", "--schematic", "other.bin"], standalone_mode=False
        )


def test_help_names_the_tool() -> None:
    from hexforge.cli import app

    result = CliRunner().invoke(app, ["tool", "qnn-profile-viewer", "--help"])
    assert result.exit_code == 0
    assert "--input_log" in result.output
