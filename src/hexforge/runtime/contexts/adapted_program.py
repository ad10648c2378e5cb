# SPDX-License-Identifier: Apache-2.0
"""Adapted program: a graph of a context as a program that follows the adapters applied to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol
from weakref import WeakKeyDictionary

from hexforge.backend import Program, WrappedProgram
from hexforge.formats.adapter import Adapter
from hexforge.ir import Array

Adapters = Mapping[str, Adapter]
"""The adapter of each graph that has one."""
Load = Callable[[Adapter | None], Program]


class AdapterHolder(Protocol):
    """What this module needs of a context: its adapters."""

    adapters: Adapters


class AdaptedProgram(WrappedProgram):
    """A program of a graph that adapters change: a run uses the adapter that the context has when the run begins."""

    def __init__(self, context: AdapterHolder, name: str, load: Load) -> None:
        self.context, self.name = context, name
        self._load = load
        self._base = load(None)
        self._programs: WeakKeyDictionary[Adapter, Program] = WeakKeyDictionary()

    def with_adapters(self, adapters: Adapters) -> Program:
        """The program under some adapters; made on first use, which takes as long as loading the graph."""
        adapter = adapters.get(self.name)
        if adapter is None:
            return self._base
        program = self._programs.get(adapter)
        if program is None:
            program = self._programs[adapter] = self._load(adapter)
        return program

    @property
    def _program(self) -> Program:  # type: ignore[override]
        """The program that runs now."""
        return self.with_adapters(self.context.adapters)

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name."""
        return self._program.run(feeds)
