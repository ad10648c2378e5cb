# SPDX-License-Identifier: Apache-2.0
"""Metadata: what a .tflite says of itself beyond its graph (metadata_schema.fbs): names, labels, normalisation."""

from __future__ import annotations

from hexforge.addons.tflite.model_file import TfliteModel
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable

_KEY = "TFLITE_METADATA"
_NAMES = {0: "name", 1: "description", 2: "version", 4: "author", 5: "license"}
_NORMALIZATION = 1
_LABELS = {2: "labels", 3: "labels by value"}


def texts(model: TfliteModel) -> dict[str, str]:
    """Each thing that is said, by what it is about; empty where the file has no metadata."""
    data = model.metadata.get(_KEY)
    if not data:
        return {}
    root = Flatbuffer(data, f"{model.where}, metadata").root()
    found = {name: text for number, name in _NAMES.items() if (text := root.text(number))}
    for subgraph in root.tables(3):
        for number, side in ((2, "input"), (3, "output")):
            for place, tensor in enumerate(subgraph.tables(number)):
                found |= _of_tensor(tensor, f"{side} {tensor.text(0) or place}")
    return found


def _of_tensor(tensor: FlatTable, name: str) -> dict[str, str]:
    found = {f"{name}: is": text} if (text := tensor.text(1)) else {}
    for unit in tensor.tables(4):
        kind, options = unit.union(0)
        if kind == _NORMALIZATION:
            mean, std = ([f"{value:g}" for value in options.numbers(field, "f")] for field in (0, 1))
            found[f"{name}: normalised by"] = f"(x - {'/'.join(mean)}) / {'/'.join(std)}"
    files = [
        f"{file.text(0)} ({_LABELS.get(file.integer(2, 'b'), 'a file')})" for file in tensor.tables(6) if file.text(0)
    ]
    return found | ({f"{name}: files": ", ".join(files)} if files else {})
