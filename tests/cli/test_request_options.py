# SPDX-License-Identifier: Apache-2.0
"""A command that takes a dataclass has its fields as options, and of a table what it spells for commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from hexforge.chips.graph_config import GraphConfig
from hexforge.cli.request_options import GivenOptions, with_request_options
from hexforge.options import Option
from hexforge.request_fields import option


@dataclass(frozen=True, slots=True)
class Size:
    """A group."""

    width: int = option(4, "How wide.", "--width", "-w", min=1)
    flat: bool = option(False, "Without height.")


@with_request_options
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


SPELLED = [option for option in GraphConfig.table() if option.command_line]
VALUES = {"optimization": 3, "num_hvx_threads": 2, "vtcm_mb": 4, "vtcm_size": 65536, "num_cores": 2}


def heard(*arguments: str) -> tuple[GraphConfig, GivenOptions]:
    """What commands that take the table whole, or what is given of it, are called with."""
    calls: list[Any] = []

    @with_request_options
    def whole(*, graph: GraphConfig) -> None:
        calls.append(graph)

    @with_request_options
    def given(*, graph: Annotated[GivenOptions, GraphConfig]) -> None:
        calls.append(graph)

    for command in (whole, given):
        app = typer.Typer()
        app.command()(command)
        done = CliRunner().invoke(app, list(arguments))
        if done.exit_code:
            raise ValueError(" ".join(done.output.replace("│", " ").split()))
    return calls[0], calls[1]


@pytest.mark.parametrize("option", SPELLED, ids=lambda option: option.name)
def test_an_option_of_a_graph_is_one_of_the_command_line(option: Option) -> None:
    value: Any = VALUES.get(option.name, True)
    arguments = [option.command_line] if value is True else [option.command_line, str(value)]
    whole, given = heard(*arguments)
    assert whole == GraphConfig(**{option.name: value})
    assert given == {option.name: value}


def test_what_is_not_given_is_told_from_zero() -> None:
    assert heard() == (GraphConfig(), {})
    assert heard("--vtcm-mb", "0") == (GraphConfig(), {"vtcm_mb": 0})


@pytest.mark.parametrize(
    ("arguments", "bounds"),
    [
        (("--optimization", "4"), "--optimization.*less than or equal to 3"),
        (("--vtcm-mb", "-1"), "--vtcm-mb.*greater than or equal to 0"),
        (("--num-cores", "17"), "--num-cores.*less than or equal to 16"),
        (
            ("--hvx-threads", "0"),
            "--hvx-threads.*greater than or equal to 1",
        ),  # of what is given, where leaving it out is how to leave it to the chip
    ],
)
def test_bounds_are_the_options(arguments: tuple[str, ...], bounds: str) -> None:
    with pytest.raises(ValueError, match=bounds):
        heard(*arguments)
