# SPDX-License-Identifier: Apache-2.0
"""The example in C: built by two compilers, with the bits of a session; a context it saved runs without Python."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import hexforge
from tests import ROOT
from tests.addons.capi.conftest import Compile, environment

SOURCE = ROOT / "examples" / "capi" / "two_nodes.c"


def numbers(output: str) -> list[float]:
    return [float(line) for line in output.splitlines() if line[0].isdigit() and "graph" not in line]


@pytest.fixture(scope="module")
def saved(compile_c: Compile, libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The program, the context that it saved, and what it printed."""
    program, context = compile_c(SOURCE), tmp_path_factory.mktemp("context") / "two_nodes.bin"
    ran = subprocess.run([program, libraries, context], env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return program, context, ran.stdout


def test_the_bits_are_those_of_a_session(saved: tuple[Path, Path, str], tmp_path: Path) -> None:
    x = np.array([i * 7 % 13 - 6 for i in range(16)], np.float32).reshape(1, 16) / 8
    w = np.array([i * 37 % 101 - 50 for i in range(128)], np.float32).reshape(16, 8) / 64
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Relu", ["p"], ["y"])],
        "two_nodes",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    provider = ("QNNExecutionProvider", {"soc_model": "57", "htp_graph_finalization_optimization_mode": "3"})
    session = hexforge.InferenceSession(tmp_path / "m.onnx", providers=[provider])
    (y,) = session.run(None, {"x": x})
    assert np.array_equal(np.array(numbers(saved[2]), np.float32), y.ravel())


def test_the_profile_has_the_simulated_chip(saved: tuple[Path, Path, str]) -> None:
    lines = saved[2].splitlines()
    assert lines[0].startswith("event 400: ")
    assert lines[0].endswith("two_nodes")
    assert any(line.strip().startswith("event 404: ") and "matmul" in line for line in lines)


def test_a_context_that_is_loaded_starts_no_python(saved: tuple[Path, Path, str], libraries: Path) -> None:
    program, context, printed = saved
    ran = subprocess.run(
        [program, libraries, context, "load"], env=environment(HEXFORGE_PYTHON="/nowhere/python"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert numbers(ran.stdout) == numbers(printed)


def test_a_session_opens_what_the_program_saved(saved: tuple[Path, Path, str]) -> None:
    from hexforge.runtime.contexts.context import Context

    context = Context(saved[1].read_bytes(), "two_nodes.bin")
    x = np.array([i * 7 % 13 - 6 for i in range(16)], np.float32).reshape(1, 16) / 8
    y = context.program("two_nodes").run({"x": x})["y"]
    assert np.array_equal(np.array(numbers(saved[2]), np.float32), y.ravel())


def test_no_interpreter_is_a_code_and_a_sentence(compile_c: Compile, libraries: Path, tmp_path: Path) -> None:
    ran = subprocess.run(
        [compile_c(SOURCE), libraries, tmp_path / "c.bin"], env=environment(HEXFORGE_PYTHON="/nowhere/python"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "HEXFORGE_PYTHON names an interpreter that has hexforge" in ran.stderr
    assert "graphFinalize: error 1007" in ran.stderr


def test_clang_compiles_it_too(compile_c: Compile) -> None:
    compile_c(SOURCE, "clang")


def test_valgrind_sees_nothing(saved: tuple[Path, Path, str], libraries: Path) -> None:
    import shutil

    if shutil.which("valgrind") is None:
        pytest.skip("there is no valgrind")
    program, context, _ = saved
    flags = ["--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"]
    ran = subprocess.run(
        ["valgrind", *flags, program, libraries, context, "load"], env=environment(), capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("library", ["Htp", "Cpu", "Gpu", "Saver", "System"])
def test_a_library_exports_only_what_qnn_has(libraries: Path, library: str) -> None:
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", libraries / f"libQnn{library}.so"], capture_output=True, text=True, check=True
    ).stdout.split()
    names = {name for name in listed if not set(name) <= set("0123456789abcdef") and len(name) > 1}
    assert names == {"QnnSystemInterface_getProviders" if library == "System" else "QnnInterface_getProviders"}
