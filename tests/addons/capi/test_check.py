# SPDX-License-Identifier: Apache-2.0
"""The sanitizer: every misuse is reported with its call and what to do, a right program with nothing."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.ir import DType, Graph, Role, TensorType
from hexforge.runtime import registry
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests import ROOT
from tests.addons.capi.conftest import Compile, environment

SOURCE = Path(__file__).parent / "misuse.c"
CASES = {
    "nothing": [],
    "use-after-free": [("use-after-free", "QnnGraph_execute")],
    "double-free": [("double-free", "QnnContext_free")],
    "execute-before-finalize": [("execute-before-finalize", "QnnGraph_execute")],
    "changed-after-finalize": [("changed-after-finalize", "QnnTensor_createGraphTensor")],
    "binary-before-finalize": [("binary-before-finalize", "QnnContext_getBinarySize")],
    "tensor-of-another-graph": [("tensor-of-another-graph", "QnnGraph_addNode")],
    "buffer-freed-in-use": [("buffer-freed-in-use", "QnnGraph_executeAsync")],
    "input-changed-in-use": [("input-changed-in-use", "QnnGraph_executeAsync")],
    "buffer-shared": [("buffer-shared", "QnnGraph_execute")],
    "memory-deregistered-in-use": [("memory-deregistered-in-use", "QnnMem_deRegister")],
    "memory-used-after-free": [("use-after-free", "QnnGraph_execute")],
    "profile-of-another-backend": [("profile-of-another-backend", "QnnGraph_execute")],
    "memory-still-registered": [("memory-still-registered", "QnnContext_free")],
    "context-freed-in-use": [("context-freed-in-use", "QnnContext_free")],
    "group-run-concurrently": [("group-run-concurrently", "QnnGraph_execute")],
    "switched-run-concurrently": [("group-run-concurrently", "QnnGraph_execute")],
    "group-registration": [("group-registration", "QnnContext_createFromBinary")],
    "binary-freed-in-use": [("binary-freed-in-use", "QnnGraph_execute")],
    "weights-changed": [("weights-changed", "QnnContext_free")],
    "static-data-changed": [("weights-changed", "QnnGraph_finalize")],
    "node-order": [("node-order", "QnnGraph_addNode")],
    "other-arch": [("other-arch", "QnnContext_createFromBinary")],
    "freed-too-early": [("freed-too-early", "QnnBackend_free")],
    "missing-free": [("freed-too-early", "QnnBackend_free"), ("missing-free", "the end of the process")],
    "profile-shared": [("profile-shared", "QnnGraph_execute")],
    "signal-in-use": [("signal-in-use", "QnnGraph_execute")],
    "switching-with-sharing": [("switching-with-sharing", "QnnContext_createFromBinary")],
    "mixed-batch": [("mixed-batch", "QnnGraph_execute")],
    "late-config": [("late-config", "QnnGraph_setConfig")],
    "invalid-argument": [("invalid-argument", "QnnGraph_create")],
}


@pytest.fixture(scope="module")
def program(compile_c: Compile) -> Path:
    return compile_c(SOURCE)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A context with the graphs a and b, for a chip of v73."""
    backend = registry.backend("htp", {"soc_model": "43"})
    builder = ContextBuilder.of(backend, (), False)
    for name in ("a", "b"):
        graph = Graph(name)
        like = TensorType(DType.FLOAT32, (1, 65536))
        x, y = graph.value("x", like, Role.APP_WRITE), graph.value("y", like, Role.APP_READ)
        graph.node("Relu", [x], [y])
        builder.add(PreparedGraph(name, backend.compile(graph)))
    path = tmp_path_factory.mktemp("context") / "two.bin"
    builder.writer().write(path)
    return path


def found(path: Path) -> list[tuple[str, str]]:
    if not path.exists():
        return []
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        assert line["message"]
        assert line["advice"].endswith((".", ";"))
    return [(line["rule"], line["call"]) for line in lines]


