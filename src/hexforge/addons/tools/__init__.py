# SPDX-License-Identifier: Apache-2.0
"""The vendor's command-line tools by their own names and flags: a table of them, each imported when it is called."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import typer

from hexforge.addons.tools.flags import ToolCommand
from hexforge.cli import exit_with_message
from hexforge.cli.request_options import CommandGroup

TOOLS = {
    "qnn-onnx-converter": "onnx_converter",
    "qnn-net-run": "net_run",
    "qnn-throughput-net-run": "throughput_net_run",
    "qnn-context-binary-generator": "context_binary_generator",
    "qnn-context-binary-utility": "context_binary_utility",
    "qnn-profile-viewer": "profile_viewer",
}
"""name -> module of this room, whose function `run` is the tool."""


def tool_command(name: str) -> Any:
    """A tool as a command."""
    module = importlib.import_module(f"hexforge.addons.tools.{TOOLS[name]}")
    alone = CommandGroup(add_completion=False, pretty_exceptions_enable=False)
    alone.command(name, cls=ToolCommand)(module.run)
    return typer.main.get_command(alone)


def entry(name: str) -> Callable[[], None]:
    """What the console script of a tool calls: an error is one message and exit code 2."""

    def main() -> None:
        with exit_with_message(name):
            tool_command(name)(prog_name=name)

    return main


qnn_onnx_converter = entry("qnn-onnx-converter")
qnn_net_run = entry("qnn-net-run")
qnn_throughput_net_run = entry("qnn-throughput-net-run")
qnn_context_binary_generator = entry("qnn-context-binary-generator")
qnn_context_binary_utility = entry("qnn-context-binary-utility")
qnn_profile_viewer = entry("qnn-profile-viewer")
