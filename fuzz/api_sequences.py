# SPDX-License-Identifier: Apache-2.0
"""Random sequences of calls of QNN's C API, made by a program in C: a code or a result, never a crash."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hexforge.addons.capi.library import include_path, lib_path
from hexforge.ir import DType, Graph, Role, TensorType
from hexforge.runtime import registry
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph

SEQUENCES = 100
"""Sequences of a round: 100 rounds are 10,000."""


@functools.cache
def driver() -> tuple[tempfile.TemporaryDirectory[str], Path, Path]:
    """The compiled program, and a context for it; both go with the process."""
    folder = tempfile.TemporaryDirectory(prefix="hexforge-api-sequences-")
    program, context = Path(folder.name, "api_sequences"), Path(folder.name, "context.bin")
    source = Path(__file__).with_suffix(".c")
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}"]
    subprocess.run(["cc", *flags, str(source), "-o", str(program), "-ldl"], check=True)
    backend = registry.backend("htp", {"soc_model": "43"})
    builder = ContextBuilder.of(backend, (), False)
    for name in ("a", "b"):
        graph = Graph(name)
        like = TensorType(DType.FLOAT32, (1, 8))
        graph.node("Relu", [graph.value("x", like, Role.APP_WRITE)], [graph.value("y", like, Role.APP_READ)])
        builder.add(PreparedGraph(name, backend.compile(graph)))
    builder.writer().write(context)
    return folder, program, context


def api_sequences(seed: int, checked: bool = False, python: bool = True) -> Sequence[str]:
    """What is wrong with a round of sequences: the last one that began, where it did not end.

    `checked` runs them under the sanitizer; without `python` nothing is compiled.
    """
    folder, program, context = driver()
    settings = {"HEXFORGE_PYTHON": sys.executable if python else "/nowhere"}
    if checked:
        settings["HEXFORGE_QNN_CHECK"] = str(Path(folder.name, "findings"))
    command = [str(program), str(lib_path()), str(context), str(seed * SEQUENCES), str(SEQUENCES)]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder.name, timeout=600, check=False,
                             env={**os.environ, **settings})  # fmt: skip
    except subprocess.TimeoutExpired as error:
        return [f"round {seed}: a sequence does not end: {(error.stdout or b'')[-20:]!r}"]
    if ran.returncode == 0:
        return []
    return [f"sequence {(ran.stdout.split() or ['?'])[-1]}: exit code {ran.returncode}: {ran.stderr[-2000:]}"]