@pytest.mark.parametrize("case", CASES)
def test_a_misuse_is_reported(program: Path, libraries: Path, context: Path, tmp_path: Path, case: str) -> None:
    report = tmp_path / "findings"
    ran = subprocess.run([program, libraries, context, case], capture_output=True, text=True, check=False,
                         env=environment(HEXFORGE_QNN_CHECK=str(report), HEXFORGE_PYTHON="/nowhere"))  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    expected = CASES[case]
    seen = [pair for pair in found(report) if pair[0] != "invalid-argument" or pair in expected]
    assert sorted(set(seen)) == sorted(expected)


def test_calls_beside_a_list_are_reported(program: Path, libraries: Path, context: Path, tmp_path: Path) -> None:
    report = tmp_path / "findings"
    ran = subprocess.run(
        [program, libraries, context, "parallel-to-list"], check=False, env=environment(HEXFORGE_QNN_CHECK=str(report))
    )
    assert ran.returncode == 0
    assert "parallel-to-list" in {rule for rule, _ in found(report)}


def test_a_late_index_is_reported(compile_c: Compile, libraries: Path, tmp_path: Path) -> None:
    from tests.models.attention import CACHES_IN, decoder

    request = hexforge.ContextRequest(graph_names=("decoder",), native={"decoder": CACHES_IN})
    model = decoder(1, caches_out=False)
    context = hexforge.compile(model, tmp_path / "decoder.bin", "SM8650", request).context
    feeds = [np.zeros(v.type.shape, v.type.dtype.numpy) for v in context.program("decoder").graph.inputs]
    for value, array in zip(context.program("decoder").graph.inputs, feeds, strict=True):
        array += 225 if value.name.startswith("index") else 0
    (tmp_path / "inputs").write_bytes(b"".join(array.tobytes() for array in feeds))
    run_context = compile_c(ROOT / "examples" / "capi" / "run_context.c")
    arguments = [str(tmp_path / "decoder.bin"), "decoder", "1", "1", str(tmp_path / "inputs"), "-"]
    subprocess.run([run_context, libraries, *arguments], check=False, capture_output=True,
                   env=environment(HEXFORGE_QNN_CHECK=str(tmp_path / "findings")))  # fmt: skip
    assert ("late-scatter-index", "QnnGraph_execute") in found(tmp_path / "findings")


def test_a_second_copy_of_the_libraries_is_reported(compile_c: Compile, libraries: Path, tmp_path: Path) -> None:
    shutil.copytree(libraries, tmp_path / "copy")
    (tmp_path / "both.py").write_text(
        "import ctypes, sys\n"
        "for folder in sys.argv[1:]:\n"
        "    count, table = ctypes.c_uint32(), ctypes.c_void_p()\n"
        "    library = ctypes.CDLL(folder + '/libQnnHtp.so')\n"
        "    assert library.QnnInterface_getProviders(ctypes.byref(table), ctypes.byref(count)) == 0\n"
    )
    import sys

    report = tmp_path / "findings"
    subprocess.run([sys.executable, "-S", tmp_path / "both.py", libraries, tmp_path / "copy"], check=True,
                   env=environment(HEXFORGE_QNN_CHECK=str(report)))  # fmt: skip
    assert "second-library" in {rule for rule, _ in found(report)}


def test_findings_are_text_for_people(program: Path, libraries: Path, context: Path) -> None:
    ran = subprocess.run([program, libraries, context, "double-free"], capture_output=True, text=True, check=True,
                         env=environment(HEXFORGE_QNN_CHECK="1"))  # fmt: skip
    first, second, third = ran.stderr.splitlines()
    assert first.startswith("hexforge check: double-free: context#")
    assert "was freed by QnnContext_free, call" in first
    assert second.startswith("  in QnnContext_free(context#")
    assert third.strip() == "Free every handle once; graphs go with their context."


def test_without_it_nothing_is_said(program: Path, libraries: Path, context: Path) -> None:
    ran = subprocess.run([program, libraries, context, "double-free"], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
