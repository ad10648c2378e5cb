# SPDX-License-Identifier: Apache-2.0
"""JSON and YAML as people write config files: comments are taken, the marks of word processors are not."""

from __future__ import annotations

import functools
import json
import math
import re
from pathlib import Path
from typing import Any

from hexforge.errors import CallError, FormatError

MOST_BYTES = 8 << 20
MOST_ENTRIES = 10_000_000
"""Of a YAML file, whose aliases can stand for many."""
_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TYPOGRAPHIC = {
    "\u2013": "-",
    "\u2014": "--",
    "\u2212": "-",
    "\u2011": "-",
    "\u201c": '"',
    "\u201d": '"',
    "\u201e": '"',
    "\u2018": "'",
    "\u2019": "'",
}
"""Marks that word processors and web pages put in the place of those on a keyboard."""


def typographic_mark(text: str) -> str | None:
    """Words on the first typographic dash or quotation mark in a text, or None."""
    for mark, plain in _TYPOGRAPHIC.items():
        if mark in text:
            return f"{mark!r} (U+{ord(mark):04X}) is a typographic mark, copied from a page; type {plain} instead"
    return None


def read_json(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """What a JSON file says, comments aside; FormatError with line and column."""
    return parse_json(read_utf8(path, most_bytes), str(path))


def read_yaml(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """What a YAML file says, or one that is called .json; FormatError with line and column."""
    import yaml

    if path.suffix.lower() == ".json":
        return read_json(path, most_bytes)
    text = read_utf8(path, most_bytes)
    try:
        data = yaml.load(text, _yaml_loader())
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, *_OF_TAGS) as error:
        raise FormatError(f"{path}: is no YAML: {' '.join(str(error).split())}") from None
    if _entries(data, {}) > MOST_ENTRIES:
        raise FormatError(f"{path}: its aliases make more than {MOST_ENTRIES:,} entries; write out what is meant")
    return data


_OF_TAGS = (LookupError, AttributeError, TypeError)
"""What the loader raises for a scalar whose tag it does not fit: `!!bool perhaps`, `!!timestamp now`."""


@functools.cache
def _yaml_loader() -> Any:
    """YAML's safe loader, for which 1e-9 is a number as in JSON; in its YAML 1.1 it is a text unless it has a point."""
    import yaml

    loader: Any = type("Loader", (yaml.SafeLoader,), {})
    loader.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+[eE][-+]?\d+$"), list("-+0123456789"))
    return loader


def read_utf8(path: Path, most_bytes: int = MOST_BYTES) -> str:
    """The text of a file; CallError or FormatError where it is none, or larger than such a file is."""
    try:
        if path.exists() and not path.is_file():
            raise CallError(f"{path}: is no file that can be read whole; name a file")
        if path.stat().st_size > most_bytes:
            raise FormatError(f"{path}: has {path.stat().st_size:,} bytes; such a file has at most {most_bytes:,}")
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise CallError(f"{path}: there is no such file; check the path") from None
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: byte {error.start} is no UTF-8; write the file as text in UTF-8") from None


def _entries(data: Any, known: dict[int, float]) -> float:
    """How many entries data have where each alias is written out; infinitely many where one is in itself."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    if id(data) not in known:
        known[id(data)] = math.inf
        known[id(data)] = 1 + sum(_entries(item, known) for item in inner)
    return known[id(data)]


def parse_json(text: str, where: str) -> Any:
    """What a JSON text says, comments aside; a key that is given twice is an error."""
    plain = _TOKENS.sub(lambda token: token[0] if token[0][0] == '"' else _blank(token[0]), text)
    try:
        return json.loads(plain, object_pairs_hook=_once, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise FormatError(f"{where}: line {error.lineno}, column {error.colno}: {_fault(plain, error)}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: {error if isinstance(error, ValueError) else 'nested too deep'}") from None


def _fault(text: str, error: json.JSONDecodeError) -> str:
    """What is wrong at a place of a text that is no JSON."""
    line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
    if (mark := typographic_mark(line)) is not None:
        return mark
    if error.msg.startswith("Expecting ',' delimiter"):
        return "a comma is missing before this"
    if text[error.pos : error.pos + 1] in ("}", "]"):
        return "a comma stands before a closing bracket; leave it out"
    if text[error.pos : error.pos + 3] == "...":
        return "'...' stands for what is left out in an example; fill it in, or remove it"
    return f"not JSON: {error.msg}"


def _blank(comment: str) -> str:
    """Spaces and line ends in place of a comment, so that the places of all else stay."""
    return re.sub(r"[^\n]", " ", comment)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} is given twice in one object; leave one out")
        members[key] = value
    return members


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")
