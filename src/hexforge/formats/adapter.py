# SPDX-License-Identifier: Apache-2.0
"""Adapter: what a LoRA adapter changes of the programs of a context. The bytes are a container's.

adapter   ""   JSON: producer, backend and for each graph the base it belongs to, the tensors, and the changes
weights   ""   the arrays that are new

A change is a place in the base's program (keys, positions in lists and lines of texts, from outside in) and what is
there instead. Where that refers to arrays, offsets below the size of the base's weights are in those, others in the
adapter's own, from there on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hexforge.backend import Get
from hexforge.errors import FormatError
from hexforge.formats.container import SLACK, Container, Pool, Source, Writer, as_text

KIND = "adapter"
Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """Something in a program that is another thing."""

    place: Place
    value: Any


@dataclass(frozen=True, slots=True)
class AdapterGraph:
    """What an adapter does to one graph."""

    name: str
    base: str
    """Digest of the graph in the context it was made for."""
    base_bytes: int
    """Size of that context's weights."""
    tensors: tuple[str, ...]
    """Constants of the model that are others; none in one that restores the base."""
    changes: tuple[Change, ...]


class Adapter:
    """An opened adapter. Without `verify` the checksum of its arrays is not compared."""

    def __init__(self, source: Source, where: str = "", verify: bool = True) -> None:
        self.container = Container(source, where)
        self.where = self.container.where
        if (KIND, "") not in self.container:
            raise FormatError(f"{self.where}: is no adapter, but a context; make adapters with `hexforge lora make`")
        data = self.container.json(KIND, "")
        self.weights = self.container.section("weights", "", check=verify)
        try:
            self.producer = as_text(data["producer"])
            self.backend = as_text(data["backend"])
            self.graphs = tuple(_graph(row) for row in data["graphs"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FormatError(f"{self.where}: the table of the adapter is malformed: {error!r}") from None
        names = [g.name for g in self.graphs]
        if not names or len(set(names)) != len(names):
            raise FormatError(f"{self.where}: has {len(names)} graphs; one or more, each with its own name, can be")

    def graph(self, name: str) -> AdapterGraph:
        """What it does to a graph."""
        return next(g for g in self.graphs if g.name == name)

    def patch_program(self, graph: AdapterGraph, program: Any) -> Any:
        """Change the base's program in place into the adapter's, and return it."""
        texts: list[tuple[Any, str | int]] = []
        for change in graph.changes:
            program = _put(program, change.place, change.value, self.where, texts)
        for holder, key in texts:
            if not all(isinstance(line, str) for line in holder[key]):
                raise FormatError(f"{self.where}: puts something into a text that is no line")
            holder[key] = "\n".join(holder[key])
        return program

    def arrays(self, graph: AdapterGraph, get: Get) -> Get:
        """The function that reads the arrays of a patched program; `get` reads those of the base."""
        own, first, where = self.weights, graph.base_bytes, self.where

        def both(offset: int, size: int) -> memoryview:
            if offset < first:
                return get(offset, size)
            if size < 0 or offset - first + size > len(own) - SLACK:  # kernels may read a little past an array
                raise FormatError(
                    f"{where}: refers to bytes {offset - first} to {offset - first + size} of its "
                    f"arrays, which are {max(len(own) - SLACK, 0)}"
                )
            return own[offset - first : offset - first + size]

        return both


def writer(producer: str, backend: str, graphs: Sequence[AdapterGraph], pool: Pool) -> Writer:
    """The sections of an adapter's file."""
    file = Writer()
    rows = [
        {
            "name": g.name,
            "base": g.base,
            "base_bytes": g.base_bytes,
            "tensors": list(g.tensors),
            "changes": [[list(c.place), c.value] for c in g.changes],
        }
        for g in graphs
    ]
    file.add_json(KIND, "", {"producer": producer, "backend": backend, "graphs": rows})
    file.add("weights", "", *pool.parts)
    return file


def program_changes(old: Any, new: Any, place: Place = ()) -> list[Change]:
    """What must be put where to make one program's plain data another's."""
    if isinstance(old, dict) and isinstance(new, dict) and old.keys() == new.keys() and "at" not in old:
        return [c for key in old for c in program_changes(old[key], new[key], (*place, key))]
    if isinstance(old, str) and isinstance(new, str) and "\n" in old and old.count("\n") == new.count("\n"):
        old, new = old.split("\n"), new.split("\n")
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [c for i, (a, b) in enumerate(zip(old, new, strict=True)) for c in program_changes(a, b, (*place, i))]
    same = type(old) is type(new) and old == new  # True equals 1, and is another thing in JSON
    return [] if same else [Change(place, new)]


def _put(data: Any, place: Place, value: Any, where: str, texts: list[tuple[Any, str | int]]) -> Any:
    """Put a value in its place; texts that places lead into become lists of lines, and are told in `texts`."""
    if not place:
        return value
    at = data
    try:
        for key in place[:-1]:
            holder, at = at, at[_present(at, key)]
            if isinstance(at, str):
                holder[key] = at = at.split("\n")
                texts.append((holder, key))
        at[_present(at, place[-1])] = value
    except (LookupError, TypeError):
        raise FormatError(f"{where}: changes {list(place)} of a program, which is not there") from None
    return data


def _present(at: Any, key: str | int) -> Any:
    if isinstance(at, dict) and key in at:
        return key
    if isinstance(at, list) and isinstance(key, int) and 0 <= key < len(at):
        return key
    raise LookupError(key)


def _graph(row: Any) -> AdapterGraph:
    size = row["base_bytes"]
    if type(size) is not int or not 0 <= size < 1 << 62:
        raise ValueError(f"{size!r} is not a size")
    return AdapterGraph(
        as_text(row["name"]),
        as_text(row["base"]),
        size,
        tuple(map(as_text, row["tensors"])),
        tuple(Change(_place(place), value) for place, value in row["changes"]),
    )


def _place(keys: Any) -> Place:
    if not isinstance(keys, list) or not all(type(k) in (str, int) for k in keys):
        raise ValueError(f"{keys!r} is not a place")
    return tuple(keys)
