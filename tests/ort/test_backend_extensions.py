# SPDX-License-Identifier: Apache-2.0
"""The config file of QNN's tools in a session, in compile and in scenarios: one file, one meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.device.scenario.play import play
from hexforge.addons.device.scenario.script import read_script
from hexforge.cli import main
from hexforge.errors import HexforgeError

QNN = "QNNExecutionProvider"
X = np.random.default_rng(0).standard_normal((1, 8, 64, 64)).astype(np.float32)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weight = np.random.default_rng(1).standard_normal((8, 8, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"], "relu"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 8, 64, 64]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [numpy_helper.from_array(weight, "w")])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "net.onnx"
    )
    return tmp_path / "net.onnx"


def written(folder: Path, data: Any) -> Path:
    """The HTP's file, and a tool's file that names it by a relative path."""
    (folder / "htp.json").write_text(data if isinstance(data, str) else json.dumps(data))
    tool = {
        "backend_extensions": {"shared_library_path": "libQnnHtpNetRunExtensions.so", "config_file_path": "htp.json"}
    }
    (folder / "tool.json").write_text(json.dumps(tool))
    return folder / "tool.json"


def session(model: Path, file: Path, entries: dict[str, str] | None = None, **options: str) -> Any:
    settings = hexforge.SessionOptions()
    for key, value in (entries or {}).items():
        settings.add_session_config_entry(key, value)
    given = {"backend_type": "htp", "backend_extensions": str(file), **options}
    return hexforge.InferenceSession(model, settings, providers=[(QNN, given)])


FILE: dict[str, Any] = {
    "graphs": [{"graph_names": ["net"], "vtcm_mb": 2, "hvx_threads": 2, "O": 1, "dlbc": 1, "num_cores": 2}],
    "devices": [{"soc_model": 52, "pd_session": "signed", "cores": [{"perf_profile": "power_saver"}]}],
    "memory": {"mem_type": "shared_buffer"},
    "context": {"io_memory_estimation": True, "init_acceleration": True},
}


def test_every_section_acts_in_a_session(model: Path, tmp_path: Path) -> None:
    made = session(model, written(tmp_path, FILE))
    backend = made._device_parts[0]
    graph = backend.config.graph
    assert (graph.vtcm_mb, graph.num_hvx_threads, graph.optimization, graph.dlbc, graph.num_cores) == (2, 2, 1, True, 2)
    assert backend.targets[0].name == "SA8775P"
    assert made._running_power.power.performance_mode == "power_saver"
    assert made.shares_memory
    assert made.simulated.device.soc.name == "SA8775P"
    assert len(made.simulated.device.cores.cores) == 2
    assert made.simulated.last.mode == "power_saver"
    (client,) = made.simulated.device.clients.values()
    assert client.signed
    (context,) = client.contexts.values()
    assert context.config.io_mem_estimation
    assert context.config.init_acceleration


def test_options_change_no_bit(model: Path, tmp_path: Path) -> None:
    plain = hexforge.InferenceSession(model, providers=[(QNN, {"backend_type": "htp", "soc_model": "52"})])
    filed = session(model, written(tmp_path, FILE))
    assert plain.run(None, {"x": X})[0].tobytes() == filed.run(None, {"x": X})[0].tobytes()


def test_an_option_beside_the_file_wins(model: Path, tmp_path: Path) -> None:
    made = session(model, written(tmp_path, FILE), soc_model="QCS9075", vtcm_mb="4", htp_performance_mode="burst")
    assert made._device_parts[0].targets[0].name == "QCS9075"
    assert made._device_parts[0].config.graph.vtcm_mb == 4
    assert made.simulated.last.mode == "burst"


def test_a_section_for_another_graph_is_said_not_to_act(model: Path, tmp_path: Path) -> None:
    made = session(model, written(tmp_path, {"graphs": [{"graph_names": ["other"], "vtcm_mb": 2}]}))
    assert made._device_parts[0].config.graph.vtcm_mb == 0
    assert any("changes nothing: the graphs here are 'net'" in note for note in made.notes)


def test_a_bad_file_is_an_error_with_its_keys(model: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="vtcm_mbb: unknown key; did you mean 'vtcm_mb'"):
        session(model, written(tmp_path, {"graphs": [{"vtcm_mbb": 2}]}))
    with pytest.raises(Exception, match="there is no such file"):
        session(model, tmp_path / "absent.json")


def test_the_cpu_backend_says_that_it_changes_nothing(model: Path, tmp_path: Path) -> None:
    made = session(model, written(tmp_path, FILE), backend_type="cpu")
    assert any("backend_extensions" in note and "has no effect" in note for note in made.notes)


def test_a_session_compile_and_the_generator_write_the_same_settings(model: Path, tmp_path: Path) -> None:
    file = written(tmp_path, FILE)
    session(model, file, {"ep.context_enable": "1", "ep.context_file_path": str(tmp_path / "net_ctx.onnx")})
    with pytest.raises(SystemExit) as ended:
        main(["compile", str(model), "-o", str(tmp_path / "a.bin"), "--config-file", str(file)])
    assert ended.value.code == 0
    generator = ["tool", "qnn-context-binary-generator", "--model", str(model), "--backend", "libQnnHtp.so"]
    with pytest.raises(SystemExit) as ended:
        main([*generator, "--config_file", str(file), "--output_dir", str(tmp_path), "--binary_file", "b"])
    assert ended.value.code == 0
    contexts = [hexforge.Context(tmp_path / name) for name in ("net_ctx_qnn.bin", "a.bin", "b.bin")]
    settings = [context.graphs[0].settings for context in contexts]
    assert settings[0] == settings[1] == settings[2]
    options = [{k: v for k, v in c.info.options.items() if k in ("dlbc", "htp_num_cores")} for c in contexts]
    assert options == [{"dlbc": "1", "htp_num_cores": "2"}] * 3
    assert {context.info.targets[0].name for context in contexts} == {"SA8775P"}


def step(do: str, **fields: str) -> dict[str, str]:
    return {"do": do, **fields}


def test_a_scenario_takes_the_file(model: Path, tmp_path: Path) -> None:
    written(tmp_path, FILE)
    hexforge.compile(model, tmp_path / "net.bin", hexforge.deployment_from_config(tmp_path / "htp.json", "net"))
    script = {
        "config_file": "tool.json",
        "binaries": {"net": {"file": "net.bin"}},
        "processes": [
            {"name": "app", "threads": [[step("create", context="c", binary="net"), step("execute", graph="c/net")]]}
        ],
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    played = play(read_script(tmp_path / "script.json"))
    assert not played.unexpected
    assert played.device.soc.name == "SA8775P"
    assert len(played.device.cores.cores) == 2
    (client,) = played.device.clients.values()
    assert client.signed
    assert client.votes.profile is not None
    assert client.votes.profile.name == "power_saver"


def test_a_scenario_with_a_bad_file_is_an_error(tmp_path: Path) -> None:
    written(tmp_path, '{"devices": [{"soc": 5}]}')
    (tmp_path / "script.json").write_text('{"config_file": "tool.json", "binaries": {}, "processes": []}')
    with pytest.raises(HexforgeError, match="soc: unknown key"):
        read_script(tmp_path / "script.json")
