# SPDX-License-Identifier: Apache-2.0
"""The contract between the runtime and a backend.

Every backend is a `Backend` that makes `Program`s; what most do alike has a default here. Two classes add what only
some can do, and are asked for with `isinstance`: `TimedBackend` (how long a graph takes) and `ContextBackend` (contexts
that are made for chips). `docs/adding_a_backend.md` shows a whole backend.
"""

from __future__ import annotations

import functools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np

from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import BURST, Power
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array, Graph, Node, Value, text
from hexforge.options import OptionTable
from hexforge.results import Key, Result
from hexforge.timeline import Accelerator, Timing

# -- programs ---------------------------------------------------------------------------------------------------------

Put = Callable[[Any], tuple[int, int]]
"""Stores an array or bytes in a context file and says where: offset and size."""
Get = Callable[[int, int], memoryview]
"""The bytes of a context file that are there; FormatError where there are none."""


class Read(Protocol):
    """What `Program.save` gave, read from a context file again: a program keeps what it runs with, no more."""

    def __call__(self) -> Any:
        """As plain data."""

    def text(self) -> bytes:
        """As the JSON of the file."""


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """Facts about a compiled program."""

    references: tuple[Node, ...] = ()
    """Nodes that have no kernel of their own and run by their op's reference, which is right and slow."""
    arithmetic: str = ""
    """What it computes in, and why, where its device decides that; empty elsewhere."""
    arena_bytes: int = 0
    """The memory that its tensors share."""


@dataclass(frozen=True, slots=True)
class Spinning:
    """How long threads that wait for work stay awake before they sleep; 0: they sleep at once."""

    during_us: int = 1000
    """While a run is in flight."""
    after_us: int = 100
    """When a run has ended and the next may follow."""


@dataclass(slots=True)
class Running:
    """How a program runs, which may change until it first does."""

    threads: int = 0
    """Of one run; 0: as many as there are processors. A library's own ignore it."""
    spinning: Spinning = field(default_factory=Spinning)
    """How long its threads stay awake where they wait for work."""
    on_first_run: Callable[[], None] | None = None
    """Called once, before a program that is made for a chip first runs."""


class Program(ABC):
    """A compiled graph, ready to run from several threads."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """The QNN graph that it computes."""
        return self._graph

    @functools.cached_property
    def running(self) -> Running:
        """How it runs."""
        return Running()

    @abstractmethod
    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""

    def run_into(
        self, feeds: Mapping[str, Array], targets: Mapping[str, Array], unwanted: Collection[str] = ()
    ) -> dict[str, Array]:
        """As `run`; an output is the array in `targets` where that can hold it as it is made, else one of its own.

        Outputs that are `unwanted` need not be computed, and are not given.
        """
        return {name: array for name, array in self.run(feeds).items() if name not in unwanted}

    @property
    def facts(self) -> ProgramFacts:
        """Facts about the program."""
        return ProgramFacts()

    @property
    def overflowed(self) -> bool:
        """True once a run had numbers past what the backend's floats hold, where that is noticed."""
        return False

    def save(self, put: Put) -> dict[str, Any]:
        """What a context file holds of it, as plain data for JSON: the graph; arrays are put elsewhere in the file."""
        return {"graph": text.dumps(self.graph, put=put)}


class WrappedProgram(Program):
    """A program that runs another one, whose are the graph, the facts and what a file holds."""

    def __init__(self, program: Program) -> None:
        self._program = program

    @property
    def running(self) -> Running:
        """How the inner program runs."""
        return self._program.running

    @property
    def graph(self) -> Graph:
        """The graph of the inner program."""
        return self._program.graph

    @property
    def facts(self) -> ProgramFacts:
        """The facts of the inner program."""
        return self._program.facts

    @property
    def overflowed(self) -> bool:
        """True once a run of the inner program had numbers past what floats hold there."""
        return self._program.overflowed

    def save(self, put: Put) -> dict[str, Any]:
        """What a context file holds of the inner program."""
        return self._program.save(put)


interruption: ContextVar[Callable[[], None] | None] = ContextVar("interruption", default=None)
"""What a program calls every now and then while it runs; it may raise to end the run."""


@contextmanager
def interrupted_by(check: Callable[[], None] | None) -> Iterator[None]:
    """Let programs that this thread runs inside the block call `check`, which may raise to stop them."""
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
    """The times of the kernels that this thread runs inside the block; empty where a backend cannot measure them."""
    times: list[KernelTime] = []
    token = kernel_times.set(times)
    try:
        yield times
    finally:
        kernel_times.reset(token)


