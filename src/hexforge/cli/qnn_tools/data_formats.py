# SPDX-License-Identifier: Apache-2.0
"""Data formats: the file of --data_format_config, which says of a KV cache's tensors how their bytes lie."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from hexforge.errors import CallError
from hexforge.formats.json_text import read_json
from hexforge.options import did_you_mean

FORMATS = ("QNN_TENSOR_DATA_FORMAT_FLAT_BUFFER", "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT")


def read_data_formats(path: Path, known: Collection[str]) -> list[str]:
    """The tensors that are to have another format than flat; CallError for what is none, or is not in the graphs."""
    data = read_json(path)
    rows = data.get("graphs") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("tensors"), list) for row in rows
    ):
        raise CallError(f"{path}: expected graphs, each with graph_name and tensors")
    found: list[str] = []
    for row in rows:
        for tensor in row["tensors"]:
            name, kind = (
                tensor.get(key) if isinstance(tensor, dict) else None for key in ("tensor_name", "dataFormat")
            )
            if not isinstance(name, str) or kind not in FORMATS:
                listed = " or ".join(FORMATS)
                raise CallError(f"{path}: tensor {name!r}: dataFormat is {kind!r}; expected {listed}")
            if name not in known:
                raise CallError(f"{path}: the graphs have no input or output {name!r}{did_you_mean(name, known)}")
            if kind != FORMATS[0]:
                found.append(name)
    return found
