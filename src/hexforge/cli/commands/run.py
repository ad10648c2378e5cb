# SPDX-License-Identifier: Apache-2.0
"""`hexforge run`: one inference from .npy files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from hexforge.cli.arguments import BackendArguments, InputArguments, Json, Model, pairs
from hexforge.cli.runnable import feeds_for, open_target
from hexforge.cli.screen import bold_start, console, print_json, spinner, table
from hexforge.formats.files import file_names
from hexforge.ir import Array
from hexforge.request_fields import option
from hexforge.runtime.nonfinite import has_nonfinite

Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", "-i", metavar="NAME=FILE", help="Data of an input: .npy, .npz, .raw, a picture, .wav."),
]
GraphName = Annotated[str, typer.Option("--graph", help="Which graph, of a context that has several.")]


def run(
    model: Model,
    input: Inputs = None,
    output: Path | None = option(None, "Folder for the outputs, one .npy each.", "--output", "-o", file_okay=False),
    top: int = option(0, "The largest so many numbers of each output's rows.", min=0),
    classes: Path | None = option(None, "Names for --top, one a line.", exists=True, dir_okay=False),
    graph: GraphName = "",
    *,
    target: BackendArguments,
    inputs: InputArguments,
    as_json: Json = False,
) -> None:
    """Run a model or a context once and print what came out; inputs not given are random, from a fixed seed."""
    opened = open_target(model, target, inputs.request(model), graph)
    feeds = feeds_for(opened.inputs, pairs(input, "--input"))
    with spinner(f"running {model.name}"):
        start = time.perf_counter()
        outputs = opened.run(feeds)
        run_ms = 1e3 * (time.perf_counter() - start)
    names = None if classes is None else classes.read_text("utf-8").splitlines()
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        for name, stem in file_names(outputs).items():
            np.save(output / f"{stem}.npy", outputs[name])
    if as_json:
        print_json(
            {
                "model": model.name,
                "where": opened.about,
                "load_ms": round(opened.load_ms, 3),
                "run_ms": round(run_ms, 3),
                **({} if opened.device_us is None else {"shared_device_ms": round(opened.device_us() / 1e3, 6)}),
                "outputs": [_facts(name, array, top, names) for name, array in outputs.items()],
            }
        )
        return
    screen = console()
    loading = f" to run, {opened.load_ms:.0f} to load, on this computer: {opened.about}\n"
    screen.print(bold_start(f"{run_ms:.1f} ms", loading))
    if opened.device_us is not None:
        screen.print(f"{opened.device_us() / 1e3:.4f} ms on the shared device")
    rows = []
    for facts in (_facts(name, array, top, names) for name, array in outputs.items()):
        numbers = (f"{facts[key]:g}" if facts[key] is not None else "-" for key in ("min", "mean", "max"))
        rows.append((facts["name"], facts["type"], str(facts["shape"]), *numbers))
    screen.print(table("", ("output", "type", "shape", "min", "mean", "max"), rows))
    for name, array in outputs.items() if top else ():
        _print_top(screen, f"{name}: the largest {top}", _top(array, top, names), with_names=bool(names))
    finite = not has_nonfinite(outputs.values())
    if not finite or opened.overflowed():
        first = opened.first_nonfinite(feeds)
        where = f"first {first}" if first is not None else "where they come from is not known"
        what = "numbers past 65504" if finite else "not finite"
        screen.print(Text(f"{what}: {where}; `hexforge check` names what is unsafe", "bold red"))


def _print_top(screen: Console, title: str, ranked: Sequence[tuple[int, int, str, float]], with_names: bool) -> None:
    """Print the largest numbers of an output, with a column for rows or names where there are several."""
    several = len({row for row, *_ in ranked}) > 1
    shown = [k for k in range(4) if (k != 0 or several) and (k != 2 or with_names)]
    columns = ("row", "index", "name", "value")
    lines = [(str(row), str(i), label, f"{value:g}") for row, i, label, value in ranked]
    screen.print(table(title, [columns[k] for k in shown], [[line[k] for k in shown] for line in lines]))


def _facts(name: str, array: Array, top: int, names: Sequence[str] | None) -> dict[str, Any]:
    """The figures that are printed of an output."""
    array = np.asarray(array)  # a .pte may give a plain number
    real = np.asarray(array, np.float64) if array.size else np.zeros(1)
    figures = {key: float(value) for key, value in (("min", real.min()), ("mean", real.mean()), ("max", real.max()))}
    plain = {key: value if np.isfinite(value) else None for key, value in figures.items()}
    facts = {"name": name, "type": str(array.dtype), "shape": list(array.shape), **plain}
    lost = int(np.size(real) - np.isfinite(real).sum())
    facts |= {"not_finite": lost} if lost else {}
    if top:
        facts["top"] = [
            {"row": row, "index": i, **({"name": label} if names else {}), "value": value}
            for row, i, label, value in _top(array, top, names)
        ]
    return facts


def _top(array: Array, count: int, names: Sequence[str] | None) -> list[tuple[int, int, str, float]]:
    """(row, index, name, value) of the largest numbers along the last axis, row by row."""
    real = np.asarray(array, np.float64)
    if not real.size:
        return []
    flat = real.reshape(-1, real.shape[-1] if real.ndim else 1)
    ranked = np.argsort(-flat, axis=1, kind="stable")[:, :count]
    return [
        (row, int(i), names[i] if names and i < len(names) else "", float(flat[row, i]))
        for row, order in enumerate(ranked)
        for i in order
    ]
