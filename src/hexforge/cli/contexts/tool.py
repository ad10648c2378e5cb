# SPDX-License-Identifier: Apache-2.0
"""`hexforge tool`: the vendor's command-line tools by their own names and flags."""

from __future__ import annotations

import importlib

import typer

from hexforge.cli.qnn_tools import TOOLS
from hexforge.cli.qnn_tools.flags import ToolCommand

tool = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Run one of the vendor's tools, with its own flags: qnn-net-run and its family.",
)
for _name, _module in TOOLS.items():
    tool.command(_name, cls=ToolCommand)(importlib.import_module(f"hexforge.cli.qnn_tools.{_module}").run)
