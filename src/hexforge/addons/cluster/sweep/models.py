# SPDX-License-Identifier: Apache-2.0
"""The models of a sweep: files, patterns of names, folders, lists and manifests."""

from __future__ import annotations

import glob
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hexforge.errors import CallError, FormatError

_LISTS = (".txt",)
_MANIFESTS = (".json", ".yaml", ".yml")
_MODELS = (".onnx", ".bin")
_FIELDS = ("model", "name", "dims", "shapes")
_MOST_BYTES = 16 << 20
"""A list or manifest is no larger."""


@dataclass(frozen=True, slots=True)
class SweptModel:
    """One model of a sweep."""

    path: Path
    name: str
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)


def models_of(sources: Iterable[str | Path], dims: Mapping[str, int] | None = None) -> list[SweptModel]:
    """The models that files, patterns, folders, lists (.txt) and manifests (.json, .yaml) name, each once, in order.

    A manifest is a list of models, or has one as `models`: each is a path, or `model` with `name`, `dims` and `shapes`.
    Paths in lists and manifests are relative to them. `dims` are sizes for every model that has such a dimension.
    """
    known: dict[Path, SweptModel] = {}
    for source in sources:
        for model in _models(str(source), dict(dims or {})):
            known.setdefault(model.path.resolve(), model)
    if not known:
        raise CallError("there is no model to sweep over; name files, a folder, a pattern, a list or a manifest")
    return _named_apart(list(known.values()))


def _models(source: str, dims: dict[str, int]) -> list[SweptModel]:
    path = Path(source)
    if path.is_dir():
        return [_model(file, dims) for file in sorted(path.rglob("*")) if file.suffix in _MODELS and file.is_file()]
    if not path.is_file():
        matched = sorted(Path(name) for name in glob.glob(source, recursive=True))  # noqa: PTH207 - the pattern may begin anywhere
        if not matched:
            raise CallError(f"{source}: there is no such file, folder or pattern")
        return [model for one in matched for model in _models(str(one), dims)]
    if path.suffix in _LISTS:
        lines = (line.strip() for line in _text(path).splitlines())
        return [m for line in lines if line and line[0] != "#" for m in _models(str(path.parent / line), dims)]
    if path.suffix in _MANIFESTS:
        return [_entry(entry, path, f"{path}: model {i}", dims) for i, entry in enumerate(_entries(path))]
    return [_model(path, dims)]


def _model(path: Path, dims: dict[str, int]) -> SweptModel:
    return SweptModel(path, path.stem, dims)


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_BYTES:
        raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; a list of models is smaller")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: is no text at byte {error.start}") from None


def _entries(path: Path) -> list[Any]:
    text = _text(path)
    try:
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise FormatError(f"{path}: {str(error).splitlines()[0]}") from None
    entries = content.get("models") if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise FormatError(f"{path}: is no list of models, and has none called `models`")
    return entries


def _entry(entry: Any, manifest: Path, where: str, dims: dict[str, int]) -> SweptModel:
    if isinstance(entry, str):
        entry = {"model": entry}
    if not isinstance(entry, dict) or not isinstance(entry.get("model"), str):
        raise FormatError(f"{where}: is neither a path nor has one called `model`")
    if unknown := sorted(set(map(str, entry)) - set(_FIELDS)):
        raise FormatError(f"{where}: has {', '.join(unknown)}; a model has {', '.join(_FIELDS)}")
    path, name = manifest.parent / entry["model"], entry.get("name", "")
    if not path.is_file():
        raise CallError(f"{where}: there is no file {str(path)!r}")
    own, shapes = entry.get("dims", {}), entry.get("shapes", {})
    if not isinstance(name, str):
        raise FormatError(f"{where}: name {name!r} is no text")
    if not isinstance(own, dict) or not all(isinstance(k, str) and _is_size(v) for k, v in own.items()):
        raise FormatError(f"{where}: dims {own!r} are names with sizes, such as {{height: 320}}")
    if not isinstance(shapes, dict) or not all(
        isinstance(k, str) and isinstance(v, list) and all(map(_is_size, v)) for k, v in shapes.items()
    ):
        raise FormatError(f"{where}: shapes {shapes!r} are inputs with sizes, such as {{x: [1, 3, 320, 320]}}")
    return SweptModel(path, name or path.stem, {**dims, **own}, shapes)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _named_apart(models: list[SweptModel]) -> list[SweptModel]:
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
        named.append(SweptModel(model.path, name, model.dims, model.shapes))
    return named
