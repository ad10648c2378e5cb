# SPDX-License-Identifier: Apache-2.0
"""`hexforge eval`: how well a model does on labelled samples."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from hexforge.analysis.requests import EvaluateRequest
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import ClusterArguments, InputArguments, Json
from hexforge.cli.commands.compare import Report, engine_or_name, print_decisions, write_quality_page
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.screen import bar, console, interruptible, print_json, table
from hexforge.formats.files import require_writable


def evaluate(
    request: EvaluateRequest,
    report: Report = None,
    *,
    cluster: ClusterArguments,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Run a model on samples and score its outputs; the score is the same for any number of jobs."""
    from hexforge.analysis.quality.evaluate import evaluate as evaluated

    require_writable(report)
    samples = pictures.data(str(request.data))
    pictures.say(samples, quiet=as_json)
    model, state, reference = Path(str(request.model)), request.state, request.reference
    fixed = inputs.fixed(model)
    start = time.perf_counter()
    part = "there is no score of a part of the samples" if state is None else f"{state} has what was done so far"
    with interruptible(part), bar(f"evaluating {model.name}") as progress:
        evaluation = evaluated(
            replace(
                request, data=samples, backend=engine_or_name(request.backend, request.soc), cluster=cluster.address,
                draw=report is not None, progress=progress, **fixed,
            )
        )  # fmt: skip
    seconds = time.perf_counter() - start
    if report is not None:
        from hexforge.model.reader import read
        from hexforge.report.quality import evaluation_sections

        sections = evaluation_sections(evaluation)
        write_quality_page(report, model, request.soc or DEFAULT_SOC, sections, fixed=read(model, **fixed))
    if as_json:
        print_json(evaluation.to_json())
        return
    unit = " dB" if evaluation.metric in ("sqnr", "psnr") else ""
    row = (
        evaluation.model,
        evaluation.backend,
        evaluation.metric,
        f"{evaluation.score:.4f}{unit}",
        str(evaluation.samples),
        f"{seconds:.1f}",
    )
    screen = console()
    if evaluation.left_out:
        screen.print(evaluation.first_left_out, style="yellow", markup=False)
    screen.print(table("", ("model", "backend", "metric", "score", "samples", "seconds"), [row]))
    if evaluation.decisions is not None:
        sqnr = evaluation.decisions.sqnr_db
        screen.print(f"{sqnr:.1f} dB SQNR against {reference}" if sqnr < float("inf") else f"the same as {reference}")
    print_decisions(screen, evaluation.decisions, f"{evaluation.samples} samples")
