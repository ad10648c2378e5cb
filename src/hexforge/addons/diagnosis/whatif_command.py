# SPDX-License-Identifier: Apache-2.0
"""`hexforge whatif`: one thing that a chip may compute otherwise, and the input that shows it most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import InputArguments, Json, Model, Soc, constants_of, dims, shapes
from hexforge.cli.screen import bars, console, interruptible, print_json
from hexforge.cli.sections import print_sections
from hexforge.errors import CallError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option, required

if TYPE_CHECKING:
    from hexforge.addons.diagnosis.whatif import WhatIf
    from hexforge.report.section import Section

_BARS = 30
"""Nodes whose blame is drawn."""


def whatif(
    model: Model,
    switch: str = required("What is switched: fold_relu, short_depth, float_order, encodings.", metavar="NAME"),
    soc: Soc = DEFAULT_SOC,
    tries: int = option(200, "Inputs to try, half of them at random.", min=1),
    float_range: str = option(
        "-1:1", "Where float inputs lie that the model does not quantize.", "--range", metavar="LOW:HIGH"
    ),
    seed: int = option(0, "Other inputs for another number.", min=0),
    blamed: int = option(32, "Tell the N nodes most to blame apart; 0 for all.", "--blame", min=0, metavar="N"),
    report: Path | None = option(None, "Write a page to look at, as HTML.", dir_okay=False),
    save_input: Path | None = option(None, "Write the input that shows it most, as .npz.", dir_okay=False),
    *,
    inputs: InputArguments,
    as_json: Json = False,
) -> None:
    """Switch one thing that a chip may compute otherwise, and search the input that shows it most, op by op."""
    from hexforge.addons.diagnosis.whatif import WhatIfRequest
    from hexforge.addons.diagnosis.whatif import whatif as switch_one
    from hexforge.report import sections_page

    require_writable(save_input, report)
    request = WhatIfRequest(tries, _range(float_range), seed, blamed)
    with interruptible("nothing was written"), bars() as observe:
        result = switch_one(
            model, switch, soc, request, dims=dims(inputs.dim), shapes=shapes(inputs.shape),
            constants=constants_of(inputs.pin), observe=observe,
        )  # fmt: skip
    if save_input is not None:
        result.save_input(save_input)
    section = whatif_section(result)
    if report is not None:
        write_atomically(report, [sections_page(f"{result.model}: {result.switch}", [section]).encode()])
    if as_json:
        print_json(result.to_json())
        return
    print_sections(console(), [section], None)
    if save_input is not None:
        console().print(Text(f"the input is in {save_input}"))


def _range(text: str) -> tuple[float, float]:
    low, colon, high = text.partition(":")
    try:
        return float(low), float(high if colon else "")
    except ValueError:
        raise CallError(f"--range {text}: give two numbers, LOW:HIGH") from None


def whatif_section(result: WhatIf) -> Section:
    """What a switch does to a model at the input that shows it most, and which nodes are to blame."""
    from hexforge.addons.diagnosis.whatif import BLAMED
    from hexforge.report.section import Bars, Figure, Figures, Section, Table

    place = ", ".join(map(str, result.place))
    figures = [
        Figure("difference", f"{result.difference:.6g}", f"output {result.output} at [{place}]"),
        Figure("of its largest number", f"{100 * result.relative:.3g} %"),
        Figure("without, with", f"{result.without:.6g}, {result.with_switch:.6g}"),
        Figure("random inputs showed", f"{result.random_difference:.6g}", f"{result.tries} inputs tried"),
    ]
    verdict = f"{result.switch} on {result.soc}: output {result.output} differs by up to {result.difference:.6g}"
    shown = result.blame[:_BARS]
    bars = Bars([row.node for row in shown], [100 * row.share for row in shown], "%", "Share of the blame")
    note = f"{result.meaning}; {result.nodes} nodes of {result.model} have it."
    if result.blame_left_out:
        note += f" The {len(result.blame)} most to blame are told apart; {result.blame_left_out} others are not."
    return Section("What if", [Figures(figures, verdict), bars, Table.of(BLAMED, result.blame)], note)
