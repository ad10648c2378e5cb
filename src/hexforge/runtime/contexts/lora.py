# SPDX-License-Identifier: Apache-2.0
"""LoRA: adapters applied to a context's graphs, switched between runs without compiling.

Which adapters a context has is one mapping that is exchanged whole: a run looks at it once, so all of the run is under
the old adapters or under the new ones, and what fails or is interrupted before the exchange changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hexforge.backend import Program, TellsReferences
from hexforge.errors import CallError, FormatError
from hexforge.formats.adapter import Adapter, AdapterGraph
from hexforge.ir import Array, Graph, Node

if TYPE_CHECKING:
    from hexforge.runtime.contexts.context import Context

Adapters = Mapping[str, Adapter]
"""The adapter of each graph that has one."""
Load = Callable[[Adapter | None], Program]
MOST_CONFIG_BYTES = 1 << 20
_KEPT = 8


class Switch:
    """A graph that adapters change, as a program: each run is that of the adapter the context has when it begins."""

    def __init__(self, context: Context, name: str, load: Load) -> None:
        self.context, self.name = context, name
        self._load = load
        self._base = load(None)
        self._made: WeakKeyDictionary[Adapter, Program] = WeakKeyDictionary()

    def under(self, adapters: Adapters) -> Program:
        """The program under some adapters; made on first use, which takes as long as loading the graph."""
        adapter = adapters.get(self.name)
        if adapter is None:
            return self._base
        found = self._made.get(adapter)
        if found is None:
            found = self._made[adapter] = self._load(adapter)
        return found

    @property
    def current(self) -> Program:
        """The program that runs now."""
        return self.under(self.context.adapters)

    @property
    def graph(self) -> Graph:
        """The QNN graph."""
        return self.current.graph

    @property
    def references(self) -> tuple[Node, ...]:
        """Nodes without a kernel of their own."""
        now = self.current
        return now.references if isinstance(now, TellsReferences) else ()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name."""
        return self.current.run(feeds)


def switch(asked: Mapping[Context, Mapping[str, Adapter | None]]) -> None:
    """Give graphs of contexts other adapters, or (None) none: all of them, or after an error none."""
    for context, graphs in asked.items():
        for name, adapter in graphs.items():
            _row(context, name, adapter)
    with ExitStack() as locks:
        for context in sorted(asked, key=id):
            locks.enter_context(context.switching)
        wanted = {}
        for context, graphs in asked.items():
            kept = {name: adapter for name, adapter in context.adapters.items() if name not in graphs}
            wanted[context] = {**kept, **{name: adapter for name, adapter in graphs.items() if adapter is not None}}
            for name in graphs:
                unused = None if context.switches(name) else context.program(name)  # to learn whether it can be made
                for one in context.switches(name):
                    one.under(wanted[context])
                del unused
        for context, adapters in wanted.items():
            context.adapters = adapters


def _row(context: Context, name: str, adapter: Adapter | None) -> AdapterGraph | None:
    """What an adapter does to a graph; CallError where it does not belong to it."""
    row = context.graph(name)
    if not row.updatable:
        raise CallError(f"{context.where}: graph {name!r} has no updatable tensors; compile it with `--updatable`")
    if adapter is None:
        return None
    found = next((g for g in adapter.graphs if g.name == name), None)
    if found is None:
        names = ", ".join(g.name for g in adapter.graphs)
        raise CallError(f"{adapter.where}: does nothing to graph {name!r}; it is for {names}")
    if adapter.backend != context.info.backend:
        raise CallError(f"{adapter.where}: was made for the {adapter.backend} backend, {context.where} for "
                        f"{context.info.backend}")  # fmt: skip
    if found.base != context.identity(name) or found.base_bytes != context.weights_bytes:
        raise CallError(f"{adapter.where}: was made for another base than {context.where}, graph {name!r}; make it "
                        "again for this one (`hexforge lora make`)")  # fmt: skip
    if fixed := [t for t in found.tensors if t not in row.updatable]:
        raise CallError(f"{adapter.where}: changes {', '.join(fixed)}, not updatable in graph {name!r}; compile it "
                        "with `--updatable` for these")  # fmt: skip
    return found


def apply(context: Context, adapter: Adapter, graphs: Iterable[str] | None = None) -> None:
    """Put an adapter on its graphs, or on the named ones of them, in place of what they have."""
    names = [g.name for g in adapter.graphs] if graphs is None else list(graphs)
    unknown = [n for n in names if all(g.name != n for g in context.graphs)]
    if unknown:
        have = ", ".join(g.name for g in context.graphs)
        raise CallError(f"{adapter.where}: is for graph {unknown[0]!r}, and {context.where} has {have}")
    switch({context: dict.fromkeys(names, adapter)})


# -- qnn.lora_config --------------------------------------------------------------------------------------------------


def read_config(path: str | os.PathLike[str]) -> list[tuple[str, Path]]:
    """A LoRA config file, lines of `<graph>;<adapter file>`: graphs and files.

    A file lies where its path leads from the current folder, as in the EP, or else from the config's.
    """
    at = Path(path)
    try:
        if at.stat().st_size > MOST_CONFIG_BYTES:
            raise FormatError(f"{at}: is no LoRA config: it has more than {MOST_CONFIG_BYTES} bytes")
        text = at.read_bytes().decode()
    except FileNotFoundError:
        raise CallError(f"qnn.lora_config: {at}: no such file; check the path") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{at}: is no LoRA config: it is not a text", error.start) from None
    except (OSError, ValueError) as error:
        raise CallError(f"qnn.lora_config: {at}: cannot be read: {error}") from None
    found: dict[str, Path] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip():
            continue
        graph, separator, file = (part.strip() for part in line.partition(";"))
        if not graph or not separator or not file or "\0" in file:
            raise FormatError(f"{at}: line {number} is not `<graph>;<adapter file>`")
        if graph in found:
            raise FormatError(f"{at}: line {number} names graph {graph!r} again")
        here = os.path.exists(file)  # noqa: PTH110 - a Path raises where the name is too long
        found[graph] = Path(file) if here or Path(file).is_absolute() else at.parent / file
    if not found:
        raise FormatError(f"{at}: names no graph; a line is `<graph>;<adapter file>`")
    return list(found.items())


def apply_config(contexts: Sequence[Context], path: str | os.PathLike[str]) -> None:
    """Apply what a LoRA config says, each line to the first context that has the graph; all lines, or none."""
    asked: dict[Context, dict[str, Adapter | None]] = {}
    for graph, file in read_config(path):
        context = next((c for c in contexts if any(g.name == graph for g in c.graphs)), None)
        if context is None:
            names = ", ".join(g.name for c in contexts for g in c.graphs)
            raise CallError(f"{path}: names graph {graph!r}; the context model has {names}")
        asked.setdefault(context, {})[graph] = opened(context, file)
    switch(asked)


def opened(context: Context, path: Path) -> Adapter:
    """An adapter's file, opened and verified; the last ones of a context stay open, so that going back is quick."""
    try:
        status = path.stat()
    except OSError as error:
        raise CallError(f"{path}: the adapter cannot be read: {error.strerror or error}") from None
    key = (str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns)
    with context.switching:
        kept = context.adapter_files
        found = kept.pop(key, None) or Adapter(path, verify=not context.skip_validation_on_binary_section)
        kept[key] = found
        while len(kept) > _KEPT:
            kept.pop(next(iter(kept)))
        return found
