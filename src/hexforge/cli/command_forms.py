# SPDX-License-Identifier: Apache-2.0
"""The form of a command: what can be given to it, read off its declaration, for those who ask with data and no flags.

Agents (`hexforge mcp`) and a page's jobs (`hexforge studio`) call commands by their forms. A form has a JSON schema,
and makes of an object that fits it the arguments that somebody would have typed.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, get_args

import typer
from typer.models import ArgumentInfo, OptionInfo

from hexforge.addon import Command, import_target
from hexforge.cli.command_table import commands
from hexforge.cli.request_options import with_request_options
from hexforge.errors import CallError
from hexforge.formats.file_kinds import file_and_member
from hexforge.options import did_you_mean

PRINTS_JSON = "as_json"
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", Path: "string"}
_MOST_TEXT = 4096
"""Characters of a text that is given."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One thing that a command can be given."""

    name: str
    flag: str
    """As it is typed; empty for an argument, which stands in its place."""
    off: str
    """What is typed for false where the flag alone stands for true; empty where that is nothing."""
    kind: type
    is_list: bool
    is_required: bool
    default: Any
    sentence: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its value."""
        one: dict[str, Any] = {"type": _TYPES[self.kind]}
        if self.kind in (str, Path):
            one["maxLength"] = _MOST_TEXT
        if self.choices:
            one["enum"] = list(self.choices)
        if self.low is not None:
            one["minimum"] = self.low
        if self.high is not None:
            one["maximum"] = self.high
        whole = {"type": "array", "items": one} if self.is_list else one
        if self.default not in (None, MISSING, "") and not isinstance(self.default, Path):
            whole["default"] = self.default
        return whole | {"description": self.sentence}

    def typed(self, value: Any) -> list[str]:
        """The arguments that give it this value."""
        if self.kind is bool:
            word = self.flag if value else self.off
            return [word] if word else []
        texts = [str(each) for each in (value if self.is_list else [value])]
        return [f"{self.flag}={text}" for text in texts] if self.flag else texts

    def checked(self, value: Any) -> Any:
        """A value of its type and within its bounds; CallError where it is none."""
        if self.is_list:
            if not isinstance(value, list):
                raise CallError(f"{self.name}: a list of {_TYPES[self.kind]} is wanted, not {value!r:.60}")
            return [self._checked(each) for each in value]
        return self._checked(value)

    def _checked(self, value: Any) -> Any:
        kinds: dict[type, tuple[type, ...]] = {int: (int,), float: (int, float), bool: (bool,)}
        if not isinstance(value, kinds.get(self.kind, (str,))) or (isinstance(value, bool) and self.kind is not bool):
            raise CallError(f"{self.name}: a {_TYPES[self.kind]} is wanted, not {value!r:.60}")
        if isinstance(value, str) and (len(value) > _MOST_TEXT or "\0" in value or not value.isprintable()):
            raise CallError(f"{self.name}: a text of at most {_MOST_TEXT} printable characters is wanted")
        if isinstance(value, int | float) and not self._is_within(value):
            raise CallError(f"{self.name}: {value} is not within {self.low} and {self.high}")
        if self.choices and value not in self.choices:
            raise CallError(f"{self.name}: {value!r:.60} is none of {', '.join(self.choices)}")
        return value

    def _is_within(self, value: float) -> bool:
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, slots=True)
class CommandForm:
    """A command, and everything that it can be given."""

    name: str
    """Its words, as in `llm estimate`."""
    help: str
    fields: tuple[FormField, ...]
    prints_json: bool
    examples: tuple[str, ...] = ()
    gives: str = ""
    """The result that it prints as JSON, as "module:Class"; empty where no class describes it."""

    def schema(self) -> dict[str, Any]:
        """The JSON schema of what is given."""
        return {
            "type": "object",
            "properties": {each.name: each.schema() for each in self.fields},
            "required": [each.name for each in self.fields if each.is_required],
            "additionalProperties": False,
        }

    def arguments(self, given: Mapping[str, Any], folders: Folders) -> list[str]:
        """What would be typed for it: the command's words, flags, then what stands without a flag."""
        known = {each.name: each for each in self.fields}
        for name in given:
            if name not in known:
                near = did_you_mean(name, known) or f"; it takes {', '.join(known)}"
                raise CallError(f"{self.name} takes no {name!r:.60}{near}")
        if missing := [each.name for each in self.fields if each.is_required and given.get(each.name) is None]:
            raise CallError(f"{self.name} needs {' and '.join(missing)}")
        flags: list[str] = ["--json"] if self.prints_json else []
        bare: list[str] = []
        for each in self.fields:
            if (value := given.get(each.name)) is None:
                continue
            value = each.checked(value)
            if each.kind is Path:
                value = [str(folders.path(v)) for v in value] if each.is_list else str(folders.path(value))
            (flags if each.flag or each.kind is bool else bare).extend(each.typed(value))
        return [*self.name.split(), *flags, "--", *bare]


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders below which files may be read and written; a relative path is relative to the first."""

    roots: tuple[Path, ...]

    @classmethod
    def of(cls, paths: tuple[Path, ...] | list[Path]) -> Folders:
        """These folders, with every link followed; CallError where one is none."""
        for path in paths:
            if not path.is_dir():
                raise CallError(f"{path}: is no folder; give folders that hold the models")
        return cls(tuple(path.resolve() for path in paths))

    def path(self, text: str) -> Path:
        """A path below one of the folders, links followed; CallError for any other."""
        given = self.roots[0] / text
        file, member = file_and_member(given)
        whole = file.resolve()
        if not any(whole.is_relative_to(root) for root in self.roots):
            roots = ", ".join(map(str, self.roots))
            raise CallError(f"{text!r:.200}: is outside of {roots}; files are read and written there alone")
        return whole.with_name(f"{whole.name}#{member}") if member else whole


def command_form(name: str) -> CommandForm:
    """The form of a command by its words; KeyError for one that is not there."""
    first, _, second = name.partition(" ")
    row = commands()[first]
    target = import_target(row.target)
    if isinstance(target, typer.Typer):
        functions = {_typed_name(c): c.callback for c in target.registered_commands}
        return _form(name, functions[second], row)
    return _form(name, with_request_options(target), row)


def _typed_name(command: Any) -> str:
    """What a command of an app is typed as."""
    return str(command.name or command.callback.__name__.replace("_", "-"))


def _form(name: str, function: Any, row: Command) -> CommandForm:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    help = row.help if name == row.name else " ".join((function.__doc__ or "").split("\n\n")[0].split())
    return CommandForm(
        name,
        help,
        tuple(_field(parameter) for parameter in parameters if parameter.name != PRINTS_JSON),
        any(parameter.name == PRINTS_JSON for parameter in parameters),
        tuple(example for example in row.examples if example.startswith(f"hexforge {name}")),
        row.gives,
    )


def _field(parameter: inspect.Parameter) -> FormField:
    """A parameter of a command as typer declares it: Annotated[type, Option or Argument]."""
    written, *about = get_args(parameter.annotation)
    info: OptionInfo | ArgumentInfo = next(a for a in about if isinstance(a, OptionInfo | ArgumentInfo))
    kinds = [kind for kind in get_args(written) if kind is not type(None)] if _is_optional(written) else [written]
    inner = get_args(kinds[0])
    kind = inner[0] if inner else kinds[0]
    flags = [flag for flag in info.param_decls or () if flag.startswith("--")]
    on, _, off = (flags[0] if flags else f"--{parameter.name.replace('_', '-')}").partition("/")
    is_argument = isinstance(info, ArgumentInfo)
    default = parameter.default
    if not flags and kind is bool and default is True:
        off = f"--no-{parameter.name.replace('_', '-')}"
    is_required = default in (inspect.Parameter.empty, ...)
    choices = tuple(str(each.value) for each in kind) if issubclass(kind, Enum) else ()
    return FormField(
        parameter.name,
        "" if is_argument else on,
        off,
        str if choices else kind,
        bool(inner),
        is_required,
        MISSING if is_required else default,
        info.help or "",
        info.min,
        info.max,
        choices,
    )


def _is_optional(written: Any) -> bool:
    return type(None) in get_args(written)
