# SPDX-License-Identifier: Apache-2.0
"""`hexforge tool`: the vendor's command-line tools; `hexforge config`: their config files, checked and explained."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Annotated

import typer

from hexforge.addons.tools import TOOLS
from hexforge.addons.tools.flags import ToolCommand
from hexforge.addons.tools.graphs import CHIP
from hexforge.cli.arguments import Json, Soc
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.screen import console, print_json, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

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


# -- config files -----------------------------------------------------------------------------------------------------

config = CommandGroup(no_args_is_help=True, add_completion=False, help="Check and explain config files of QNN's tools.")


@config.command("check")
def check(
    file: Path = argument("A tool's config file, or the HTP's own.", dir_okay=False),
    soc: Soc = "",
    tool: str = option("", "Fail on keys that this tool does not read."),
    as_json: Json = False,
) -> None:
    """Say what every key of a config file does on a chip, or what is wrong with it."""
    from hexforge.chips.soc import DEFAULT_SOC, require_chip
    from hexforge.formats.backend_extensions import load
    from hexforge.options import did_you_mean
    from hexforge.runtime.tool_config import chip_of, effects

    if tool and tool not in TOOLS:
        raise CallError(f"--tool {tool!r}: no such tool; there are {', '.join(TOOLS)}{did_you_mean(tool, TOOLS)}")
    loaded = load(file)
    chip = require_chip(soc or chip_of(loaded) or DEFAULT_SOC)
    rows = list(effects(loaded, chip))
    foreign = [row for row in rows if tool and tool not in row.read_by]
    refused = [row for row in rows if row.effect.startswith("refused")]
    if as_json:
        print_json(
            {
                "file": str(file),
                "soc": chip.name,
                "keys": [
                    {"key": r.key, "value": r.value, "read_by": list(r.read_by), "effect": r.effect} for r in rows
                ],
                "warnings": list(loaded.warnings),
                "not_read": [row.key for row in foreign],
            }
        )
    else:
        screen = console()
        cells = [(r.key, json.dumps(r.value), r.effect, ", ".join(r.read_by)) for r in rows]
        columns = ("key", "value", f"what it does on {chip.name}", "read by")
        screen.print(table(f"{file}: {len(rows)} keys are set", columns, cells, optional=("read by",)))
        for warning in loaded.warnings:
            screen.print(warning, style="yellow")
        for row in foreign:
            screen.print(f"{row.key}: {tool} does not read it; {' and '.join(row.read_by)} does", style="red")
    if foreign or refused:
        raise typer.Exit(1)


@config.command("schema")
def schema() -> None:
    """Print the JSON Schema of both config files."""
    from hexforge.formats.backend_extensions import schema as made

    print_json(made())
