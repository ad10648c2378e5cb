# SPDX-License-Identifier: Apache-2.0
"""hexforge.compatibility=ep: options and open shapes as onnxruntime-qnn 2.7.0 was seen to take them."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as real

import hexforge
from tests.ort.models import FLOAT, mixed, model, node, quantized

QNN, CPU = "QNNExecutionProvider", "CPUExecutionProvider"


def session(source: bytes, options: dict[str, str] | None = None, **entries: str) -> Any:
    """A session that is like the EP, with config entries."""
    chosen = hexforge.SessionOptions()
    for key, value in {"hexforge__compatibility": "ep", **entries}.items():
        chosen.add_session_config_entry(key.replace("__", "."), value)
    return hexforge.InferenceSession(source, chosen, providers=[(QNN, options or {})])


def on_qnn(made: Any) -> set[str]:
    return {row.op_type for row in made.placements if row.where == QNN}


def half_open() -> bytes:
    """A static half, and one whose batch is open."""
    nodes = [node("Relu", ["x"], ["y"], name="relu"), node("Neg", ["u"], ["v"], name="neg")]
    inputs: Any = {"x": (FLOAT, [2, 3]), "u": (FLOAT, ["N", 3])}
    return model(nodes, inputs, {"y": (FLOAT, [2, 3]), "v": (FLOAT, ["N", 3])})


def test_open_shapes_are_the_cpus_and_the_rest_is_qnns() -> None:
    made = session(half_open())
    assert on_qnn(made) == {"Relu"}
    (reason,) = [row.reason for row in made.placements if row.where == CPU]
    assert reason
    for batch in (1, 4):
        x, u = np.full((2, 3), -1, np.float32), np.ones((batch, 3), np.float32)
        y, v = made.run(None, {"x": x, "u": u})
        np.testing.assert_array_equal(y, np.zeros((2, 3)))
        np.testing.assert_array_equal(v, -u)


def test_all_of_an_open_model_is_the_cpus() -> None:
    made = session(mixed("N"))
    assert not on_qnn(made)
    assert made.run(["y"], {"x": np.full((5, 3), 2, np.float32)})[0].shape == (5, 3)
    with pytest.raises(real.Fail):
        session(mixed("N"), session__disable_cpu_ep_fallback="1")


def test_strictness_is_the_default() -> None:
    with pytest.raises(hexforge.CallError, match="static shapes"):
        hexforge.InferenceSession(half_open(), providers=[QNN])
    with pytest.raises(hexforge.CallError, match="unknown provider option"):
        hexforge.InferenceSession(quantized(), providers=[(QNN, {"no_such_option": "1"})])


@pytest.mark.parametrize(
    "options",
    [
        {"no_such_option": "1"},
        {"htp_performance_mode": "fast"},
        {"vtcm_mb": "x"},
        {"vtcm_mb": "-3"},
        {"htp_graph_finalization_optimization_mode": "9"},
        {"profiling_level": "all"},
        {"offload_graph_io_quantization": "yes"},
        {"enable_htp_spill_fill_buffer": "2"},
        {"htp_arch": "7"},
        {"soc_model": "nothing"},
        {"backend_type": "htpx"},
    ],
)
def test_what_the_ep_warns_of_or_ignores(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    """Each was given to the EP, which took Sigmoid all the same."""
    with caplog.at_level(logging.WARNING, "hexforge"):
        made = session(quantized(), options)
    (key,) = options
    assert key in caplog.text
    assert any(key in note for note in made.notes)
    assert "Sigmoid" in on_qnn(made)


def test_session_and_run_keys(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hexforge"):
        made = session(quantized(), session__nothing="1", ep__context_enable="maybe")
        run = hexforge.RunOptions()
        run.add_run_config_entry("qnn.htp_perf_mode", "fast")
        run.add_run_config_entry("qnn.nothing", "1")
        feeds = {i.name: np.zeros(i.shape, np.float32) for i in made.get_inputs()}
        for _ in range(2):
            made.run(None, feeds, run)
    for key in ("session.nothing", "ep.context_enable", "qnn.htp_perf_mode", "qnn.nothing"):
        assert sum(key in record.getMessage() for record in caplog.records) == 1, key


def test_a_bad_priority_leaves_every_node_to_the_cpu() -> None:
    made = session(quantized(), {"qnn_context_priority": "top"})
    assert not on_qnn(made)
    assert made.get_providers() == [QNN, CPU]
    assert all("priority" in str(row.reason) for row in made.placements)


@pytest.mark.parametrize(
    "options",
    [{"rpc_control_latency": "abc"}, {"device_id": "x"}, {"backend_type": "htp", "backend_path": "libQnnHtp.so"}],
)
def test_a_provider_that_is_not_made_falls_back(options: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hexforge"):
        made = session(quantized(), options)
    assert "falling back to CPUExecutionProvider" in caplog.text
    assert made.get_providers() == [CPU]
    assert made.run(None, {i.name: np.zeros(i.shape, np.float32) for i in made.get_inputs()})


def test_the_eps_limits_are_obeyed() -> None:
    nodes = [node("LpNormalization", ["x"], ["y"], name="norm", p=1)]
    assert not on_qnn(session(model(nodes, {"x": (FLOAT, [2, 8])}, {"y": (FLOAT, [2, 8])})))


# -- errors and logs ---------------------------------------------------------------------------------------------------


def test_strict_mode_and_an_existing_context_file_fail_as_in_onnxruntime(tmp_path: Path) -> None:
    def made(source: bytes, **entries: str) -> Any:
        return session(source, {}, hexforge__compatibility="strict", **entries)

    with pytest.raises(real.Fail) as strict:
        made(mixed(), session__disable_cpu_ep_fallback="1")
    assert isinstance(strict.value, hexforge.UnsupportedError)
    where = {"ep__context_enable": "1", "ep__context_file_path": str(tmp_path / "c_ctx.onnx")}
    made(quantized(), **where)
    with pytest.raises(real.Fail, match="is there already") as existing:
        made(quantized(), **where)
    assert isinstance(existing.value, hexforge.CallError)


VERBOSE = """
import sys
import onnxruntime
options = onnxruntime.SessionOptions()
provider = {}
if sys.argv[2] == "session":
    options.log_severity_level = 0
