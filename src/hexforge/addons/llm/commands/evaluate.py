# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm eval`: how near a bundle is to its float model."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from hexforge.addons.llm.commands.bundle_to_run import BundleToRun
from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import option, required


def evaluate(
    model: BundleToRun,
    checkpoint: Path = required("What it was exported from."),
    text: Path = required("A text that the model was not trained on."),
    length: int | None = option(None, "Tokens of a row; each row begins anew. [default: 256, or the context]", min=2),
    rows: int = option(0, "At most so many rows; 0: all.", min=0),
    blame: bool = option(False, "Say what each layer's rounding costs."),
    as_json: Json = False,
) -> None:
    """Say how well a bundle predicts a text, how near it is to its float model, and which layer is to blame."""
    from hexforge.addons.llm.exporting.evaluate import evaluate_bundle

    loaded = model.loaded()
    context = loaded.bundle.context
    if length is not None and length > context:
        raise CallError(f"--length {length}: a row does not fit the context of {context}; give 2 to {context}")
    with spinner("reading the text"):
        result = evaluate_bundle(
            loaded, checkpoint, text.read_text(encoding="utf-8", errors="replace"),
            length=length or min(256, context), rows=rows, blame=blame,
        )  # fmt: skip
    if as_json:
        print_json(asdict(result))
        return
    change = result.perplexity / result.float_perplexity - 1
    say(f"perplexity {result.perplexity:.3f}, of the float model {result.float_perplexity:.3f} ({change:+.2%})")
    say(f"the same first choice at {result.same_first:.2%} of {result.tokens:,} tokens")
    say(f"mean divergence of shares {result.divergence:.5f} nats")
    if result.blame:
        worst = sorted(result.blame.items(), key=lambda item: -item[1])
        rows_shown = [(name, f"{lost:.5f}") for name, lost in worst]
        console().print(table("Rounded alone", ("weights of", "divergence"), rows_shown))
