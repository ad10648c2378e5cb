# SPDX-License-Identifier: Apache-2.0
"""`hexforge optimize`: the whole way of a model to a chip in one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.text import Text

from hexforge.addons.tuning.requests import OptimizeRequest
from hexforge.addons.tuning.search_command import print_alarmed
from hexforge.analysis.requests import SQNR
from hexforge.cli.arguments import ClusterArguments, InputArguments, Json, Model, Runtime, Soc
from hexforge.cli.commands.compare import print_decisions
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.screen import bars, console, interruptible, print_json, result_table
from hexforge.formats.files import write_atomically
from hexforge.request_fields import option
from hexforge.rules import by_reason, some_of

if TYPE_CHECKING:
    from hexforge.addons.tuning.optimize import OptimizeResult


SAME_TIME = 0.97
"""A quantized model that is slower than this part of the float one's speed is said to be slower."""


def optimize(
    model: Model,
    request: OptimizeRequest,
    soc: Soc = "",
    output: Path | None = option(None, "Folder for the files; else MODEL.SOC.", "--output", "-o", file_okay=False),
    runtime: Runtime = "qnn_dlc",
    *,
    cluster: ClusterArguments,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Make a model fast on a chip: fix shapes, rewrite, find the best precisions, quantize, compile, explain."""
    from hexforge.addons.tuning.optimize import optimize as optimized
    from hexforge.addons.tuning.optimized_page import optimized_page
    from hexforge.backend import processors
    from hexforge.chips.deployment import Deployment
    from hexforge.chips.soc import DEFAULT_SOC, require_chip
    from hexforge.formats.file_kinds import stem_of

    chip = require_chip(soc or DEFAULT_SOC).name
    folder = output or Path(f"{stem_of(model)}.{chip}")
    fixed = inputs.fixed(model)
    calibration = pictures.data(request.data)
    pictures.say(calibration, quiet=as_json)
    request = replace(
        request, data=calibration, evaluation=pictures.data(request.evaluation) if request.evaluation else None,
        metric=request.metric or ("top1" if request.labels else SQNR), jobs=request.jobs or processors(),
        cluster=cluster.address, dims=fixed["dims"] or {}, shapes=fixed["shapes"] or {},
        constants=fixed["constants"] or {},
    )  # fmt: skip
    lost = f"what is done lies in {folder}; the same command goes on from there"
    with interruptible(lost), bars() as progress:
        result = optimized(model, folder, request, Deployment(chip, runtime=runtime), progress=progress)
        progress("drawing the page", 0, 1)
        write_atomically(result.folder.page, optimized_page(result).encode())
    if as_json:
        print_json(result.to_json())
    else:
        print_optimized(console(), result)
    if not result.recommendation.recommended:
        raise typer.Exit(1)


def _quality(value: float, metric: str) -> str:
    from hexforge.analysis.quality.metrics import quality_text

    return quality_text(value, metric).removesuffix(" dB")


def print_optimized(screen: Console, optimized: OptimizeResult) -> None:
    """The verdict, why, what it costs, and what to do next."""
    from hexforge.addons.tuning.front import front_columns, front_rows
    from hexforge.report.formatting import npu_part_only

    gain = optimized.speedup
    faster = "which has no float math"
    if optimized.before is not None and gain is not None:
        faster = f"{gain:.2f} times faster than float" if gain > 1 else "no faster than float"
        faster += f" ({optimized.before.latency_ms:.3f} ms)"
    recommended = optimized.recommendation.recommended
    if not recommended:
        screen.print(Text(f"NOT RECOMMENDED: {optimized.recommendation.reason}", "bold red"))
    screen.print(
        Text.assemble(
            (f"{optimized.after.latency_ms:.3f} ms", "bold green" if recommended else "bold red"),
            f" on {optimized.after.soc}, ",
            (f"{npu_part_only(optimized.after)}, " if optimized.after.left_on_cpu else "", "bold yellow"),
            f"{faster}: {optimized.model}, ",
            (optimized.quantization.recipe.name, "bold"),
        )
    )
    sqnr = optimized.comparison.sqnr_db
    noise = f"at {sqnr:.1f} dB" if sqnr < float("inf") else "exact"
    score = f"outputs {noise} on {optimized.comparison.samples} samples"
    if optimized.float_score is not None:
        in_float = f"{_quality(optimized.float_score, optimized.metric)} in float, on {optimized.scored} samples"
        score = f"{optimized.metric} {_quality(optimized.score, optimized.metric)}, {in_float}; {score}"
    screen.print(Text(score))
    print_decisions(screen, optimized.comparison.decisions, f"{optimized.comparison.samples} samples")
    if recommended:
        screen.print(Text(optimized.recommendation.reason))
    if gain is not None and gain <= 1:
        same = gain > SAME_TIME
        words = (
            "As fast in float"
            if same
            else f"Faster in float: take {optimized.folder.float_model.name} where time counts"
        )
        screen.print(Text(f"{words}; here integers save memory and power, not time.", "yellow"))
    for output, how in optimized.quantization.plan.mixed_heads.items():
        screen.print(Text(f"{output}: {how}"))
    for why, nodes in by_reason(optimized.quantization.refused):
        screen.print(Text(f"CPU  {some_of(nodes)}: {why}", "yellow"))
    searched = optimized.searched
    measured = f"{len(searched.mixes.points)} mixes measured on {optimized.comparison.samples} samples"
    columns = front_columns(searched, optimized.recommendation.point)[:-1]
    screen.print()
    screen.print(result_table(f"the front: {measured}, those no other beats", columns, front_rows(searched)))
    print_alarmed(screen, searched)
    if optimized.rewrites.applied:
        screen.print(Text(f"rewritten: {', '.join(optimized.rewrites.applied)}"))
    for advice in optimized.next_steps[:3]:
        screen.print(Text(f"next: {advice.title}: {100 * advice.gain:.1f} % faster"))
    for path in optimized.files:
        screen.print(Text(str(path), "bold" if path == optimized.folder.page else ""))
