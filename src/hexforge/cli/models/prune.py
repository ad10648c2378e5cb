# SPDX-License-Identifier: Apache-2.0
"""`hexforge prune`: a context of several chips for one of them."""

from __future__ import annotations

from pathlib import Path

from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.request_fields import argument, required


def prune(
    context: Path = argument("The context.", exists=True, dir_okay=False, show_default=False),
    soc: str = required("The chip to keep, by name or number."),
    output: Path = required("The context to write.", "--output", "-o", dir_okay=False),
) -> None:
    """Keep one chip of a context that was made for several."""
    from hexforge.runtime.contexts.wrap import prune as pruned

    before = context.stat().st_size
    with spinner(f"pruning {context.name}"):
        kept = pruned(context, soc, output)
    say(f"{output}: {len(kept.container):,} bytes for {kept.info.targets[0].name}, {before:,} before")
