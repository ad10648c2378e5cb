# SPDX-License-Identifier: Apache-2.0
"""Options: string key-values at the border, frozen dataclasses inside; `parse` and `pairs` are inverses.

A table of options is a frozen dataclass whose fields are made by `flag`, `choice`, `integer`, `numbers`, `text` and
`texts`: each says how the option is written, what it does, and, where it changes nothing here, why (`effect`).
Listings and documentation derive from `table()`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class Option:
    """How one option is written and what it does."""

    key: str
    kind: str
    """flag, choice, integer, numbers (comma list of integers), text or texts (comma list)."""
    default: Any
    doc: str
    effect: str | None = None
    """None where the option is used, else why it changes nothing here."""
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None
    pattern: str = ""
    form: str = ""
    """What a text must look like, in words, where `pattern` checks it."""
    backend: str = ""
    """The one backend it configures, empty where that is all the same."""

    @property
    def expects(self) -> str:
        """The accepted values, in words."""
        if self.kind == "flag":
            return "0 or 1"
        if self.choices:
            listed = self.choices[0] if len(self.choices) == 1 else f"one of {', '.join(self.choices)}"
            return f"a comma list of {listed.removeprefix('one of ')}" if self.kind == "numbers" else listed
        if self.kind in ("integer", "numbers"):
            bounds = "" if self.low is None else f" of at least {self.low}"
            bounds = bounds if self.high is None else f" from {self.low} to {self.high}"
            return f"an integer{bounds}" + (", or a comma list of them" if self.kind == "numbers" else "")
        return self.form or "a text"

    def read(self, text: str) -> Any:
        """The value written as `text`; ValueError saying what is expected."""
        if self.kind == "flag":
            if text not in ("0", "1"):
                raise ValueError(f"expected {self.expects}")
            return text == "1"
        if self.kind == "choice":
            found = {c.lower(): c for c in self.choices}.get(text.lower())
            if found is None:
                raise ValueError(f"expected {self.expects}{did_you_mean(text, self.choices)}")
            return found
        if self.kind in ("integer", "numbers"):
            parts = [text] if self.kind == "integer" else text.split(",")
            numbers = tuple(self._number(part.strip()) for part in parts)
            return numbers[0] if self.kind == "integer" else numbers
        items = (text,) if self.kind == "text" else tuple(part.strip() for part in text.split(",")) if text else ()
        if self.pattern and not all(re.fullmatch(self.pattern, item) for item in items):
            raise ValueError(f"expected {self.expects}")
        return text if self.kind == "text" else items or self.default

    def _number(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text) or (self.choices and str(int(text)) not in self.choices):
            raise ValueError(f"expected {self.expects}")
        number = int(text)
        if (self.low is not None and number < self.low) or (self.high is not None and number > self.high):
            raise ValueError(f"expected {self.expects}")
        return number

    def write(self, value: Any) -> str:
        """The text of a value."""
        if self.kind == "flag":
            return str(int(value))
        return ",".join(map(str, value)) if self.kind in ("numbers", "texts") else str(value)


def _make(kind: str, default: Any, doc: str, effect: str | None, key: str = "", **more: Any) -> Any:
    spec = {"kind": kind, "doc": doc, "effect": effect, "key": key, **more}
    return dataclasses.field(default=default, metadata={"option": spec})


def flag(default: bool, doc: str, effect: str | None = None, key: str = "", backend: str = "") -> Any:
    """A field for an option that is 0 or 1."""
    return _make("flag", default, doc, effect, key, backend=backend)


def choice(
    choices: str, doc: str, effect: str | None = None, key: str = "", default: str | None = None, backend: str = ""
) -> Any:
    """A field for one of some words, the first of them the default."""
    words = tuple(choices.split())
    return _make("choice", words[0] if default is None else default, doc, effect, key, choices=words, backend=backend)


def integer(
    default: int | None,
    doc: str,
    effect: str | None = None,
    key: str = "",
    low: int = 0,
    high: int | None = None,
    backend: str = "",
) -> Any:
    """A field for an integer."""
    return _make("integer", default, doc, effect, key, low=low, high=high, backend=backend)


def numbers(
    default: int, doc: str, effect: str | None = None, key: str = "", choices: str = "", low: int = 0, backend: str = ""
) -> Any:
    """A field for an integer or a comma list of them."""
    words = tuple(choices.split())
    return _make("numbers", (default,), doc, effect, key, choices=words, low=low, backend=backend)


def text(doc: str, effect: str | None = None, key: str = "", default: str = "", backend: str = "") -> Any:
    """A field for free text, such as a path."""
    return _make("text", default, doc, effect, key, backend=backend)


def texts(
    default: tuple[str, ...],
    pattern: str,
    form: str,
    doc: str,
    effect: str | None = None,
    key: str = "",
    backend: str = "",
) -> Any:
    """A field for a comma list of texts of one form."""
    return _make("texts", default, doc, effect, key, pattern=pattern, form=form, backend=backend)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or nothing."""
    near = {k.lower(): k for k in known}
    found = difflib.get_close_matches(str(word).lower(), near, n=1, cutoff=0.6)
    return f"; did you mean {near[found[0]]!r}?" if found else ""


