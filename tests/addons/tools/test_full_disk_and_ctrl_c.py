# SPDX-License-Identifier: Apache-2.0
"""Every tool that writes, on a full disk (a real limit of file sizes) and when it is stopped: nothing half-written."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import hexforge
from hexforge.addons.tools import TOOLS, tool_command
from hexforge.cli import main
from tests import ROOT

DIGITS = ROOT / "tests" / "digits"
PACKAGE = str(Path(str(hexforge.__file__)).parent) + os.sep
"""Where the files of hexforge's own modules are; a checkout may be called hexforge, and hold a virtual environment."""
CLASSES = 10
LIMIT = 24
"""Bytes: less than any file that a tool writes."""
COMMANDS = {
    "qnn-onnx-converter": "--input_network m.onnx --output_path made/m.dlc",
    "qnn-net-run": "--model m.onnx --backend libQnnHtp.so --input_list list.txt --output_dir made",
    "qnn-throughput-net-run": "--config plan.json --output made/throughput.json",
    "qnn-context-binary-generator": "--model m.onnx --backend libQnnHtp.so --binary_file c --output_dir made",
    "qnn-context-binary-utility": "--context_binary m.bin --json_file made/m.json",
    "qnn-profile-viewer": "--reader libQnnChrometraceProfilingReader.so --input_log profile.log --output made/t.json",
}
OWN = {
    "compile": "compile m.onnx -o made/c.bin",
    "profile": "profile m.onnx -o made --no-advise",
    "gate": "gate budget.yaml --save-baseline made/b.json --junit made/j.xml --markdown made/c.md",
    "estimate": "estimate m.onnx --trace made/t.json --report made/p.html",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that the commands read."""
    where = tmp_path_factory.mktemp("disk")
    shutil.copy(DIGITS / "digits.onnx", where / "m.onnx")
    np.load(DIGITS / "digits_heldout.npz")["pictures"][:1].astype(np.float32).tofile(where / "x.raw")
    (where / "list.txt").write_text("x.raw\n")
    (where / "budget.yaml").write_text("models:\n  - {model: m.onnx, soc: SM8650, latency_ms: 100}\n")
    (where / "plan.json").write_text(json.dumps(plan(1)))
    call(where, "qnn-context-binary-generator", "--model m.onnx --backend libQnnHtp.so --binary_file m --output_dir .")
    call(where, "qnn-net-run", COMMANDS["qnn-net-run"] + " --profiling_level detailed")
    shutil.copy(where / "made" / "qnn-profiling-data_0.log", where / "profile.log")
    return where


def plan(seconds: float) -> dict[str, object]:
    model = {"modelName": "m", "modelPath": "m.onnx", "inputPath": "list.txt"}
    thread = {"threadName": "t", "backend": "htp", "model": "m", "loopUnit": "second", "loop": seconds}
    return {
        "backends": [{"backendName": "htp", "backendPath": "libQnnHtp.so"}],
        "models": [model],
        "testCase": {"threads": [thread]},
    }


def call(folder: Path, tool: str, line: str) -> None:
    done = subprocess.run([sys.executable, "-m", "hexforge", "tool", tool, *line.split()], cwd=folder, check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr


def emptied(folder: Path) -> Path:
    made = folder / "made"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir()
    return made


def files(made: Path) -> list[Path]:
    return [path for path in made.rglob("*") if path.is_file()]


def test_every_tool_is_here() -> None:
    assert set(COMMANDS) == set(TOOLS)


@pytest.mark.parametrize("name", [*COMMANDS, *OWN])
def test_a_full_disk_is_said_and_leaves_nothing(name: str, folder: Path) -> None:
    made = emptied(folder)
    words = ["tool", name, *COMMANDS[name].split()] if name in COMMANDS else OWN[name].split()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))

    unmeasured = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
    done = subprocess.run([sys.executable, "-B", "-m", "hexforge", *words], cwd=folder, check=False, text=True,
                          capture_output=True, preexec_fn=limited, env=unmeasured)  # fmt: skip
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path for path in files(made) if path.stat().st_size] == []


@pytest.mark.parametrize("name", ["qnn-net-run", "qnn-throughput-net-run"])
def test_ctrl_c_ends_a_tool_with_words(name: str, folder: Path) -> None:
    made = emptied(folder)
    line = COMMANDS[name]
    if name == "qnn-net-run":
        line += " --duration 60"
    else:
        (folder / "long.json").write_text(json.dumps(plan(60)))
        line = "--config long.json --output made/throughput.json"
    started = subprocess.Popen([sys.executable, "-m", "hexforge", "tool", name, *line.split()], cwd=folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    end = time.monotonic() + (30 if name == "qnn-net-run" else 6)
    while not (made / "Result_0").exists() and time.monotonic() < end:
        time.sleep(0.05)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=30)
    assert started.returncode == 130, said
    assert "stopped" in said
    assert "Traceback" not in said
    assert all(path.suffix == ".raw" and path.stat().st_size == 4 * CLASSES for path in files(made))


@pytest.mark.parametrize("after", [0.6, 1.0, 1.4])
def test_a_generator_that_is_stopped_leaves_a_whole_context_or_none(after: float, folder: Path) -> None:
    made = emptied(folder)
    words = ["tool", "qnn-context-binary-generator", *COMMANDS["qnn-context-binary-generator"].split()]
    ran = (
        "import signal, sys, threading\n"
        "from hexforge.cli import main\n"
        f"timer = threading.Timer({after} - 0.5, lambda: signal.raise_signal(signal.SIGINT))\n"
        "timer.daemon = True\n"
        "timer.start()\n"
        "main(sys.argv[1:])\n"
    )
    done = subprocess.run([sys.executable, "-c", ran, *words], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 130), done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in files(made)} <= {"c.bin"}
    if (made / "c.bin").exists():
        tool_command("qnn-context-binary-utility").main(
            ["--context_binary", str(made / "c.bin"), "--json_file", str(made / "c.json")], standalone_mode=False
        )


STOPPED = ("qnn-context-binary-utility", "qnn-profile-viewer", "compile", "profile", "gate")


@pytest.mark.parametrize("name", STOPPED)
def test_ctrl_c_anywhere_in_a_command_leaves_whole_files_or_none(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped at several places of its way, found by counting the calls of hexforge's functions."""
    monkeypatch.chdir(folder)
    words = ["tool", name, *COMMANDS[name].split()] if name in COMMANDS else OWN[name].split()
    made = emptied(folder)
    assert ended(words)[0] == 0  # whatever is made once for a process is made
    code, calls = ended(words)
    assert code == 0
    whole = {path.name for path in files(made)}
    assert whole
    for part in (0.05, 0.3, 0.6, 0.9, 0.99):
        made = emptied(folder)
        capsys.readouterr()
        code, _ = ended(words, stop=max(1, int(part * calls)))
        assert code == 130, part
        said = capsys.readouterr().err
        assert "stopped" in said
        assert "Traceback" not in said
        assert {path.name for path in files(made)} <= whole
        assert all(path.stat().st_size for path in files(made))


def ended(words: list[str], stop: int = 0) -> tuple[int, int]:
    """How a command ended, and how many of hexforge's functions it called; Ctrl-C comes with call `stop`."""
    calls = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        # Not in generators: Python drops what is raised in one while it is given back.
        own = frame.f_code.co_filename.startswith(PACKAGE)
        if event == "call" and own and not frame.f_code.co_flags & CO_GENERATOR:
            calls += 1
            if calls == stop:
                signal.raise_signal(signal.SIGINT)

    sys.setprofile(count)
    try:
        with pytest.raises(SystemExit) as exit:
            main(words)
    finally:
        sys.setprofile(None)
    return int(exit.value.code or 0), calls
