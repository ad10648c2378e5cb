# SPDX-License-Identifier: Apache-2.0
"""`hexforge diff`: what changed between two contexts, models, profiles or estimates, and why it is slower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from hexforge import amounts
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import All, Dims, Json, Precision, Shapes, dims, shapes
from hexforge.cli.screen import TOP, console, print_json, rows_left_out, spinner, table
from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.analysis.difference.changes import Difference, LayerChange

_File = typer.Argument(
    dir_okay=False, help="A context, a .pte, an ONNX model, a profile, or the JSON of an estimate.", show_default=False
)


def diff(
    before: Annotated[Path, _File],
    after: Annotated[Path, _File],
    soc: str = option(DEFAULT_SOC, "Models are timed for this chip."),
    precision: Precision = "as-is",
    report: Path | None = option(None, "Write a page to look at, as HTML."),
    dim: Dims = None,
    shape: Shapes = None,
    every: All = False,
    as_json: Json = False,
) -> None:
    """Say what changed from one context, model, profile or estimate to another, by layer, and why it is slower.

    Both must be of one kind; a .pte is the contexts in it.
    """
    from hexforge.analysis.difference import diff as differ
    from hexforge.chips.deployment import Deployment

    if report is not None and report.resolve() in (before.resolve(), after.resolve()):
        raise CallError("--report is a file of its own; it may be neither of the two that are compared")
    with spinner(f"comparing {before.name} and {after.name}"):
        difference = differ(before, after, Deployment(soc, precision), dims=dims(dim), shapes=shapes(shape))
    if report is not None:
        from hexforge.report.comparison import difference_page

        write_atomically(report, difference_page(difference).encode())
    if as_json:
        print_json(difference.to_json())
        return
    _print(console(), difference, None if every else TOP)


def _print(screen: Console, difference: Difference, most: int | None) -> None:
    from hexforge.analysis.difference.changes import fact_text

    for sentence in difference.why():
        screen.print(sentence)
    facts = [fact for fact in difference.facts if fact.differs]
    if facts:
        rows = [(f.name, fact_text(f.name, f.before), fact_text(f.name, f.after)) for f in facts]
        screen.print(table(f"{difference.kind}s", ("figure", difference.before.name, difference.after.name), rows))
    layers = difference.changed_layers
    if layers:
        columns = ("layer", "op", "before", "after", "weights before", "weights after", "what changed")
        shown = [_row(layer) for layer in layers[:most]]
        optional = ("weights before", "weights after", "op")
        screen.print(
            table(f"{len(layers)} of {len(difference.layers)} layers changed", columns, shown, optional=optional)
        )
        screen.print(rows_left_out(len(shown), len(layers), "layers"))


def _row(layer: LayerChange) -> tuple[str, ...]:
    sides = layer.before, layer.after
    times = [
        "" if side is None else amounts.time(side.us) if side.us is not None
        else f"{side.cycles:,} cycles" if side.cycles is not None else side.where
        for side in sides
    ]  # fmt: skip
    weights = ["" if side is None or side.weight_bytes is None else amounts.size(side.weight_bytes) for side in sides]
    op = next(side.op for side in reversed(sides) if side is not None)
    return layer.name, op, *times, *weights, layer.why
