"""The contract between the runtime and a backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Node, Value
from hexforge.options import ProviderOptions


class Program(Protocol):
    """A compiled graph, ready to run from several threads."""

    @property
    def graph(self) -> Graph:
        """The QNN graph it computes."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        ...


@runtime_checkable
class SaysHow(Protocol):
    """A program that can say how its nodes run; asked for with `isinstance`."""

    @property
    def references(self) -> tuple[Node, ...]:
        """Nodes without a kernel of their own: their op's reference runs, which is right and slow."""
        ...


Put = Callable[[Any], tuple[int, int]]
"""Stores an array or bytes in a context file and says where: offset and size."""
Get = Callable[[int, int], memoryview]
"""The bytes of a context file that are there; FormatError where there are none."""
Read = Callable[[], Any]
"""What `Saves.save` gave, read from a context file again: a program keeps what it runs with, not all that it is."""


@runtime_checkable
class Saves(Protocol):
    """A program that can be written into a context file."""

    def save(self, put: Put) -> dict[str, Any]:
        """What is written of it, as plain data for JSON; arrays are put."""
        ...


@runtime_checkable
class Loads(Protocol):
    """A backend whose programs can be read from a context file."""

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> Program:
        """The program that `save` wrote, over the file's own bytes; FormatError where what is read is not one."""
        ...


@runtime_checkable
class EpLimited(Protocol):
    """A backend that the QNN EP drives with limits of its own (`frontends.onnx.ep_limits`); asked with `isinstance`."""

    ep_limited: bool


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
    """What the registry's "module:Class" names: makes a backend for a set of options.

    `threads` is how many threads one run may use, 0 for as many as the process has processors; a backend that leaves
    that to the libraries it calls may ignore it.
    """

    def __call__(self, options: ProviderOptions, threads: int = 0) -> Backend: ...


def processors() -> int:
    """Processors this process may use, which a container or taskset can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_feeds(graph: str, values: Iterable[Value], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of a graph by name, each of its declared type; CallError naming every one that is not."""
    inputs = {v.name: v for v in values}
    wrong = [f"{name!r} is not an input" for name in feeds if name not in inputs]
    found: dict[str, Array] = {}
    for name, value in inputs.items():
        if name not in feeds:
            wrong.append(f"input {name!r} is missing")
            continue
        array = np.asarray(feeds[name])
        if (array.dtype, array.shape) != (value.dtype.numpy, value.shape):
            wrong.append(f"input {name!r} is {array.dtype.name}{list(array.shape)}, it must be {value.type}")
        found[name] = array
    if wrong:
        names = ", ".join(inputs)
        raise CallError(f"graph {graph!r}: {'; '.join(wrong)}; its inputs are {names or 'none'}")
    return found
