# SPDX-License-Identifier: Apache-2.0
"""Options of commands that derive from a table of options."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from hexforge.chips.graph_config import GraphConfig
from hexforge.cli.option_groups import GivenOptions, taking_groups
from hexforge.options import Option

SPELLED = [option for option in GraphConfig.table() if option.command_line]
VALUES = {"optimization": 3, "num_hvx_threads": 2, "vtcm_mb": 4, "vtcm_size": 65536, "num_cores": 2}


def heard(*arguments: str) -> tuple[GraphConfig, GivenOptions]:
    """What commands that take the table whole, or what is given of it, are called with."""
    calls: list[Any] = []

    @taking_groups
    def whole(*, graph: GraphConfig) -> None:
        calls.append(graph)

    @taking_groups
    def given(*, graph: Annotated[GivenOptions, GraphConfig]) -> None:
        calls.append(graph)

    for command in (whole, given):
        app = typer.Typer()
        app.command()(command)
        assert CliRunner().invoke(app, list(arguments), standalone_mode=False).exception is None
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


@pytest.mark.parametrize("arguments", [("--optimization", "4"), ("--vtcm-mb", "-1"), ("--num-cores", "17")])
def test_bounds_are_the_options(arguments: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        heard(*arguments)
