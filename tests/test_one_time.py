# SPDX-License-Identifier: Apache-2.0
"""One run has one time: the tool, its log, pages, the device, sessions and estimates say the same digits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import read_script
from hexforge.addons.profiler import log
from hexforge.addons.profiler.recording.retime import retime
from hexforge.addons.tools import tool_command
from hexforge.addons.tools.throughput_net_run import ChipThread, on_chips
from hexforge.chips.power import Corner
from hexforge.errors import CallError
from hexforge.runtime.registry import timed_backend
from tests import ROOT
from tests.addons.device import tiny
from tests.cli.test_cli import run as command
from tests.ort.models import FLOAT, model, node

SOC, RUNS = "SM8650", 2
MODES = ("burst", "high_performance", "balanced", "low_power_saver")


def spilling() -> bytes:
    """Tensors of some MB that are read again much later: 4 MB of VTCM have no room for them, 8 have."""
    nodes, last = [], "x"
    for i in range(3):
        nodes += [node("Relu", [last], [f"r{i}"], name=f"relu{i}"), node("Neg", [f"r{i}"], [f"n{i}"], name=f"neg{i}")]
        last = f"n{i}"
    nodes.append(node("Add", [last, "r0"], ["y"], name="add"))
    shape = [1, 32, 192, 192]
    return model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)})


MODELS = {
    "digits": lambda: (ROOT / "tests" / "digits" / "digits.onnx").read_bytes(),
    "conv": tiny.conv,
    "spilling": spilling,
}


@pytest.fixture(scope="module", params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, its context and an input."""
    made = tmp_path_factory.mktemp(request.param)
    (made / "m.onnx").write_bytes(MODELS[request.param]())
    hexforge.compile(made / "m.onnx", made / "m.bin", SOC)
    lines = []
    for value in session(made).get_inputs():
        np.zeros(value.shape, np.float32).tofile(made / f"{value.name}.raw")
        lines.append(f"{value.name}:={made / value.name}.raw")
    (made / "list.txt").write_text(" ".join(lines) + "\n")
    return made


def session(folder: Path, **options: str) -> Any:
    return hexforge.InferenceSession(
        str(folder / "m.onnx"), providers=[("QNNExecutionProvider", {"soc_model": SOC, **options})]
    )


def digits(us: float) -> str:
    """A time as commands print it."""
    return f"{us / 1e3:.4f}"


def by_the_tool(folder: Path, mode: str, *source: str, capsys: Any) -> set[str]:
    """What qnn-net-run prints, and what its log has, of the model or of the context."""
    command_line = (
        *source,
        "--backend",
        "libQnnHtp.so",
        "--input_list",
        str(folder / "list.txt"),
        "--perf_profile",
        mode,
    )
    more = ("--profiling_level", "detailed", "--log_level", "info", "--num_inferences", str(RUNS))
    out = folder / f"out {mode}{source[0]}"
    tool_command("qnn-net-run").main([*command_line, *more, "--output_dir", str(out)], standalone_mode=False)
    printed = re.findall(r"([\d.]+) ms each on the simulated device", capsys.readouterr().out)
    recorded = log.read(out / "qnn-profiling-data_0.log").graphs[0].runs
    assert len(printed) == 1
    assert len(recorded) == RUNS
    return {*printed, *(digits(run.netrun_us) for run in recorded)}


def on_the_device(folder: Path, mode: str) -> set[str]:
    steps = [{"do": "create", "context": "c", "binary": "m"}, {"do": "execute", "graph": "c/m", "times": RUNS}]
    script = {"soc": SOC, "binaries": {"m": {"file": str(folder / "m.bin")}},
              "processes": [{"name": "p", "profile": mode, "threads": [steps]}]}  # fmt: skip
    (folder / "script.json").write_text(json.dumps(script))
    (done,) = play(read_script(folder / "script.json")).executed.values()
    return {digits(run.latency_us) for run in done}


@pytest.mark.parametrize("mode", MODES)
def test_tool_log_page_device_and_estimate_agree(folder: Path, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = hexforge.Deployment(SOC, power=hexforge.Power(mode))
    for flag, source in (("--model", folder / "m.onnx"), ("--retrieve_context", folder / "m.bin")):
        times = by_the_tool(folder, mode, flag, str(source), capsys=capsys)
        estimated = hexforge.estimate(source, deployment)
        times.add(digits(estimated.latency_ms * 1e3))
        times.add(f"{estimated.to_json()['latency_ms']:.4f}")
        times.add(digits(hexforge.profile(source, deployment, level="basic").graphs[0].runs[0].netrun_us))
        page = folder / "page.html"
        command("estimate", str(source), "--soc", SOC, "--performance-mode", mode, "--report", str(page))
        times.add(f"{float(re.findall(r'latency_ms.?:([0-9.]+)', page.read_text())[0]):.4f}")
        if source.suffix == ".bin":
            times |= on_the_device(folder, mode)
        assert len(times) == 1, times


@pytest.mark.parametrize("mode", MODES)
def test_session_its_log_its_page_and_the_estimate_of_its_graph_agree(folder: Path, mode: str) -> None:
    file = folder / f"{mode}.csv"
    made = session(folder, htp_performance_mode=mode, profiling_level="detailed", profiling_file_path=str(file))
    assert made.simulated.device.soc.name == SOC
    for _ in range(RUNS):
        made.run(None, {value.name: np.zeros(value.shape, np.float32) for value in made.get_inputs()})
    recorded = log.read(file.with_name(f"{mode}_qnn.log"))
    times = {digits(run.latency_us) for run in made.simulated.runs}
    times |= {digits(run.netrun_us) for run in recorded.graphs[0].runs}
    deployment = hexforge.Deployment(SOC, runtime="onnx", power=hexforge.Power(mode))
    times.add(digits(hexforge.estimate(made.graphs[0], deployment).latency_ms * 1e3))
    times.add(digits(hexforge.estimate(folder / "m.onnx", deployment, quantized_io=True).latency_ms * 1e3))
    times |= {digits(run.netrun_us) for run in retime(recorded, {}).graphs[0].runs}
    assert len(times) == 1, times


@pytest.mark.parametrize("mode", MODES)
def test_a_model_in_several_graphs_has_one_time(mode: str, tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Det", ["a"], ["b"], name="det"),
        node("Neg", ["b"], ["y"], name="neg"),
    ]
    (tmp_path / "m.onnx").write_bytes(model(nodes, {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])}))
    made = session(
        tmp_path, htp_performance_mode=mode, profiling_level="basic", profiling_file_path=str(tmp_path / "p.csv")
    )
    for _ in range(2):
        assert made.simulated.latency_us > 0
        made.run(None, {"x": np.zeros((2, 3, 3), np.float32)})
    deployment = hexforge.Deployment(SOC, runtime="onnx", power=hexforge.Power(mode))
    estimated = hexforge.estimate(tmp_path / "m.onnx", deployment, quantized_io=True, cpu_part=False)
    recorded = log.read(tmp_path / "p_qnn.log")
    assert len(recorded.graphs) == 2
    times = {digits(made.simulated.latency_us), digits(estimated.latency_ms * 1e3)}
    times.add(digits(sum(graph.runs[-1].netrun_us for graph in recorded.graphs)))
    times.add(digits(sum(graph.runs[0].netrun_us for graph in retime(recorded, {}).graphs)))
    assert len(times) == 1, times


