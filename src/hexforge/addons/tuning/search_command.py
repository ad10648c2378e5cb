# SPDX-License-Identifier: Apache-2.0
"""`hexforge search`: the mix of precisions that meets a quality at the lowest simulated latency."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from hexforge.addons.tuning.requests import SearchRequest
from hexforge.analysis.workers import Workers
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import ClusterArguments, InputArguments, Json, Runtime
from hexforge.cli.commands.picture_arguments import PictureArguments
from hexforge.cli.screen import bar, bold_start, console, interruptible, print_json, result_table
from hexforge.errors import CallError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.addons.tuning.search import SearchResult
    from hexforge.quant.decide.recipe import Recipe


@dataclass(frozen=True, slots=True)
class SearchFiles:
    """What is written of a search."""

    output: Path | None = option(None, "Write the best mix as a QDQ model.", "--output", "-o")
    recipe: Path | None = option(None, "Write the best mix's recipe (JSON).")
    report: Path | None = option(None, "Write a page with the front drawn.")


def search(
    request: SearchRequest,
    soc: str = option(DEFAULT_SOC, "The chip whose latency counts."),
    runtime: Runtime = "qnn_dlc",
    *,
    jobs: int = option(0, "Processes; 0: one for each processor.", min=0),
    cluster: ClusterArguments,
    files: SearchFiles,
    inputs: InputArguments,
    pictures: PictureArguments,
    as_json: Json = False,
) -> None:
    """Find the mix of two precisions that meets a quality at the lowest latency on a chip."""
    from hexforge.addons.tuning.search import calibration_file
    from hexforge.addons.tuning.search import search as search_precision
    from hexforge.analysis.quality.quantize import quantize, require_other_file
    from hexforge.backend import processors

    model, state = Path(request.model), request.state
    require_writable(files.recipe, files.report, state)
    fixed = inputs.fixed(model)
    calibration = pictures.data(request.data)
    judged = pictures.data(request.scoring.data) if request.scoring.data else None
    pictures.say(calibration, quiet=as_json)
    if files.output is not None:
        require_other_file(files.output, model)
    lost = "nothing was written; with --state FILE a search goes on"
    states = [] if state is None else [Path(state), calibration_file(state)]
    with interruptible(lost, *states), bar("measuring mixes") as progress:
        searched = search_precision(
            replace(
                request, data=calibration, deployment=Deployment(soc, runtime=runtime),
                scoring=replace(request.scoring, data=judged), workers=Workers(jobs or processors(), cluster.address),
                progress=progress, **fixed,
            )
        )  # fmt: skip
    write_mix = functools.partial(quantize, model, calibration, soc=soc, **fixed)
    _write_best(searched, write_mix, files.output, files.recipe)
    if files.report is not None:
        mix = write_mix(searched.recipe(searched.best or searched.mixes.high)).model
        assert mix is not None
        _write_report(searched, model.name, mix, runtime, files.report)
    if as_json:
        print_json(searched.to_json())
    else:
        _print(searched)


def _write_best(
    searched: SearchResult, write_mix: Callable[[Recipe, Path], Any], output: Path | None, recipe: Path | None
) -> None:
    """Write the best mix as a model and as a recipe, as asked; CallError where one is asked for and none is good."""
    if output is None and recipe is None:
        return
    if searched.best is None:
        if searched.target is None or not searched.mixes.front():
            raise CallError(f"{searched.reason}; nothing was written")
        raise CallError(
            f"no mix reaches {searched.target:g}; lower --target or choose a better --high; nothing was written"
        )
    best = searched.recipe(searched.best)
    if recipe is not None:
        write_atomically(recipe, json.dumps(best.to_mapping(), indent=1).encode())
    if output is not None:
        write_mix(best, output)


def _print(searched: SearchResult) -> None:
    from hexforge.addons.tuning.front import front_columns, front_rows

    points, screen = searched.mixes, console()
    high = points.high
    title = f"{searched.model} on {searched.soc}: {len(points.points)} mixes measured, those no other beats"
    screen.print(result_table(title, front_columns(searched, searched.best)[:-1], front_rows(searched)))
    for output, how in searched.mixed_heads.items():
        screen.print(f"{output}: {how}", markup=False, soft_wrap=True)
    print_alarmed(screen, searched)
    better = points.dominating()
    if better:
        p = better[0]
        gain = 100 * (1 - p.latency_ms / high.latency_ms)
        screen.print(
            bold_start(
                f"{gain:.1f} % faster than {searched.high.name} and no worse",
                f": {p.latency_ms:.3f} ms at {searched.with_unit(p.quality)}, {len(p.high)} of {len(searched.groups)} "
                f"groups {searched.high.name}",
            )
        )
    elif points.exhausted:
        screen.print(
            f"no mix of this space is faster than {searched.high.name} and as good: all {len(points.points)} measured"
        )
    else:
        screen.print(
            f"no mix that was measured is faster than {searched.high.name} and as good; a larger --budget sees more"
        )
    if searched.best is None:
        screen.print(searched.reason)
    else:
        names = ", ".join(searched.groups[g].name for g in sorted(searched.best.high)[:6])
        more = " …" if len(searched.best.high) > 6 else ""
        screen.print(
            f"recommended: {searched.best.latency_ms:.3f} ms at {searched.with_unit(searched.best.quality)}, because "
            f"{searched.reason}; {searched.high.name}: {names or 'none'}{more}",
            markup=False,
        )


def print_alarmed(screen: Console, searched: SearchResult) -> None:
    """How many mixes of a search have lost an output, and which."""
    alarmed = [point for point in searched.mixes.points.values() if point.alarms]
    if alarmed:
        count, of = len(alarmed), len(searched.mixes.points)
        screen.print(
            Text(f"{count} of {of} mixes are out, whatever their quality: {alarmed[0].alarms[0]}", "yellow"),
            soft_wrap=True,
        )


def _front_section(searched: SearchResult) -> Any:
    """The front as a section of a report."""
    from hexforge.addons.tuning.front import front_columns, front_note, front_rows, front_series, quality_axis
    from hexforge.report import Plot, Section, Table

    plot = Plot("ms", quality_axis(searched.metric)[0], front_series(searched))
    table = Table.of(front_columns(searched, searched.best), front_rows(searched))
    return Section("Mixed precision", [plot, table], note=front_note(searched))


def _write_report(searched: SearchResult, title: str, model: bytes, runtime: str, path: Path) -> None:
    from hexforge.analysis.estimate import estimate
    from hexforge.report import page

    timed = estimate(model, Deployment(searched.soc, runtime=runtime))
    write_atomically(path, page(timed, lead=[_front_section(searched)], title=title).encode())
