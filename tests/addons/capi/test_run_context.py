# SPDX-License-Identifier: Apache-2.0
"""Contexts that are compiled already, loaded and executed by a C program: every bit right on 8 threads, no Python."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hexforge.backends.htp.backend import HtpBackend
from hexforge.ir import Graph
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests import ROOT
from tests.addons.capi.conftest import Compile
from tests.native.test_compiled_context import random_feeds, typed_graph
from tests.runtime.contexts.test_context import net

SOURCE = ROOT / "examples" / "capi" / "run_context.c"


@pytest.fixture(scope="module")
def program(compile_c: Compile) -> Path:
    return compile_c(SOURCE)


def written(folder: Path, graph: Graph) -> list[str]:
    """Arguments of the program: a context of the graph, its name, random inputs and the results of Python's road."""
    compiled = HtpBackend().compile(graph)
    builder = ContextBuilder("htp")
    builder.add(PreparedGraph(graph.name, compiled))
    builder.writer().write(folder / "context.bin")
    given = random_feeds(graph.inputs)
    results = compiled.run({value.name: array for value, array in zip(graph.inputs, given, strict=True)})
    (folder / "inputs").write_bytes(b"".join(array.tobytes() for array in given))
    (folder / "results").write_bytes(b"".join(results[value.name].tobytes() for value in graph.outputs))
    return [str(folder / "context.bin"), graph.name, str(folder / "inputs"), str(folder / "results")]


def run(program: Path, libraries: Path, arguments: list[str], threads: int, runs: int) -> dict[str, float]:
    context, graph, inputs, results = arguments
    ran = subprocess.run(
        [program, libraries, context, graph, str(threads), str(runs), inputs, results],
        capture_output=True, text=True, check=False, env={"HEXFORGE_PYTHON": "/nowhere"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    said: dict[str, float] = json.loads(ran.stdout)
    return said


def test_eight_threads_execute_ten_thousand_times_each(program: Path, libraries: Path, tmp_path: Path) -> None:
    said = run(program, libraries, written(tmp_path, net(12)), 8, 10_000)
    assert not said["python"]


def test_wrong_results_would_be_noticed(program: Path, libraries: Path, tmp_path: Path) -> None:
    arguments = written(tmp_path, net(12))
    changed = bytearray(Path(arguments[3]).read_bytes())
    changed[-1] ^= 1
    Path(arguments[3]).write_bytes(changed)
    with pytest.raises(AssertionError, match="memcmp"):
        run(program, libraries, arguments, 1, 1)


@pytest.mark.parametrize("case", ["INT8", "UINT16", "FLOAT16", "FLOAT32"])
def test_every_type_of_buffer(program: Path, libraries: Path, tmp_path: Path, case: str) -> None:
    from hexforge.ir import DType, ScaleOffset

    dtype = DType[case]
    run(program, libraries, written(tmp_path, typed_graph(dtype, None if dtype.is_float else ScaleOffset(0.1))), 2, 50)
