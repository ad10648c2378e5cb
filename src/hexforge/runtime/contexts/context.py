# SPDX-License-Identifier: Apache-2.0
"""Context: compiled graphs in a file, opened without compiling, and the adapters that are applied to them."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from hexforge.backend import Backend, ContextBackend, Program
from hexforge.chips.graph_config import THREADS
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.adapter import KIND, Adapter
from hexforge.formats.container import SLACK, Container, Source, json_bytes
from hexforge.formats.context import GraphInfo, Info
from hexforge.ops import packages
from hexforge.runtime import registry
from hexforge.runtime.contexts.adapted_program import AdaptedProgram, Adapters
from hexforge.runtime.contexts.context_builder import OP_PACKAGES
from hexforge.runtime.contexts.native_kv import NativeKvProgram, recorded_format


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """What a file holds of a graph's program, read again whenever it is asked for."""

    container: Container
    graph: GraphInfo
    adapter: Adapter | None = None
    """Changes it."""

    def __call__(self) -> Any:
        """As plain data."""
        data = self.container.json("program", self.graph.program)
        return data if self.adapter is None else self.adapter.patch_program(self.adapter.graph(self.graph.name), data)

    def text(self) -> bytes:
        """As the JSON of the file."""
        if self.adapter is None:
            return self.container.text("program", self.graph.program)
        return json_bytes(self())


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
        self.adapters: Adapters = {}
        """The adapter each graph has now; exchanged whole, never changed."""
        self.adapter_files: dict[tuple[Any, ...], Adapter] = {}
        self.skip_validation_on_binary_section = False
        """Do not compare the checksums of arrays when an adapter's file is applied."""
        self.switching = threading.RLock()
        """Held while adapters are exchanged."""
        self._adapted: weakref.WeakSet[AdaptedProgram] = weakref.WeakSet()
        self.weights_used: dict[str, set[tuple[int, int]]] = {}
        """By graph whose program was made: where each array of the weights begins that it uses, and how many bytes."""
        self._executed: set[str] = set()
        self._threads: dict[str, int] = {}
        self._identities: dict[str, str] = {}
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
        for row in self.info.graphs:
            if row.name == name:
                return row
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
        form = recorded_format(self.info.metadata, name, self.where)
        if not row.updatable:
            program = self._loaded_program(row, backend, check)
            return NativeKvProgram(program, form) if form else program
        with self.switching:  # a program made meanwhile would miss the adapters that are being applied
            adapted = AdaptedProgram(self, name, functools.partial(self._loaded_program, row, backend, check))
            adapted.with_adapters(self.adapters)
            self._adapted.add(adapted)
        return NativeKvProgram(adapted, form) if form else adapted

    def _require_packages(self) -> None:
        """ModelError where a graph has ops of a package that is not registered."""
        if OP_PACKAGES not in self.info.metadata:
            return
        try:
            recorded = json.loads(self.info.metadata[OP_PACKAGES])
            facts = {str(name): dict(row) for name, row in recorded.items()}
        except (ValueError, TypeError, AttributeError):
            raise FormatError(f"{self.where}: what it says of op packages is malformed") from None
        packages.require_registered(facts, self.where)

    def saved_program(self, name: str, adapter: Adapter | None = None) -> StoredProgram:
        """What the file holds of a graph's program, as an adapter changes it where one is given."""
        return StoredProgram(self._container, self.graph(name), adapter)

    def _loaded_program(
        self, row: GraphInfo, backend: Backend, check: Callable[[], None], adapter: Adapter | None = None
    ) -> Program:
        used = self.weights_used.setdefault(row.name, set())

        def get(offset: int, size: int) -> memoryview:
            check()
            used.add((offset, size))
            return self.weights(offset, size)

        inputs, outputs = row.values()
        where = self.where if adapter is None else adapter.where
        arrays = get if adapter is None else adapter.arrays(adapter.graph(row.name), get)
        try:
            program = backend.load(row.name, inputs, outputs, self.saved_program(row.name, adapter), arrays)
        except FormatError as error:
            raise FormatError(f"{where}: {error}" if where not in str(error) else str(error)) from None
        self._container.leave_memory()  # of what was copied; what is used where it lies comes back
        program.running.on_first_run = functools.partial(self._executed.add, row.name)
        program.running.threads = self._threads.get(row.name, program.running.threads)
        self._loaded.setdefault(row.name, weakref.WeakSet()).add(program)
        return program

    def programs(self, names: Collection[str] | None = None, backend: Backend | None = None) -> dict[str, Program]:
        """Several graphs, all unless named."""
        return {n: self.program(n, backend) for n in (names if names is not None else [g.name for g in self.graphs])}

    def schematic(self, name: str, soc: str = "") -> Any:
        """A graph as a chip of the file (the first unless named) runs it, as prepared; None where that is not known.

        The file has it, or it is made now: those of graphs that are small are not kept.
        """
        row = self.graph(name)
        soc = soc or (self.info.targets[0].name if self.info.targets else "")
        key = ("schematic", f"{soc}/{name}")
        if key in self._container:
            return self._container.json(*key)
        target = next((t for t in self.info.targets if t.name == soc), None)
        backend = registry.backend(self.info.backend, self.info.options)
        if target is None or not isinstance(backend, ContextBackend):
            return None
        graph = self.program(name, backend).graph
        made = backend.schematic(graph, target, row.settings) if backend.fits(graph) else None
        return None if made is None else made.data

    def set_config(self, name: str, **changes: int | None) -> GraphInfo:
        """Change a graph's settings (HVX threads, VTCM) until it first runs, as QnnGraph_setConfig does.

        No number depends on them. Threads that are set here also run the graph on this computer.
        """
        row = self.graph(name)
        backend = registry.backend(self.info.backend, self.info.options)
        if not isinstance(backend, ContextBackend):
            raise UnsupportedError(f"{self.where}: the {self.info.backend} backend has no HVX threads and no VTCM")
        if name in self._executed:
            raise CallError(
                f"{self.where}: graph {name!r}: the number of threads and VTCM can not be configured after the first "
                "execution of the graph, it has to be prior to it; open the context again"
            )
        row = replace(row, settings=backend.graph_settings(changes, row.settings))
        threads = changes.get(THREADS)
        if threads is not None:
            self._threads[name] = threads
            for program in self._loaded.get(name, ()):
                program.running.threads = threads
        graphs = tuple(row if g.name == name else g for g in self.info.graphs)
        self.info = replace(self.info, graphs=graphs)
        return row

    # -- adapters --------------------------------------------------------------------------------------------

    def apply(self, adapter: Adapter | str | os.PathLike[str], graphs: Iterable[str] | None = None) -> None:
        """Put an adapter on the named graphs, or on all that it is for; a run that has begun keeps the old one."""
        if not isinstance(adapter, Adapter):
            adapter = Adapter(adapter, verify=not self.skip_validation_on_binary_section)
        names = [g.name for g in adapter.graphs] if graphs is None else list(graphs)
        unknown = [n for n in names if all(g.name != n for g in self.graphs)]
        if unknown:
            have = ", ".join(g.name for g in self.graphs)
            raise CallError(f"{adapter.where}: is for graph {unknown[0]!r}, and {self.where} has {have}")
        exchange_adapters({self: dict.fromkeys(names, adapter)})

    def remove_adapters(self, *graphs: str) -> None:
        """Take the adapters off the named graphs, or off all: they compute what they did before, bit by bit."""
        exchange_adapters({self: dict.fromkeys(graphs or self.adapters)})

    def _prepare_adapters(self, name: str, adapters: Adapters) -> None:
        """Make the programs of a graph with these adapters now, so that a failure changes nothing."""
        unused = None if self._adapted_programs(name) else self.program(name)
        for program in self._adapted_programs(name):
            program.with_adapters(adapters)
        del unused

    def _adapted_programs(self, name: str) -> list[AdaptedProgram]:
        """The programs of a graph that follow its adapters."""
        return [program for program in self._adapted if program.name == name]

    def _require_adaptable(self, name: str, adapter: Adapter | None) -> None:
        """CallError where a graph takes no adapters, or the adapter does not belong to it."""
        row = self.graph(name)
        if not row.updatable:
            raise CallError(f"{self.where}: graph {name!r} has no updatable tensors; compile it with `--updatable`")
        if adapter is None:
            return
        change = next((g for g in adapter.graphs if g.name == name), None)
        if change is None:
            names = ", ".join(g.name for g in adapter.graphs)
            raise CallError(f"{adapter.where}: does nothing to graph {name!r}; it is for {names}")
        if adapter.backend != self.info.backend:
            raise CallError(
                f"{adapter.where}: was made for the {adapter.backend} backend, {self.where} for {self.info.backend}"
            )
        if change.base != self.identity(name) or change.base_bytes != self.weights_bytes:
            raise CallError(
                f"{adapter.where}: was made for another base than {self.where}, graph {name!r}; make it "
                "again for this one (`hexforge lora make`)"
            )
        updatable = set(row.updatable)
        if fixed := [t for t in change.tensors if t not in updatable]:
            raise CallError(
                f"{adapter.where}: changes {', '.join(fixed)}, not updatable in graph {name!r}; compile it "
                "with `--updatable` for these"
            )

    def identity(self, name: str) -> str:
        """A key that differs between graphs: their program, and the checksum of the weights that it uses."""
        if name in self._identities:
            return self._identities[name]
        weights = next(s for s in self._container.sections if (s.kind, s.name) == ("weights", ""))
        digest = hashlib.blake2b(self._container.section("program", self.graph(name).program), digest_size=16)
        digest.update(json_bytes([weights.bytes, weights.crc32c]))
        self._identities[name] = digest.hexdigest()
        return self._identities[name]

    @property
    def weights_bytes(self) -> int:
        """Size of the section that programs refer to."""
        return len(self._weights)

    def weights(self, offset: int, size: int) -> memoryview:
        """Bytes of the section that programs refer to; FormatError where it has none there."""
        if offset < 0 or size < 0 or offset + size > len(self._weights) - SLACK:  # kernels may read a little past
            raise FormatError(
                f"{self.where}: a program refers to bytes {offset} to {offset + size} of the weights, "
                f"which are {len(self._weights)}"
            )
        return self._weights[offset : offset + size]


def exchange_adapters(changes: Mapping[Context, Mapping[str, Adapter | None]]) -> None:
    """Give graphs of contexts other adapters, or (None) none: all of them, or after an error none.

    Which adapters a context has is one mapping that is exchanged whole: a run looks at it once, so all of the run is
    under the old adapters or under the new ones, and what fails or is interrupted before the exchange changes nothing.
    """
    for context, graphs in changes.items():
        for name, adapter in graphs.items():
            context._require_adaptable(name, adapter)
    with ExitStack() as locks:
        for context in sorted(changes, key=id):
            locks.enter_context(context.switching)
        new_adapters: dict[Context, Adapters] = {}
        for context, graphs in changes.items():
            unchanged = {name: adapter for name, adapter in context.adapters.items() if name not in graphs}
            changed = {name: adapter for name, adapter in graphs.items() if adapter is not None}
            new_adapters[context] = unchanged | changed
            for name in graphs:
                context._prepare_adapters(name, new_adapters[context])
        for context, adapters in new_adapters.items():
            context.adapters = adapters
