# SPDX-License-Identifier: Apache-2.0
"""Labels: what is right for each sample, out of a file or out of the names of the folders the samples lie in."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from hexforge.errors import CallError, FormatError

FOLDERS = "folders"
"""Asks for the names of the folders that the samples lie in."""
SUFFIXES = (".csv", ".json", ".txt", ".npy")


def read_labels(source: str | Path | Sequence[Any], names: Sequence[str], count: int) -> list[Any]:
    """The label of each sample, in their order.

    `names` are the samples' files where each has one. A file of labels has one label for each sample in their
    order, or names of files with labels: two columns in .csv and .txt, an object in .json.
    """
    if isinstance(source, str | Path):
        labels, where = _file(Path(source)), str(source)
    else:
        labels, where = list(source), "labels"
    if isinstance(labels, dict):
        return _by_name(labels, names, where)
    if len(labels) != count:
        raise CallError(f"{where}: {len(labels)} labels for {count} samples; give one for each sample, in their order")
    return labels


def class_folders(path: Path) -> list[Path]:
    """The folders in a folder, each of which is named for the class of the samples in it."""
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith(".")) if path.is_dir() else []
    if not folders:
        raise CallError(f"{path}: has no folders named for classes; make some, or give a file of labels")
    return folders


def class_numbers(labels: Sequence[Any], classes: Sequence[str] | None = None) -> tuple[list[Any], int]:
    """Labels as numbers of classes, and how many classes there must be; 0 where that is not known.

    Texts are looked up in `classes`; without it they are numbers, or stand in their sorted list.
    """
    texts = [str(label) for label in labels]
    if not any(isinstance(label, str) for label in labels):
        return list(labels), 0
    if classes is None and all(text.isdecimal() for text in texts):
        return [int(text) for text in texts], 0
    known = sorted(set(texts)) if classes is None else list(classes)
    numbers = {name: i for i, name in enumerate(known)}
    missing = sorted(set(texts) - set(numbers))
    if missing:
        raise CallError(f"label {missing[0]!r} is not among the {len(known)} classes")
    return [numbers[text] for text in texts], len(known)


def read_classes(path: Path) -> list[str]:
    """Names of classes, one a line, or a list in .json."""
    names = _json(path) if path.suffix.lower() == ".json" else path.read_text("utf-8").splitlines()
    if not isinstance(names, list) or not names:
        raise FormatError(f"{path}: not a list of class names")
    return [str(name).strip() for name in names if str(name).strip()]


def class_names(given: Sequence[str] | Path | None) -> Sequence[str] | None:
    """Names of classes, or those that a file has."""
    return read_classes(given) if isinstance(given, Path) else given


def _by_name(by_name: Mapping[str, Any], names: Sequence[str], where: str) -> list[Any]:
    """Labels found under the samples' names: whole, without suffix, or only the last part."""
    if not names:
        raise CallError(f"{where}: names files, and the samples come out of none; give a list of labels instead")
    labels, missing = [], []
    for name in names:
        path = PurePath(name)
        keys = (name, str(path.with_suffix("")), path.name, path.stem)
        key = next((k for k in keys if k in by_name), None)
        labels.append(None if key is None else by_name[key])
        if key is None:
            missing.append(name)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CallError(f"{where}: has no label for {missing[0]}{more}")
    return labels


def _file(path: Path) -> list[Any] | dict[str, Any]:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _npy(path)
    if suffix == ".json":
        labels = _json(path)
        if not isinstance(labels, list | dict):
            raise FormatError(f"{path}: not a list of labels nor an object of file names with labels")
        return labels
    if suffix in (".csv", ".txt"):
        return _lines(path, suffix)
    raise CallError(f"{path}: labels are read from {', '.join(SUFFIXES)}, or from folder names with {FOLDERS!r}")


def _npy(path: Path) -> list[Any]:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        raise FormatError(f"{path}: not a .npy file of numbers or texts, or a damaged one") from None
    if not isinstance(array, np.ndarray) or array.ndim == 0:
        raise FormatError(f"{path}: holds no list of labels")
    return array.tolist() if array.ndim == 1 else list(array)


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


def _lines(path: Path, suffix: str) -> list[Any] | dict[str, Any]:
    try:
        text = path.read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise FormatError(f"{path}: not a text file") from None
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [[c.strip() for c in row] for row in csv.reader(lines)] if suffix == ".csv" else _columns(lines)
    if suffix == ".csv" and rows and rows[0][-1].lower() in ("label", "labels", "class", "target"):
        rows = rows[1:]
    widths = {len(row) for row in rows}
    if len(widths) > 1 or widths - {1, 2}:
        raise FormatError(f"{path}: lines have {sorted(widths)} columns; a label, or a file's name and its label")
    if widths == {2}:
        return {name: _number(label) for name, label in rows}
    return [_number(row[0]) for row in rows]


def _columns(lines: Sequence[str]) -> list[list[str]]:
    """Lines of a .txt file: a tab or, before a last number, a space parts the file's name from the label."""
    pairs = [line.rsplit("\t", 1) if "\t" in line else line.rsplit(None, 1) for line in lines]
    both = all(
        len(pair) == 2 and ("\t" in line or _is_number(pair[1])) for line, pair in zip(lines, pairs, strict=True)
    )
    return [[part.strip() for part in pair] for pair in pairs] if both else [[line.strip()] for line in lines]


def _is_number(text: str) -> bool:
    return not isinstance(_number(text), str)


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
