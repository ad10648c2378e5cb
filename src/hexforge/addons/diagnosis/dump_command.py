# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare MODEL --dump DIR`: the first op of a dump that is not what hexforge computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import InputArguments, pairs
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.formats.npy_files import read_npy

if TYPE_CHECKING:
    from hexforge.addons.diagnosis.dump_comparison import DumpComparison
    from hexforge.cli.commands.compare import DumpArguments
    from hexforge.ir import Array


def compare_model_with_dump(
    path: Path, dump: Path, given: DumpArguments, soc: str, inputs: InputArguments, as_json: bool
) -> None:
    """Print which ops of a dump differ from what an ONNX model computes on a chip."""
    from hexforge.addons.diagnosis.dump_comparison import compare_with_dump
    from hexforge.runtime.registry import backend

    with spinner(f"comparing {dump.name}"):
        on_chip = backend(settings={"soc_model": soc or DEFAULT_SOC})
        result = compare_with_dump(inputs.read(path), dump, on_chip, given_arrays(given))
    print_dump_comparison(result, dump, given.write, as_json)


def print_dump_comparison(result: DumpComparison, dump: Path, write: Path | None, as_json: bool) -> None:
    """Print which ops of a dump differ, the first of them first; exit code 1 where one does."""
    written = None if write is None else result.write(write)
    if as_json:
        print_json(result.to_json() | {"written": None if written is None else str(written)})
    else:
        screen = console()
        screen.print(f"{result.compared} of {result.ops} ops of {result.model} are in {dump}")
        if result.first is None:
            screen.print(Text("none differs from what hexforge computes of the dump's own inputs", "bold green"))
        else:
            first = result.first
            share = 100 * (1 - first.counts.share)
            words = f" is the first to differ: {share:.1f} % beyond {first.counts.tolerance} steps"
            screen.print(Text.assemble((f"{first.node} ({first.op})", "bold red"), words))
            title = "ops that differ, each from the dump's own inputs"
            screen.print(result_table(title, first.figures, result.mismatches))
        if written is not None:
            screen.print(str(written))
    if result.first is not None:
        raise typer.Exit(1)


def given_arrays(given: DumpArguments) -> Mapping[str, Array]:
    """The inputs that the dump has not, from their files."""
    return {name: read_npy(Path(file)) for name, file in pairs(given.input, "--input").items()}