# -- backends ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlacingTraits:
    """What decides which nodes a backend refuses, apart from the nodes."""

    refusals: Hashable
    """Backends of one class that are equal in this refuse the same nodes in the same words, but for the label."""
    label: str
    """What its reasons call the chip."""


class Backend(ABC):
    """Something that runs QNN graphs."""

    name: str
    Config: ClassVar[type[OptionTable]] = OptionTable
    """The options that the backend is made with; a context file keeps their `pairs`."""
    ep_limited: bool = False
    """Whether the QNN EP drives it with limits of its own (`frontends.onnx.ep_limits`)."""

    def __init__(self, config: OptionTable | None = None, threads: int = 0) -> None:
        """`threads` is how many one run may use, 0 for as many as the process has processors."""
        self.config = config if config is not None else self.Config()
        self.threads = threads
        self.spinning = Spinning()
        """How long the threads of programs made from here on stay awake."""

    @classmethod
    def for_deployment(cls, deployment: Deployment, threads: int = 0) -> Self:
        """The backend that places, compiles and times for a deployment."""
        return cls(None, threads)

    @property
    def largest_float(self) -> float:
        """Past this its floats are rounded coarsely, or end."""
        return math.inf

    def unsupported(self, node: Node) -> str | None:
        """Why the backend refuses the node and what would work, or None if it takes it."""
        return None

    @property
    def placing_traits(self) -> PlacingTraits | None:
        """What `unsupported` depends on beside the node; None where that is not known."""
        return None

    def float16_hazard(self, node: Node) -> str | None:
        """Why the backend's narrower numbers cannot hold a node's, and what would work; None where they can."""
        return None

    def remark(self, node: Node) -> str | None:
        """What keeps a node from the backend's best way to run it, and what would work; None where nothing does."""
        return None

    @property
    def numeric_switches(self) -> Mapping[str, str]:
        """What the chip may compute otherwise than the backend does, by name, and what each means."""
        return {}

    def switchable_nodes(self, graph: Graph, switch: str) -> tuple[Node, ...]:
        """The nodes of a graph, before it is compiled, that a numeric switch changes."""
        return ()

    def switch_nodes(self, graph: Graph, switch: str, names: Collection[str]) -> None:
        """Let some nodes of a graph, before it is compiled, compute as a numeric switch says."""
        raise NotImplementedError(f"the {self.name} backend has no numeric switch {switch!r}")

    @abstractmethod
    def compile(self, graph: Graph) -> Program:
        """A program that computes the graph; the graph is the program's from then on."""

    def load(self, name: str, inputs: Sequence[Value], outputs: Sequence[Value], read: Read, get: Get) -> Program:
        """The program that `save` wrote, over the file's own bytes; FormatError where what is read is not one."""
        return self.compile(saved_graph(name, inputs, outputs, read(), get))


def saved_graph(name: str, inputs: Sequence[Value], outputs: Sequence[Value], data: Any, get: Get) -> Graph:
    """The graph that `Program.save` wrote; FormatError where there is none, or another than the file's table says."""
    import hexforge.ops  # noqa: F401 - fills the table

    if not isinstance(data, dict) or not isinstance(data.get("graph"), str):
        raise FormatError(f"program {name!r}: is malformed")
    graph = text.loads(data["graph"], get)
    for values, expected in ((graph.inputs, inputs), (graph.outputs, outputs)):
        if [(v.name, v.type) for v in values] != [(v.name, v.type) for v in expected]:
            raise FormatError(f"program {name!r}: has other inputs or outputs than the table of graphs says")
    if empty := [v.name for v in graph.values.values() if v.is_static and v.data is None]:
        raise FormatError(f"program {name!r}: constant {empty[0]!r} has no data")
    return graph


# -- backends that time -----------------------------------------------------------------------------------------------

_Made = TypeVar("_Made")


