# SPDX-License-Identifier: Apache-2.0
"""What the tools tell of the device: memory of switching, groups and sharing, the DSP's heap, VTCM as given."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.addons.profiler import log
from hexforge.addons.profiler.chrometrace import chrometrace
from hexforge.addons.profiler.recording.simulated import profile
from hexforge.addons.profiler.summary import summary
from hexforge.addons.tools import tool_command
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.cli import app
from tests.addons.tools.test_keys import convolutions
from tests.backends.htp.test_graph_options import spilling_model

SIZE = 16


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a context of two graphs, inputs and their list; the tools run in it."""
    monkeypatch.chdir(tmp_path)
    models = [convolutions(tmp_path / f"{name}.onnx", SIZE) for name in "ab"]
    hexforge.compile(models, tmp_path / "two.bin", "SM8650")
    np.zeros((1, 16, SIZE, SIZE), np.float32).tofile("x.raw")
    Path("list.txt").write_text("x.raw\n")
    return tmp_path


def said(tool: str, *arguments: str, config: dict[str, Any] | None = None) -> str:
    """What a tool prints, with a config file of the tools and one of the HTP."""
    given = list(arguments)
    if config is not None:
        own = {"devices": [{"soc_model": 57}], **config.pop("htp", {})}
        Path("htp.json").write_text(json.dumps(own))
        Path("tool.json").write_text(json.dumps({"backend_extensions": {"config_file_path": "htp.json"}, **config}))
        given += ["--config_file", "tool.json"]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        tool_command(tool).main(given, standalone_mode=False)
    return text.getvalue()


RUN = ("--retrieve_context", "two.bin", "--backend", "libQnnHtp.so", "--input_list", "list.txt,list.txt")


def held(text: str) -> int:
    found = re.search(r"memory on the device: ([\d,]+) bytes in 1 session, at most ([\d,]+)", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))


@pytest.mark.feature("Graph switching", guide="2775-2847")
def test_net_run_prints_the_memory_of_switched_graphs(folder: Path) -> None:
    plain = said("qnn-net-run", *RUN, "--log_level", "info", config={})
    switched = {"context_configs": {"is_persistent_binary": True, "memory_limit_hint": 1}}
    text = said("qnn-net-run", *RUN, config=switched)
    assert "loaded b after 1 switches" in text
    assert held(text) < held(plain)
    assert "weights" in text
    assert said("qnn-net-run", *RUN, config={}) == ""  # nothing of it asked for


@pytest.mark.parametrize("section", ["context", "groupContext"])
def test_net_run_prints_the_memory_of_contexts_that_share(folder: Path, section: str) -> None:
    for name in "ab":
        hexforge.compile(folder / f"{name}.onnx", folder / f"{name}.bin", "SM8650")
    group = {"group_id": 0, "max_spill_fill_buffer_for_group": 30_081_024}
    own = {"context": group} if section == "context" else {"groupContext": {"share_resources": True}}
    given = ("--retrieve_context", "a.bin,b.bin", *RUN[2:])
    text = said("qnn-net-run", *given, config={"htp": own})
    wanted = "is in a group, one spill-fill buffer of 30,081,024" if section == "context" else "shares resources"
    assert text.count(wanted) == 2
    if section == "context":
        assert "group spill-fill 30,081,024" in text


def test_a_section_for_a_graph_that_is_not_there_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said("qnn-net-run", *RUN, config={"htp": {"graphs": [{"graph_names": ["bb"], "vtcm_mb": 2}]}})
    assert "graphs[0] is for 'bb', and changes nothing: the graphs here are 'a' and 'b'" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["basic", "detailed"])
def test_nothing_is_said_of_the_heap_that_no_key_of_the_tools_asks_for(folder: Path, level: str) -> None:
    """It is off unless a context is created with it, which the tools' files have no key for."""
    said("qnn-net-run", *RUN, "--profiling_level", level)
    assert not [e for e in log.read(Path("output/qnn-profiling-data_0.log")).events if e.name.startswith("DSP:")]
    assert "DSP:" not in said("qnn-profile-viewer", "--input_log", "output/qnn-profiling-data_0.log")


