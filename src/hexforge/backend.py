"""The contract between the runtime and a backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hexforge.ir import Array, Graph, Node
from hexforge.options import ProviderOptions


class Program(Protocol):
    """A compiled graph, ready to run from several threads."""

    graph: Graph

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        ...


class Backend(Protocol):
    """Something that runs QNN graphs."""

    name: str

    def unsupported(self, node: Node) -> str | None:
        """Why the backend refuses the node and what would work, or None if it takes it."""
        ...

    def compile(self, graph: Graph) -> Program:
        """A program that computes the graph; the graph is the program's from then on."""
        ...


class BackendFactory(Protocol):
    """What the registry's "module:Class" names: makes a backend for a set of options."""

    def __call__(self, options: ProviderOptions) -> Backend: ...
