# SPDX-License-Identifier: Apache-2.0
"""Context: compiled graphs in a file: built from programs, opened without compiling."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hexforge.backend import Backend, GraphSettings, Loads, Prepares, Program, Saves, Target, Tunable, UsesArena
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.adapter import KIND, Adapter
from hexforge.formats.container import MAGIC, SLACK, Container, Pool, Source, Writer, encoded
from hexforge.formats.context import MOST_GRAPHS, GraphInfo, Info
from hexforge.ops import packages
from hexforge.runtime import registry
from hexforge.runtime.contexts import lora

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
        targets = backend.targets if isinstance(backend, Prepares) else ()
        made = cls(backend.name, targets, backend.config.pairs(), weight_sharing)
        for graph in graphs:
            made.add(graph)
        return made

    def add(self, graph: ContextGraph) -> int:
        """Add a graph's program; the bytes of the arrays it uses, each counted once."""
        program, name = graph.program, graph.name
        if not isinstance(program, Saves):
            raise UnsupportedError(f"programs of the {self.backend} backend cannot be saved")
        if name in self._graphs:
            raise CallError(f"the context has a graph {name!r} already; give this one another name")
        if len(self._graphs) == MOST_GRAPHS:
            raise CallError(f"graph {name!r}: a context holds {MOST_GRAPHS} graphs")
        used: set[tuple[int, int]] = set()

        def put(data: Any) -> tuple[int, int]:
            place = self.pool.put(data)
            used.add(place)
            return place

        self.packages |= packages.needed([node.op.name for node in program.graph])
        data = encoded(program.save(put))
        section = self._programs.setdefault(data, str(len(self._programs)))
        self._graphs[name] = GraphInfo(
            name,
            tuple((v.name, v.type) for v in program.graph.inputs),
            tuple((v.name, v.type) for v in program.graph.outputs),
            section,
            program.arena_bytes if isinstance(program, UsesArena) else 0,
            graph.spill_fill_bytes,
            graph.settings,
            graph.updatable,
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
        found = Writer()
        found.add_json("info", "", self.info.to_json())
        for data, section in self._programs.items():
            found.add("program", section, data)
        for name, schematic in self._schematics.items():
            found.add_json("schematic", name, schematic)
        found.add("weights", "", *self.pool.parts)
        return found


class Context:
    """An opened context: its graphs become programs on use. The file stays mapped as long as a program of it lives."""

    def __init__(
        self,
        source: Source | Container,
        where: str = "",
        verify: bool = True,
        enable_graphs: Collection[str] | None = None,
        weights: memoryview | None = None,
    ) -> None:
        """`enable_graphs`: of its graphs only these can be used, as of QNN's context config; all where it is None.

        `weights` are that section's bytes where they do not lie in the file.
        """
        self._disabled: frozenset[str] = frozenset()
        self._container = source if isinstance(source, Container) else Container(source, where)
        self.where = self._container.where
        if (KIND, "") in self._container:
            raise FormatError(f"{self.where}: is an adapter; open the context it was made for, and apply it to that")
        if verify:
            self._container.verify()
        self.info = Info.from_json(self._container.json("info", ""), self.where)
        if enable_graphs is not None:
            chosen = tuple(self.graph(name) for name in dict.fromkeys(enable_graphs))
            self._disabled = frozenset(g.name for g in self.info.graphs if g not in chosen)
            self.info = replace(self.info, graphs=chosen)
        self._weights = self._container.section("weights", "", check=verify) if weights is None else weights
        self.adapters: lora.Adapters = {}
        """The adapter each graph has now; exchanged whole, never changed."""
        self.adapter_files: dict[tuple[Any, ...], Adapter] = {}
        self.skip_validation_on_binary_section = False
        """Do not compare the checksums of arrays when an adapter's file is applied."""
        self.switching = threading.RLock()
        """Held while adapters are exchanged."""
        self._switches: weakref.WeakSet[lora.Switch] = weakref.WeakSet()
        self._executed: set[str] = set()
        self._threads: dict[str, int] = {}
        self._loaded: dict[str, weakref.WeakSet[Any]] = {}

    @property
    def container(self) -> Container:
        """The sections."""
        return self._container

    @property
    def graphs(self) -> tuple[GraphInfo, ...]:
        """The table of graphs."""
        return self.info.graphs

    def graph(self, name: str) -> GraphInfo:
        """A graph's row of the table."""
        for found in self.info.graphs:
            if found.name == name:
                return found
        if name in self._disabled:
            raise CallError(f"{self.where}: graph {name!r} is not enabled; name it in enable_graphs")
        raise CallError(f"{self.where}: has no graph {name!r}; it has {', '.join(g.name for g in self.info.graphs)}")

    def program(self, name: str, backend: Backend | None = None, check: Callable[[], None] = lambda: None) -> Program:
        """A graph, ready to run; on the backend it was made for, with its default options, unless one is given.

        `check` is called again and again while the program is made, and may raise to end that.
        """
        row = self.graph(name)
        self._require_packages()
        backend = backend or registry.backend(self.info.backend)
        if backend.name != self.info.backend:
            raise UnsupportedError(f"{self.where}: was made for the {self.info.backend} backend, not {backend.name}")
        if not isinstance(backend, Loads):
            raise UnsupportedError(f"the {backend.name} backend loads no contexts")
        if not row.updatable:
            return self._made(row, backend, check)
        with self.switching:  # a program made meanwhile would miss the adapters that are being applied
            found = lora.Switch(self, name, functools.partial(self._made, row, backend, check))
            found.under(self.adapters)
            self._switches.add(found)
        return found

    def _require_packages(self) -> None:
        """ModelError where a graph has ops of a package that is not registered."""
        if OP_PACKAGES not in self.info.metadata:
            return
        try:
            wanted = json.loads(self.info.metadata[OP_PACKAGES])
            facts = {str(name): dict(row) for name, row in wanted.items()}
        except (ValueError, TypeError, AttributeError):
            raise FormatError(f"{self.where}: what it says of op packages is malformed") from None
        packages.require_registered(facts, self.where)

    def _made(
        self, row: GraphInfo, backend: Loads, check: Callable[[], None], adapter: Adapter | None = None
    ) -> Program:
        def get(offset: int, size: int) -> memoryview:
            check()
            return self.weights(offset, size)

        def read() -> Any:
            data = self._container.json("program", row.program)
            return data if adapter is None else adapter.patched(adapter.graph(row.name), data)

        inputs, outputs = row.values()
        where = self.where if adapter is None else adapter.where
        arrays = get if adapter is None else adapter.arrays(adapter.graph(row.name), get)
        try:
            found = backend.load(row.name, inputs, outputs, read, arrays)
        except FormatError as error:
            raise FormatError(f"{where}: {error}" if where not in str(error) else str(error)) from None
        if isinstance(found, Tunable):
            found.on_first_run = functools.partial(self._executed.add, row.name)
            found.threads = self._threads.get(row.name, found.threads)
            self._loaded.setdefault(row.name, weakref.WeakSet()).add(found)
        return found

    def programs(self, names: Collection[str] | None = None, backend: Backend | None = None) -> dict[str, Program]:
        """Several graphs, all unless named."""
        return {n: self.program(n, backend) for n in (names if names is not None else [g.name for g in self.graphs])}

    def schematic(self, name: str, soc: str = "") -> Any:
        """A graph as a chip of the file (the first unless named) runs it, as prepared; None where none is kept."""
        self.graph(name)
        soc = soc or (self.info.targets[0].name if self.info.targets else "")
        key = ("schematic", f"{soc}/{name}")
        return self._container.json(*key) if key in self._container else None

    def set_config(self, name: str, **changes: int | None) -> GraphInfo:
        """Change a graph's settings (num_hvx_threads, vtcm_mb) until it first runs, as QnnGraph_setConfig does.

        No number depends on them. Threads that are set here also run the graph on this computer.
        """
        row = self.graph(name)
        backend = registry.backend(self.info.backend, self.info.options)
        if not isinstance(backend, Prepares):
            raise UnsupportedError(f"{self.where}: the {self.info.backend} backend has no HVX threads and no VTCM")
        if name in self._executed:
            raise CallError(
                f"{self.where}: graph {name!r}: the number of threads and VTCM can not be configured after the first "
                "execution of the graph, it has to be prior to it; open the context again"
            )
        row = replace(row, settings=backend.graph_settings(changes, row.settings))
        threads = changes.get("num_hvx_threads")
        if threads is not None:
            self._threads[name] = threads
            for program in self._loaded.get(name, ()):
                program.threads = threads
        graphs = tuple(row if g.name == name else g for g in self.info.graphs)
        self.info = replace(self.info, graphs=graphs)
        return row

    # -- adapters: lora.py -----------------------------------------------------------------------------------

    def apply(self, adapter: Adapter | str | os.PathLike[str], graphs: Iterable[str] | None = None) -> None:
        """Put an adapter on its graphs, or the named ones of them; runs that have begun end under the old one."""
        if not isinstance(adapter, Adapter):
            adapter = Adapter(adapter, verify=not self.skip_validation_on_binary_section)
        lora.apply(self, adapter, graphs)

    def base(self, *graphs: str) -> None:
        """Take the adapters off again, of all graphs unless some are named: the base is what it was, bit by bit."""
        lora.switch({self: dict.fromkeys(graphs or self.adapters)})

    def switches(self, name: str) -> list[lora.Switch]:
        """The programs of a graph that follow its adapters."""
        return [s for s in self._switches if s.name == name]

    def identity(self, name: str) -> str:
        """What tells the graph from others: its program, and the checksum of the weights it lies over."""
        weights = next(s for s in self._container.sections if (s.kind, s.name) == ("weights", ""))
        digest = hashlib.blake2b(self._container.section("program", self.graph(name).program), digest_size=16)
        digest.update(encoded([weights.bytes, weights.crc32c]))
        return digest.hexdigest()

    @property
    def weights_bytes(self) -> int:
        """Size of the section that programs refer to."""
        return len(self._weights)

    def weights(self, offset: int, size: int) -> memoryview:
        """Bytes of the section that programs refer to; FormatError where it has none there."""
        if offset < 0 or size < 0 or offset + size > len(self._weights) - SLACK:  # kernels may read a little past
            raise FormatError(f"{self.where}: a program refers to bytes {offset} to {offset + size} of the weights, "
                              f"which are {len(self._weights)}")  # fmt: skip
        return self._weights[offset : offset + size]


def is_context(path: str | os.PathLike[str]) -> bool:
    """True where a file begins as a context does."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - any path-like
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False
