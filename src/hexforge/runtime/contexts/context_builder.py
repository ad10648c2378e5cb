# SPDX-License-Identifier: Apache-2.0
"""Context builder: programs on their way into the file of a context, and what it says of the models they are of."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.backend import Backend, ContextBackend, GraphSettings, Program, Schematic, Target
from hexforge.chips.power import BURST, Power
from hexforge.errors import CallError
from hexforge.formats.container import Pool, Writer, json_bytes
from hexforge.formats.context import MOST_GRAPHS, GraphInfo, Info
from hexforge.ops import packages

OP_PACKAGES = "op_packages"
"""Metadata of a context whose graphs have ops of packages: which, by JSON."""
PRODUCER = f"hexforge {importlib.metadata.version('hexforge')}"


@dataclass(frozen=True, slots=True)
class PreparedGraph:
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

    @classmethod
    def prepared(
        cls, name: str, program: Program, backend: Backend, settings: GraphSettings | None = None,
        power: Power = BURST, timed: bool = True, step: Callable[[], None] = lambda: None,
    ) -> PreparedGraph:  # fmt: skip
        """A program as the chips of a backend run it, prepared with some settings, else with the backend's own.

        Without `timed` it has no such schematics, and spills nothing. `step` is called after each chip.
        """
        if not isinstance(backend, ContextBackend):
            return cls(name, program)
        settings = backend.graph_settings() if settings is None else settings
        schematics: dict[str, Schematic] = {}
        for target in backend.targets if timed else ():
            schematic = backend.schematic(program.graph, target, settings, power)
            if schematic is not None:
                schematics[target.name] = schematic
            step()
        spill = max((s.spill_fill_bytes for s in schematics.values()), default=0)
        return cls(name, program, settings, spill, schematics={soc: s.data for soc, s in schematics.items()})


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
    def of(cls, backend: Backend, graphs: Iterable[PreparedGraph] = (), weight_sharing: bool = False) -> ContextBuilder:
        """A context for what a backend prepares for."""
        targets = backend.targets if isinstance(backend, ContextBackend) else ()
        builder = cls(backend.name, targets, backend.config.pairs(), weight_sharing)
        for graph in graphs:
            builder.add(graph)
        return builder

    def add(self, graph: PreparedGraph) -> int:
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


# -- which models a context was made of, so that one of another model is not taken for it ------------------------------


def models_metadata(models: Mapping[str, Any]) -> dict[str, str]:
    """What a context says of its models."""
    return {"models": json.dumps(models, sort_keys=True)}


def model_record(source: Any, how: Mapping[str, Any]) -> dict[str, Any]:
    """The record by which a model is recognized: what was fixed of its inputs, digests of its file and weight files."""
    return {"files": _digests(source), **_sizes(how)}


def is_made_from(info: Info, name: str, source: Any, how: Mapping[str, Any]) -> bool:
    """True where a model's graphs in a context were made of this very model, with these sizes."""
    try:
        known = json.loads(info.metadata["models"])[name]
        files = known.pop("files")
        if not files or known != _sizes(how):
            return False
        if isinstance(source, bytes):
            return bool(files == {"": _digest(source)})
        path = Path(source)
        return all(_digest((path.parent / f if f else path).read_bytes()) == digest for f, digest in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def _sizes(how: Mapping[str, Any]) -> dict[str, Any]:
    shapes = {name: list(shape) for name, shape in (how.get("shapes") or {}).items()}
    fixed = {"dims": dict(how.get("dims") or {}), "shapes": shapes}
    values = {name: _digest(_bytes_of(value)) for name, value in (how.get("constants") or {}).items()}
    return fixed | ({"constants": values} if values else {})


def _bytes_of(value: Any) -> bytes:
    array = np.asarray(value)
    return f"{array.dtype.kind} {array.shape} ".encode() + array.astype(np.float64).tobytes()


def _digests(source: Any) -> dict[str, str]:
    if isinstance(source, bytes):
        return {"": _digest(source)}
    if not isinstance(source, (str, os.PathLike)):
        return {}
    from hexforge.model.source import open_source

    path = Path(source)
    external = (t.external_data for t in open_source(path).proto.graph.initializer if t.data_location == 1)
    files = {entry.value for entries in external for entry in entries if entry.key == "location"}
    return {"": _digest(path.read_bytes()), **{f: _digest((path.parent / f).read_bytes()) for f in sorted(files)}}


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