def test_a_log_is_timed_again_with_one_option_changed(folder: Path) -> None:
    recorded = hexforge.profile(folder / "m.bin", hexforge.Deployment(SOC), level="optrace")
    log.write(folder / "again.log", recorded)
    kept = log.read(folder / "again.log")
    assert retime(kept, {}) == recorded
    for change, deployment in (
        ({"performance_mode": "balanced"}, hexforge.Deployment(SOC, power=hexforge.Power("balanced"))),
        (
            {"htp_performance_mode": "power_saver", "core_corner": "NOM"},
            hexforge.Deployment(SOC, power=replace(hexforge.Power("power_saver"), core_corner=Corner.NOM)),
        ),
        ({"soc": "SM8750"}, hexforge.Deployment("SM8750")),
        ({"runtime": "onnx"}, hexforge.Deployment(SOC, runtime="onnx")),
        ({"vtcm_mb": "1"}, hexforge.Deployment(SOC, config=hexforge.GraphConfig(vtcm_mb=1))),
    ):
        again = retime(kept, change).graphs[0]
        if "soc" in change:  # threads that the context was prepared for stay
            deployment = replace(deployment, config=hexforge.GraphConfig(num_hvx_threads=4, vtcm_mb=4))
        straight = hexforge.estimate(folder / "m.bin", deployment)
        assert digits(again.runs[0].netrun_us) == digits(straight.latency_ms * 1e3)
        assert again.chip == straight.soc


def test_what_a_log_cannot_be_timed_again_for_is_said(tmp_path: Path) -> None:
    recorded = hexforge.profile(tiny.dense(1), SOC, level="basic")
    with pytest.raises(CallError, match="performance_mode"):
        retime(recorded, {"performance_mod": "burst"})
    with pytest.raises(CallError, match="profile the model"):
        retime(recorded, {"precision": "w8a8"})
    with pytest.raises(CallError, match="expected a corner"):
        retime(recorded, {"hmx_corner": "FAST"})
    bare = replace(recorded, graphs=tuple(replace(graph, text="") for graph in recorded.graphs))
    with pytest.raises(CallError, match="profile again"):
        retime(bare, {"performance_mode": "burst"})
    with pytest.raises(CallError, match="measured"):
        retime(replace(recorded, source="measured"), {})


def test_the_command_times_a_log_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log.write(tmp_path / "p.log", hexforge.profile(tiny.conv(), SOC, level="optrace"))
    command("profile", str(tmp_path / "p.log"), "--retime", "performance_mode=balanced", "-o", str(tmp_path / "out"))
    before, after = re.findall(r"([\d.]+) ms as it was, ([\d.]+) ms with the change", capsys.readouterr().out)[0]
    assert float(before) < float(after)
    (page,) = (tmp_path / "out").glob("*.html")
    shown = re.search(r"<title>tiny on SM8650: ([\d.]+) ms</title>", page.read_text())
    assert shown is not None
    assert float(shown[1]) == pytest.approx(float(after), abs=0.00055)  # three digits there, four in the line
    (written,) = (tmp_path / "out").glob("*.log")
    assert digits(log.read(written).graphs[0].runs[0].netrun_us) == after


def test_threads_of_a_throughput_test_are_each_timed_under_their_own_power() -> None:
    backend = timed_backend(hexforge.Deployment(SOC))
    program = backend.compile(backend.prepared(hexforge.estimate(tiny.conv(), SOC).graphs[0]))

    def mean_ms(*modes: str) -> dict[str, float]:
        threads = [ChipThread(mode, program, backend, "normal", 0.0, hexforge.Power(mode)) for mode in modes]
        return {row["thread"]: row["mean_ms"] for row in on_chips(threads)}

    for mode in MODES:
        deployment = hexforge.Deployment(SOC, power=hexforge.Power(mode))
        assert digits(1e3 * mean_ms(mode)[mode]) == digits(hexforge.estimate(program, deployment).latency_ms * 1e3)
    both = mean_ms("burst", "balanced")
    assert both == mean_ms("balanced", "burst")  # whoever is named first
    assert both["burst"] < both["balanced"]
