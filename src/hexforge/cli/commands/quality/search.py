# SPDX-License-Identifier: Apache-2.0
"""`hexforge search`: the mix of precisions that meets a quality at the lowest simulated latency."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hexforge.backends.htp.chip.soc import DEFAULT_SOC
from hexforge.cli.arguments import Dims, Json, Model, Shapes, sizes
from hexforge.cli.commands.quality.evaluate import Classes, Labels
from hexforge.cli.commands.quality.picture_arguments import Crop, Layout, Mean, PictureArguments, Resize, Scale, Std
from hexforge.cli.screen import bar, console, print_json, stoppable, table
from hexforge.errors import CallError
from hexforge.formats.files import require_writable, write_atomically

if TYPE_CHECKING:
    from hexforge.analysis.quality.search import Searched
    from hexforge.quant.measure.search import Point


def search(
    model: Model,
    data: Annotated[str, typer.Option("--data", help="Calibration samples: a folder, or random:8.")],
    metric: Annotated[
        str, typer.Option("--metric", help="sqnr, or top1, top5, top1:OUTPUT, FILE.py:NAME as of eval; more is better.")
    ] = "sqnr",
    labels: Labels = "",
    classes: Classes = None,
    evaluation: Annotated[
        str, typer.Option("--evaluation", help="Samples quality is measured on; unless given, --data.")
    ] = "",
    target: Annotated[
        float | None, typer.Option("--target", help="Quality to reach; unless given, the knee of the front.")
    ] = None,
    budget: Annotated[int, typer.Option("--budget", min=2, help="Mixes to measure at most.")] = 100,
    soc: Annotated[str, typer.Option("--soc", help="The chip whose latency counts.")] = DEFAULT_SOC,
    runtime: Annotated[str, typer.Option("--runtime", help="qnn_dlc, onnx or tflite.")] = "qnn_dlc",
    low: Annotated[str, typer.Option("--low", help="The recipe of most layers.")] = "w8a8_channel",
    high: Annotated[str, typer.Option("--high", help="The recipe of layers that need more.")] = "w8a16_channel",
    groups: Annotated[int, typer.Option("--groups", min=1, help="Groups of layers that change together.")] = 16,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples that quality is measured on.")] = 16,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="Processes; 0: one for each processor.")] = 0,
    cluster: Annotated[bool, typer.Option("--cluster", help="Spread over a Ray cluster (extra `cluster`).")] = False,
    state: Annotated[
        Path | None, typer.Option("--state", help="Keeps what was measured: an interrupted search goes on.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the best mix as a QDQ model.")] = None,
    recipe: Annotated[Path | None, typer.Option("--recipe", help="Write the best mix's recipe (JSON).")] = None,
    report: Annotated[Path | None, typer.Option("--report", help="Write a page with the front drawn.")] = None,
    dim: Dims = None,
    shape: Shapes = None,
    mean: Mean = "",
    std: Std = "",
    resize: Resize = "",
    crop: Crop = 0,
    layout: Layout = "",
    scale: Scale = "",
    as_json: Json = False,
) -> None:
    """Find the mix of two precisions that meets a quality at the lowest latency on a chip."""
    from hexforge.analysis.quality.labels import read_classes
    from hexforge.analysis.quality.quantize import quantize, require_other
    from hexforge.analysis.quality.search import Scoring, SearchSpace, Workers, search_precision, statistics_beside
    from hexforge.backend import processors
    from hexforge.backends.htp.deployment import Deployment

    require_writable(recipe, report, state)
    named, whole = sizes(model, dim, shape)
    pictures = PictureArguments(mean, std, resize, crop, layout, scale)
    calibration, judged = pictures.data(data), pictures.data(evaluation) if evaluation else None
    pictures.say(calibration, quiet=as_json)
    if output is not None:
        require_other(output, model)
    lost = "nothing was written; with --state FILE a search goes on"
    states = [] if state is None else [state, statistics_beside(state)]
    with stoppable(lost, *states), bar("measuring mixes") as progress:
        found = search_precision(
            model,
            calibration,
            Deployment(soc, runtime=runtime),
            SearchSpace(low, high, groups, target, budget),
            Scoring(metric, labels or None, None if classes is None else read_classes(classes), judged, samples),
            workers=Workers(jobs or processors(), cluster),
            state=state,
            dims=named,
            shapes=whole,
            progress=progress,
        )
    best = found.best
    if (output or recipe) and best is None:
        raise CallError(
            f"no mix reaches {found.target:g}; lower --target or choose a better --high; nothing was written"
        )
    if best is not None and recipe is not None:
        write_atomically(recipe, json.dumps(found.recipe(best).to_mapping(), indent=1).encode())
    if best is not None and output is not None:
        quantize(model, calibration, found.recipe(best), output, soc=soc, dims=named, shapes=whole)
    if report is not None:
        best_or_high = found.recipe(best or found.found.high)
        made = quantize(model, calibration, best_or_high, soc=found.soc, dims=named, shapes=whole).model
        assert made is not None
        _write_report(found, model.name, made, runtime, report)
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)


def _print(found: Searched) -> None:
    points, screen = found.found, console()
    low, high = points.low, points.high
    rows = [
        (
            name,
            _quality(p.quality, found),
            f"{p.latency_ms:.3f}",
            f"{len(p.high)} of {len(found.groups)}",
            f"{100 * (p.latency_ms / high.latency_ms - 1):+.1f} %",
        )
        for name, p in (
            (found.low.name, low),
            *((f"mix {i + 1}", p) for i, p in enumerate(points.front()) if p.high not in (low.high, high.high)),
            (found.high.name, high),
        )
    ]
    title = f"{found.model} on {found.soc}: {len(points.points)} mixes measured, those no other beats"
    screen.print(table(title, ("mix", found.metric, "ms", f"groups {found.high.name}", f"to {found.high.name}"), rows))
    better = points.dominating()
    if better:
        p = better[0]
        screen.print(
            f"[bold]{100 * (1 - p.latency_ms / high.latency_ms):.1f} % faster than {found.high.name} and no worse[/]: "
            f"{p.latency_ms:.3f} ms at {_quality(p.quality, found)}, {len(p.high)} of {len(found.groups)} groups "
            f"{found.high.name}"
        )
    elif points.exhausted:
        screen.print(
            f"no mix of this space is faster than {found.high.name} and as good: all {len(points.points)} measured"
        )
    else:
        screen.print(
            f"no mix that was measured is faster than {found.high.name} and as good; a larger --budget sees more"
        )
    if found.best is None:
        screen.print(found.reason, markup=False)
    else:
        names = ", ".join(found.groups[g].name for g in sorted(found.best.high)[:6])
        more = " …" if len(found.best.high) > 6 else ""
        screen.print(
            f"recommended: {found.best.latency_ms:.3f} ms at {_quality(found.best.quality, found)}, because "
            f"{found.reason}; {found.high.name}: {names or 'none'}{more}",
            markup=False,
        )


def _quality(value: float, found: Searched) -> str:
    return found.said(value)


def front_section(found: Searched) -> Any:
    """The front as a section of a report."""
    from hexforge.report import Column, Plot, Section, Series, Table

    front, points = found.found.front(), found.found.points.values()
    low, high = found.found.low, found.found.high
    parts = {
        "the front": front,
        "beaten": [p for p in points if p not in (*front, low, high)],
        found.low.name: [low],
        found.high.name: [high],
    }
    series = [
        Series(name, [(p.latency_ms, p.quality) for p in some], [_named(p, found) for p in some], some is front)
        for name, some in parts.items()
    ]
    unit, digits = ("SQNR dB", 2) if found.metric == "sqnr" else (found.metric, 4)
    columns = (
        Column("ms", "number", 3), Column(unit, "number", digits), Column("groups", "number", 0),
        Column(f"at {found.high.name}"),
    )  # fmt: skip
    rows = [(p.latency_ms, p.quality, len(p.high), _named(p, found)) for p in front]
    return Section(
        "Mixed precision",
        [Plot("ms", unit, series), Table(columns, rows)],
        note=f"{len(points)} mixes of {found.low.name} and {found.high.name} in {len(found.groups)} groups of layers: "
        f"quality on the emulator, latency simulated on {found.soc}. On the front are those that no other beats.",
    )


def _named(point: Point, found: Searched) -> str:
    if len(point.high) == len(found.groups):
        return "all"
    return ", ".join(found.groups[g].name for g in sorted(point.high)) or "none"


def _write_report(found: Searched, name: str, made: bytes, runtime: str, path: Path) -> None:
    from hexforge.analysis.estimate import estimate
    from hexforge.backends.htp.deployment import Deployment
    from hexforge.report import page

    timed = estimate(made, Deployment(found.soc, runtime=runtime))
    write_atomically(path, page(timed, lead=[front_section(found)], title=name).encode())
