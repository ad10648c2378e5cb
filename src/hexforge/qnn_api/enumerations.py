# SPDX-License-Identifier: Apache-2.0
"""Enumerations: the names and numbers of the enumerations in QNN's headers, the options of its structures among them.

The one table is enumerations.csv: the header and the type that an enumerator is of, its number, whether that number is
confirmed, and by what: EP, ET, ORT, LiteRT, C# and HTP guide are the sources that docs/c_api.md explains. A number that
is not confirmed is hexforge's own guess, which no client was seen to use; where nobody published one at all (`own`),
it is of a range of hexforge's, so that it is never taken for another option: `hexforge abi-probe` learns the real one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hexforge.qnn_api.tables import rows_of

UNDEFINED = 0x7FFFFFFF
"""What makes an enumeration 32 bits wide, and is no value of it."""


@dataclass(frozen=True, slots=True)
class Enumerator:
    """A name of an enumeration."""

    header: str
    type: str
    name: str
    value: int
    confirmed: bool
    source: str
    text: str
    """The number as the headers write it."""
    is_own: bool
    """Whether nobody published a number, so that this is one of hexforge's."""


@functools.cache
def enumerators() -> tuple[Enumerator, ...]:
    """Every row of the table, in the order of the headers."""
    return tuple(
        Enumerator(
            row["header"],
            row["type"],
            row["name"],
            int(row["value"], 0),
            row["confirmed"] == "yes",
            row["source"],
            row["value"],
            row["confirmed"] == "own",
        )
        for row in rows_of("enumerations.csv")
    )


@functools.cache
def members_of(type: str) -> dict[str, int]:
    """The names of an enumeration with their numbers; KeyError for a type that the table does not have."""
    members = {row.name: row.value for row in enumerators() if row.type == type}
    if not members:
        raise KeyError(f"enumerations.csv has no type {type}")
    return members


@functools.cache
def _values() -> dict[str, int]:
    return {row.name: row.value for row in enumerators()}


def value_of(name: str) -> int:
    """The number of an enumerator; KeyError for a name that the table does not have."""
    return _values()[name]


def unconfirmed_table() -> str:
    """The enumerators whose numbers nobody confirmed, by their types, as a table for the documentation."""
    lines = ["| enumeration | numbers that are not confirmed |", "|---|---|"]
    for type in dict.fromkeys(row.type for row in enumerators()):
        own = [row for row in enumerators() if row.type == type and not row.confirmed]
        if own:
            listed = ", ".join(f"`{row.name}` {'*' if row.is_own else row.value}" for row in own)
            lines.append(f"| `{type or 'macros'}` | {listed} |")
    return "\n".join(lines)
