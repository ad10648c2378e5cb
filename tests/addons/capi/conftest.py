# SPDX-License-Identifier: Apache-2.0
"""C programs over QNN's API, compiled once for a test module."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from hexforge.addons.capi.library import include_path, lib_path
from hexforge.errors import CallError

Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def libraries() -> Path:
    """The folder of libQnnHtp.so and its siblings."""
    try:
        return lib_path()
    except CallError as error:  # an installation whose native part is older than its Python part
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """A C source as a program, without a warning."""

    def compiled(source: Path, compiler: str = "cc", *options: str) -> Path:
        if shutil.which(compiler) is None:
            pytest.skip(f"there is no {compiler}")
        program = tmp_path_factory.mktemp("program") / source.stem
        flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}", *options]
        made = subprocess.run([compiler, *flags, str(source), "-o", str(program), "-ldl", "-lpthread"],
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert made.returncode == 0, made.stderr
        return program

    return compiled


def environment(**given: str) -> Mapping[str, str]:
    """The environment of a program whose compiler process is this interpreter's."""
    return {**os.environ, "HEXFORGE_PYTHON": sys.executable, **given}
