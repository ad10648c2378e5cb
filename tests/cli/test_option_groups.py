# SPDX-License-Identifier: Apache-2.0
"""A command that takes a dataclass has its fields as options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from hexforge.cli.option_groups import taking_groups


@dataclass(frozen=True, slots=True)
class Size:
    """A group."""

    width: Annotated[int, typer.Option("--width", "-w", min=1, help="How wide.")] = 4
    flat: Annotated[bool, typer.Option("--flat", help="Without height.")] = False


@taking_groups
def draw(name: Annotated[str, typer.Argument()], *, size: Size, colour: str = "red") -> None:
    """Draw it."""
    typer.echo(f"{name} {size.width} {size.flat} {colour}")


def said(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(draw)
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_the_fields_of_a_group_are_options() -> None:
    assert said("box") == (0, "box 4 False red\n")
    assert said("box", "-w", "7", "--flat", "--colour", "blue") == (0, "box 7 True blue\n")
    code, text = said("--help")
    assert code == 0
    assert "How wide." in text
    assert "--size" not in text
    assert said("box", "--width", "0")[0] == 2
