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
    pass


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
    from hexforge.analysis.quality.whatif import WhatIfRequest
    from hexforge.analysis.quality.whatif import whatif as switch_one
    from hexforge.report import sections_page
    from hexforge.report.quantized.quality import whatif_section

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
