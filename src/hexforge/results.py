# SPDX-License-Identifier: Apache-2.0
"""Results: what an action gives, described once; JSON, a screen's tables, a page's and data frames derive from that.

A result is a frozen dataclass that inherits from Result and says in `described` what programs get of it:

    @dataclass(frozen=True, slots=True)
    class LayerTime(Result):
        name: str
        us: float
        whole_us: float

        described = (
            "name",
            Column("µs", "number", 2, "sum", "By how much the inference is longer for it", key="us", rounded=3),
            Column("share", "share", 1, of=lambda layer: layer.us / layer.whole_us, rounded=5),
        )

`LayerTime(...).to_json()` has those keys in that order. The same columns are a table on the screen
(`cli.screen.result_table`), one on a page (`report.Table.of`) and a data frame (`to_dataframe`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any, ClassVar, Literal

from hexforge.amounts import decibels, size
from hexforge.errors import UnsupportedError

Getter = Callable[[Any], Any]
Cell = str | float | int | None
NOTHING = "-"
"""What a cell says that has no figure."""


@dataclass(frozen=True, slots=True)
class Key:
    """One figure of a result as programs read it."""

    name: str
    """Its key in JSON, and what is read of the result unless `of` says otherwise."""
    of: str | Getter = field(default="", kw_only=True)
    """Where it comes from: an attribute, attributes of attributes as in `timeline.batch`, or a function."""
    rounded: int | None = field(default=None, kw_only=True)
    """Decimals of every number in it; all that there are where None."""
    omit_empty: bool = field(default=False, kw_only=True)
    """Whether it is left out where there is nothing to say."""
    inline: bool = field(default=False, kw_only=True)
    """Whether the keys of what it holds stand among the result's own."""

    @property
    def json_key(self) -> str:
        """Its name in JSON."""
        return self.name

    def value(self, result: Any) -> Any:
        """The figure of a result, or of a record of JSON data."""
        if callable(self.of):
            return self.of(result)
        for name in (self.of or self.json_key).split("."):
            if result is None:
                return None
            result = result[name] if isinstance(result, dict) else getattr(result, name)
        return result


@dataclass(frozen=True, slots=True)
class Column(Key):
    """One column of a table, and how its cells read."""

    kind: Literal["text", "number", "bytes", "share", "decibels", "significant"] = "text"
    """A share is a part of one: shown in percent, on a page with a bar. Of a significant number all digits count."""
    digits: int = 1
    """Decimals that people see."""
    total: Literal["", "sum", "max"] = ""
    """What the last line of a page's table says of the rows that are shown."""
    choose: bool = False
    """Whether a page's rows can be filtered by this column's values."""
    about: str = ""
    key: str = field(default="", kw_only=True)
    """Its name in JSON where that is not the heading."""
    text: Getter | None = field(default=None, kw_only=True)
    """What a screen says of a result there, where the kind says too little; plain or styled text."""
    leaves: int = field(default=0, kw_only=True)
    """Whether a narrow screen does without it: 1 leaves first; 0 stays."""

    @property
    def json_key(self) -> str:
        """Its name in JSON."""
        return self.key or self.name

    def cell(self, result: Any) -> Any:
        """The figure of a result as a screen's table has it."""
        return figure_text(self.value(result), self.kind, self.digits) if self.text is None else self.text(result)


class Result:
    """What an action gives; `described` says what programs get of it, all fields by their names where it is empty."""

    __slots__ = ()
    described: ClassVar[Sequence[str | Key]] = ()
    decimals: ClassVar[int | None] = None
    """Of its numbers, where a key says nothing else; all that there are where None."""

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints of it."""
        described = self.described or [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return record(self, described, self.decimals)


def record(result: Any, described: Iterable[str | Key], decimals: int | None = None) -> dict[str, Any]:
    """The figures of a result as JSON data."""
    record: dict[str, Any] = {}
    for key in keys(described):
        value = plain(key.value(result), decimals if key.rounded is None else key.rounded)
        if key.inline:
            record |= value
        elif not key.omit_empty or value not in (None, "", [], {}):
            record[key.json_key] = value
    return record


def schema(result: type[Result]) -> dict[str, Any]:
    """The JSON schema of what `to_json` gives: the keys, and a type where the field of that name is a plain one."""
    written = {f.name: str(f.type) for f in dataclasses.fields(result)}  # type: ignore[arg-type]
    written |= {n: str(get.__annotations__.get("return", "")) for n, get in _getters(result)}
    properties: dict[str, Any] = {}
    for key in keys(result.described or list(written)):
        if key.inline:
            continue
        about = key.about if isinstance(key, Column) else ""
        source = (key.of or key.json_key) if isinstance(key.of, str) else ""
        kind, _, optional = written.get(source, "").partition(" | ")
        properties[key.json_key] = {"description": about} if about else {}
        if kind in _JSON_TYPES:
            name = _JSON_TYPES[kind]
            # a number that is not finite is null in JSON
            properties[key.json_key]["type"] = [name, "null"] if optional or kind == "float" else name
    return {"type": "object", "properties": properties}


def _getters(result: type[Result]) -> Iterator[tuple[str, Any]]:
    """The properties of a result by their names."""
    for each in result.__mro__:
        yield from ((name, made.fget) for name, made in vars(each).items() if isinstance(made, property))


_JSON_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "Path": "string"}


def keys(described: Iterable[str | Key]) -> Iterator[Key]:
    """What a description lists; a text names keys that need no more words, with spaces between them."""
    for each in described:
        if isinstance(each, Key):
            yield each
        else:
            yield from map(Key, each.split())


def rows(path: str, names: str) -> Getter:
    """What gives tuples of a result, by attributes as in `plan.refused`, as records with these names."""
    source = Key(path)
    return lambda result: [dict(zip(names.split(), row, strict=True)) for row in source.value(result)]


def length(path: str) -> Getter:
    """What gives how many a result has of something, by attributes as in `timed.left_on_cpu`."""
    source = Key(path)
    return lambda result: len(source.value(result))


def plain(value: Any, digits: int | None = None) -> Any:
    """A value as JSON has it: no NaN and no infinity, a path as its text, a result as its own record."""
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        return None if not math.isfinite(value) else value if digits is None else round(value, digits)
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name), digits) for f in dataclasses.fields(value)}
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy's
        return plain(value.item(), digits)
    return [plain(item, digits) for item in value]


def select(described: Iterable[str | Key], keys: str = "") -> tuple[Column, ...]:
    """The columns of some keys, separated by spaces, in that order; all columns where none are named."""
    columns = {column.json_key: column for column in described if isinstance(column, Column)}
    return tuple(columns[key] for key in keys.split() or columns)


def figure_text(value: Any, kind: str = "text", digits: int = 1) -> str:
    """A figure as people read it: 1,234.5, 12.3 %, 4.0 MiB."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if kind == "text" or isinstance(value, str):
        return str(value)
    if kind == "share":
        return f"{100 * value:.{digits}f} %"
    if kind == "decibels":
        return decibels(value, digits)
    if kind == "significant":
        return f"{value:.{digits}g}"
    return size(value) if kind == "bytes" else f"{value:,.{digits}f}"


def as_dataframe(records: Iterable[Mapping[str, Any]]) -> Any:
    """Records of JSON data, one row each, as a pandas.DataFrame; an error where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        message = "to_dataframe needs pandas: pip install pandas; to_json() has the same numbers"
        raise UnsupportedError(message) from None
    return pd.DataFrame(list(records))
