# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare MODEL --dump DIR`: the first op of a dump that departs from what hexforge computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import typer
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.errors import FormatError

if TYPE_CHECKING:
    from hexforge.analysis.departure import DepartureResult
    from hexforge.cli.arguments import InputArguments
    from hexforge.ir import Array


def print_departure(
    path: Path,
    dump: Path,
    files: Mapping[str, str],
    soc: str,
    inputs: InputArguments,
    write: Path | None,
    as_json: bool,
) -> None:
    """Print which ops of a dump depart, the first of them first; exit code 1 where one does."""
    from hexforge.formats.file_kinds import open_model

    with spinner(f"comparing {dump.name}"):
        result = open_model(path).do("compare --dump", dump, _arrays(files), soc, inputs)
    _print(result, dump, write, as_json)


def departure_of_model(
    path: Path, dump: Path, given: Mapping[str, Array], soc: str, inputs: InputArguments
) -> DepartureResult:
    """The first op of an ONNX model that departs on a chip."""
    from hexforge.analysis.departure import first_departure
    from hexforge.runtime.registry import backend

    return first_departure(inputs.read(path), dump, backend(settings={"soc_model": soc or DEFAULT_SOC}), given)


def _print(result: DepartureResult, dump: Path, write: Path | None, as_json: bool) -> None:
    written = None if write is None else result.write(write)
    if as_json:
        print_json(result.to_json() | {"written": None if written is None else str(written)})
    else:
        screen = console()
        screen.print(f"{result.compared} of {result.ops} ops of {result.model} are in {dump}")
        if result.first is None:
            screen.print(Text("none departs from what hexforge computes of the dump's own inputs", "bold green"))
        else:
            first = result.first
            share = 100 * (1 - first.counts.share)
            words = f" is the first to depart: {share:.1f} % beyond {first.counts.tolerance} steps"
            screen.print(Text.assemble((f"{first.node} ({first.op})", "bold red"), words))
            title = "ops that depart, each from the dump's own inputs"
            screen.print(result_table(title, first.figures, result.departures))
        if written is not None:
            screen.print(str(written))
    if result.first is not None:
        raise typer.Exit(1)


def _arrays(files: Mapping[str, str]) -> dict[str, Array]:
    return {name: _array(Path(file)) for name, file in files.items()}


def _array(path: Path) -> Array:
    try:
        loaded: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise FormatError(f"{path}: not a .npy file of numbers: {error}") from None
    return loaded
