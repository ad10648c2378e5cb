# SPDX-License-Identifier: Apache-2.0
"""Options: string key-values at the border, frozen dataclasses inside; `parse` and `pairs` are inverses.

A table of options is a frozen dataclass whose fields are made by `flag`, `choice`, `integer`, `numbers`, `text` and
`texts`. A field is the one place where an option is declared: its key, type, bounds, default and a sentence on what it
does, how other faces spell it (provider option, config file, compile spec, command line), and, where it changes
nothing here, why (`effect`). A field whose default is another table has that table's options, too, but for keys that
the outer one declares itself. Every face and every listing derives from `table()`.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """How a config file of the vendor's tools says an option."""

    key: str
    section: str = "graphs"
    default: Any = None
    """What an absent key counts as; None where the tool decides, as `decides` says."""
    decides: str = ""
    is_number: bool = False
    """Whether it is written as any number; of a flag 1 or more is on."""
    offline: bool = False
    """Whether only the tool that prepares offline reads it."""
    per_graph: bool = False
    """Whether graphs of one context may have it each for itself."""
    multiple_of: int | None = None
    excludes: tuple[str, str] = ("", "")
    """Another key, with its section, that cannot be set beside it, and what is said then."""

    def is_on(self, value: Any) -> bool:
        """Whether a value of the key asks for something."""
        return value is not None and value is not False and (not self.is_number or value >= 1)


@dataclass(frozen=True, slots=True)
class Option:
    """How one option is written and what it does."""

    name: str
    """The field that holds it."""
    key: str
    kind: str
    """flag, choice, integer, numbers (comma list of integers), text or texts (comma list)."""
    default: Any
    doc: str
    effect: str | None = None
    """None where the option is used, else why it changes nothing here."""
    choices: tuple[str, ...] = ()
    more_choices: Callable[[], Iterable[str]] | None = None
    """Words that can be chosen, too, and become known only while the program runs."""
    low: int | None = None
    high: int | None = None
    least: int | None = None
    """The least value where the option is left out instead of being 0: in a config file, for instance."""
    zero: str = ""
    """What 0 means, the end of `doc`, where leaving the option out means the same."""
    unset: int | None = None
    """The number that stands for the default, where that is another."""
    pattern: str = ""
    form: str = ""
    """What a text must look like, in words, where `pattern` checks it."""
    backend: str = ""
    """The one backend it configures, empty where that is all the same."""
    needs: str = ""
    """Another option of the table without which this one does nothing."""
    provider: bool = False
    """Whether the execution provider has it as an option, by the same key."""
    provider_pattern: str = ""
    """What a text must look like there, where that is less than `pattern` takes."""
    config_file: ConfigKey | None = None
    compile_spec: str = ""
    """The field of ExecuTorch's compile spec; `not x` where that says the opposite."""
    command_line: str = ""
    """The option of commands that prepare graphs, such as --vtcm-mb."""
    since: int = 0
    """The first architecture that has it."""
    ability: str = ""
    """What a chip must be able to do for it."""
    on_chip: Callable[[Any, Any], str] | None = None
    """What a value means on a chip, in words, where the sentence does not tell."""
    idle: str = ""
    """Why a graph takes as long without it, where it does."""
    whole_model: bool = False
    """Whether it concerns a whole model, so that sessions of its parts must not see it."""

    def spec(self) -> dict[str, Any]:
        """What a field of another table needs to declare the same option."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def spellings(self) -> dict[str, str]:
        """How each face but the key's own spells it."""
        file = "" if self.config_file is None else f"{self.config_file.section}.{self.config_file.key}"
        words = {"config file": file, "compile spec": self.compile_spec, "command line": self.command_line}
        return {face: word for face, word in words.items() if word}

    @property
    def sentence(self) -> str:
        """What it does, as a sentence."""
        return f"{self.doc[0].upper()}{self.doc[1:]}."

    @property
    def sentence_without_zero(self) -> str:
        """The sentence for a face where the option is left out instead of being 0."""
        return f"{self.sentence[:-1].removesuffix(self.zero)}." if self.least else self.sentence

    @property
    def expects(self) -> str:
        """The accepted values, in words."""
        if self.kind == "flag":
            return "0 or 1"
        if choices := self.known_choices:
            listed = choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
            return f"a comma list of {listed.removeprefix('one of ')}" if self.kind == "numbers" else listed
        if self.kind in ("integer", "numbers"):
            bounds = "" if self.low is None else f" of at least {self.low}"
            bounds = bounds if self.high is None else f" from {self.low} to {self.high}"
            return f"an integer{bounds}" + (", or a comma list of them" if self.kind == "numbers" else "")
        return self.form or "a text"

    @property
    def known_choices(self) -> tuple[str, ...]:
        """Every word that can be chosen now."""
        return (*self.choices, *(self.more_choices() if self.more_choices is not None else ()))

    def read(self, text: str) -> Any:
        """The value written as `text`; ValueError saying what is expected."""
        if self.kind == "flag":
            if text not in ("0", "1"):
                raise ValueError(f"expected {self.expects}")
            return text == "1"
        if self.kind == "choice":
            word = {c.lower(): c for c in self.choices}.get(text.lower())
            if word is None:  # others may have to be looked for
                word = {c.lower(): c for c in self.known_choices}.get(text.lower())
            if word is None:
                raise ValueError(f"expected {self.expects}{did_you_mean(text, self.known_choices)}")
            return word
        if self.kind in ("integer", "numbers"):
            parts = [text] if self.kind == "integer" else text.split(",")
            numbers = tuple(self._number(part.strip()) for part in parts)
            if self.kind == "numbers":
                return numbers
            return self.default if numbers[0] == self.unset else numbers[0]
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
        return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


