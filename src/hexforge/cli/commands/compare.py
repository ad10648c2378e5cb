# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare`: what quantization costs a model, tensor by tensor; how far outputs of compiled ones are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from hexforge.amounts import decibels, with_decibels
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
    provider_options,
    shapes,
)
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.runnable import Runnable, engine_of, feeds_for, open_runnable
from hexforge.cli.screen import bar, bold_start, console, interruptible, print_json, result_table, spinner, table
from hexforge.errors import CallError
from hexforge.formats.file_kinds import kind_of
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option
from hexforge.results import select

if TYPE_CHECKING:
    from hexforge.analysis.quality.comparison import Comparison
    from hexforge.analysis.quality.decisions.verdict import Decisions
    from hexforge.analysis.quality.runners import ModelEngine
    from hexforge.model.reader import Model
    from hexforge.report.section import Section

_COLOURS = {"good": "bold green", "usable": "bold yellow", "unusable": "bold red", "unknown": "bold"}


def print_decisions(screen: Console, decisions: Decisions | None, where: str) -> None:
    """The verdict with its figures; where they are from; groups of channels and alarms that SQNR does not show."""
    if decisions is None:
        return
    verdict = decisions.verdict
    figures = decisions.text().removeprefix(verdict)
    screen.print(Text.assemble("decisions ", (verdict, _COLOURS[verdict]), f"{figures} on {where}"))
    for part in decisions.parts if len(decisions.parts) > 1 else ():
        screen.print(Text(f"  {', '.join(part.outputs)}: {part.text()}"))
    if decisions.decisive is not None:
        screen.print(Text(f"  judged by {decisions.decisive.about} (--metric says another kind)", "dim"))
    apart = [group for group in decisions.groups if not group.whole]
    for group in apart:
        worst = ", the worst" if group is decisions.worst_group else ""
        text = f"  {group.name} ({group.low:.4g} to {group.high:.4g}): SQNR {with_decibels(group.sqnr_db)}{worst}"
        screen.print(Text(text))
    for alarm in decisions.alarms:
        screen.print(Text(f"ALARM: {alarm.text}", "bold red"))
    worst_sample = decisions.worst_sample
    if worst_sample is not None and worst_sample.agreement < 1:
        named = f" ({worst_sample.name})" if worst_sample.name else ""
        screen.print(
            Text(
                f"  worst sample {worst_sample.number + 1}{named}: {worst_sample.in_float} in float, "
                f"{worst_sample.in_other} quantized"
            )
        )


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


def print_output_comparison(
    reference: Path, path: Path, data: str, limit: int, as_json: bool, metric: str = "decisions"
) -> None:
    """Print how far the outputs of a compiled file are from those of a model, or another file, with the same inputs."""
    from hexforge.analysis.quality.decisions.judge import DecisionCollector, DecisionJudge
    from hexforge.analysis.quality.decisions.metric import required_decisions
    from hexforge.quant.compare import ErrorSums

    rule = required_decisions(metric)
    collector = None if rule is None else DecisionCollector(DecisionJudge(None, rule))
    on_chip = provider_options("", "", None)
    first = open_runnable(reference, on_chip if kind_of(reference).is_compiled else {"backend_type": "cpu"})
    second = open_runnable(path, on_chip)
    wanted = [(value.dtype, [int(d or 0) for d in value.shape]) for value in second.inputs]
    if [(v.dtype, [int(d or 0) for d in v.shape]) for v in first.inputs] != wanted:
        raise CallError(f"{reference} and {path} take other inputs; they must be the same, in the same order")
    sums: list[ErrorSums] = []
    samples = samples_for(second, data)[: limit or None]
    with bar(f"comparing {path.name}") as progress:
        for done, sample in enumerate(samples):
            expected = first.run({v.name: a for v, a in zip(first.inputs, sample, strict=True)})
            outputs = second.run({v.name: a for v, a in zip(second.inputs, sample, strict=True)})
            if len(expected) != len(outputs):
                raise CallError(f"{reference} gives {len(expected)} outputs, {path} {len(outputs)}")
            sums = sums or [ErrorSums() for _ in outputs]
            for one, a, b in zip(sums, expected.values(), outputs.values(), strict=True):
                one.update(a, b)
            if collector is not None:
                feeds = {v.name: a for v, a in zip(first.inputs, sample, strict=True)}
                collector.add(feeds, expected, dict(zip(expected, outputs.values(), strict=True)))
            progress(done + 1, len(samples))
    rows = [{"output": i, **one.to_json()} for i, one in enumerate(sums)]
    decisions = None if collector is None else collector.decisions()
    if as_json:
        figures = {"model": path.name, "reference": reference.name, "samples": len(samples), "outputs": rows}
        print_json(figures | {"decisions": None if decisions is None else decisions.to_json()})
        return
    columns = select(ErrorSums.described)
    lines = [(f"output_{i}", *(column.cell(one) for column in columns)) for i, one in enumerate(sums)]
    title = f"{path.name} against {reference.name}, {len(samples)} samples"
    screen = console()
    screen.print(table(title, ("output", *(column.name for column in columns)), lines))
    print_decisions(screen, decisions, f"{len(samples)} samples")


def samples_for(opened: Runnable, data: str) -> list[list[Any]]:
    """Inputs of several inferences: random:N, or a folder with an .npz (input_0 and so on) or .npy for each."""
    import numpy as np

    kind, _, count = data.partition(":")
    if kind == "random":
        if not (count or "8").isdecimal():
            raise CallError(f"--data {data}: random:N gives N samples of random numbers")
        seeds = range(int(count or 8))
        return [list(feeds_for(opened.inputs, {}, seed).values()) for seed in seeds]
    files = sorted(p for p in Path(data).iterdir() if p.suffix in (".npy", ".npz")) if Path(data).is_dir() else []
    if not files:
        raise CallError(f"--data {data}: give random:N, or a folder with an .npz or .npy for each inference")
    samples: list[list[Any]] = []
    for file in files:
        loaded = np.load(file, allow_pickle=False)
        arrays = [loaded] if file.suffix == ".npy" else [loaded[v.name] for v in opened.inputs if v.name in loaded]
        if len(arrays) != len(opened.inputs):
            raise CallError(f"{file}: has not all of {', '.join(v.name for v in opened.inputs)}")
        samples.append(arrays)
    return samples
