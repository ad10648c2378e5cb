# SPDX-License-Identifier: Apache-2.0
"""Adapter configs: the file of --adapter_weight_config, which says what adapters are made with a context."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hexforge.errors import CallError
from hexforge.formats.json_text import read_yaml
from hexforge.formats.validated import Within, validated
from hexforge.options import did_you_mean

_NO_ENCODINGS = "encodings changes nothing: an adapter's weights are stored with the scales of the base"


@dataclass(frozen=True, slots=True)
class UseCase:
    """An adapter that is to be made: its name, the graph it is for, and its weights."""

    name: str
    graph: str
    weights: Path
    """A .safetensors or .npz file of low-rank factors, or of constants in the place of the model's."""
    output: Path
    """The file to write, from the output folder."""


@dataclass(frozen=True, slots=True)
class AdapterConfig:
    """What the file says, and what of it changes nothing."""

    cases: tuple[UseCase, ...]
    notices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _UseCaseRow:
    name: str
    weights: str
    graph: str = ""
    encodings: str = ""
    output_path: str = ""


@dataclass(frozen=True, slots=True)
class _ConfigFile:
    use_case: Annotated[list[_UseCaseRow], Within(1)]


def read_adapter_config(path: Path, graphs: Sequence[str]) -> AdapterConfig:
    """The use cases of a YAML file; CallError listing every fault at once. Paths in it are from its own folder."""
    rows = validated(_ConfigFile, read_yaml(path), str(path)).use_case
    faults: list[str] = []
    cases = [_case(row, path.parent, graphs, f"{path}: use_case[{i}]", faults) for i, row in enumerate(rows)]
    outputs = [case.output for case in cases]
    faults += [f"{path}: two use cases write {name}" for name in sorted({o for o in outputs if outputs.count(o) > 1})]
    if faults:
        raise CallError("\n".join(faults))
    return AdapterConfig(tuple(cases), (_NO_ENCODINGS,) if any(row.encodings for row in rows) else ())


def _case(row: _UseCaseRow, folder: Path, graphs: Sequence[str], where: str, faults: list[str]) -> UseCase:
    output = Path(row.output_path or f"{row.name or Path(row.weights).stem}.bin")
    if output.name != str(output) or not output.name:
        faults.append(f"{where}: {str(output)!r} is no plain file name; it is written into --output_dir")
    graph = row.graph or graphs[0]
    if graph not in graphs:
        faults.append(f"{where}: graph {graph!r} is none of the context's{did_you_mean(graph, graphs)}")
    elif not row.graph and len(graphs) > 1:
        faults.append(f"{where}: say which graph it is for: {', '.join(graphs)}")
    weights = folder / row.weights
    if not weights.is_file():
        faults.append(f"{where}: {weights}: there is no such file")
    return UseCase(row.name or weights.stem, graph, weights, output)


def changed_constants(cases: Sequence[UseCase], models: Mapping[str, Path]) -> tuple[str, ...]:
    """Patterns of the constants that use cases change, by the model of each graph."""
    from hexforge.addons.adapters.making import merge_weights
    from hexforge.addons.adapters.safetensors import read_arrays
    from hexforge.frontends.onnx.context_constants import Constants

    names: dict[str, None] = {}
    for case in cases:
        names.update(dict.fromkeys(merge_weights(Constants(models[case.graph]), read_arrays(case.weights), None, {})))
    return tuple(map(glob.escape, names))
