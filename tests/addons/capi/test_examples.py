# SPDX-License-Identifier: Apache-2.0
"""The example in C++, built by two compilers and run under the sanitizer; the header of ops is the table of ops."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from hexforge.addons.capi.library import include_path
from tests import ROOT
from tests.addons.capi.conftest import environment
from tools.op_header import HEADER, header, upper


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_example_in_cpp(libraries: Path, tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    flags = ["-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}"]
    source, program = ROOT / "examples" / "capi" / "relu.cpp", tmp_path / "relu"
    subprocess.run([compiler, *flags, str(source), "-o", str(program), "-ldl"], check=True)
    ran = subprocess.run([program, libraries], capture_output=True, text=True, check=False,
                         env=environment(HEXFORGE_QNN_CHECK=str(tmp_path / "findings")))  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert [float(line) for line in ran.stdout.split()] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert not (tmp_path / "findings").exists()


def test_the_header_of_ops_is_the_table_of_ops() -> None:
    assert HEADER.read_text() == header(), "run `python -m tools.qnn_headers`"


@pytest.mark.parametrize(
    ("name", "macro"), [("Conv2d", "CONV_2D"), ("ElementWiseAdd", "ELEMENT_WISE_ADD"), ("UnPack", "UN_PACK"),
                        ("L2Norm", "L2_NORM"), ("Relu6", "RELU6"), ("pad_amount", "PAD_AMOUNT")]
)  # fmt: skip
def test_names_of_ops_as_macros(name: str, macro: str) -> None:
    assert upper(name) == macro


def test_a_recordings_header_goes_with_the_others(tmp_path: Path) -> None:
    source = tmp_path / "both.c"
    source.write_text('#include "QnnTypes.h"\n#include "Saver/QnnSaver.h"\nint main(void) { return 0; }\n')
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}", "-fsyntax-only"]
    if shutil.which("cc") is None:
        pytest.skip("there is no cc")
    subprocess.run(["cc", *flags, str(source)], check=True)


def test_the_example_in_csharp(libraries: Path, tmp_path: Path) -> None:
    for command in ("mcs", "mono"):
        if shutil.which(command) is None:
            pytest.skip(f"there is no {command}: Debian's packages mono-mcs and mono-runtime have it")
    source, program = ROOT / "examples" / "capi" / "Relu.cs", tmp_path / "Relu.exe"
    subprocess.run(["mcs", "-warnaserror", f"-out:{program}", str(source)], check=True)
    settings = environment(LD_LIBRARY_PATH=str(libraries), HEXFORGE_QNN_CHECK=str(tmp_path / "findings"))
    ran = subprocess.run(["mono", program], capture_output=True, text=True, check=False, env=settings)
    assert ran.returncode == 0, ran.stderr
    assert [float(line) for line in ran.stdout.split()] == [0, 0, 0, 0, 0, 1, 2, 3]
    assert not (tmp_path / "findings").exists()
