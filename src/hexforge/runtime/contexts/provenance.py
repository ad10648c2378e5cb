# SPDX-License-Identifier: Apache-2.0
"""Provenance: which models a context was made of, so that one of another model is not taken for it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.formats.context import Info


def metadata(models: Mapping[str, Any]) -> dict[str, str]:
    """What a context says of its models."""
    return {"models": json.dumps(models, sort_keys=True)}


def model_record(source: Any, how: Mapping[str, Any]) -> dict[str, Any]:
    """The record by which a model is recognized: what was fixed of its inputs, digests of its file and weight files."""
    return {"files": _digests(source), **_sizes(how)}


def is_made_from(info: Info, name: str, source: Any, how: Mapping[str, Any]) -> bool:
    """True where a model's graphs in a context were made of this very model, with these sizes."""
    try:
        known = json.loads(info.metadata["models"])[name]
        files = known.pop("files")
        if not files or known != _sizes(how):
            return False
        if isinstance(source, bytes):
            return bool(files == {"": _digest(source)})
        path = Path(source)
        return all(_digest((path.parent / f if f else path).read_bytes()) == digest for f, digest in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _sizes(how: Mapping[str, Any]) -> dict[str, Any]:
    shapes = {name: list(shape) for name, shape in (how.get("shapes") or {}).items()}
    fixed = {"dims": dict(how.get("dims") or {}), "shapes": shapes}
    values = {name: _digest(_bytes_of(value)) for name, value in (how.get("constants") or {}).items()}
    return fixed | ({"constants": values} if values else {})


def _bytes_of(value: Any) -> bytes:
    array = np.asarray(value)
    return f"{array.dtype.kind} {array.shape} ".encode() + array.astype(np.float64).tobytes()


def _digests(source: Any) -> dict[str, str]:
    if isinstance(source, bytes):
        return {"": _digest(source)}
    if not isinstance(source, (str, os.PathLike)):
        return {}
    from hexforge.model.source import open_source

    path = Path(source)
    external = (t.external_data for t in open_source(path).proto.graph.initializer if t.data_location == 1)
    files = {entry.value for entries in external for entry in entries if entry.key == "location"}
    return {"": _digest(path.read_bytes()), **{f: _digest((path.parent / f).read_bytes()) for f in sorted(files)}}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
