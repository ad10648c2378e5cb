# SPDX-License-Identifier: Apache-2.0
"""`hexforge tool`: the vendor's command-line tools by their own names and flags."""

from __future__ import annotations

import importlib
from typing import Annotated

import typer

from hexforge.addons.tools import TOOLS
from hexforge.addons.tools.flags import ToolCommand
from hexforge.addons.tools.graphs import CHIP
from hexforge.cli.request_options import CommandGroup

tool = CommandGroup(
    no_args_is_help=True,
    add_completion=False,
    help="Run one of the vendor's tools, with its own flags: qnn-net-run and its family.",
)


@tool.callback()
def _on_a_chip(
    soc: Annotated[
        str, typer.Option("--soc", help="The chip of the device that the tool runs on, whatever its config file says.")
    ] = "",
) -> None:
    """Options before the tool's name."""
    if soc:
        from hexforge.chips.soc import require_chip

        CHIP.set(require_chip(soc).name)


for _name, _module in TOOLS.items():
    tool.command(_name, cls=ToolCommand)(importlib.import_module(f"hexforge.addons.tools.{_module}").run)
