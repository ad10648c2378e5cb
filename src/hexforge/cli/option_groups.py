# SPDX-License-Identifier: Apache-2.0
"""Option groups: options that several commands share are the fields of a dataclass, which a command takes whole.

Of a table of options (`hexforge.options`) a command has those that the table spells for the command line.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_type_hints

import typer

from hexforge.options import Option, OptionTable

_KINDS: dict[str, type[Any]] = {"flag": bool, "integer": int}


class GivenOptions(dict[str, Any]):
    """The options of a table that the command line gives, by their fields: `Annotated[GivenOptions, GraphConfig]`."""


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each dataclass parameter replaced by one option for each of its fields."""
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


def _maker(hint: Any) -> Callable[..., Any] | None:
    """The function that builds the value of a group parameter; None for any other parameter."""
    if dataclasses.is_dataclass(hint):
        return hint if isinstance(hint, type) else None
    if get_args(hint)[:1] == (GivenOptions,):
        return lambda **given: GivenOptions({name: value for name, value in given.items() if value is not None})
    return None


def _rows(parameter: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """A parameter as it is, or one for each option of its group."""
    if get_args(hint)[:1] == (GivenOptions,):
        table: type[OptionTable] = get_args(hint)[1]
        yield from (_row(option, given=True) for option in table.table() if option.command_line)
    elif isinstance(hint, type) and issubclass(hint, OptionTable):
        yield from (_row(option, given=False) for option in hint.table() if option.command_line)
    elif dataclasses.is_dataclass(hint):
        fields = get_type_hints(hint, include_extras=True)
        for field in dataclasses.fields(hint):
            yield _parameter(field.name, field.default, fields[field.name])
    else:
        yield _parameter(parameter.name, parameter.default, hint)


def _row(option: Option, given: bool) -> inspect.Parameter:
    """An option as typer's; where what is not given must be told from its default, that is None."""
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
