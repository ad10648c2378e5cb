# SPDX-License-Identifier: Apache-2.0
"""`hexforge diff`: what changed between two contexts, models, profiles or estimates, and why it is slower."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import All, Dims, Json, Precision, Shapes, dims, shapes
from hexforge.cli.screen import TOP, console, print_json, spinner
from hexforge.cli.sections import print_sections
from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.request_fields import option

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
    from hexforge.addons.diagnosis.difference import diff as differ
    from hexforge.addons.diagnosis.difference_page import difference_page, difference_sections
    from hexforge.chips.deployment import Deployment

    if report is not None and report.resolve() in (before.resolve(), after.resolve()):
        raise CallError("--report is a file of its own; it may be neither of the two that are compared")
    with spinner(f"comparing {before.name} and {after.name}"):
        difference = differ(before, after, Deployment(soc, precision), dims=dims(dim), shapes=shapes(shape))
    if report is not None:
        write_atomically(report, difference_page(difference).encode())
    if as_json:
        print_json(difference.to_json())
        return
    for sentence in difference.why():
        console().print(sentence)
    _, figures = difference_sections(difference, difference.changed_layers)
    if figures.parts:
        print_sections(console(), [figures], None if every else TOP)
