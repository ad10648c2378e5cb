# SPDX-License-Identifier: Apache-2.0
"""Option groups: options that several commands share are the fields of a dataclass, which a command takes whole."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints


def taking_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command with every parameter that is a dataclass taken apart: each of its fields is an option."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    rows = [row for p in inspect.signature(command).parameters.values() for row in _rows(p, hints[p.name])]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    flat.__signature__ = inspect.Signature(rows)  # type: ignore[attr-defined]
    flat.__annotations__ = {row.name: row.annotation for row in rows}
    return flat


def _rows(parameter: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """A parameter as it is, or one for each field of its dataclass."""
    if not dataclasses.is_dataclass(hint):
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)
        return
    fields = get_type_hints(hint, include_extras=True)
    for field in dataclasses.fields(hint):
        yield inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=fields[field.name]
        )