@pytest.mark.feature("QHAS", guide="2595-2641")
def test_the_summary_has_the_vtcm_that_the_graph_was_prepared_for(folder: Path) -> None:
    for config, wanted in ((GraphConfig(), 8 << 20), (GraphConfig(vtcm_mb=2), 2 << 20)):
        made = profile(folder / "a.onnx", Deployment("SM8650", config=config))
        overall = summary(made)["htp_overall_summary"]
        assert overall["vtcm_bytes"] == wanted
        assert overall["vtcm_peak_bytes"] <= wanted
    said("qnn-net-run", *RUN, "--profiling_level", "detailed", "--profiling_option", "optrace")
    (graph,) = log.read(Path("output/qnn-profiling-data.log")).graphs
    assert graph.vtcm_bytes == 4 << 20  # as the context was prepared, not all that the chip has


@pytest.mark.feature("Memory graphs", guide="2553-2561")
def test_a_second_core_has_memory_graphs_of_its_own() -> None:
    one, two = (
        profile(spilling_model(), Deployment("SA8775P", config=GraphConfig(num_cores=n, vtcm_mb=1))) for n in (1, 2)
    )
    counters: list[dict[int, set[str]]] = []
    for made in (one, two):
        events = chrometrace(made)["traceEvents"]
        names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
        assert ("Core 1 (SA8775P)" in names) is (made is two)
        by_core: dict[int, set[str]] = {}
        for event in events:
            if event["ph"] == "C":
                by_core.setdefault(event["pid"], set()).add(event["name"])
        counters.append(by_core)
    graphs = {"DRAM read", "DRAM write", "VTCM read", "VTCM write", "VTCM alloc"}
    assert counters == [{1: graphs}, {1: graphs, 2: graphs}]
    tracks = {(t.name, t.core): t.values for t in two.graphs[0].runs[0].counters}
    assert tracks["DRAM read", 0] == tracks["DRAM read", 1]
    assert max(tracks["VTCM alloc", 1]) > 0


@pytest.mark.feature("VTCM in bytes", guide="2700-2723")
def test_vtcm_in_bytes_is_printed_as_given(folder: Path) -> None:
    def printed(*arguments: str) -> str:
        done = CliRunner().invoke(app, arguments, env={"COLUMNS": "160"})  # a narrow table leaves columns out
        assert done.exit_code == 0, done.output
        return done.output

    given = ("--soc", "SM8850", "--vtcm-size", "8323072")
    assert "8,323,072 bytes" in printed("compile", "a.onnx", "-o", "a.bin", *given)
    assert "8,323,072 bytes" in printed("info", "a.bin")
    blob = json.loads(printed("info", "a.bin", "--json"))["info"]["graphs"][0]["info"]["graphBlobInfo"]
    assert (blob["vtcmSize"], blob["vtcmSizeInBytes"]) == (8, 8323072)
    assert "the graph 8,323,072 bytes" in printed("estimate", "a.onnx", *given)
    assert "the graph 2 MB" in printed("estimate", "a.onnx", "--soc", "SM8850", "--vtcm-mb", "2")
    assert "4 MB" in printed("compile", "a.onnx", "-o", "b.bin", "--soc", "SM8850")


@pytest.mark.feature("A8 < A16 < FP16 in accuracy, power, energy", guide="2656")
def test_net_run_prints_energy_which_8_bits_take_least_of(folder: Path) -> None:
    said("qnn-onnx-converter", "-i", "a.onnx", "-o", "w8a8.dlc", "--input_list", "list.txt")
    said("qnn-onnx-converter", "-i", "a.onnx", "-o", "w8a16.dlc", "--input_list", "list.txt", "--act_bitwidth", "16")
    energies = []
    for model in ("w8a8.dlc", "w8a16.dlc", "a.onnx"):
        text = said("qnn-net-run", "--model", model, *RUN[2:4], "--input_list", "list.txt", "--log_level", "info")
        found = re.search(r"ms each on the simulated device, ([\d.]+) uJ \(assumed\)", text)
        assert found is not None, text
        energies.append(float(found[1]))
    assert 0 < energies[0] < energies[1] < energies[2]
