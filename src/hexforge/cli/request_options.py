# SPDX-License-Identifier: Apache-2.0
"""The options of a command: fields of the requests that it takes whole, and parameters that are declared as fields.

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


@dataclasses.dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a command: what the command line has for it, and what makes its value of what is given."""

    rows: tuple[inspect.Parameter, ...]
    value: Callable[[Mapping[str, Any]], Any]


class CommandGroup(typer.Typer):
    """A typer app whose commands take requests."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command, and leave it as it is."""
        register = super().command(name, **settings)

        def registered(function: Any) -> Any:
            register(with_request_options(function))
            return function

        return registered


def with_request_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a request replaced by one option for each of its spelled fields."""
    hints = get_type_hints(command, include_extras=True)
    parameters = {p.name: _parameter(p, hints[p.name]) for p in inspect.signature(command).parameters.values()}

    @functools.wraps(command)
    def command_with_flat_options(**given: Any) -> None:
        command(**{name: parameter.value(given) for name, parameter in parameters.items()})

    every = [row for parameter in parameters.values() for row in parameter.rows]
    command_with_flat_options.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command_with_flat_options.__annotations__ = {row.name: row.annotation for row in every}
    return command_with_flat_options


def typed(metadata: Mapping[str, Spelling]) -> Any:
    """A field's spelling as typer has it, for a command that takes this value alone: Annotated[str, typed(SOC)]."""
    spelling = metadata["spelling"]
    made = typer.Argument if spelling.is_argument else typer.Option
    return made(*spelling.flags, help=spelling.sentence, **spelling.settings)


def _parameter(parameter: inspect.Parameter, hint: Any) -> _Parameter:
    """A parameter of a command, by what it is: given options of a table, a request, a field, or typer's own."""
    if get_args(hint)[:1] == (GivenOptions,):
        return _given_options(get_args(hint)[1])
    if isinstance(hint, type) and issubclass(hint, OptionTable):
        rows = tuple(_of_table(option, given=False) for option in hint.table() if option.command_line)
        return _Parameter(rows, lambda given: hint(**{row.name: given[row.name] for row in rows}))
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _Parameter(tuple(_spelled(hint)), lambda given: _made(hint, given))
    if not isinstance(parameter.default, dataclasses.Field):
        return _Parameter((_row(parameter.name, parameter.default, hint),), lambda given: given[parameter.name])
    spelling: Spelling = parameter.default.metadata["spelling"]
    row = _of_field(parameter.name, hint, parameter.default.default, spelling)
    return _Parameter((row,), lambda given: spelling.value(given[parameter.name]))


def _given_options(table: type[OptionTable]) -> _Parameter:
    """The options of a table; those that are left out are not among the given ones."""
    rows = tuple(_of_table(option, given=True) for option in table.table() if option.command_line)
    return _Parameter(
        rows, lambda given: GivenOptions({row.name: given[row.name] for row in rows if given[row.name] is not None})
    )


def _made(request: Any, given: Mapping[str, Any], inside: str = "") -> Any:
    """A request of what the command line gives for its fields, and for those of requests that are inside of it."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(request):
        spelling: Spelling | None = field.metadata.get("spelling")
        if spelling is not None:
            values[field.name] = spelling.value(given[inside + field.name])
        elif dataclasses.is_dataclass(field.default_factory):
            values[field.name] = _made(field.default_factory, given, f"{field.name}_")
    return request(**values)


def _spelled(request: Any, inside: str = "") -> Iterator[inspect.Parameter]:
    """What the command line has of a request, and of requests that are inside of it, whose names begin with theirs."""
    for field in dataclasses.fields(request):
        if "spelling" in field.metadata:
            spelling: Spelling = field.metadata["spelling"]
            default = field.default if spelling.given is ... else spelling.given
            kind = spelling.kind_of(str(field.type))
            mark = "_" if issubclass(request, FlagsAsNamed) else "-"
            row = _of_field(field.name, kind | None if default is None else kind, field.default, spelling, mark)
            yield row.replace(name=inside + field.name)
        elif dataclasses.is_dataclass(field.default_factory):
            yield from _spelled(field.default_factory, f"{field.name}_")


def _of_field(name: str, kind: Any, default: Any, spelling: Spelling, mark: str = "-") -> inspect.Parameter:
    """A field as typer's parameter; its flag is its name with this mark between the words, unless it has others."""
    if not spelling.flags and not spelling.is_argument:
        spelling = dataclasses.replace(spelling, flags=(f"--{name.replace('_', mark)}",))
    chosen = default if spelling.given is ... else spelling.given
    annotation = Annotated[kind, typed({"spelling": spelling})]
    return _row(name, inspect.Parameter.empty if chosen is dataclasses.MISSING else chosen, annotation)


def _of_table(option: Option, given: bool) -> inspect.Parameter:
    """An option of a table as typer's; where what is not given must be told from its default, that is None."""
    kind, low = _KINDS[option.kind], option.low
    if given and option.least is not None:
        low = option.least
    bounds: dict[str, Any] = {} if kind is bool else {"min": low, "max": option.high}
    sentence = option.sentence_without_zero if given else option.sentence
    spelled = typer.Option(option.command_line, help=sentence, **bounds)
    annotation = Annotated[kind | None if given else kind, spelled]  # type: ignore[valid-type]
    return _row(option.name, None if given else option.default, annotation)


def _row(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
