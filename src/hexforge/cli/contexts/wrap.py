# SPDX-License-Identifier: Apache-2.0
"""`hexforge wrap`: an ONNX model around each graph of a context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexforge.cli.say import say
from hexforge.cli.screen import spinner


def wrap(
    context: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The context.", show_default=False)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the models; else beside the context.")
    ] = None,
    embed: Annotated[bool, typer.Option("--embed", help="Put the context into each model.")] = False,
    quantized_io: Annotated[
        bool, typer.Option("--quantized-io", help="Keep quantized inputs and outputs; else float32, by Q and DQ nodes.")
    ] = False,
) -> None:
    """Write one ONNX model around each graph of a context, which InferenceSession runs."""
    from hexforge.runtime.contexts.wrap import wrap as wrapped

    with spinner(f"wrapping {context.name}"):
        written = list(wrapped(context, output, embed=embed, quantized_io=quantized_io))
    for path in written:
        say(path)
