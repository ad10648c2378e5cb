# SPDX-License-Identifier: Apache-2.0
"""`hexforge verify`: the proof of a deployed folder, again."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from hexforge.addons.vendor.process import ProcessLimits
from hexforge.cli.arguments import Json
from hexforge.cli.screen import bars, console, interruptible, print_json
from hexforge.cli.sections import print_sections
from hexforge.request_fields import argument, option


def verify(
    folder: Path = argument("The folder.", file_okay=False, show_default=False),
    groups: bool = option(False, "Look for groups of ops that differ, too."),
    *,
    limits: ProcessLimits,
    as_json: Json = False,
) -> None:
    """Repeat the proof of a folder that hexforge deployed: checksums, placement, contexts and every tensor."""
    from hexforge.addons.vendor.deploy import verify as verified
    from hexforge.addons.vendor.page import proof_sections

    with interruptible("nothing was verified"), bars() as progress:
        result = verified(folder, groups=groups, limits=limits, progress=progress)
    if as_json:
        print_json(result.to_json())
    else:
        screen = console()
        for fault in result.changed:
            screen.print(Text(fault, "bold red"))
        for chip in result.missing:
            screen.print(Text(f"{chip}: has no context yet; make_contexts.py makes it", "yellow"))
        print_sections(screen, proof_sections(result.proofs), flag="--json")
        screen.print(Text("holds" if result.holds else "does not hold", "bold green" if result.holds else "bold red"))
    if not result.holds:
        raise typer.Exit(1)