class SharedWork:
    """What timing a graph on one chip leaves for the next chip, or for other options: the backend's own, by keys.

    The graph must not change as long as its shared work is used.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._made: dict[Hashable, Any] = {}

    def once(self, key: Hashable, make: Callable[[], _Made]) -> _Made:
        """What was made for the key before, else what `make` gives now."""
        if key not in self._made:
            self._made[key] = make()
        made: _Made = self._made[key]
        return made


class TimedBackend(Backend):
    """A backend that says how long its programs take."""

    @property
    @abstractmethod
    def chips(self) -> tuple[str, ...]:
        """Every chip that it can time."""

    @property
    @abstractmethod
    def chip_name(self) -> str:
        """The chip that it times; where only an architecture is known, one of that architecture."""

    def require_chip(self, name: str) -> None:
        """CallError unless it is the name of one chip that can be timed."""
        if name not in self.chips:
            raise CallError(f"{name!r} is no chip of the {self.name} backend; it has {', '.join(self.chips)}")

    @property
    def graph_config(self) -> GraphConfig:
        """How it finalizes graphs."""
        return GraphConfig()

    def prepared(self, graph: Graph) -> Graph:
        """The graph after the backend's own passes: the very graph that `compile` makes a program of.

        Of all that the backend was made with it depends on `graph_config` alone where that decides between deployments.
        """
        return graph

    @abstractmethod
    def timing(
        self,
        graph: Graph,
        precision: str = AS_IS,
        runtime: str = "qnn_dlc",
        batch: int = 1,
        power: Power = BURST,
        shared: SharedWork | None = None,
    ) -> Timing:
        """One inference of a prepared graph on the backend's chip, driven as `power` says.

        With `shared`, which is of this graph, what another chip or another call has worked out is not done again.
        """

    def mixed_us(
        self, graph: Graph, precision: str, runtime: str, nodes: Collection[str], power: Power = BURST
    ) -> float | None:
        """The latency with some 8-bit nodes at 16 bit, conversions included; None where none of them is 8-bit."""
        return None

    def accelerator(self) -> Accelerator:
        """What models on the chip share; by default nothing that has to be saved when one gives way to another."""
        return Accelerator(0, 0.0)


# -- backends whose contexts are made for chips -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target(Result):
    """A chip that graphs were prepared for."""

    name: str
    """The chip's name, or empty where only facts of it are known."""
    label: str
    """What messages call it."""
    facts: Mapping[str, int]
    """What decides whether a context suits another chip, by the backend's own names."""

    described = (Key("soc", of="name"), "label", Key("facts", inline=True))


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


class ContextBackend(Backend):
    """A backend that prepares graphs for chips: contexts ask it whatever concerns a chip."""

    @property
    @abstractmethod
    def targets(self) -> tuple[Target, ...]:
        """The chips that contexts are made for."""

    @abstractmethod
    def for_chip(self, index: int) -> Self:
        """The same backend for one of its chips."""

    @abstractmethod
    def at_level(self, level: int) -> Self:
        """The same backend with another effort spent on preparing graphs."""

    @abstractmethod
    def graph_settings(
        self, changes: Mapping[str, int | None] | None = None, before: GraphSettings | None = None
    ) -> dict[str, int]:
        """Settings of a graph for all chips, some of them changed; CallError for what one of the chips cannot do."""

    @abstractmethod
    def schematic(
        self, graph: Graph, target: Target, settings: GraphSettings, power: Power = BURST
    ) -> Schematic | None:
        """The graph on a chip that is driven as `power` says, None where too little is known of the chip."""

    @abstractmethod
    def fits(self, graph: Graph) -> bool:
        """Whether all of a graph fits the chips' own memory at once: its schematic can wait until someone asks."""

    @abstractmethod
    def compatibility(self, targets: Sequence[Target], graphs: Mapping[str, GraphSettings]) -> Compatibility:
        """How well a context for `targets`, with these graphs, suits the chip of this backend."""

    @abstractmethod
    def no_weight_sharing(self, settings: Sequence[GraphSettings] = ()) -> str | None:
        """Why graphs with these settings cannot share weights, or None where they can."""

    @property
    @abstractmethod
    def most_graphs(self) -> int:
        """How many graphs one context holds."""

    @property
    @abstractmethod
    def needs_spill_fill_size(self) -> bool:
        """Whether context models say how large a spill-fill buffer their graphs need."""

    @property
    @abstractmethod
    def float_io(self) -> bool:
        """Whether programs take and give float32 where their graph has a narrower float type."""

    @abstractmethod
    def blob_info(self, settings: GraphSettings, spill_fill_bytes: int) -> dict[str, int]:
        """The settings of a graph as qnn-context-binary-utility names them."""


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
