# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm export`: a checkpoint as a bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hexforge.addons.llm.exporting.bundle_writer import ExportRequest
from hexforge.addons.llm.exporting.bundle_writer import export as exported
from hexforge.amounts import size
from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import print_json, spinner
from hexforge.errors import CallError
from hexforge.request_fields import argument, option, required

ROUNDINGS = ("nearest", "scale", "compensate")
"""What --rounding takes; the last two go together."""


def export(
    checkpoint: str = argument(
        "Folder with .safetensors or an ONNX decoder, or a .gguf; with --random a config or name."
    ),
    output: Path = required("The folder to write.", "--output", "-o", file_okay=False),
    *,
    request: ExportRequest,
    rounding: str = option(
        "nearest",
        "Of weights: nearest; scale: channels that are large in the text lose less (AWQ); compensate: weights "
        "make up for each other's errors (GPTQ); or scale,compensate.",
    ),
    compensate: bool = option(False, "The same as --rounding compensate."),
    random: int | None = option(None, "Random weights of this seed.", metavar="SEED"),
    as_json: Json = False,
) -> None:
    """Export a checkpoint as a bundle: ONNX graphs for several new tokens and for one, weights once, a context."""
    ways = set(rounding.split(","))
    if unknown := sorted(ways - {*ROUNDINGS}):
        raise CallError(f"--rounding {rounding}: {unknown[0]!r} is none of {', '.join(ROUNDINGS)}")
    request = replace(request, compensated=compensate or "compensate" in ways, scaled="scale" in ways)
    with spinner(f"exporting {output.name}"):
        bundle = exported(checkpoint, output, request, random_seed=random)
    if as_json:
        print_json(bundle.write())
        return
    total = sum(bundle.sizes.values())
    say(
        f"{output}: {bundle.name} at {bundle.precision}, {bundle.layers} layers in {len(bundle.parts)} part(s), graphs "
        f"for {', '.join(map(str, bundle.tokens))} new tokens, context {bundle.context}, {size(total)}"
        + f", adapters {', '.join(bundle.adapters)}"
        * bool(bundle.adapters)
    )
