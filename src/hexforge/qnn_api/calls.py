# SPDX-License-Identifier: Apache-2.0
"""Calls: QNN's calls and what hexforge's device adds to them, each a row: what it asks for, answers, and ends with.

The one table is calls.csv. The methods of `hexforge.device.Qnn` are its rows, with the fields as parameters; the
messages of a shared device (`hexforge device serve`) are made of it, and the page about the device. In the column of
fields `name?` may be left out, and `name:kind` is a field of another kind than its name says.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from hexforge.qnn_api.tables import rows_of


@dataclass(frozen=True, slots=True)
class CallField:
    """Something that a call is given."""

    name: str
    kind: str
    """What it is; a kind is the same thing in every call."""
    is_optional: bool


@dataclass(frozen=True, slots=True)
class QnnCall:
    """A call."""

    name: str
    """As QNN's headers spell it; one without Qnn or Config in it is hexforge's own."""
    message: str
    """What asks for it at a shared device; empty where it is answered in the program itself."""
    step: str
    """What asks for it in a scenario; empty where nothing does."""
    fields: tuple[CallField, ...]
    takes_time: bool
    """Whether time of the device passes until it is done."""
    answer: str
    """What it gives, by one word."""
    codes: tuple[int, ...]
    """The numbers of the errors that it can end with on the device."""
    about: str


@functools.cache
def calls() -> tuple[QnnCall, ...]:
    """Every row of the table."""
    return tuple(
        QnnCall(
            name=row["name"],
            message=row["message"],
            step=row["step"],
            fields=tuple(map(_field, row["fields"].split())),
            takes_time=row["takes_time"] == "yes",
            answer=row["answer"],
            codes=tuple(map(int, row["codes"].split())),
            about=row["about"],
        )
        for row in rows_of("calls.csv")
    )


def _field(text: str) -> CallField:
    name, _, kind = text.rstrip("?").partition(":")
    return CallField(name, kind or name, text.endswith("?"))


@functools.cache
def messages() -> dict[str, QnnCall]:
    """The calls by their messages; of several with one message the last, whose own fields may be left out."""
    made: dict[str, QnnCall] = {}
    for call in filter(lambda call: call.message, calls()):
        known = made.get(call.message, call)
        made[call.message] = replace(
            call, fields=tuple(replace(f, is_optional=f.is_optional or f not in known.fields) for f in call.fields)
        )
    return made


def calls_table() -> str:
    """The calls as a table for the documentation."""
    lines = ["| call | message | step | fields | codes | what |", "|---|---|---|---|---|---|"]
    for call in calls():
        words = [f"`{word}`" if word else "" for word in (call.name, call.message, call.step)]
        fields, codes = ", ".join(f"`{field.name}`" for field in call.fields), ", ".join(map(str, call.codes))
        lines.append(f"| {' | '.join([*words, fields, codes, call.about])} |")
    return "\n".join(lines)
