# SPDX-License-Identifier: Apache-2.0
"""`hexforge compare REFERENCE COMPILED`: how far the outputs of what is compiled already are from others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexforge.cli.arguments import provider_options
from hexforge.cli.models.decisions import print_decisions
from hexforge.cli.runnable import Runnable, feeds_for, open_runnable
from hexforge.cli.screen import bar, console, print_json, table
from hexforge.errors import CallError
from hexforge.formats.file_kinds import kind_of
from hexforge.results import select


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
