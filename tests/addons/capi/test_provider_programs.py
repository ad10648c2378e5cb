# SPDX-License-Identifier: Apache-2.0
"""Programs in C and C++ with onnxruntime's own API and Qualcomm's provider, over our libraries: seeds 000 and 003."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hexforge
from benchmarks.peers.vendor import PYTHON, missing
from hexforge.addons.capi.library import lib_path
from hexforge.ir import Array
from tests import ROOT
from tests.addons.capi.conftest import environment
from tests.opencl import require_compiler

pytestmark = pytest.mark.vendor

HEADERS = PYTHON.parents[1] / "include" / "onnxruntime"
ASK = "import onnxruntime, onnxruntime_qnn; print(onnxruntime.__file__); print(onnxruntime_qnn.get_library_path())"
FEED = np.linspace(-4, 4, 32, dtype=np.float32).reshape(4, 8)
COMPILERS = {"provider.cpp": ("g++", "-std=c++20"), "provider.c": ("gcc", "-std=c11")}


@pytest.fixture(scope="module", params=COMPILERS)
def program(request: pytest.FixtureRequest, libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The example, built against onnxruntime's headers and the library of its wheel, with the provider's plugin."""
    if why := missing():
        pytest.skip(why)
    if not HEADERS.is_dir():
        pytest.skip(f"{HEADERS} is not there; `make vendor` takes onnxruntime's headers from Debian's package")
    compiler, standard = COMPILERS[request.param]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    onnxruntime, plugin = subprocess.check_output([PYTHON, "-c", ASK], text=True).split()
    (library,) = (Path(onnxruntime).parent / "capi").glob("libonnxruntime.so.*")
    folder = tmp_path_factory.mktemp("built")
    (folder / "libonnxruntime.so.1").symlink_to(library)  # its name in what is linked with it
    flags = [standard, "-Wall", "-Wextra", "-Werror", "-isystem", str(HEADERS), f"-Wl,-rpath,{folder}"]
    source, made = ROOT / "examples" / "capi" / request.param, folder / "provider"
    subprocess.run([compiler, *flags, str(source), "-o", str(made), str(library)], check=True)
    return [str(made), plugin]


def model(folder: Path) -> Path:
    """A product with weights, a Relu and a sum."""
    weights = np.random.default_rng(5).standard_normal((8, 6)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Add", ["r", "m"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 6])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "m.onnx")
    return folder / "m.onnx"


def run(program: list[str], backend: str, path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """The program over a backend's library with the feed."""
    given = path.with_suffix(".in")
    given.write_bytes(FEED.tobytes())
    command = [*program, str(lib_path() / backend), str(path), str(given), str(path.with_suffix(".out")), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment())


def outputs(program: list[str], backend: str, path: Path, *more: str) -> Array:
    """What it writes."""
    ran = run(program, backend, path, *more)
    assert ran.returncode == 0, ran.stderr
    return np.frombuffer(path.with_suffix(".out").read_bytes(), np.float32).reshape(4, 6)


def session(path: Path, backend: str) -> Array:
    """What a session of hexforge's gives."""
    provider = ("QNNExecutionProvider", {"backend_type": backend, "soc_model": "60"})
    return np.asarray(hexforge.InferenceSession(path, providers=[provider]).run(None, {"x": FEED})[0])


def test_the_htp_backend(program: list[str], tmp_path: Path) -> None:
    path = model(tmp_path)
    np.testing.assert_array_equal(outputs(program, "libQnnHtp.so", path), session(path, "htp"))


def test_a_context_that_it_writes(program: list[str], tmp_path: Path) -> None:
    path, context = model(tmp_path), tmp_path / "model_a_ctx.onnx"
    wanted = outputs(program, "libQnnHtp.so", path, str(context))
    np.testing.assert_array_equal(outputs(program, "libQnnHtp.so", context), wanted)
    np.testing.assert_array_equal(session(context, "htp"), wanted)


def test_the_gpu_backend(program: list[str], tmp_path: Path) -> None:
    require_compiler()
    path = model(tmp_path)
    np.testing.assert_array_equal(outputs(program, "libQnnGpu.so", path), session(path, "gpu"))


def test_a_model_that_is_not_taken_whole(program: list[str], tmp_path: Path) -> None:
    path = model(tmp_path)
    changed = onnx.load(path)
    del changed.graph.node[1:]
    changed.graph.node.append(helper.make_node("Unique", ["m"], ["y"]))
    del changed.graph.output[0].type.tensor_type.shape.dim[:]
    changed.graph.output[0].type.tensor_type.shape.dim.add().dim_param = "found"
    onnx.save(changed, path)
    ran = run(program, "libQnnHtp.so", path)
    assert ran.returncode == 1
    assert "fallback" in ran.stderr
