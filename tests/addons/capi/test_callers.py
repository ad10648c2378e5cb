# SPDX-License-Identifier: Apache-2.0
"""What callers of QNN give, leave out and get wrong is acted on or refused with QNN's code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import ROOT
from tests.addons.capi.conftest import Compile, environment

SOURCE = Path(__file__).with_name("callers.c")
PACKAGE = ROOT / "examples" / "op_package" / "swish.py"


@pytest.mark.parametrize("case", ["queue_depth", "dimensions", "ids", "nothing_given", "op_package", "shared_memory"])
def test_a_callers_case(compile_c: Compile, libraries: Path, case: str) -> None:
    command = [str(compile_c(SOURCE)), str(libraries / "libQnnHtp.so"), case, str(PACKAGE)]
    ran = subprocess.run(
        command,
        env=environment(HEXFORGE_QNN_LOG="1", LD_LIBRARY_PATH=str(libraries)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
