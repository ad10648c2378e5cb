# SPDX-License-Identifier: Apache-2.0
"""Op packages: the example's op placed, run, quantized, timed and kept in contexts, in Python and in C++."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.errors import CallError, HexforgeError, ModelError, UnsupportedError
from hexforge.ops import packages
from hexforge.ops.package_library import build_library
from tests import ROOT
from tests.cli.test_cli import run

EXAMPLE = ROOT / "examples" / "op_package"
PYTHON = f"Swish:{EXAMPLE / 'swish.py'}:package"
QNN = "QNNExecutionProvider"


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for custom in packages.registered_ops():
        packages.unregister(custom.op.name)


def swish(x: np.ndarray, beta: float) -> np.ndarray:
    return np.asarray(x / (1 + np.exp(-beta * x)))


def model(path: Path, *, quantized: bool = False) -> Path:
    """x -> Conv -> Swish of a domain of its own -> y, with Q and DQ around it where that is wanted."""
    weight = np.random.default_rng(0).standard_normal((4, 3, 1, 1)).astype(np.float32)
    constants = {"w": weight}
    nodes = []
    if quantized:
        scale, zero = np.float32(0.04), np.uint8(128)
        constants |= {"s": np.asarray(scale), "z": np.asarray(zero)}
        nodes.append(helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "q0"))
        nodes.append(helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["a"], "d0"))
        nodes.append(helper.make_node("Swish", ["a"], ["b"], "swish", domain="com.example", beta=1.5))
        nodes.append(helper.make_node("QuantizeLinear", ["b", "s", "z"], ["bq"], "q1"))
        nodes.append(helper.make_node("DequantizeLinear", ["bq", "s", "z"], ["y"], "d1"))
        channels = 3
    else:
        nodes.append(helper.make_node("Conv", ["x", "w"], ["a"], "conv"))
        nodes.append(helper.make_node("Swish", ["a"], ["y"], "swish", domain="com.example", beta=1.5))
        channels = 4
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, channels, 8, 8])],
        [numpy_helper.from_array(v, n) for n, v in constants.items() if quantized or n == "w"],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def session(path: Path, backend: str, spec: str = PYTHON) -> hexforge.InferenceSession:
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    settings = {"backend_type": backend, "op_packages": spec} | ({"soc_model": "57"} if backend == "htp" else {})
    return hexforge.InferenceSession(str(path), options, providers=[(QNN, settings)])


X = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("backend", ["cpu", "htp"])
def test_a_node_of_the_packages_domain_runs(tmp_path: Path, backend: str) -> None:
    path = model(tmp_path / "m.onnx")
    made = session(path, backend)
    weight = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    expected = swish(np.einsum("oc,nchw->nohw", weight[:, :, 0, 0], X), 1.5)
    assert np.abs(made.run(None, {"x": X})[0] - expected).max() < (1e-5 if backend == "cpu" else 0.02)
    assert [row.op_type for row in made.placements if row.reason] == []


def test_a_quantized_node_is_one_unit(tmp_path: Path) -> None:
    made = session(model(tmp_path / "q.onnx", quantized=True), "htp")
    found = made.run(None, {"x": X})[0]
    real = (np.clip(np.rint(X / np.float32(0.04)) + 128, 0, 255) - 128) * np.float32(0.04)
    steps = np.clip(np.rint(swish(real.astype(np.float64), 1.5) / np.float32(0.04)) + 128, 0, 255) - 128
    assert np.abs(found / np.float32(0.04) - steps).max() <= 1
    assert any("Swish" in str(row.qnn_ops) for row in made.placements)


def test_without_the_package_the_node_is_refused(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx")
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(HexforgeError, match=r"com\.example:Swish|has no known"):
        hexforge.InferenceSession(str(path), options, providers=[(QNN, {"backend_type": "htp", "soc_model": "57"})])


def test_a_context_keeps_its_packages(tmp_path: Path) -> None:
    path, file = model(tmp_path / "m.onnx"), tmp_path / "m.bin"
    copy = shutil.copy(EXAMPLE / "swish.py", tmp_path / "swish.py")
    hexforge.register_op_package(f"Swish:{copy}:package")
    hexforge.compile(path, file, Deployment("SM8650"))
    before = hexforge.Context(file).program("m").run({"x": X})["y"]
    packages.unregister("Swish")
    with pytest.raises(ModelError, match=r"needs the op .Swish. of the op package .example\.activations.; register it"):
        hexforge.Context(file).program("m")
    hexforge.register_op_package(f"Swish:{copy}:package")
    assert hexforge.Context(file).program("m").run({"x": X})["y"].tobytes() == before.tobytes()
    packages.unregister("Swish")
    Path(copy).write_text(Path(copy).read_text() + "\n# changed\n")
    hexforge.register_op_package(f"Swish:{copy}:package")
    with pytest.raises(ModelError, match="another version of the op package"):
        hexforge.Context(file).program("m")


def test_an_estimate_counts_its_work(tmp_path: Path) -> None:
    hexforge.register_op_package(PYTHON)
    found = hexforge.estimate(model(tmp_path / "m.onnx"), Deployment("SM8650"))
    assert any("Swish" in row.op for row in found.rows)
    assert not found.left_on_cpu


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


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("Swish", "expected <OpType>:<path>:<interface>"),
        ("Swish:absent.py:package", "there is no file"),
        (f"Swish:{EXAMPLE / 'swish.py'}:packages", "no OpPackage named 'packages'; it has package"),
        (f"Swich:{EXAMPLE / 'swish.py'}:package", "did you mean 'Swish'"),
        (f"Swish:{EXAMPLE / 'swish.py'}:package:DSP", "expected CPU or HTP"),
    ],
)
def test_bad_names_are_said(spec: str, words: str) -> None:
    with pytest.raises(CallError, match=words):
        hexforge.register_op_package(spec)


def test_bad_packages_are_said(tmp_path: Path) -> None:
    import hexforge.ops

    broken = tmp_path / "broken.py"
    broken.write_text("x = 1\nundefined_name\n")
    with pytest.raises(CallError, match=r"broken\.py line 2: NameError"):
        hexforge.register_op_package(f"A:{broken}:package")
    text = "from hexforge import OpPackage\np = OpPackage('n', 'd')\n@p.op('Relu')\ndef f(x): return x\n"
    broken.write_text(text)
    with pytest.raises(CallError, match="QNN has an op 'Relu' of its own"):
        hexforge.register_op_package(f"Relu:{broken}:p")
    library = tmp_path / "no.so"
    library.write_bytes(b"not a library")
    with pytest.raises(CallError, match="cannot be loaded"):
        hexforge.register_op_package(f"A:{library}:f")
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


@pytest.mark.feature("Op packages", guide="19-31")
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
