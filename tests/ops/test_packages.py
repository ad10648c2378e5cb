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
from hexforge.errors import CallError, HexforgeError, ModelError
from hexforge.ops import packages
from tests import ROOT

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


@pytest.mark.feature("Op packages", guide="19-31")
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
