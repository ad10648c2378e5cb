# SPDX-License-Identifier: Apache-2.0
"""Fields of requests: a request is a frozen dataclass, and what an action is asked for is declared in it alone.

A field made by `option`, `required` or `argument` knows how the command line says it: its flags, a sentence, bounds.
A function decorated with `takes_fields_of` has the fields as its parameters. Commands have them as options
(`hexforge.cli.request_options`), beside parameters of their own, which are declared in the same way.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

Fields = ParamSpec("Fields")
Request = TypeVar("Request", contravariant=True)
Result = TypeVar("Result", covariant=True)

_KINDS: Mapping[str, Any] = {
    "bool": bool, "int": int, "float": float, "str": str, "Path": Path, "list[str]": list[str],
    "list[Path]": list[Path],
}  # fmt: skip
"""Types of fields that the command line reads as they are, by how they are written."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the command line says a field of a request."""

    sentence: str
    flags: tuple[str, ...] = ()
    """The flag is the field's name where none is given."""
    is_argument: bool = False
    kind: Any = None
    """What a text of the command line is read as; None: the field's own type."""
    given: Any = ...
    """The value where the command line leaves it out; `...`: the default of the field."""
    read: Callable[[Any], Any] | None = None
    """What makes the field's value of the command line's."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What else the command line's library is told: min, max, metavar, exists, dir_okay, rich_help_panel …"""

    def value(self, given: Any) -> Any:
        """The field's value for what the command line gives."""
        return given if self.read is None else self.read(given)

    def kind_of(self, written: str) -> Any:
        """What it is read as in a field whose type is written so."""
        return _KINDS[written.removesuffix(" | None")] if self.kind is None else self.kind


class TakesFields(Protocol[Fields, Request, Result]):
    """A function of a request, or of its fields."""

    @overload
    def __call__(self, request: Request, /) -> Result: ...
    @overload
    def __call__(self, *given: Fields.args, **fields: Fields.kwargs) -> Result: ...


class FlagsAsNamed:
    """A request whose flags are spelled as its fields are: --input_list, not --input-list."""

    __slots__ = ()


def spelled(
    sentence: str, *flags: str, is_argument: bool = False, kind: Any = None, given: Any = ...,
    read: Callable[[Any], Any] | None = None, **settings: Any,
) -> dict[str, Spelling]:  # fmt: skip
    """The metadata of a field that the command line says, too; the parameters are the fields of Spelling."""
    return {"spelling": Spelling(sentence, flags, is_argument, kind, given, read, settings)}


def option(default: Any, sentence: str, *flags: str, **more: Any) -> Any:
    """A field with a default that the command line says, too; `more` is what `spelled` takes."""
    return field(default=default, metadata=spelled(sentence, *flags, **more))


def required(sentence: str, *flags: str, **more: Any) -> Any:
    """A field without a default, which the command line must say; `more` is what `spelled` takes."""
    return field(metadata=spelled(sentence, *flags, **more))


def argument(sentence: str, *, default: Any = MISSING, **more: Any) -> Any:
    """A field that the command line says without a flag, by its place; `more` is what `spelled` takes."""
    return field(default=default, metadata=spelled(sentence, is_argument=True, **more))


def none_if_empty(value: Any) -> Any:
    """None for an empty text or for 0, which stand for nothing on the command line."""
    return value or None


def takes_fields_of(
    request: Callable[Fields, Request],
) -> Callable[[Callable[[Request], Result]], TakesFields[Fields, Request, Result]]:
    """Make a function of a request one that takes the request's fields as parameters, or the request itself."""

    def decorate(function: Callable[[Request], Result]) -> TakesFields[Fields, Request, Result]:
        @functools.wraps(function)
        def taking_fields(*given: Any, **fields: Any) -> Result:
            if len(given) == 1 and not fields and type(given[0]) is request:
                return function(given[0])
            return function(request(*given, **fields))

        returned = inspect.signature(function).return_annotation
        signature = inspect.signature(request).replace(return_annotation=returned)
        taking_fields.__signature__ = signature  # type: ignore[attr-defined]
        return cast(TakesFields[Fields, Request, Result], taking_fields)

    return decorate
