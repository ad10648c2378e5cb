# SPDX-License-Identifier: Apache-2.0
"""Data formats: the file of --data_format_config, which says of a KV cache's tensors how their bytes lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hexforge.errors import CallError
from hexforge.formats.hmx_layout import FLAT, HMX
from hexforge.formats.json_text import read_json


def read_data_formats(path: Path) -> dict[str, list[str]]:
    """The tensors that are to lie in the HMX layout, by their graph, "" where none is named; CallError otherwise."""
    data = read_json(path)
    rows = data.get("graphs") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("tensors"), list) for row in rows
    ):
        raise CallError(f"{path}: expected graphs, each with graph_name and tensors")
    by_graph: dict[str, list[str]] = {}
    for row in rows:
        given = row.get("graph_name", "")
        names: list[Any] = [given] if isinstance(given, str) else given if isinstance(given, list) else [None]
        if not all(isinstance(name, str) for name in names):
            raise CallError(f"{path}: graph_name is {given!r}; expected a name, or a list of them")
        native = [name for name in (_native(tensor, path) for tensor in row["tensors"]) if name]
        for name in (names or [""]) if native else ():
            by_graph.setdefault(name, []).extend(native)
    return by_graph


def _native(tensor: Any, path: Path) -> str:
    """The name of a tensor that is to lie in the HMX layout, or nothing."""
    name, kind = (tensor.get(key) if isinstance(tensor, dict) else None for key in ("tensor_name", "dataFormat"))
    if not isinstance(name, str) or kind not in (FLAT, HMX):
        raise CallError(f"{path}: tensor {name!r}: dataFormat is {kind!r}; expected {FLAT} or {HMX}")
    return name if kind == HMX else ""
