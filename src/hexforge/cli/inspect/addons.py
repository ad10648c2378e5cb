# SPDX-License-Identifier: Apache-2.0
"""`hexforge addons`: what plugs into the core here, what each adds, and what each misses."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from hexforge.addon import Addon
from hexforge.addon import addons as declared
from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table


def addons(as_json: Json = False) -> None:
    """List the add-ons: what each adds, and what it needs and misses."""
    rows = [_facts(addon) for addon in declared()]
    if as_json:
        print_json(rows)
        return
    cells = []
    for row in rows:
        remedy = f"; pip install 'hexforge[{row['extra']}]'" if row["extra"] else ""
        misses = Text(f"{', '.join(row['missing'])}{remedy}", "yellow") if row["missing"] else Text("nothing", "green")
        adds = [*row["commands"], *(f"--backend {name}" for name in (*row["backends"], *row["engines"]))]
        cells.append((row["name"], row["summary"], ", ".join(adds), ", ".join(row["needs"]), misses))
    columns = ("add-on", "what it is", "commands", "stands on", "misses")
    console().print(table(f"{len(rows)} add-ons", columns, cells, optional=("stands on",), whole=True))


def _facts(addon: Addon) -> dict[str, Any]:
    return {
        "name": addon.name,
        "summary": addon.summary,
        "commands": [command.name for command in addon.commands],
        "backends": list(addon.backends),
        "engines": list(addon.engines),
        "needs": list(addon.needs),
        "extra": addon.extra,
        "missing": list(addon.missing()),
    }
