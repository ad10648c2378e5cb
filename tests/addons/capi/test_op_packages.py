# SPDX-License-Identifier: Apache-2.0
"""Op packages in C++ compiled and registered, in the commands, in profiles and in the vendor's tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.addons.capi.op_package_command import build_library
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.ops import packages
from tests.cli.test_cli import run
from tests.ops.test_packages import EXAMPLE, PYTHON, X, _nothing_stays, model, session

pytestmark = pytest.mark.usefixtures(_nothing_stays.__name__)


def test_a_library_computes_the_same(tmp_path: Path) -> None:
    library = tmp_path / "libswish.so"
    build_library(EXAMPLE / "swish.cpp", library)
    path = model(tmp_path / "m.onnx")
    ours = session(path, "cpu").run(None, {"x": X})[0]
    packages.unregister("Swish")
    theirs = session(path, "cpu", f"Swish:{library}:swish_package:CPU").run(None, {"x": X})[0]
    assert np.abs(ours - theirs).max() < 1e-6
    with pytest.raises(HexforgeError, match="registered for the CPU only"):
        session(path, "htp", f"Swish:{library}:swish_package:CPU")
    assert session(path, "htp", f"Swish:{library}:swish_package:HTP") is not None  # both targets now


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = model(tmp_path / "m.onnx")
    assert run("op-package", "build", str(EXAMPLE / "swish.cpp"), "-o", str(tmp_path / "l.so")) == 0
    assert run("op-package", "show", f"Swish:{tmp_path / 'l.so'}:swish_package") == 0
    assert "example.native" in capsys.readouterr().out
    packages.unregister("Swish")
    for command in ("check", "run", "estimate"):
        assert run(command, str(path), "--op-package", PYTHON) == 0


@pytest.mark.parametrize("quantized", [False, True])
def test_a_profile_names_its_ops_and_their_cycles(tmp_path: Path, quantized: bool) -> None:
    hexforge.register_op_package(PYTHON)
    path = model(tmp_path / "m.onnx", quantized=quantized)
    found = hexforge.profile(path, Deployment("SM8650"), level="detailed")
    (graph,) = found.graphs
    ((place, own),) = ((i, op) for i, op in enumerate(graph.ops) if op.type == "Swish")
    assert "swish" in own.sources
    assert graph.runs[0].costs[place].cycles > 0
    packages.unregister("Swish")
    assert run("profile", str(path), "-o", str(tmp_path / "made"), "--op-package", PYTHON, "--no-advise") == 0
    assert "swish" in (tmp_path / "made" / "chrometrace_qnn_htp_analysis_summary.html").read_text().lower()


@pytest.mark.feature("Op packages", guide="19-31", door="tools")
@pytest.mark.parametrize("quantized", [False, True])
def test_the_vendors_tools_take_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quantized: bool) -> None:
    """Prepared, run, profiled and viewed by the tools, with the bytes that a session gives."""
    monkeypatch.chdir(tmp_path)
    path = model(tmp_path / "m.onnx", quantized=quantized)
    want = session(path, "htp").run(None, {"x": X})[0]
    packages.unregister("Swish")
    X.tofile("x.raw")
    Path("list.txt").write_text("x:=x.raw\n")
    spec = f"{EXAMPLE / 'swish.py'}:package:HTP"
    common = ["--backend=libQnnHtp.so", f"--op_packages={spec}", "--profiling_level=detailed"]
    optrace = ["--profiling_option", "optrace"]
    tool = ("tool", "qnn-context-binary-generator", "--model", "m.onnx", "--output_dir", ".", "--binary_file", "m")
    assert run(*tool, *common, *optrace) == 0
    packages.unregister("Swish")
    net_run = ("tool", "qnn-net-run", "--retrieve_context", "m.bin", "--input_list", "list.txt")
    assert run(*net_run, *common, *optrace) == 0
    assert Path("output/Result_0/y.raw").read_bytes() == want.tobytes()
    reader = ["--reader", "libQnnHtpOptraceProfilingReader.so", "--schematic", "m_schematic.bin"]
    viewer = ("tool", "qnn-profile-viewer", "--input_log", "output/qnn-profiling-data.log", "--output", "t.json")
    assert run(*viewer, *reader) == 0
    assert "swish" in Path("t.json").read_text().lower()
    packages.unregister("Swish")
    assert run(*net_run, "--backend", "libQnnHtp.so") == 2  # without the package


def test_bad_libraries_are_said(tmp_path: Path) -> None:
    source = tmp_path / "old.cpp"
    source.write_text(
        '#include "hexforge_op_package.h"\nstatic hexforge_op_package p = {99, "n", "d", 1, 0};\n'
        'extern "C" const hexforge_op_package* f(void) { return &p; }\n'
    )
    build_library(source, tmp_path / "old.so")
    with pytest.raises(UnsupportedError, match="version 99"):
        hexforge.register_op_package(f"A:{tmp_path / 'old.so'}:f")
    with pytest.raises(CallError, match="has no function 'g'"):
        hexforge.register_op_package(f"A:{tmp_path / 'old.so'}:g")
    source.write_text("int main( {")
    with pytest.raises(CallError, match="the compiler says"):
        build_library(source, tmp_path / "bad.so")
    assert not (tmp_path / "bad.so").exists()
