# SPDX-License-Identifier: Apache-2.0
"""`hexforge eval`: how well a model does on labelled samples."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import DEFAULT_BACKEND, ClusterArguments, InputArguments, Json, Model, Soc
from hexforge.cli.quality.compare import (
    Backend,
    Data,
    Jobs,
    Limit,
    Report,
    StrictSamples,
    engine_of,
    write_quality_page,
)
from hexforge.cli.quality.decisions import print_decisions
from hexforge.cli.quality.picture_arguments import PictureArguments
from hexforge.cli.request_options import with_request_options
from hexforge.cli.screen import bar, console, interruptible, print_json, table
from hexforge.formats.files import require_writable

Labels = Annotated[
    str,
    typer.Option("--labels", help="A .csv, .json, .txt or .npy file; folders: their names; dataset: the shards' own."),
]
Classes = Annotated[
    Path | None,
    typer.Option("--classes", exists=True, dir_okay=False, help="Names of the classes, one a line, in their order."),
]


@with_request_options
def evaluate(
    model: Model,
    data: Data,
    labels: Labels = "",
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="top1, top5, top1:OUTPUT, psnr, ssim, FILE.py:NAME; against --reference and without labels sqnr, "
            "decisions, or a kind such as detection.",
        ),
    ] = "top1",
    reference: Annotated[
        Path | None,
        typer.Option("--reference", exists=True, dir_okay=False, help="The float model to compare decisions with."),
    ] = None,
    classes: Classes = None,
    backend: Backend = DEFAULT_BACKEND,
    soc: Soc = "",
    jobs: Jobs = 1,
    limit: Limit = 0,
    report: Report = None,
    strict_samples: StrictSamples = False,
    state: Annotated[
        Path | None, typer.Option("--state", help="Keeps what the samples add up to: an interrupted run goes on.")
    ] = None,
    *,
    cluster: ClusterArguments,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Run a model on samples and score its outputs; the score is the same for any number of jobs."""
    from hexforge.analysis.quality.evaluate import evaluate as evaluated
    from hexforge.analysis.quality.labels import read_classes

    require_writable(report)
    samples = pictures.data(data)
    pictures.say(samples, quiet=as_json)
    fixed = inputs.request(model)
    start = time.perf_counter()
    part = "there is no score of a part of the samples" if state is None else f"{state} has what was done so far"
    with interruptible(part), bar(f"evaluating {model.name}") as progress:
        evaluation = evaluated(
            model, samples, labels or None, metric, classes=None if classes is None else read_classes(classes),
            backend=engine_of(backend, soc), soc=soc, reference=reference, jobs=jobs, cluster=cluster.address,
            limit=limit or None,
            draw=report is not None, strict_samples=strict_samples, state=state, dims=fixed.dims,
            shapes=fixed.shapes, constants=fixed.constants, progress=progress,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    if report is not None:
        from hexforge.model.reader import read
        from hexforge.report.quantized.quality import evaluation_sections

        write_quality_page(
            report, model, soc or DEFAULT_SOC, evaluation_sections(evaluation),
            fixed=read(model, dims=fixed.dims, shapes=fixed.shapes, constants=fixed.constants),
        )  # fmt: skip
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
