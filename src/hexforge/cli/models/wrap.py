# SPDX-License-Identifier: Apache-2.0
"""`hexforge wrap`: an ONNX model around each graph of a context."""

from __future__ import annotations

from pathlib import Path

from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.request_fields import argument, option


def wrap(
    context: Path = argument("The context.", exists=True, dir_okay=False, show_default=False),
    output: Path | None = option(None, "Folder for the models; else beside the context.", "--output", "-o"),
    embed: bool = option(False, "Put the context into each model."),
    quantized_io: bool = option(False, "Keep quantized inputs and outputs; else float32, by Q and DQ nodes."),
) -> None:
    """Write one ONNX model around each graph of a context, which InferenceSession runs."""
    from hexforge.runtime.contexts.wrap import wrap as wrapped

    with spinner(f"wrapping {context.name}"):
        written = list(wrapped(context, output, embed=embed, quantized_io=quantized_io))
    for path in written:
        say(path)
