# SPDX-License-Identifier: Apache-2.0
"""`hexforge deploy`: a folder to ship, by Qualcomm's package, with the proof that it is what hexforge says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from hexforge.addons.vendor.commands.push import PushArguments, print_pushed
from hexforge.addons.vendor.process import ProcessLimits
from hexforge.chips.soc import SOCS
from hexforge.cli.arguments import InputArguments, Json, Options, pairs
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.screen import bars, console, interruptible, print_json
from hexforge.cli.sections import print_sections
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.vendor.deploy import DeployResult

ALL = "all"


def deploy(
    model: Path = argument("The ONNX file; or with --push a deployed folder.", show_default=False),
    output: Path | None = option(None, "The folder to ship.", "--output", "-o", file_okay=False, show_default=False),
    soc: str = option("", "Chips by name, number or device; all: every one.", metavar="S[,S…]", show_default=False),
    data: str = option("random:1", "Samples that the proof is made on; random:N draws them."),
    limit: int = option(4, "The most samples that are taken.", min=1),
    groups: bool = option(True, "Look for groups of ops that differ though each agrees.", "--groups/--no-groups"),
    overwrite: bool = option(False, "Replace a folder that was deployed before."),
    option: Options = None,
    *,
    limits: ProcessLimits,
    inputs: InputArguments,
    pictures: PictureArguments,
    push: PushArguments,
    as_json: Json = False,
) -> None:
    """Make a folder to ship: contexts by Qualcomm's package, examples, options, checksums, a page and the proof.

    With --push it is run on a phone, too, real or virtual; a folder that was deployed before is pushed as it is.
    """
    if model.is_dir():
        push.run_alone(model, output, soc, as_json)
        return
    if output is None:
        raise CallError("--output is missing: the folder to ship")
    device = push.device()
    if not soc:
        soc = push.chip(device)
    from hexforge.addons.vendor.deploy import DeployRequest
    from hexforge.addons.vendor.deploy import deploy as deployed
    from hexforge.addons.vendor.page import deployment_page
    from hexforge.ort.options.provider_options import ProviderOptions
    from hexforge.quant.data.samples import samples

    options = pairs(option, "--option")
    ProviderOptions.parse(options)
    read = inputs.read(model)
    read.require_static()
    chosen = list(islice(samples(pictures.data(data), read.ir), limit))
    if not chosen:
        raise CallError(f"--data {data}: has no samples; the proof needs one")
    with interruptible("nothing was written"), bars() as progress:
        request = DeployRequest(
            _chip_names(soc), chosen, options, groups, overwrite, soc.strip().lower() == ALL,
            limits, deployment_page, progress,
        )  # fmt: skip
        result = deployed(read, output, request)
    if not as_json:
        _print_deployed(console(), result)
    pushed = None if device is None else push.run(output, device)
    if as_json:
        print_json(result.to_json() | ({} if pushed is None else {"pushed": pushed.to_json()}))
    elif pushed is not None:
        print_pushed(console(), pushed)
    if not result.holds or (pushed is not None and not pushed.agrees):
        raise typer.Exit(1)


def _chip_names(text: str) -> list[str]:
    """The chips of --soc; `all` names every one."""
    if text.strip().lower() == ALL:
        return [soc.name for soc in SOCS]
    return [chip.strip() for chip in text.split(",") if chip.strip()]


def _print_deployed(screen: Console, result: DeployResult) -> None:
    from hexforge.addons.vendor.deploy import MAKE
    from hexforge.addons.vendor.package import INSTALL
    from hexforge.addons.vendor.page import deployment_sections

    if not result.proofs:
        screen.print(Text("everything but the contexts: onnxruntime-qnn is not installed", "bold yellow"))
        screen.print(f"{INSTALL}; or make them where it is, in {result.folder}: {MAKE}")
    print_sections(screen, deployment_sections(result), flag="--json")
    for chip, reason in result.left_out.items():
        screen.print(Text(f"{chip}: left out: {reason}", "yellow"))
    for finding in result.doctor:
        screen.print(Text(f"{finding['level']} {finding['id']}: {finding['found']}", "bold red"))
        screen.print(f"  Try: {finding['would_work']}")
    screen.print(Text(str(result.folder), "bold"))
