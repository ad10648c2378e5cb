# SPDX-License-Identifier: Apache-2.0
"""The contract between the runtime and a backend.

`Backend` and `Program` are what every backend has. What only some can do are protocols of their own, asked for with
`isinstance`: `Saves` and `Loads` (context files), `Prepares` (contexts for chips), `Tunable` (threads), and
`timeline.Times` (how long a graph takes).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Node, Value
from hexforge.options import OptionTable

# -- programs ---------------------------------------------------------------------------------------------------------


@runtime_checkable
class Program(Protocol):
    """A compiled graph, ready to run from several threads."""

    @property
    def graph(self) -> Graph:
        """The QNN graph it computes."""
        ...

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        ...


interruption: ContextVar[Callable[[], None] | None] = ContextVar("interruption", default=None)
"""What a program calls every now and then while it runs; it may raise to end the run."""


@contextmanager
def interrupted_by(check: Callable[[], None] | None) -> Iterator[None]:
    """Let programs that run meanwhile, in this thread, ask `check` whether to go on."""
    token = interruption.set(check)
    try:
        yield
    finally:
        interruption.reset(token)


@dataclass(frozen=True, slots=True)
class KernelTime:
    """How long one kernel really took, by the clock of what ran it, in nanoseconds from when that clock likes."""

    node: str
    """The node of the graph that it computed."""
    unit: str
    """CPU or GPU."""
    start_ns: int
    end_ns: int


kernel_times: ContextVar[list[KernelTime] | None] = ContextVar("kernel_times", default=None)
"""Where a program notes, in the order they ran, how long its kernels took; None: nobody asks, and nothing is timed."""


@contextmanager
def timed_kernels() -> Iterator[list[KernelTime]]:
    """The times of the kernels that programs run meanwhile, in this thread; empty where they cannot tell."""
    times: list[KernelTime] = []
    token = kernel_times.set(times)
    try:
        yield times
    finally:
        kernel_times.reset(token)


@runtime_checkable
class TellsReferences(Protocol):
    """A program that tells which nodes have no kernel of their own."""

    @property
    def references(self) -> tuple[Node, ...]:
        """Nodes that run by their op's reference, which is right and slow."""
        ...


@runtime_checkable
class TellsUnsafe(Protocol):
    """A backend whose real numbers are narrower than the model's."""

    def unsafe(self, node: Node) -> str | None:
        """What of a node its real numbers cannot hold, and what would work; None where they hold all."""
        ...


@runtime_checkable
class TellsArithmetic(Protocol):
    """A program whose device decides how its numbers are rounded."""

    @property
    def arithmetic(self) -> str:
        """What it computes in, and why."""
        ...


@runtime_checkable
class UsesArena(Protocol):
    """A program whose tensors share one piece of memory."""

    arena_bytes: int


@runtime_checkable
class WritesInto(Protocol):
    """A program that can write its outputs where they are wanted."""

    def run_into(self, feeds: Mapping[str, Array], targets: Mapping[str, Array]) -> dict[str, Array]:
        """As `run`; an output is the array in `targets` where that can hold it as it is made, else one of its own."""
        ...


@runtime_checkable
class Tunable(Protocol):
    """A program whose threads can be set until it first runs."""

    threads: int
    on_first_run: Callable[[], None] | None
    """Called once, before the program first runs."""


@dataclass(frozen=True, slots=True)
class Spinning:
    """How long threads that wait for work stay awake before they sleep; 0: they sleep at once."""

    during_us: int = 1000
    """While a run is in flight."""
    after_us: int = 100
    """When a run has ended and the next may follow."""


@runtime_checkable
class KeepsThreads(Protocol):
    """A backend whose programs keep threads of their own."""

    spinning: Spinning
    """How long the threads of programs made from here on stay awake."""


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


# -- backends ---------------------------------------------------------------------------------------------------------


@runtime_checkable
class EpLimited(Protocol):
    """A backend that the QNN EP drives with limits of its own (`frontends.onnx.ep_limits`); asked with `isinstance`."""

    ep_limited: bool


class Backend(Protocol):
    """Something that runs QNN graphs."""

    name: str
    Config: ClassVar[type[OptionTable]]
    """The options that the backend is made with; a context file keeps their `pairs`."""

    @property
    def config(self) -> OptionTable:
        """The options it was made with."""
        ...

    def unsupported(self, node: Node) -> str | None:
        """Why the backend refuses the node and what would work, or None if it takes it."""
        ...

    def compile(self, graph: Graph) -> Program:
        """A program that computes the graph; the graph is the program's from then on."""
        ...


