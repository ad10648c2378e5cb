# SPDX-License-Identifier: Apache-2.0
"""Context builder: programs on their way into the file of a context."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hexforge.backend import Backend, ContextBackend, GraphSettings, Program, Target
from hexforge.errors import CallError
from hexforge.formats.container import Pool, Writer, json_bytes
from hexforge.formats.context import MOST_GRAPHS, GraphInfo, Info
from hexforge.ops import packages

OP_PACKAGES = "op_packages"
"""Metadata of a context whose graphs have ops of packages: which, by JSON."""
PRODUCER = f"hexforge {importlib.metadata.version('hexforge')}"


@dataclass(frozen=True, slots=True)
class ContextGraph:
    """A program on its way into a context, under its name there."""

    name: str
    program: Program
    settings: GraphSettings = field(default_factory=dict)
    spill_fill_bytes: int = 0
    updatable: tuple[str, ...] = ()
    """Constants that adapters may change."""
    schematics: Mapping[str, Any] = field(default_factory=dict)
    """The graph as chips run it, by their names."""
    updatable_bytes: int = 0
    """What the constants that adapters may change take on the chip."""


@dataclass(slots=True)
class ContextBuilder:
    """Graphs on their way into one file; arrays that several of them have are stored once."""

    backend: str
    targets: Sequence[Target] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    weight_sharing: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    pool: Pool = field(default_factory=Pool)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    """Ops of packages that the graphs have, with what the file says of them."""
    _graphs: dict[str, GraphInfo] = field(default_factory=dict)
    _programs: dict[bytes, str] = field(default_factory=dict)
    _schematics: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, backend: Backend, graphs: Iterable[ContextGraph] = (), weight_sharing: bool = False) -> ContextBuilder:
        """A context for what a backend prepares for."""
        targets = backend.targets if isinstance(backend, ContextBackend) else ()
        builder = cls(backend.name, targets, backend.config.pairs(), weight_sharing)
        for graph in graphs:
            builder.add(graph)
        return builder

    def add(self, graph: ContextGraph) -> int:
        """Add a graph's program; the bytes of the arrays it uses, each counted once."""
        program, name = graph.program, graph.name
        if name in self._graphs:
            raise CallError(f"the context has a graph {name!r} already; give this one another name")
        if len(self._graphs) == MOST_GRAPHS:
            raise CallError(f"graph {name!r}: a context holds {MOST_GRAPHS} graphs")
        used: set[tuple[int, int]] = set()

        def put(data: Any) -> tuple[int, int]:
            place = self.pool.put(data)
            used.add(place)
            return place

        self.packages |= packages.needed_packages([node.op.name for node in program.graph])
        data = json_bytes(program.save(put))
        section = self._programs.setdefault(data, str(len(self._programs)))
        self._graphs[name] = GraphInfo(
            name,
            tuple((v.name, v.type) for v in program.graph.inputs),
            tuple((v.name, v.type) for v in program.graph.outputs),
            section,
            program.facts.arena_bytes,
            graph.spill_fill_bytes,
            graph.settings,
            graph.updatable,
            graph.updatable_bytes,
        )
        for soc, schematic in graph.schematics.items():
            self._schematics[f"{soc}/{name}"] = schematic
        return sum(size for _, size in used)

    @property
    def info(self) -> Info:
        """What the file will say of itself."""
        graphs = tuple(self._graphs.values())
        if self.packages:
            self.metadata[OP_PACKAGES] = json.dumps(self.packages, sort_keys=True)
        return Info(
            PRODUCER, self.backend, tuple(self.targets), self.options, graphs, self.weight_sharing, self.metadata
        )

    def writer(self) -> Writer:
        """The sections of the file."""
        writer = Writer()
        writer.add_json("info", "", self.info.to_json())
        for data, section in self._programs.items():
            writer.add("program", section, data)
        for name, schematic in self._schematics.items():
            writer.add_json("schematic", name, schematic)
        writer.add("weights", "", *self.pool.parts)
        return writer
