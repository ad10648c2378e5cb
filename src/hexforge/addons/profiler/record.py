# SPDX-License-Identifier: Apache-2.0
"""The profile record: what runs of graphs did. Logs, texts, tables, traces and pages are views of it."""

from __future__ import annotations

import re
from dataclasses import dataclass

LEVELS = ("basic", "detailed", "linting", "optrace")
"""How much is profiled, least first: each level has all that the one before has."""
SIMULATED, MEASURED = "simulated", "measured"
HMX, HVX, DMA, SERVICE, HOST = "HMX", "HVX", "DMA", "service", "host"
UNITS = (HMX, HVX, DMA, SERVICE, HOST, "CPU", "GPU")
"""What an activity runs on."""
READ, WRITE = "DramToTcm", "TcmToDram"
SYNC, CHECKPOINT_SET, CHECKPOINT_WAIT = "Sync Op", "DmaCheckpointSet", "DmaCheckpointWait"
ZAP, SYSTEM = "BlockZapOp", "SystemService"
SERVICES = (READ, WRITE, SYNC, CHECKPOINT_SET, CHECKPOINT_WAIT, ZAP, SYSTEM)
"""What the HTP does that is no op of the network, by QNN's names."""
INPUT, START, OUTPUT = 2, 0, 3
"""The ids of a graph's input, of its unnamed start and of its output, as in QNN's reports."""
FIRST_NODE = 4
"""The id of a graph's first node."""
_NO_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
LEFT_OUT = "Nodes left to the CPU"
"""The event that counts what of a model is not in its profile."""
MOST_NAMES = 10
"""How many background ops a linting report names for one op."""


@dataclass(frozen=True, slots=True)
class ProfiledOp:
    """An op of a profiled graph."""

    id: int
    name: str
    """Empty for the graph's unnamed start."""
    type: str
    """The QNN op, or Input, Start or Output."""
    sources: tuple[str, ...] = ()
    """The model's own nodes that it came from."""
    reads: tuple[int, ...] = ()
    """Places, in the graph's ops, of those whose results it reads."""
    result: str = ""
    """The data type of what it makes."""
    shape: tuple[int, ...] = ()
    result_bytes: int = 0
    macs: int = 0
    weight_bytes: int = 0

    @property
    def label(self) -> str:
        """As QNN's reports call it."""
        name = _NO_LINE.sub("_", self.name).strip()  # a label is a part of one line
        if not name:
            return f"OpId_{self.id}"
        return f"{name} OpId_{self.id}" if self.id in (INPUT, OUTPUT) else f"{name}:OpId_{self.id}"


@dataclass(frozen=True, slots=True)
class OpCost:
    """What one op took of the main thread in one run, in cycles, and what went on beside it."""

    cycles: int
    wait: int = 0
    """Between the op before and this one, while the main thread waited."""
    overlap: int = 0
    """How many of its cycles passed while ops were at work that nobody waits for."""
    overlap_wait: int = 0
    """How much of its wait passed while such ops were at work."""
    beside: tuple[int, ...] = ()
    """Places of the ops at work in `overlap`, at most ten."""
    beside_wait: tuple[int, ...] = ()
    resources: tuple[str, ...] = ()
    """HVX, HMX, DMA: what it uses."""


@dataclass(frozen=True, slots=True)
class Activity:
    """Something at work, on one unit of one core."""

    unit: str
    name: str
    """The kind of HTP op: its QNN op, or one of SERVICES."""
    op: int
    """The place of the op it works for; -1: for none."""
    start_us: float
    end_us: float
    bytes: int = 0
    core: int = 0

    @property
    def us(self) -> float:
        """How long it takes."""
        return self.end_us - self.start_us


@dataclass(frozen=True, slots=True)
class CounterTrack:
    """A quantity of one core over time: from each time on it has the value there."""

    name: str
    unit: str
    at_us: tuple[float, ...]
    values: tuple[float, ...]
    core: int = 0


@dataclass(frozen=True, slots=True)
class RunSpan:
    """What happened to a whole graph: executed, waited for resources, or gave way to another."""

    lane: str
    """Runtraces or Yields."""
    graph: str
    name: str
    start_us: float
    end_us: float
    core: int = 0


@dataclass(frozen=True, slots=True)
class HostEvent:
    """One figure, as QNN's profiling events are: INIT, FINALIZE, EXECUTE, DE-INIT and what belongs to them."""

    message: str
    name: str
    value: int
    unit: str = "US"
    """US, BYTES, CYCLES or COUNT."""
    root: bool = False
    timestamp_us: int = 0


@dataclass(frozen=True, slots=True)
class ProfiledRun:
    """One execution of a graph."""

    timestamp_us: int
    """When it began, by the host's clock."""
    netrun_us: float
    """The whole call as the application sees it."""
    rpc_us: float
    """The call to the accelerator and back."""
    accelerator_us: float
    critical_cycles: int
    """The main thread from start to end: the sum of all ops' cycles and waits."""
    yields: int = 0
    vtcm_acquire_us: float = 0.0
    power_us: float = 0.0
    """HVX and HMX powered on and acquired."""
    hvx_threads: int = 0
    costs: tuple[OpCost, ...] = ()
    """The cost of each of the graph's ops, in their order; empty at level basic."""
    activities: tuple[Activity, ...] = ()
    """At level optrace."""
    counters: tuple[CounterTrack, ...] = ()
    spans: tuple[RunSpan, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphProfile:
    """A graph and its runs."""

    name: str
    backend: str
    chip: str
    clock_mhz: float
    vtcm_bytes: int = 0
    ops: tuple[ProfiledOp, ...] = ()
    """The ops in the order they run; empty at level basic."""
    runs: tuple[ProfiledRun, ...] = ()
    options: tuple[str, ...] = ()
    """KEY=VALUE: what a simulated graph was timed under, so that it can be timed again."""
    text: str = ""
    """The graph that was simulated, as text without its weights."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What was profiled of a model."""

    model: str
    level: str
    source: str
    """simulated (a chip's timeline) or measured (kernels on this computer)."""
    graphs: tuple[GraphProfile, ...]
    events: tuple[HostEvent, ...] = ()
    """Outside the runs: how graphs came to be and were freed."""

    @property
    def left_out(self) -> int:
        """Nodes of the model that are in none of its graphs."""
        return next((event.value for event in self.events if event.name == LEFT_OUT), 0)

    @property
    def has_activities(self) -> bool:
        """Whether single activities are in it."""
        return self.level == LEVELS[-1]