FileOptions = tuple[tuple[ConfigKey, Option], ...]
"""Options by how a config file says them."""


def _make(kind: str, default: Any, doc: str, effect: str | None, key: str, more: Mapping[str, Any]) -> Any:
    spec = {"kind": kind, "doc": doc + more.get("zero", ""), "effect": effect, "key": key, **more}
    return dataclasses.field(default=default, metadata={"option": spec})


def flag(default: bool, doc: str, effect: str | None = None, key: str = "", **more: Any) -> Any:
    """A field for an option that is 0 or 1; `more` are fields of Option, as in all of these."""
    return _make("flag", default, doc, effect, key, more)


def choice(
    choices: str, doc: str, effect: str | None = None, key: str = "", default: str | None = None, **more: Any
) -> Any:
    """A field for one of some words, the first of them the default."""
    words = tuple(choices.split())
    return _make("choice", words[0] if default is None else default, doc, effect, key, {"choices": words, **more})


def integer(default: int | None, doc: str, effect: str | None = None, key: str = "", low: int = 0, **more: Any) -> Any:
    """A field for an integer."""
    return _make("integer", default, doc, effect, key, {"low": low, **more})


def numbers(default: int, doc: str, effect: str | None = None, key: str = "", choices: str = "", **more: Any) -> Any:
    """A field for an integer or a comma list of them."""
    return _make("numbers", (default,), doc, effect, key, {"low": 0, "choices": tuple(choices.split()), **more})


def text(doc: str, effect: str | None = None, key: str = "", default: str = "", **more: Any) -> Any:
    """A field for free text, such as a path."""
    return _make("text", default, doc, effect, key, more)


def texts(default: tuple[str, ...], pattern: str, form: str, doc: str, key: str = "", **more: Any) -> Any:
    """A field for a comma list of texts of one form."""
    return _make("texts", default, doc, None, key, {"pattern": pattern, "form": form, **more})


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, or nothing."""
    near = {k.lower(): k for k in known}
    close = difflib.get_close_matches(str(word).lower(), near, n=1, cutoff=0.6)
    return f"; did you mean {near[close[0]]!r}?" if close else ""


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
        return tuple(option for _, option in _paths(cls))

    @classmethod
    def in_file(cls, section: str) -> FileOptions:
        """The options that a section of the config files has."""
        rows = ((option.config_file, option) for option in cls.table())
        return tuple((key, option) for key, option in rows if key is not None and key.section == section)

    @classmethod
    def parse(cls, pairs: Mapping[str, str]) -> Self:
        """The options written as key-values; CallError listing every fault at once."""
        known = {option.key: (path, option) for path, option in _paths(cls)}
        values: dict[str, Any] = {}
        faults: list[str] = []
        for key, given in pairs.items():
            if key not in known:
                hint = cls._hint(key) or did_you_mean(key, (*known, *cls._neighbours()))
                known_by = "; `hexforge options` lists them" if known else "; the backend has none"
                faults.append(f"unknown {cls.title()} {key!r}{hint or known_by}")
                continue
            path, option = known[key]
            try:
                values[path] = option.read(str(given).strip())
            except ValueError as error:
                faults.append(f"{cls.title()} {key!r} is {str(given)!r}: {error}")
        parsed = cls(**_arguments(cls, values))
        faults.extend(parsed._conflicts())
        if faults:
            raise CallError("\n".join(faults))
        return parsed

    def pairs(self) -> dict[str, str]:
        """The key-values of every option that is not at its default; `parse` reads them back."""
        values = ((option, attrgetter(path)(self)) for path, option in _paths(type(self)))
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


def _paths(table: type[OptionTable]) -> tuple[tuple[str, Option], ...]:
    """Every option and where its value is (`x`, or `table.x` in a table inside); worked out once for each."""
    if table not in _KNOWN:
        paths = [(path, option) for field in dataclasses.fields(table) for path, option in _paths_of(field)]
        own = {option.key for path, option in paths if "." not in path}
        _KNOWN[table] = tuple((path, option) for path, option in paths if "." not in path or option.key not in own)
    return _KNOWN[table]


def _paths_of(field: dataclasses.Field[Any]) -> Iterator[tuple[str, Option]]:
    if "option" in field.metadata:
        spec = field.metadata["option"]
        known = {"name": field.name, "key": spec["key"] or field.name, "default": field.default}
        yield field.name, Option(**{**spec, **known})
    else:
        inside: Any = field.default_factory
        yield from ((f"{field.name}.{path}", option) for path, option in _paths(inside))


def _arguments(table: type[OptionTable], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as what the class is called with: tables inside are made first."""
    made = {path: value for path, value in values.items() if "." not in path}
    for field in dataclasses.fields(table):
        start = f"{field.name}."
        if inside := {path.removeprefix(start): value for path, value in values.items() if path.startswith(start)}:
            factory: Any = field.default_factory
            made[field.name] = factory(**inside)
    return made
