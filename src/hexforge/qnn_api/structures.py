# SPDX-License-Identifier: Apache-2.0
"""Structures: QNN's headers, the structures and types in them, and the functions of the tables, each a row.

The tables are headers.csv, structures.csv and functions.csv; the numbers are enumerations.csv's. From them come the
headers in hexforge/include/QNN (`python -m tools.qnn_headers`), and what `hexforge abi-probe` prints.
In structures.csv a row without a member declares a type: a structure with its tag, an alias, a function, a macro. A
member with something in `when` is one of a union, and is the one that is meant where the enumerator before it has that
value (- where nothing says so). `count` says what a pointer points to: as many as another member says, `one`, `many`
or a `list` that ends with NULL.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from hexforge.qnn_api.tables import rows_of


@dataclass(frozen=True, slots=True)
class StructureMember:
    """A member of a structure."""

    name: str
    of: str
    """Its type in C."""
    when: str
    count: str
    initial: str
    """What it has in the macro of an empty structure, where that is not 0."""
    about: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """A type or a macro of a header."""

    header: str
    name: str
    of: str
    """`struct`, with a tag or without, `opaque`, `table` and its name, `#define`, or the type that it stands for."""
    macro: str
    """The macro of an empty structure, or the text of a macro; empty where there is none."""
    about: str
    members: list[StructureMember] = field(default_factory=list)

    @property
    def is_structure(self) -> bool:
        """Whether its members are known."""
        return bool(self.members) or self.of.startswith("table ")


@dataclass(frozen=True, slots=True)
class Function:
    """A function, and the table that has it."""

    table: str
    """The header of the table; empty for what libraries export by name."""
    name: str
    header: str
    arguments: str
    here: str
    """How hexforge's libraries have it: `yes`, `library` where it has to know which backend's it is, `refused` with
    QNN_COMMON_ERROR_NOT_SUPPORTED, `nothing` where it succeeds without effect, `export` for a name of a library."""
    about: str

    @property
    def member(self) -> str:
        """What the table calls it: QnnBackend_create is backendCreate."""
        component, _, verb = self.name.removeprefix("Qnn").partition("_")
        return component[0].lower() + component[1:] + verb[0].upper() + verb[1:]

    @property
    def type(self) -> str:
        """The type of a pointer to it."""
        component, _, verb = self.name.partition("_")
        return f"{component}_{verb[0].upper()}{verb[1:]}Fn_t"


@functools.cache
def declarations() -> tuple[Declaration, ...]:
    """Every type and macro, in the order of the headers."""
    made: dict[str, Declaration] = {}
    for row in rows_of("structures.csv"):
        if row["member"]:
            made[row["type"]].members.append(
                StructureMember(row["member"], row["of"], row["when"], row["count"], row["initial"], row["about"])
            )
        else:
            made[row["type"]] = Declaration(row["header"], row["type"], row["of"], row["initial"], row["about"])
    for each in made.values():
        each.members.extend(_functions_as_members(each))
    return tuple(made.values())


def _functions_as_members(declaration: Declaration) -> Iterator[StructureMember]:
    if declaration.of.startswith("table "):
        for function in functions():
            if function.table == declaration.of.removeprefix("table "):
                yield StructureMember(function.member, function.type, "", "", "", "")


@functools.cache
def functions() -> tuple[Function, ...]:
    """Every function, those of a table in its order."""
    return tuple(Function(**row) for row in rows_of("functions.csv"))
