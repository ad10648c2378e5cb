# SPDX-License-Identifier: Apache-2.0
"""`hexforge deploy`: a folder to ship, by Qualcomm's package, with the proof that it is what hexforge says."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

from hexforge.addons.vendor.commands.push import PushArguments, print_pushed
from hexforge.addons.vendor.commands.vendor import MemoryMb, Timeout
from hexforge.cli.arguments import InputArguments, Json, Options, pairs
from hexforge.cli.quality.picture_arguments import PictureArguments
from hexforge.cli.screen import bars, console, interruptible, print_json, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.vendor.deploy import DeployResult
    from hexforge.addons.vendor.proof import Proof

MOST_ROWS = 10


def deploy(
    model: Path = argument("The ONNX file; or with --push a deployed folder.", show_default=False),
    output: Path | None = option(None, "The folder to ship.", "--output", "-o", file_okay=False, show_default=False),
    soc: str = option("", "Chips by name, number or device.", metavar="S[,S…]", show_default=False),
    data: str = option("random:1", "Samples that the proof is made on; random:N draws them."),
    limit: int = option(4, "The most samples that are taken.", min=1),
    groups: bool = option(True, "Look for groups of ops that differ though each agrees.", "--groups/--no-groups"),
    overwrite: bool = option(False, "Replace a folder that was deployed before."),
    option: Options = None,
    timeout: Timeout = 600.0,
    memory_mb: MemoryMb = 16384,
    *,
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
    from hexforge.addons.vendor.process import ProcessLimits
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
            [chip.strip() for chip in soc.split(",") if chip.strip()], chosen, options, groups, overwrite,
            ProcessLimits(timeout, memory_mb << 20), deployment_page, progress,
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


def _print_deployed(screen: Console, result: DeployResult) -> None:
    from hexforge.addons.vendor.deploy import MAKE
    from hexforge.addons.vendor.package import INSTALL

    if not result.proofs:
        screen.print(Text("everything but the contexts: onnxruntime-qnn is not installed", "bold yellow"))
        screen.print(f"{INSTALL}; or make them where it is, in {result.folder}: {MAKE}")
    print_proofs(screen, result.proofs, result.contexts)
    for chip, nodes in result.left_on_cpu.items():
        for node, why in nodes[:MOST_ROWS]:
            screen.print(Text(f"{chip}: CPU  {node}: {why}", "yellow"))
    screen.print(Text(str(result.folder), "bold"))


def print_proofs(screen: Console, proofs: dict[str, Proof] | Any, contexts: dict[str, int] | Any) -> None:
    """A row for each chip, then what differs."""
    rows = []
    for chip, proof in proofs.items():
        agree = len(proof.tensors) - len(proof.disagreeing)
        placed = "alike" if proof.placement.alike else f"{len(proof.placement.differences)} otherwise"
        loads = {None: "-", True: "loads", False: "does not load"}[proof.context_loads]
        groups = "-" if proof.groups is None else str(len(proof.groups))
        verdict = Text("holds", "green") if proof.holds else Text("does not hold", "bold red")
        size = f"{contexts[chip]:,}" if chip in contexts else "-"
        rows.append((chip, verdict, size, loads, placed, f"{agree} of {len(proof.tensors)}", groups))
    if rows:
        columns = ("chip", "proof", "bytes", "context", "placed", "tensors agree", "groups differ")
        screen.print(table("", columns, rows))
    for chip, proof in proofs.items():
        for other in proof.placement.differences[:MOST_ROWS]:
            where = f"on the {other.vendor} by the package, on the {other.hexforge} by hexforge"
            screen.print(Text(f"{chip}: {other.node} ({other.op}) is {where}: {other.reason}", "red"))
        disagreeing = [(row.op, row) for row in proof.disagreeing]
        disagreeing += [(group.title, group.judged) for group in (proof.groups or ())]
        for title, row in disagreeing[:MOST_ROWS]:
            share = 100 * row.vendor_hexforge.share
            words = (
                f"{share:.1f} % within {row.vendor_hexforge.tolerance} steps, at most {row.vendor_hexforge.largest:g}"
            )
            screen.print(Text(f"{chip}: {title}, {row.tensor}: {words}; {row.verdict}", "yellow"))
        if proof.not_shown:
            screen.print(Text(f"{chip}: no tensor could be compared: {proof.not_shown}", "red"))
        if proof.unsteady:
            named = ", ".join(proof.unsteady[:4])
            screen.print(Text(f"{chip}: the emulator's numbers change from run to run in {named}", "yellow"))