class BackendClass(Protocol):
    """What the registry names: the class of a backend.

    `threads` is how many threads one run may use, 0 for as many as the process has processors; a backend that leaves
    that to the libraries it calls may ignore it.
    """

    Config: ClassVar[type[OptionTable]]

    def __call__(self, config: Any, threads: int = 0) -> Backend: ...


@runtime_checkable
class Loads(Protocol):
    """A backend whose programs can be read from a context file."""

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> Program:
        """The program that `save` wrote, over the file's own bytes; FormatError where what is read is not one."""
        ...


# -- backends whose contexts are made for chips -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """A chip that graphs were prepared for."""

    name: str
    """The chip's name, or empty where only facts of it are known."""
    label: str
    """What messages call it."""
    facts: Mapping[str, int]
    """What decides whether a context suits another chip, by the backend's own names."""

    def to_json(self) -> dict[str, Any]:
        """As a context file and `hexforge info --json` have it."""
        return {"soc": self.name, "label": self.label, **self.facts}


class Verdict(StrEnum):
    """How well a context suits a chip, best first."""

    OPTIMAL = "optimal"
    SUBOPTIMAL = "sub-optimal"
    UNSUPPORTED = "unsupported"


@dataclass(frozen=True, slots=True)
class Compatibility:
    """A verdict, and why it is not better."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    target: Target | None = None
    """The chip of the file that was compared: of several the one that suits best."""

    def __str__(self) -> str:
        return f"{self.verdict}: {'; '.join(self.reasons)}" if self.reasons else str(self.verdict)


@dataclass(frozen=True, slots=True)
class Schematic:
    """A graph as a chip runs it, for profiles and reports."""

    data: dict[str, Any]
    spill_fill_bytes: int
    """The buffer in DRAM for activations that the chip's own memory has no room for."""


GraphSettings = Mapping[str, int]
"""How a graph was prepared, by the backend's own names; a row of a context's table of graphs."""


@runtime_checkable
class Prepares(Backend, Protocol):
    """A backend that prepares graphs for chips: contexts ask it whatever concerns a chip."""

    @property
    def targets(self) -> tuple[Target, ...]:
        """The chips that contexts are made for."""
        ...

    def only(self, index: int) -> Self:
        """The same backend for one of its chips."""
        ...

    def at_level(self, level: int) -> Self:
        """The same backend with another effort spent on preparing graphs."""
        ...

    def graph_settings(
        self, changes: Mapping[str, int | None] | None = None, before: GraphSettings | None = None
    ) -> dict[str, int]:
        """Settings of a graph for all chips, some of them changed; CallError for what one of the chips cannot do."""
        ...

    def schematic(self, graph: Graph, target: Target, settings: GraphSettings) -> Schematic | None:
        """The graph on a chip, None where too little is known of the chip."""
        ...

    def fits(self, graph: Graph) -> bool:
        """Whether all of a graph fits the chips' own memory at once: its schematic can wait until someone asks."""
        ...

    def compatibility(self, targets: Sequence[Target], graphs: Mapping[str, GraphSettings]) -> Compatibility:
        """How well a context for `targets`, with these graphs, suits the chip of this backend."""
        ...

    def no_weight_sharing(self) -> str | None:
        """Why graphs cannot share weights, or None where they can."""
        ...

    @property
    def most_graphs(self) -> int:
        """How many graphs one context holds."""
        ...

    @property
    def needs_spill_fill_size(self) -> bool:
        """Whether context models say how large a spill-fill buffer their graphs need."""
        ...

    @property
    def float_io(self) -> bool:
        """Whether programs take and give float32 where their graph has a narrower float type."""
        ...

    def blob_info(self, settings: GraphSettings, spill_fill_bytes: int) -> dict[str, int]:
        """The settings of a graph as qnn-context-binary-utility names them."""
        ...


# -- what backends have in common -------------------------------------------------------------------------------------


def processors() -> int:
    """Processors this process may use, which a container or taskset can make fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_feeds(graph: str, values: Iterable[Value], feeds: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs of a graph by name, each of its declared type; CallError naming every one that is not."""
    inputs = {v.name: v for v in values}
    wrong = [f"{name!r} is not an input" for name in feeds if name not in inputs]
    arrays: dict[str, Array] = {}
    for name, value in inputs.items():
        if name not in feeds:
            wrong.append(f"input {name!r} is missing")
            continue
        array = np.asarray(feeds[name])
        if (array.dtype, array.shape) != (value.dtype.numpy, value.shape):
            wrong.append(f"input {name!r} is {array.dtype.name}{list(array.shape)}, it must be {value.type}")
        arrays[name] = array
    if wrong:
        names = ", ".join(inputs)
        raise CallError(f"graph {graph!r}: {'; '.join(wrong)}; its inputs are {names or 'none'}")
    return arrays
