# SPDX-License-Identifier: Apache-2.0
"""Every function of the table is called by a program; what works gives what it says, what does not its code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from hexforge.addons.capi.library import include_path
from tests.addons.adapters.test_adapters import CHANGED, Made
from tests.addons.capi.conftest import Compile, environment

SOURCE = Path(__file__).parent / "functions.c"
REFUSED = {
    "backendSetConfig", "backendRegisterOpPackage", "deviceSetConfig", "graphCreateSubgraph", "signalTrigger",
    "tensorUpdateGraphTensors", "tensorUpdateContextTensors", "graphPrepareExecutionEnvironment",
    "graphReleaseExecutionEnvironment", "graphGetProperty", "contextGetBinarySectionSize", "contextGetBinarySection",
    "backendGetProperty", "contextGetProperty", "contextGetIncrementalBinary", "contextReleaseIncrementalBinary",
    "contextFinalize", "globalConfigSet", "contextCreateFromBinaryWithCallback", "systemTensorGetMemoryFootprint",
    "systemLogCreate", "systemLogSetLogLevel", "systemLogFree", "systemDlcCreateFromFile", "systemDlcCreateFromBinary",
    "systemDlcComposeGraphs", "systemDlcGetOpMappings", "systemDlcFree",
}  # fmt: skip
"""Functions that end with a code in the program whatever it gives them."""


@pytest.fixture(scope="module")
def called(compile_c: Compile, libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """By the name in the table: the codes that the program got."""
    made = Made(tmp_path_factory.mktemp("adapter"))
    arguments = [compile_c(SOURCE), libraries, made.context, made.adapter("changed", CHANGED)]
    ran = subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr + ran.stdout[-500:]
    codes: dict[str, set[int]] = {}
    for line in ran.stdout.splitlines():
        name, code = line.split()
        codes.setdefault(name, set()).add(int(code))
    return codes


def test_every_function_of_the_tables_is_called(called: dict[str, set[int]]) -> None:
    functions: set[str] = set()
    for header, struct in (
        ("QnnInterface.h", "QnnInterface_Impl"),
        ("System/QnnSystemInterface.h", "QnnSystemInterface_Impl"),
    ):
        text = (include_path() / header).read_text()
        (body,) = re.findall(rf"typedef struct {{([^}}]*)}} {struct}ementation_t;", text)
        functions |= set(re.findall(r"(\w+);", body))
    assert len(functions) > 70
    assert set(called) == functions


def test_what_is_refused_has_a_code(called: dict[str, set[int]]) -> None:
    assert {name for name, codes in called.items() if 0 not in codes} == REFUSED
