# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm export`: a checkpoint as a bundle."""

from __future__ import annotations

from pathlib import Path

from hexforge.amounts import size
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import Json, Soc
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
    soc: Soc = "",
    context: int = option(4096, "Tokens that the caches hold.", min=2),
    ar: str = option("128,1", "New tokens of each graph, 1 among them."),
    precision: str = option("w8a16", "float, w8a16, w4a16 (blocks of 32), w4a16_lpbq or w4a16_channel."),
    native_kv: bool = option(False, "Caches as the matrix unit reads them."),
    no_context: bool = option(False, "ONNX models alone, nothing compiled."),
    calibration: Path | None = option(None, "A text for ranges of activations.", exists=True),
    rounding: str = option(
        "nearest",
        "Of weights: nearest; scale: channels that are large in the text lose less (AWQ); compensate: weights "
        "make up for each other's errors (GPTQ); or scale,compensate.",
    ),
    compensate: bool = option(False, "The same as --rounding compensate."),
    adapter: list[str] | None = option(None, "A LoRA adapter as PEFT writes it; several times.", metavar="NAME=FOLDER"),
    random: int | None = option(None, "Random weights of this seed.", metavar="SEED"),
    as_json: Json = False,
) -> None:
    """Export a checkpoint as a bundle: ONNX graphs for several new tokens and for one, weights once, a context."""
    from hexforge.addons.llm import ExportRequest
    from hexforge.addons.llm import export as exported

    try:
        tokens = tuple(int(word) for word in ar.split(","))
    except ValueError:
        raise CallError(f"--ar {ar}: give numbers with commas between, such as 128,1") from None
    ways = set(rounding.split(","))
    if unknown := sorted(ways - {*ROUNDINGS}):
        raise CallError(f"--rounding {rounding}: {unknown[0]!r} is none of {', '.join(ROUNDINGS)}")
    adapters = {}
    for text in adapter or ():
        name, _, folder = text.partition("=")
        if not folder or name in adapters:
            raise CallError(f"--adapter {text}: give NAME=FOLDER, each name once")
        adapters[name] = folder
    request = ExportRequest(
        soc or DEFAULT_SOC, context, tokens, precision, native_kv, not no_context, calibration, adapters=adapters,
        compensated=compensate or "compensate" in ways, scaled="scale" in ways,
    )  # fmt: skip
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
