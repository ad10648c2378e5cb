# SPDX-License-Identifier: Apache-2.0
"""Loading: a .pte file as methods that run, every delegate of it on hexforge."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from hexforge.addons.executorch import blob
from hexforge.addons.executorch.formats.ptd import read_all
from hexforge.addons.executorch.formats.pte import Delegate, ExecutionPlan, PteFile, read_pte
from hexforge.addons.executorch.formats.qnn_options import KEY
from hexforge.addons.executorch.running.delegate import QnnDelegate
from hexforge.addons.executorch.running.method import MOST_INSTRUCTIONS, MemoryPools, Method, Observer, Result
from hexforge.backend import Backend
from hexforge.errors import CallError, UnsupportedError
from hexforge.runtime import registry
from hexforge.runtime.contexts.context import Context

BACKEND_ID = "QnnBackend"


class PteModule:
    """A program: methods by name, made when they are first used."""

    def __init__(
        self, file: PteFile, threads: int = 0, share_memory: bool = False, max_instructions: int = MOST_INSTRUCTIONS
    ) -> None:
        self.file, self.where = file, file.where
        self.threads, self.max_instructions = threads, max_instructions
        self._pools: MemoryPools | None = {} if share_memory else None
        self._contexts: dict[tuple[int, int], Context] = {}
        self._methods: dict[str, Method] = {}
        for plan in file.plans:  # what cannot run is said at once, of all methods
            for delegate, where in self._places(plan):
                self._context(delegate, where)

    @property
    def names(self) -> tuple[str, ...]:
        """Its methods, in the file's order."""
        return tuple(p.name for p in self.file.plans)

    def delegates(self, plan: ExecutionPlan) -> tuple[QnnDelegate, ...]:
        """The delegates of a method, without the rest of it."""
        return tuple(self._delegate(delegate, plan.name, where) for delegate, where in self._places(plan))

    def _places(self, plan: ExecutionPlan) -> Iterator[tuple[Delegate, str]]:
        """The delegates of a method as the file has them, and where errors say that they are."""
        for number, delegate in enumerate(plan.delegates):
            yield delegate, f"{self.where}: method {plan.name!r}: delegate {number}"

    def method(self, name: str = "") -> Method:
        """A new instance of a method, with buffers of its own; the first one unless named."""
        plan = self.file.plan(name or self.names[0])
        return Method(plan, self.where, self._delegate, self._pools, self.max_instructions)

    def run(self, name: str, inputs: Sequence[Any], observer: Observer | None = None) -> list[Result]:
        """Run a method; its buffers stay from run to run."""
        if name not in self._methods:
            self._methods[name] = self.method(name)
        return self._methods[name].run(inputs, observer)

    def _delegate(self, delegate: Delegate, method: str, where: str) -> QnnDelegate:
        return open_delegate(delegate, method, where, self._context(delegate, where), self.threads)

    def _context(self, delegate: Delegate, where: str) -> Context:
        """The context of a delegate, opened once however many methods have it."""
        if delegate.id != BACKEND_ID:
            raise UnsupportedError(
                f"{where}: is for {delegate.id!r}, which hexforge does not run; it runs {BACKEND_ID!r}: lower the "
                "model with ExecuTorch's Qualcomm partitioner"
            )
        key = (delegate.offset, len(delegate.data))
        if not delegate.offset or key not in self._contexts:
            self._contexts[key] = blob.open_blob(delegate.data, where)
        return self._contexts[key]


def open_delegate(
    delegate: Delegate, method: str, where: str, context: Context | None = None, threads: int = 0
) -> QnnDelegate:
    """A delegate of a method, ready to run; its context is opened unless it is given."""
    context = context or blob.open_blob(delegate.data, where)
    names = [g.name for g in context.graphs]
    if method not in names:
        if len(names) > 1:
            raise CallError(f"{where}: its context has the graphs {', '.join(names)}, none for this method")
        method = names[0]
    backend = _backend(context.info.backend, tuple(context.info.options.items()), threads)
    return QnnDelegate(context, method, context.program(method, backend), where, delegate.specs.get(KEY))


@functools.lru_cache(64)
def _backend(name: str, options: tuple[tuple[str, str], ...], threads: int) -> Backend:
    """The backend of contexts with the same options."""
    return registry.backend(name, dict(options), threads)


def load(
    source: str | os.PathLike[str] | bytes,
    *,
    data: Sequence[str | os.PathLike[str] | bytes] = (),
    threads: int = 0,
    share_memory: bool = False,
    max_instructions: int = MOST_INSTRUCTIONS,
) -> PteModule:
    """Open a .pte file; with `share_memory` its methods share planned memory, and so buffers they have in common.

    `data` are the .ptd files of tensors that it keeps elsewhere; a run ends with an error after `max_instructions`.
    """
    return PteModule(read_pte(source, external=read_all(tuple(data))), threads, share_memory, max_instructions)
