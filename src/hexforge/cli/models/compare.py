# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare`: what quantization costs a model, tensor by tensor and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexforge.amounts import decibels
from hexforge.analysis.requests import CompareRequest
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import (
    DEFAULT_BACKEND,
    BackendArguments,
    ClusterArguments,
    InputArguments,
    Json,
    constants_of,
    dims,
    shapes,
)
from hexforge.cli.models.decisions import print_decisions
from hexforge.cli.models.picture_arguments import PictureArguments
from hexforge.cli.runnable import engine_of
from hexforge.cli.screen import bar, bold_start, console, interruptible, print_json, result_table, spinner
from hexforge.errors import CallError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option
from hexforge.results import select

if TYPE_CHECKING:
    from hexforge.analysis.quality.comparison import Comparison
    from hexforge.analysis.quality.runners import ModelEngine
    from hexforge.model.reader import Model
    from hexforge.report.section import Section

Report = Annotated[Path | None, typer.Option("--report", help="Write a page to look at, as HTML.")]


@dataclass(frozen=True, slots=True)
class DumpArguments:
    """Options for tensors off a device, which are compared with one model."""

    dump: Path | None = option(
        None, "Tensors off a device: name the first op that differs.", exists=True, file_okay=False
    )
    input: list[str] | None = option(None, "An input that --dump has not.", "--input", "-i", metavar="NAME=FILE.npy")
    write: Path | None = option(None, "Folder for that op as a model, with its tensors.", file_okay=False)


def compare(
    request: CompareRequest,
    given: DumpArguments,
    rows: int = option(20, "Rows of each table; 0 for all.", min=0),
    report: Report = None,
    *,
    cluster: ClusterArguments,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Show how far a quantized model's tensors are from the float model's, the worst first."""
    from hexforge.analysis.quality.compare import compare as compared
    from hexforge.formats.file_kinds import kind_of, open_model

    data, soc = str(request.data), request.soc
    float_model = Path(str(request.float_model))
    quantized = None if request.quantized is None else Path(str(request.quantized))
    if given.dump is not None:
        if quantized is not None or data or report is not None:
            raise CallError("--dump is compared with one model; leave the second one, --data and --report out")
        open_model(float_model).do("compare --dump", given.dump, given, soc, inputs, as_json)
        return
    if quantized is None or not data:
        raise CallError("give the quantized model and --data, or a folder of tensors with --dump")
    if kind_of(quantized).is_compiled:
        from hexforge.cli.models.outputs import print_output_comparison

        otherwise = request.sensitivity != "none" or request.backend != DEFAULT_BACKEND
        if report is not None or otherwise or soc or inputs.fix_inputs:
            raise CallError(f"{quantized}: is compiled; only --data, --limit, --metric and --json can be given with it")
        print_output_comparison(float_model, quantized, data, request.limit or 0, as_json, request.metric)
        return
    require_writable(report)
    samples = pictures.data(data)
    pictures.say(samples, quiet=as_json)
    with interruptible("nothing was written"), bar(f"comparing {quantized.name}") as progress:
        comparison = compared(
            replace(
                request, data=samples, backend=engine_or_name(request.backend, soc), cluster=cluster.address,
                dims=dims(inputs.dim), shapes=shapes(inputs.shape), constants=constants_of(inputs.pin),
                progress=progress,
            )
        )  # fmt: skip
    if report is not None:
        from hexforge.report.quality import quality_sections

        write_quality_page(report, quantized, soc or DEFAULT_SOC, quality_sections(comparison), comparison)
    if as_json:
        print_json(comparison.to_json())
    else:
        _print(comparison, rows)


def engine_or_name(backend: str | ModelEngine, soc: str) -> str | ModelEngine:
    """What --backend names: a backend by its name, or what runs models itself, on the chip."""
    return engine_of(BackendArguments(str(backend), soc)) or backend


def write_quality_page(
    target: Path,
    model: Path,
    soc: str,
    lead: Sequence[Section],
    comparison: Comparison | None = None,
    fixed: Model | None = None,
) -> None:
    """Write a page that begins with sections on a model's quality; its time on a chip and its graph are behind.

    `fixed` is the model with its inputs fixed, where they are.
    """
    from hexforge.analysis.estimate import estimate
    from hexforge.report import page
    from hexforge.report.graph import graph_section_of

    with spinner(f"timing {model.name} on {soc}"):
        timed = estimate(fixed or model, soc)
    graph = graph_section_of(model, timed, comparison)
    sections = [graph] if graph is not None else []
    write_atomically(target, page(timed, sections=sections, lead=list(lead), title=model.name).encode())


def _print(comparison: Comparison, count: int) -> None:
    from hexforge.analysis.quality.comparison import ERRORS, layer_columns

    screen = console()
    if comparison.left_out:
        screen.print(comparison.left_out, style="yellow", markup=False)
    errors, of_constants = ERRORS, select(ERRORS, "name op type own")
    tensors = comparison.tensors[: count or None]
    constants = comparison.weights[: max(count // 2, 1) if count else None]
    layers = comparison.layers[: count or None]
    compared = f"{comparison.model} on {comparison.backend} against {comparison.reference}"
    alone = "only this layer" if comparison.sensitivity == "one" else "all but this layer"
    worst = f"the worst {len(tensors)} of {len(comparison.tensors)} tensors"
    worst_constants = f"the worst {len(constants)} of {len(comparison.weights)} constants"
    for title, columns, rows in (
        (f"{compared}, {comparison.samples} samples", errors, comparison.outputs),
        (worst, errors, tensors),
        (worst_constants, of_constants, constants),
        (f"outputs with {alone} quantized", layer_columns(comparison.sensitivity), layers),
    ):
        if rows:
            screen.print(result_table(title, columns, rows))
    if comparison.unmatched:
        screen.print(
            f"{comparison.unmatched} quantized tensors have no counterpart of the same name in {comparison.reference}"
        )
    screen.print(bold_start(f"{decibels(comparison.sqnr_db)} dB", " SQNR: the output that lost most"))
    print_decisions(screen, comparison.decisions, f"{comparison.samples} samples")
