# SPDX-License-Identifier: Apache-2.0
"""Dump comparison: the first op whose result in a dump is not what hexforge computes of the dump's own input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer
from rich.text import Text

from hexforge.backend import Backend
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import InputArguments, pairs
from hexforge.cli.screen import console, print_json, result_table, spinner
from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.formats.npy_files import read_npy
from hexforge.frontends.onnx.placing import PlacedUnits
from hexforge.frontends.onnx.separate_units import MADE, separated_model, shown_model, unit_tensors, units_alone
from hexforge.ir import Array
from hexforge.model.reader import Model, read
from hexforge.quant.data.dumps import Dump, aligned, read_dump
from hexforge.quant.steps import StepCounts, tolerance_of
from hexforge.results import Column, Key, Result, select
from hexforge.runtime.opening import open_stages
from hexforge.runtime.prepare import prepare_model

if TYPE_CHECKING:
    from hexforge.cli.commands.compare import DumpArguments
    from hexforge.ir import Array


@dataclass(frozen=True, slots=True)
class Mismatch(Result):
    """An op whose dumped result is not what follows from its dumped inputs."""

    node: str
    op: str
    tensor: str
    file: str
    """The file of the dump, without its ending."""
    counts: StepCounts

    described = (Column("node"), Column("op"), Column("tensor"), "file", Key("counts", inline=True))
    figures = (
        *select(described, "node op tensor"),
        Column("% beyond", "number", of=lambda mismatch: 100 * (1 - mismatch.counts.share)),
        Column("mean steps", "significant", 3, of="counts.mean"),
        Column("largest", "significant", 6, of="counts.largest"),
    )


@dataclass(frozen=True, slots=True, eq=False)
class DumpComparison(Result, ABC):
    """What a dump says of a model, op by op."""

    model: str
    compared: int
    """Ops whose result the dump has."""
    ops: int
    mismatches: tuple[Mismatch, ...]
    """In the model's order; each by its own inputs, so that none is there for another's fault."""

    described = ("model ops compared first", Key("departures", of="mismatches"))

    @property
    def first(self) -> Mismatch | None:
        """The first op that differs, or None."""
        return self.mismatches[0] if self.mismatches else None

    @abstractmethod
    def write(self, folder: Path) -> Path | None:
        """Write the first op that differs as a model of a few nodes, with its tensors in an .npz beside it."""


@dataclass(frozen=True, slots=True, eq=False)
class OnnxDumpComparison(DumpComparison):
    """What a dump says of an ONNX model."""

    placed: PlacedUnits
    dumped: Mapping[str, Array]
    computed: Mapping[str, Array]

    def write(self, folder: Path) -> Path | None:
        """As a DumpComparison does: an ONNX model."""
        if self.first is None:
            return None
        number = next(i for i, unit in enumerate(unit_tensors(self.placed)) if self.first.tensor in unit.writes)
        data = units_alone(self.placed, [number], [self.first.tensor])
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "departure.onnx"
        write_atomically(path, data)
        arrays = {f"input/{value.name}": self.dumped[value.name] for value in read(data).inputs}
        arrays["dumped"] = self.dumped[self.first.tensor]
        arrays["hexforge"] = self.computed[f"{self.first.tensor}{MADE}"]
        np.savez_compressed(folder / "departure.npz", allow_pickle=False, **arrays)
        return path


def compare_with_dump(
    model: Path | Model, dump: Path, backend: Backend, inputs: Mapping[str, Array] | None = None
) -> OnnxDumpComparison:
    """Compare a dump with what hexforge computes, op by op, each from the dump's own inputs where it has them.

    The model's inputs are taken from the dump unless given. What the dump has not is taken from hexforge's own run.
    """
    source = model if isinstance(model, Model) else read(model)
    source.require_static()
    placed, files = prepare_model(source, backend).placed, read_dump(dump)
    feeds = _inputs(source, files, inputs or {})
    plan, outputs = open_stages(shown_model(placed), backend)
    values: dict[str, Array] = {**feeds, **{n: np.asarray(a) for n, a in plan.run(feeds, outputs).items()}}
    encodings = _encodings(placed)
    units = [unit for unit in unit_tensors(placed) if unit.taken]
    names: dict[str, str] = {}
    for unit in units:
        for tensor in unit.writes:
            inner = [tensor, *(n for n in _inner_names(placed, unit.nodes) if len(unit.writes) == 1)]
            for stem, array in files.matching(inner):
                fitting = aligned(array, values[tensor], *encodings.get(tensor, (0.0, 0)))
                if fitting is not None:
                    names[tensor], values[tensor] = stem, fitting
                    break
    if not names:
        raise CallError(f"{dump}: has no tensor of {source.name}; are the names of another model?")
    separated = separated_model(placed)
    alone, wanted = open_stages(separated, backend)
    computed = alone.run({value.name: values[value.name] for value in read(separated).inputs}, wanted)
    mismatches = []
    for unit in units:
        for tensor in unit.writes:
            if tensor in names:
                counts = StepCounts(tolerance_of(values[tensor].dtype).steps)
                counts.add(values[tensor], np.asarray(computed[f"{tensor}{MADE}"]))
                if not counts.agree:
                    mismatches.append(Mismatch(unit.name, unit.op, tensor, names[tensor], counts))
    compared = sum(any(tensor in names for tensor in unit.writes) for unit in units)
    return OnnxDumpComparison(source.name, compared, len(units), tuple(mismatches), placed, values, computed)


def _inputs(source: Model, files: Dump, given: Mapping[str, Array]) -> dict[str, Array]:
    feeds: dict[str, Array] = {}
    for value in source.ir.graph.inputs:
        name, shape = str(value.name), tuple(d for d in value.shape or () if isinstance(d, int))
        dtype = np.dtype(np.float32) if value.dtype is None else value.dtype.numpy()
        if name in given:
            feeds[name] = np.asarray(given[name], dtype).reshape(shape)
            continue
        like = np.zeros(shape, dtype)
        fitting = (aligned(array, like, 0.0, 0) for _, array in files.matching([name]))
        chosen = next((array for array in fitting if array is not None), None)
        if chosen is None:
            raise CallError(
                f"{files.folder}: has no input {name!r} of {source.name}; give it with --input {name}=FILE.npy"
            )
        feeds[name] = chosen
    return feeds


def _inner_names(placed: PlacedUnits, nodes: tuple[str, ...]) -> list[str]:
    """Names that files may have for what a unit writes: those of its nodes and of tensors inside it, the last first."""
    by_name = {node.name: node for node in placed.model.ir.graph}
    inner = [v.name for name in nodes if name in by_name for v in by_name[name].outputs
             if v.name and by_name[name].op_type != "DequantizeLinear"]  # fmt: skip
    return [*reversed(inner), *(n for n in nodes if n in by_name and not by_name[n].op_type.endswith("Linear"))]


def _encodings(placed: PlacedUnits) -> dict[str, tuple[float, int]]:
    """Scale and zero point of each tensor that one QuantizeLinear makes."""
    encodings = {}
    for node in placed.model.ir.graph:
        if node.op_type == "QuantizeLinear":
            scale, zero = _number(node.inputs[1]), _number(node.inputs[2] if len(node.inputs) > 2 else None)
            if scale is not None:
                encodings[str(node.outputs[0].name)] = (scale, int(zero or 0))
    return encodings


def _number(value: Any) -> float | None:
    if value is None or value.const_value is None:
        return None
    numbers = np.asarray(value.const_value.numpy())
    return float(numbers.reshape(-1)[0]) if numbers.size == 1 else None


def compare_model_with_dump(
    path: Path, dump: Path, given: DumpArguments, soc: str, inputs: InputArguments, as_json: bool
) -> None:
    """Print which ops of a dump differ from what an ONNX model computes on a chip."""
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
