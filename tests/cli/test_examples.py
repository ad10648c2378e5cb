# SPDX-License-Identifier: Apache-2.0
"""Every help has examples, and every example is a command that parses; -o is the same everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from hexforge.addon import Command
from hexforge.cli import app
from hexforge.cli.command_table import commands
from tests.cli.commands_typed import parse
from tests.cli.test_cli import run


@pytest.mark.parametrize("row", commands().values(), ids=lambda row: row.name)
def test_examples_parse(
    row: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert row.examples
    for example in row.examples:
        assert parse(example, tmp_path) == row.name
    monkeypatch.setenv("COLUMNS", "120")
    assert run(row.name, "--help") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(example in shown for example in row.examples)


def test_a_wrong_option_does_not_parse(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="No such option"):
        parse("hexforge check model.onnx --no-such-option", tmp_path)


def test_o_is_the_output_everywhere() -> None:
    group = typer.main.get_command(app)
    context = group.make_context("hexforge", ["ops"])
    for row in commands().values():
        command = group.get_command(context, row.name)  # type: ignore[attr-defined]
        for one in [command, *getattr(command, "commands", {}).values()]:
            for parameter in one.params:
                if "-o" in parameter.opts:
                    assert "--output" in parameter.opts, row.name
