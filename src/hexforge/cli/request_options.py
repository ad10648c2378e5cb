# SPDX-License-Identifier: Apache-2.0
"""The options of a command: it takes whole requests, and each of their fields becomes an option of the command line.

Of a request a command has those fields that `hexforge.request_fields` spells for it; of a table of options
(`hexforge.options`) those that the table spells.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer

from hexforge.options import Option, OptionTable
from hexforge.request_fields import FlagsAsNamed, Spelling

_KINDS: dict[str, type[Any]] = {"flag": bool, "integer": int}


class GivenOptions(dict[str, Any]):
    """The options of a table that the command line gives, by their fields: `Annotated[GivenOptions, GraphConfig]`."""


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a request replaced by one option for each of its spelled fields."""
    hints = get_type_hints(command, include_extras=True)
    rows = {p.name: list(_rows(p, hints[p.name])) for p in inspect.signature(command).parameters.values()}
    makers = {name: maker for name, hint in hints.items() if (maker := _maker(hint)) is not None}

    @functools.wraps(command)
    def command_with_flat_options(**given: Any) -> None:
        for name, maker in makers.items():
            given[name] = maker(**{row.name: given.pop(row.name) for row in rows[name]})
        command(**given)

    every = [row for group in rows.values() for row in group]
    command_with_flat_options.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command_with_flat_options.__annotations__ = {row.name: row.annotation for row in every}
    return command_with_flat_options


def typed(metadata: Mapping[str, Spelling]) -> Any:
    """A field's spelling as typer has it, for a command that takes this value alone: Annotated[str, typed(SOC)]."""
    spelling = metadata["spelling"]
    made = typer.Argument if spelling.is_argument else typer.Option
    return made(*spelling.flags, help=spelling.sentence, **spelling.settings)


def _maker(hint: Any) -> Callable[..., Any] | None:
    """The function that makes a request of what the command line gives; None for a parameter that is none."""
    if get_args(hint)[:1] == (GivenOptions,):
        return lambda **given: GivenOptions({name: value for name, value in given.items() if value is not None})
    if not isinstance(hint, type) or not dataclasses.is_dataclass(hint):
        return None
    return lambda **given: hint(**given) if issubclass(hint, OptionTable) else _made(hint, given)


def _made(request: Any, given: Mapping[str, Any], inside: str = "") -> Any:
    """A request of what the command line gives for its fields, and for those of requests that are inside of it."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(request):
        spelling: Spelling | None = field.metadata.get("spelling")
        if spelling is not None:
            value = given[inside + field.name]
            values[field.name] = value if spelling.read is None else spelling.read(value)
        elif dataclasses.is_dataclass(field.default_factory):
            values[field.name] = _made(field.default_factory, given, f"{field.name}_")
    return request(**values)


def _spelled(request: Any, inside: str = "") -> Iterator[inspect.Parameter]:
    """What the command line has of a request, and of requests that are inside of it, whose names begin with theirs."""
    for field in dataclasses.fields(request):
        if "spelling" in field.metadata:
            row = _of_field(field, field.metadata["spelling"], underlined=issubclass(request, FlagsAsNamed))
            yield row.replace(name=inside + row.name)
        elif dataclasses.is_dataclass(field.default_factory):
            yield from _spelled(field.default_factory, f"{field.name}_")


def _rows(parameter: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """A parameter as it is, or one for each option of its request."""
    if get_args(hint)[:1] == (GivenOptions,):
        table: type[OptionTable] = get_args(hint)[1]
        yield from (_of_table(option, given=True) for option in table.table() if option.command_line)
    elif isinstance(hint, type) and issubclass(hint, OptionTable):
        yield from (_of_table(option, given=False) for option in hint.table() if option.command_line)
    elif dataclasses.is_dataclass(hint):
        yield from _spelled(hint)
    else:
        yield _parameter(parameter.name, parameter.default, hint)


def _of_field(field: dataclasses.Field[Any], spelling: Spelling, underlined: bool) -> inspect.Parameter:
    """A field of a request as typer's parameter."""
    default = field.default if spelling.given is ... else spelling.given
    kind = spelling.kind_of(str(field.type))
    if not spelling.flags and not spelling.is_argument:
        flag = field.name if underlined else field.name.replace("_", "-")
        spelling = dataclasses.replace(spelling, flags=(f"--{flag}",))
    read_as: Any = kind | None if default is None else kind
    annotation = Annotated[read_as, typed({"spelling": spelling})]
    return _parameter(field.name, inspect.Parameter.empty if default is dataclasses.MISSING else default, annotation)


def _of_table(option: Option, given: bool) -> inspect.Parameter:
    """An option of a table as typer's; where what is not given must be told from its default, that is None."""
    kind, low = _KINDS[option.kind], option.low
    if given and option.least is not None:
        low = option.least
    bounds: dict[str, Any] = {} if kind is bool else {"min": low, "max": option.high}
    sentence = option.sentence_without_zero if given else option.sentence
    spelled = typer.Option(option.command_line, help=sentence, **bounds)
    annotation = Annotated[kind | None if given else kind, spelled]  # type: ignore[valid-type]
    return _parameter(option.name, None if given else option.default, annotation)


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
