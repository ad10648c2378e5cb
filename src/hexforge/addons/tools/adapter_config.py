# SPDX-License-Identifier: Apache-2.0
"""Adapter configs: the file of --adapter_weight_config, which says what adapters are made with a context."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hexforge.errors import CallError, FormatError
from hexforge.options import did_you_mean

MOST_BYTES = 8 << 20
_KEYS = ("name", "graph", "weights", "encodings", "output_path")
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


def read_adapter_config(path: Path, graphs: Sequence[str]) -> AdapterConfig:
    """The use cases of a YAML file; CallError listing every fault at once. Paths in it are from its own folder."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FormatError(f"{path}: is larger than such a file can be ({MOST_BYTES:,} bytes)")
        data = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise CallError(f"--adapter_weight_config: {path}: cannot be read: {error.strerror or error}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise FormatError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    rows = data.get("use_case") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise FormatError(f"{path}: expected `use_case:` and a list of adapters, each with name and weights")
    faults: list[str] = []
    cases = [_case(row, path.parent, graphs, f"{path}: use case {i}", faults) for i, row in enumerate(rows)]
    outputs = [case.output for case in cases]
    faults += [f"{path}: two use cases write {name}" for name in sorted({o for o in outputs if outputs.count(o) > 1})]
    if faults:
        raise CallError("\n".join(faults))
    return AdapterConfig(tuple(cases), (_NO_ENCODINGS,) if any("encodings" in row for row in rows) else ())


def _case(row: Mapping[Any, Any], folder: Path, graphs: Sequence[str], where: str, faults: list[str]) -> UseCase:
    for key in row:
        if key not in _KEYS:
            faults.append(f"{where}: has no key {key!r}{did_you_mean(str(key), _KEYS)}; it has {', '.join(_KEYS)}")
    texts = {key: row.get(key, "") for key in _KEYS}
    wrong = [key for key, value in texts.items() if not isinstance(value, str)]
    faults += [f"{where}: {key} is no text" for key in wrong]
    texts.update(dict.fromkeys(wrong, "wrong"))
    name = texts["name"] or Path(texts["weights"]).stem
    for key in ("name", "weights"):
        if key not in row:
            faults.append(f"{where}: {key} is missing")
    output = Path(texts["output_path"] or f"{name}.bin")
    if output.name != str(output) or not output.name:
        faults.append(f"{where}: {str(output)!r} is no plain file name; it is written into --output_dir")
    graph = texts["graph"] or graphs[0]
    if graph not in graphs:
        faults.append(f"{where}: graph {graph!r} is none of the context's{did_you_mean(graph, graphs)}")
    elif not texts["graph"] and len(graphs) > 1:
        faults.append(f"{where}: say which graph it is for: {', '.join(graphs)}")
    weights = folder / texts["weights"]
    if "weights" in row and not weights.is_file():
        faults.append(f"{where}: {weights}: there is no such file")
    return UseCase(name, graph, weights, output)


def changed_constants(cases: Sequence[UseCase], models: Mapping[str, Path]) -> tuple[str, ...]:
    """Patterns of the constants that use cases change, by the model of each graph."""
    from hexforge.formats.safetensors import read_arrays
    from hexforge.frontends.onnx.context_constants import Constants
    from hexforge.runtime.contexts.lora import merge_weights

    names: dict[str, None] = {}
    for case in cases:
        names.update(dict.fromkeys(merge_weights(Constants(models[case.graph]), read_arrays(case.weights), None, {})))
    return tuple(map(glob.escape, names))
