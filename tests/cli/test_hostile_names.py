# SPDX-License-Identifier: Apache-2.0
"""Models with hostile names through commands, on a pseudo-terminal; `python -m fuzz hostile_names` runs all of them."""

from __future__ import annotations

from pathlib import Path

from fuzz.hostile_names import LINES, NAMELESS, PAYLOADS, faults, hostile_names, write_models
from hexforge.addons.tools import TOOLS
from hexforge.cli.command_table import commands

SHORT = (
    "check m.onnx",
    "run m.onnx -o outputs",
    "estimate m.onnx --report estimate.html",
    "info two.bin",
    "diff m.onnx other.onnx --report diff.html",
    "explain device.log --model m.onnx --all",
    "tool qnn-net-run",
)


def test_a_short_round() -> None:
    lines = [line for line in LINES if line in SHORT or line.startswith(SHORT[-1])]
    assert len(lines) == len(SHORT)
    assert hostile_names(4, lines) == []


def test_every_command_has_a_line() -> None:
    assert {row.name for row in commands().values()} - NAMELESS == {line.split()[0] for line in LINES}
    assert set(TOOLS) == {line.split()[1] for line in LINES if line.startswith("tool ")}


def test_what_a_terminal_would_obey_is_a_fault(tmp_path: Path) -> None:
    assert faults("check", 0, "\x1b[1mplain\x1b[0m\r\n") == []
    for payload in PAYLOADS[:20]:
        assert faults("check", 0, f"node {payload}" if payload != "\r" else "\x1b[2J"), repr(payload)
    assert faults("check", 1, "Traceback (most recent call last):\n  …\nKeyError: 3")
    assert faults("check", 70, "")
    write_models(tmp_path, 0)
    assert b"\x1b" in (tmp_path / "m.onnx").read_bytes()