@dataclass(frozen=True, slots=True)
class OptionTable:
    """What every table of options can do."""

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option"

    @classmethod
    def table(cls) -> tuple[Option, ...]:
        """Every option, in the order of the fields."""
        return tuple(option for _, option in _options_of(cls))

    @classmethod
    def parse(cls, pairs: Mapping[str, str]) -> Self:
        """The options written as key-values; CallError listing every fault at once."""
        known = {option.key: (name, option) for name, option in _options_of(cls)}
        values: dict[str, Any] = {}
        faults: list[str] = []
        for key, given in pairs.items():
            if key not in known:
                hint = cls._hint(key) or did_you_mean(key, (*known, *cls._neighbours()))
                known_by = "; `hexforge options` lists them" if known else "; the backend has none"
                faults.append(f"unknown {cls.title()} {key!r}{hint or known_by}")
                continue
            name, option = known[key]
            try:
                values[name] = option.read(str(given).strip())
            except ValueError as error:
                faults.append(f"{cls.title()} {key!r} is {str(given)!r}: {error}")
        parsed = cls(**values)
        faults.extend(parsed._conflicts())
        if faults:
            raise CallError("\n".join(faults))
        return parsed

    def pairs(self) -> dict[str, str]:
        """The key-values of every option that is not at its default; `parse` reads them back."""
        values = ((option, getattr(self, name)) for name, option in _options_of(type(self)))
        return {option.key: option.write(value) for option, value in values if value != option.default}

    def notes(self, backend: str = "") -> tuple[str, ...]:
        """One line for each option that was set and changes nothing here: which, and why; `backend` is what runs."""
        effects = {o.key: self._effect(o) or _of_another(o, backend) for o in self.table()}
        return tuple(
            f"{self.title()} {key}={value} has no effect: {effects[key]}"
            for key, value in self.pairs().items()
            if effects[key] is not None
        )

    def _effect(self, option: Option) -> str | None:
        """Why an option changes nothing beside these others, or None."""
        return option.effect

    @classmethod
    def _hint(cls, key: str) -> str:
        """What to do with a key that belongs somewhere else."""
        return ""

    @classmethod
    def _neighbours(cls) -> Iterable[str]:
        """Keys beside the table's own that may have been meant."""
        return ()

    def _conflicts(self) -> list[str]:
        return []


def _of_another(option: Option, backend: str) -> str | None:
    """Why an option of one backend changes nothing where another runs."""
    if not backend or option.backend in ("", backend):
        return None
    return f"it configures the {option.backend} backend; the {backend} backend has nothing it could change"


_KNOWN: dict[type[Any], tuple[tuple[str, Option], ...]] = {}


def _options_of(table: type[OptionTable]) -> tuple[tuple[str, Option], ...]:
    """Name of the field and option, in the order of the fields; worked out once for each table."""
    if table not in _KNOWN:
        _KNOWN[table] = tuple((field.name, _option(field)) for field in dataclasses.fields(table))
    return _KNOWN[table]


def _option(field: dataclasses.Field[Any]) -> Option:
    spec = dict(field.metadata["option"])
    return Option(**{**spec, "key": spec["key"] or field.name, "default": field.default})