else:
    provider["log_severity_level"] = "0"
onnxruntime.InferenceSession(sys.argv[1], options, providers=[("QNNExecutionProvider", provider)])
"""


@pytest.mark.parametrize("who", ["session", "provider"])
def test_verbose_logs_say_what_qnn_has_and_why_not_the_rest(tmp_path: Path, who: str) -> None:
    script, source = tmp_path / "s.py", tmp_path / "m.onnx"
    script.write_text(VERBOSE)
    source.write_bytes(mixed())
    command = [sys.executable, "-m", "hexforge.ort", str(script), str(source), who]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "Node(s) placed on [QNNExecutionProvider]. Number of nodes: 2" in said
    assert "  Relu (relu): htp runs Relu" in said
    assert "Node(s) placed on [CPUExecutionProvider]. Number of nodes: 2" in said
    (line,) = [line for line in said.splitlines() if "NonZero (nonzero)" in line]
    assert "data" in line or "shape" in line
    assert "All nodes placed on [CPUExecutionProvider]" not in said


# -- python -m hexforge.ort --------------------------------------------------------------------------------------------

REGISTERS = """
import sys
import numpy as np
import onnxruntime
import onnxruntime_qnn

onnxruntime.register_execution_provider_library(onnxruntime_qnn.get_ep_name(), onnxruntime_qnn.get_library_path())
devices = [d for d in onnxruntime.get_ep_devices() if d.ep_name in onnxruntime_qnn.get_ep_names()]
options = onnxruntime.SessionOptions()
options.add_provider_for_devices(devices, {"backend_path": onnxruntime_qnn.get_qnn_htp_path(), "unheard_of": "1"})
session = onnxruntime.InferenceSession(sys.argv[1], options)
print(session.get_providers(), onnxruntime_qnn.__version__ != "", {r.where for r in session.placements})
onnxruntime.unregister_execution_provider_library(onnxruntime_qnn.get_ep_name())
"""


def test_the_registration_pattern_of_onnxruntime_qnn(tmp_path: Path) -> None:
    script, source = tmp_path / "s.py", tmp_path / "m.onnx"
    script.write_text(REGISTERS)
    source.write_bytes(half_open())
    command = [sys.executable, "-m", "hexforge.ort", "--like-the-ep", str(script), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "['QNNExecutionProvider', 'CPUExecutionProvider'] True" in done.stdout
    assert "unheard_of" in done.stderr
    strict = subprocess.run([*command[:3], *command[4:]], capture_output=True, text=True)
    assert strict.returncode == 1
    assert "unheard_of" in strict.stderr


FOR_THE_CPU = """
import sys
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
for rows in (3, 5, 3):
    y, = session.run(None, {"x": np.ones((rows, 8), np.float32)})
    print(y.shape, float(y.sum()))
