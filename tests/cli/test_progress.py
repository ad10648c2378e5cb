# SPDX-License-Identifier: Apache-2.0
"""Every command that can take long says so: on a terminal by a bar, in a log by lines, with --json not at all."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from hexforge.addons.tuning import demo_command as demo
from hexforge.cli.command_table import commands
from hexforge.cli.progress_lines import ProgressLines
from hexforge.cli.screen import bar, read_by_program
from tests import ROOT
from tests.addons.adapters.lora_models import transformer
from tests.addons.llm import SMALL
from tests.addons.tflite.test_files import net
from tests.cli.test_cli import run
from tests.digits import MODEL

QUICK = {
    "addons",
    *("ops", "options", "socs", "config", "devices", "tool", "op-package", "executor-runner", "explain", "lib-path"),
    *("vendor", "verify"),  # what they do long needs Qualcomm's package
    *("trace", "phone", "sdk-root", "calibrate", "doctor", "versions", "mcp", "history", "abi-probe"),
}
"""Commands that read nothing large; `tool` and `executor-runner` have the vendor's flags and output."""
DATA = ("--data", "random:4")


class Terminal(io.StringIO):
    """Standard error that says it is one."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantized model, a context, one of two chips, a budget."""
    made = tmp_path_factory.mktemp("progress")
    assert run("quantize", str(MODEL), *DATA, "-o", str(made / "q.onnx"), "--json") == 0
    chips = ("--soc", "SM8650", "--soc", "SM8550")
    assert run("compile", str(made / "q.onnx"), "-o", str(made / "c.bin"), *chips) == 0
    (made / "budget.yaml").write_text("models:\n  - model: q.onnx\n    latency_ms: 1000\n")
    (made / "work.yaml").write_text("profiles: [burst]\nmodels: {c: {rate_hz: 10}}\n")
    (made / "net.tflite").write_bytes(net().content())
    (made / "block.onnx").write_bytes(transformer())
    assert run("compile", str(made / "block.onnx"), "-o", str(made / "lora.bin"), "--updatable", "block.[qk].*") == 0
    with chdir(made):
        assert run("run", str(MODEL), "--backend", "saver") == 0  # records into saver_output
    return made


LONG: dict[str, Callable[[Path], list[object]]] = {
    "optimize": lambda f: [MODEL, *DATA, "--budget", "2", "-o", f / "fast"],
    "check": lambda f: [MODEL],
    "estimate": lambda f: [MODEL],
    "estimate --soc all": lambda f: [MODEL, "--soc", "all"],
    "advise": lambda f: [MODEL],
    "quantize": lambda f: [MODEL, *DATA, "-o", f / "again.onnx"],
    "compare": lambda f: [MODEL, f / "q.onnx", *DATA],
    "whatif": lambda f: [MODEL, "--switch", "float_order", "--tries", "2"],
    "diff": lambda f: [MODEL, f / "q.onnx"],
    "search": lambda f: [MODEL, *DATA, "--budget", "2"],
    "compile": lambda f: [f / "q.onnx", "-o", f / "again.bin"],
    "deploy": lambda f: [f / "q.onnx", "--soc", "SM8650", "-o", f / "shipped", "--no-groups", "--overwrite"],
    "info": lambda f: [f / "c.bin"],
    "wrap": lambda f: [f / "c.bin", "-o", f / "wrapped"],
    "prune": lambda f: [f / "c.bin", "--soc", "SM8650", "-o", f / "one.bin"],
    "replay": lambda f: [f / "saver_output"],
    "profile": lambda f: [MODEL, "-o", f / "profile"],
    "device": lambda f: [ROOT / "examples" / "device" / "sessions.json"],
    "sweep": lambda f: [MODEL, "--soc", "SM8650", "--precision", "w8a8"],
    "plan": lambda f: [f / "c.bin", "--workload", f / "work.yaml", "--frames", "3"],
    "gate": lambda f: [f / "budget.yaml"],
    "show": lambda f: [MODEL],
    "run": lambda f: [MODEL],
    "bench": lambda f: [MODEL, "--iterations", "2"],
    "fix-shapes": lambda f: [MODEL, f / "fixed.onnx"],
    "convert-opset": lambda f: [MODEL, f / "newer.onnx"],
    "convert": lambda f: [f / "net.tflite", f / "net.onnx"],
    "demo": lambda f: [],
    "eval": lambda f: [f / "q.onnx", *DATA, "--metric", f"sqnr:{MODEL}"],
    "llm": lambda f: ["export", SMALL, "--context", "64", "--ar", "1", "--precision", "float", "-o", f / "bundle"],
    "lora": lambda f: ["make", f / "lora.bin", "-o", f / "tuned.adapter"],
}


def test_every_command_is_here() -> None:
    assert {name.split()[0] for name in LONG} | QUICK == {row.name for row in commands().values()}


@pytest.mark.parametrize("name", LONG)
def test_progress_on_a_terminal_only(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(demo, "BUDGET", 2)  # it is the same with more
    arguments = [name.split()[0], *map(str, LONG[name](folder))]
    read_by_program.set(False)  # a test that went before may have called the app itself with --json
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    assert run(*arguments) == 0
    assert "\x1b[" in seen.getvalue(), "nothing was shown"
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    assert run(*arguments) == 0
    assert "\x1b[" not in pipe.getvalue()


@pytest.mark.parametrize("name", ["check", "estimate", "quantize", "compare", "bench"])
def test_no_progress_beside_json(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    assert run(name, *map(str, LONG[name](folder)), "--json") == 0
    assert "\x1b[?25l" not in seen.getvalue()  # no cursor is hidden, as bars and spinners do


def test_progress_is_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = ProgressLines(10, lambda: now[0])
    for done in range(41):
        now[0] = done
        lines.update("measuring mixes", done, 40)
    now[0] = 41.0
    lines.update("writing", 1, 2)
    now[0] = 1000.0
    lines.update("writing", 2, 2)
    assert capsys.readouterr().err.splitlines() == [
        "measuring mixes: 10 of 40, about 30 s left",
        "measuring mixes: 20 of 40, about 20 s left",
        "measuring mixes: 30 of 40, about 10 s left",
        "measuring mixes: 40 of 40",
        "writing: 2 of 2",
    ]


@pytest.mark.parametrize(("as_json", "shown"), [(False, "what: 1 of 2"), (True, "")])
def test_lines_are_not_written_beside_json(
    as_json: bool, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hexforge.cli.screen.ProgressLines", lambda: ProgressLines(0.0))
    read_by_program.set(as_json)
    try:
        with bar("what") as show:
            show(1, 2)
    finally:
        read_by_program.set(False)
    said = capsys.readouterr().err
    assert shown in said if shown else not said
