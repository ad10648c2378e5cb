# SPDX-License-Identifier: Apache-2.0
"""`hexforge lora`: adapters that change constants of a compiled context between runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from hexforge.cli.arguments import Json, pairs
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError

lora = typer.Typer(no_args_is_help=True, help="LoRA adapters for a compiled context: make them, look at them.")


@lora.command()
def make(
    context: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="The context (compile --updatable).", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The adapter file to write.", dir_okay=False)],
    base: Annotated[
        Path | None,
        typer.Option("--base", exists=True, dir_okay=False, help="The model the context was compiled from."),
    ] = None,
    adapted: Annotated[
        Path | None, typer.Option("--adapted", exists=True, dir_okay=False, help="That model with other constants.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights", exists=True, dir_okay=False, help="A .safetensors or .npz file of lora_A and lora_B."
        ),
    ] = None,
    alpha: Annotated[
        float | None, typer.Option("--alpha", help="Times alpha / rank; else what the file says, else 1.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="NAME=CONSTANT", help="Which constant weights of a name are for."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an adapter of a base and an adapted model, or of low-rank weights; of neither: one that restores a base."""
    from hexforge.runtime.contexts.lora import describe_adapter
    from hexforge.runtime.contexts.lora import make_adapter as made

    if weights is None and (alpha is not None or names):
        raise CallError("--alpha and --map are for --weights; leave them out")
    with spinner(f"making {output.name}"):
        adapter = made(
            context, base, adapted, weights=weights, alpha=alpha, names=pairs(names, "--map"), output=output
        )  # fmt: skip
    _say(describe_adapter(adapter), as_json)


@lora.command()
def info(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="An adapter file.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Say what an adapter changes, and of which base; checksums verified."""
    from hexforge.formats.adapter import Adapter
    from hexforge.runtime.contexts.lora import describe_adapter

    _say(describe_adapter(Adapter(file)), as_json)


def _say(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(facts)
        return
    screen = console()
    rows = [
        (
            g["name"],
            g["base"],
            ", ".join(g["tensors"]) or "none: it restores the base",
            str(g["changes"]),
        )
        for g in facts["graphs"]
    ]
    screen.print(table("", ("graph", "base", "changed constants", "changes"), rows))
    screen.print(
        Text(
            f"{facts['file']}: {facts['bytes']:,} bytes, {facts['new_bytes']:,} of arrays, backend {facts['backend']}, "
            f"made by {facts['producer']}, checksums {facts['checksums']}"
        )
    )