"""


def _open_model(path: Path) -> None:
    """A product whose batch has a name."""
    weights = ", ".join(["0.1"] * 32)
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        f"g (float[rows, 8] x) => (float[rows, 4] y) <float[8, 4] w = {{{weights}}}>\n"
        "{ m = MatMul(x, w)\n y = Softplus(m) }"
    )
    onnx.save(model, path)


def test_scripts_for_the_cpu_run_on_a_chip(tmp_path: Path) -> None:
    script, source = tmp_path / "s.py", tmp_path / "m.onnx"
    script.write_text(FOR_THE_CPU)
    _open_model(source)
    command = [sys.executable, "-m", "hexforge.ort"]
    plain = subprocess.run([*command, str(script), str(source)], capture_output=True, text=True, check=True)
    done = subprocess.run([*command, "--soc", "SM8650", script, source], capture_output=True, text=True, check=True)
    shapes, sums = zip(*(line.rsplit(" ", 1) for line in done.stdout.splitlines()), strict=True)
    right_shapes, right = zip(*(line.rsplit(" ", 1) for line in plain.stdout.splitlines()), strict=True)
    assert shapes == right_shapes
    assert done.stdout != plain.stdout  # the chip's halves are not the CPU's floats
    assert np.allclose([float(s) for s in sums], [float(s) for s in right], rtol=2e-3)
    assert done.stderr.count("hexforge: m.onnx (x [") == 2
    assert "2 of 2 nodes on SM8650" in done.stderr
    wrong = subprocess.run([*command, "--soc", "SM86", script, source], capture_output=True, text=True)
    assert (wrong.returncode, "--soc: " in wrong.stderr) == (2, True)


def test_outside_the_stand_in_onnxruntime_is_untouched() -> None:
    assert not hasattr(onnxruntime, "__hexforge__")


# -- options that name what is not there -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"vtcm_mb": "4096"}, {"vtcm_mb": "9", "soc_model": "SM8650"}])
def test_more_vtcm_than_a_chip_has_is_refused_when_the_session_is_made(options: dict[str, str]) -> None:
    with pytest.raises(real.Fail, match="MB of VTCM; give 1 to"):
        hexforge.InferenceSession(quantized(), providers=[(QNN, options)])
    hexforge.InferenceSession(quantized(), providers=[(QNN, {"vtcm_mb": "8", "soc_model": "SM8650"})])


@pytest.mark.parametrize("options", [{"backend_type": "lpai"}, {"backend_path": "/vendor/lib64/libQnnLpai.so"}])
def test_lpai_is_refused_with_its_reason(options: dict[str, str]) -> None:
    with pytest.raises(hexforge.CallError, match="low-power island"):
        hexforge.InferenceSession(quantized(), providers=[(QNN, options)])


@pytest.mark.parametrize(
    ("path", "backend"),
    [
        ("/vendor/lib64/libQnnHtp.so", "htp"),
        ("C:\\Program Files\\qairt\\QnnCpu.dll", "cpu"),
        ("../elsewhere/libQnnCpu.so", "cpu"),
    ],
)
def test_a_library_of_another_place_is_known_by_its_name(path: str, backend: str) -> None:
    made = hexforge.InferenceSession(quantized(), providers=[(QNN, {"backend_path": path})])
    assert made._device_parts[0].name == backend
    assert "Sigmoid" in on_qnn(made)
