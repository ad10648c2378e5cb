# SPDX-License-Identifier: Apache-2.0
"""`hexforge lora`: adapters that change constants of a compiled context between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.text import Text

from hexforge.cli.arguments import Json, pairs
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option, required

lora = CommandGroup(no_args_is_help=True, help="LoRA adapters for a compiled context: make them, look at them.")


@lora.command()
def make(
    context: Path = argument("The context (compile --updatable).", exists=True, dir_okay=False, show_default=False),
    output: Path = required("The adapter file to write.", "--output", "-o", dir_okay=False),
    base: Path | None = option(None, "The model the context was compiled from.", exists=True, dir_okay=False),
    adapted: Path | None = option(None, "That model with other constants.", exists=True, dir_okay=False),
    weights: Path | None = option(
        None, "A .safetensors or .npz file of lora_A and lora_B.", exists=True, dir_okay=False
    ),
    alpha: float | None = option(None, "Times alpha / rank; else what the file says, else 1."),
    names: list[str] | None = option(
        None, "Which constant weights of a name are for.", "--map", metavar="NAME=CONSTANT"
    ),
    as_json: Json = False,
) -> None:
    """Make an adapter of a base and an adapted model, or of low-rank weights; of neither: one that restores a base."""
    from hexforge.addons.adapters.making import describe_adapter
    from hexforge.addons.adapters.making import make_adapter as made

    if weights is None and (alpha is not None or names):
        raise CallError("--alpha and --map are for --weights; leave them out")
    with spinner(f"making {output.name}"):
        adapter = made(context, base, adapted, weights=weights, alpha=alpha, names=pairs(names, "--map"), output=output)
    _say(describe_adapter(adapter), as_json)


@lora.command()
def info(
    file: Path = argument("An adapter file.", exists=True, dir_okay=False, show_default=False), as_json: Json = False
) -> None:
    """Say what an adapter changes, and of which base; checksums verified."""
    from hexforge.addons.adapters.making import describe_adapter
    from hexforge.formats.adapter import Adapter

    _say(describe_adapter(Adapter(file)), as_json)


def _say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    screen = console()
    rows = [
        (g["name"], g["base"], ", ".join(g["tensors"]) or "none: it restores the base", str(g["changes"]))
        for g in facts["graphs"]
    ]
    screen.print(table("", ("graph", "base", "changed constants", "changes"), rows))
    screen.print(
        Text(
            f"{facts['file']}: {facts['bytes']:,} bytes, {facts['new_bytes']:,} of arrays, backend {facts['backend']}, "
            f"made by {facts['producer']}, checksums {facts['checksums']}"
        )
    )
