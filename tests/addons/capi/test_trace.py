# SPDX-License-Identifier: Apache-2.0
"""`hexforge trace` runs any program under the sanitizer; what it recorded is replayed, also for another chip."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hexforge.addons.capi.trace import CALLS
from tests import ROOT
from tests.addons.capi.conftest import Compile
from tests.cli.test_cli import run

TWO_NODES = ROOT / "examples" / "capi" / "two_nodes.c"


def traced(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hexforge", "trace", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def recording(compile_c: Compile, libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the example did: it builds and runs a graph, saves it, loads it and runs it again."""
    folder = tmp_path_factory.mktemp("trace")
    program, recorded = compile_c(TWO_NODES), folder / "recording"
    ran = traced("--json", "-o", recorded, program, libraries, folder / "two_nodes.bin")
    assert json.loads(ran.stdout) == {"exit_code": 0, "findings": []}, ran.stderr
    assert "event 400" in ran.stderr  # the program's own output
    return recorded


def test_every_call_is_in_the_recording(recording: Path) -> None:
    calls = [json.loads(line) for line in (recording / CALLS).read_text().splitlines()]
    names = [call["call"] for call in calls]
    assert names.index("QnnGraph_addNode") < names.index("QnnGraph_finalize") < names.index("QnnGraph_execute")
    assert {"QnnContext_createFromBinary", "QnnContext_free", "QnnBackend_free"} <= set(names)
    assert [call["number"] for call in calls] == [*range(1, len(calls) + 1)]
    (relu,) = [call for call in calls if '"relu"' in call["arguments"] and call["call"] == "QnnGraph_addNode"]
    assert "-> (" in relu["arguments"]
    (created,) = [call for call in calls if call["call"] == "QnnGraph_create"]
    assert re.search(r"\{custom 3 \(words 0 \d+ 0\); custom 1 \(words 0 3 \d+\)\}", created["arguments"]), created


def test_a_recording_is_replayed_with_the_same_bits(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("replay", str(recording), "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows
    assert all(row["equal"] for row in rows)


@pytest.mark.parametrize("changed", [("--soc", "SM8750"), ("--backend", "cpu")])
def test_a_recording_is_replayed_with_one_thing_changed(
    recording: Path, capsys: pytest.CaptureFixture[str], changed: tuple[str, str]
) -> None:
    assert run("replay", str(recording), *changed, "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row["largest_difference"] < 0.01 for row in rows)


def test_a_program_that_misuses_the_api_fails(tmp_path: Path, libraries: Path) -> None:
    script = tmp_path / "leak.py"
    script.write_text(
        "import ctypes\n"
        "table, count = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))(), ctypes.c_uint32()\n"
        "assert ctypes.CDLL('libQnnHtp.so').QnnInterface_getProviders(ctypes.byref(table), ctypes.byref(count)) == 0\n"
        "create = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_void_p] * 3)(table[0][6])  # QnnBackend_create\n"
        "handle = ctypes.c_void_p()\n"
        "assert create(None, None, ctypes.addressof(handle)) == 0\n"
    )
    ran = traced(sys.executable, "-S", script)
    assert ran.returncode == 1
    assert "missing-free: backend#0 (QnnBackend_create, call 1) was never freed" in ran.stderr
    assert "ended with 0; 1 finding" in ran.stderr


def test_a_program_keeps_its_exit_code_and_flags() -> None:
    assert traced(sys.executable, "-S", "-c", "import sys; sys.exit(7)").returncode == 7
    assert traced(sys.executable, "-S", "-c", "import os; os.kill(os.getpid(), 9)").returncode == 137


def test_a_program_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    ran = traced(tmp_path / "nothing")
    assert ran.returncode == 2
    assert "cannot be run: No such file or directory" in ran.stderr


def test_a_recording_is_not_written_over(tmp_path: Path) -> None:
    ran = traced("-o", tmp_path, "true")
    assert ran.returncode == 2
    assert "a recording needs a new folder" in ran.stderr
