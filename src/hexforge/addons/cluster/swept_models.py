# SPDX-License-Identifier: Apache-2.0
"""The models of a sweep: files, patterns of names, folders, lists and manifests."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hexforge.errors import CallError, FormatError
from hexforge.formats.json_text import read_yaml
from hexforge.formats.validated import Positive, validated

_LISTS = (".txt",)
_MANIFESTS = (".json", ".yaml", ".yml")
_MODELS = (".onnx", ".bin")
_MOST_BYTES = 16 << 20
"""A list or manifest is no larger."""


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """One model of a sweep."""

    path: Path
    name: str
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A model of a manifest, its path relative to it."""

    model: str
    name: str = ""
    dims: dict[str, Positive] = field(default_factory=dict)
    shapes: dict[str, list[Positive]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Manifest:
    models: list[_Entry]


def models_of(sources: Iterable[str | Path], dims: Mapping[str, int] | None = None) -> list[SweepEntry]:
    """The models that files, patterns, folders, lists (.txt) and manifests (.json, .yaml) name, each once, in order.

    A manifest is a list of models, or has one as `models`: each is a path, or `model` with `name`, `dims` and `shapes`.
    Paths in lists and manifests are relative to them. `dims` are sizes for every model that has such a dimension.
    """
    known: dict[Path, SweepEntry] = {}
    for source in sources:
        for model in _models(str(source), dict(dims or {})):
            known.setdefault(model.path.resolve(), model)
    if not known:
        raise CallError("there is no model to sweep over; name files, a folder, a pattern, a list or a manifest")
    return _named_apart(list(known.values()))


def _models(source: str, dims: dict[str, int]) -> list[SweepEntry]:
    path = Path(source)
    if path.is_dir():
        return [_model(file, dims) for file in sorted(path.rglob("*")) if file.suffix in _MODELS and file.is_file()]
    if not path.is_file():
        named = glob.glob(source, recursive=True)  # noqa: PTH207 - the pattern may begin anywhere
        matched = sorted(one for name in named if (one := Path(name)).is_file() or one.is_dir())
        if not matched:
            raise CallError(f"{source}: there is no such file, folder or pattern")
        return [model for one in matched for model in _models(str(one), dims)]
    if path.suffix in _LISTS:
        lines = (line.strip() for line in _text(path).splitlines())
        return [m for line in lines if line and line[0] != "#" for m in _models(str(path.parent / line), dims)]
    if path.suffix in _MANIFESTS:
        return [_swept(entry, path, f"{path}: models[{i}]", dims) for i, entry in enumerate(_entries(path))]
    return [_model(path, dims)]


def _model(path: Path, dims: dict[str, int]) -> SweepEntry:
    return SweepEntry(path, path.stem, dims)


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a list of models is smaller")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is no text at byte {error.start}") from None


def _entries(path: Path) -> list[_Entry]:
    content = read_yaml(path, _MOST_BYTES)
    rows = content.get("models") if isinstance(content, dict) else content
    if not isinstance(rows, list):
        raise FormatError(f"{path}: is no list of models, and has none called `models`")
    entries = [{"model": row} if isinstance(row, str) else row for row in rows]
    return validated(_Manifest, {"models": entries}, str(path), FormatError).models


def _swept(entry: _Entry, manifest: Path, where: str, dims: dict[str, int]) -> SweepEntry:
    path = manifest.parent / entry.model
    if not path.is_file():
        raise CallError(f"{where}: there is no file {str(path)!r}")
    return SweepEntry(path, entry.name or path.stem, {**dims, **entry.dims}, entry.shapes)


def _named_apart(models: list[SweepEntry]) -> list[SweepEntry]:
    """Models of one name get their folder's before it, and where that is not enough a number."""
    taken: set[str] = set()
    named = []
    for model in models:
        alike = sum(other.name == model.name for other in models) > 1
        wanted = f"{model.path.parent.name}/{model.name}" if alike else model.name
        name, number = wanted, 2
        while name in taken:
            name, number = f"{wanted}#{number}", number + 1
        taken.add(name)
        named.append(SweepEntry(model.path, name, model.dims, model.shapes))
    return named
