# SPDX-License-Identifier: Apache-2.0
"""CPU estimate: a rough time of the nodes that the NPU leaves to the CPU, measured here and scaled to the chip's core.

Every part of the model that stays with the CPU is run on one core of this computer, on the tensors that the model
before it computes of random inputs. The time is scaled by how fast this core does some reference work and by how fast
the chip's core is about (`chips.cpu_cores`). What passes between NPU and CPU is in the NPU's time already: each graph
is a call of its own, whose inputs and outputs are copied; `transfers_us` says how much of it that is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hexforge.analysis.random_inputs import random_inputs
from hexforge.chips.cpu_cores import REFERENCE_US, CpuCore, cpu_core
from hexforge.errors import HexforgeError
from hexforge.model.extraction import extract_parts
from hexforge.model.load_check import Extract
from hexforge.patterns.input_numbers import sequence_length
from hexforge.results import Key, Result
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.cpu_timing import CoreTime, known_time, measure, one_thread, part_key, run_bounded

if TYPE_CHECKING:
    from hexforge.analysis.timed_graphs import TimedGraphs
    from hexforge.ir import Graph
    from hexforge.runtime.partition import Part
    from hexforge.runtime.prepare import PreparedParts
    from hexforge.timeline import Timeline

NOT_ONNX = "only nodes of an ONNX model can be measured here"


@dataclass(frozen=True, slots=True)
class CpuPartTime(Result):
    """A part of the model that the CPU runs between calls of the NPU."""

    nodes: tuple[str, ...]
    here_us: float
    """On one core of this computer, measured."""
    us: float
    """On the chip's fastest core, rough."""

    described = ("nodes", Key("measured_us", of="here_us"), Key("us_rough", of="us"))
    decimals = 1


@dataclass(frozen=True, slots=True)
class CpuEstimate(Result):
    """What an inference takes on the CPU beside the NPU, rough: right within a factor of two."""

    core: CpuCore
    parts: tuple[CpuPartTime, ...] = ()
    here_speed: float = 0.0
    """How fast a core of this computer is, that of the table of cores being 1."""
    missing: str = ""
    """Why there is no time; nothing where there is one."""

    described = (
        Key("us_rough", of="us", rounded=1),
        "missing",
        Key("core", of=lambda cpu: str(cpu.core)),
        Key("core_provenance", of="core.provenance"),
        Key("core_speed", of="core.speed", rounded=3),
        Key("this_computer_speed", of="here_speed", rounded=3),
        Key("measured_us", of="here_us", rounded=1),
        "parts",
    )

    @property
    def us(self) -> float | None:
        """All parts together on the chip's core; None where they could not be measured."""
        return None if self.missing else sum(part.us for part in self.parts)

    @property
    def here_us(self) -> float:
        """All parts together on this computer."""
        return sum(part.here_us for part in self.parts)


def estimate_cpu(timed: TimedGraphs, soc: str, batch: int = 1) -> CpuEstimate:
    """What the nodes that the NPU leaves take on the CPU of a chip for a call of so many samples."""
    core = cpu_core(soc)
    if timed.placed is None:
        return CpuEstimate(core, missing=NOT_ONNX)
    try:
        times = _measured(timed.placed)
    except (HexforgeError, MemoryError) as error:
        return CpuEstimate(core, missing=" ".join(str(error).split()) or type(error).__name__)
    parts = tuple(
        CpuPartTime(nodes, time.us * batch, time.us * batch * REFERENCE_US / time.reference_us / core.speed)
        for nodes, time in times
    )
    return CpuEstimate(core, parts, REFERENCE_US / statistics.median(time.reference_us for _, time in times))


def _measured(placed: PreparedParts) -> list[tuple[tuple[str, ...], CoreTime]]:
    """Each part that stays with the CPU and how long it takes here."""
    left = {row.unit for row in placed.left_on_cpu}
    parts = [part for part in placed.parts if not part.taken and left.intersection(part.steps)]
    nodes = [tuple(row.node for i in part.steps for row in placed.rows_by_unit[i]) for part in parts]
    cuts = [_extract(placed, part) for part in parts]
    keys = [part_key(cut) for cut in cuts]
    feeds: Mapping[str, Any] = {}
    if any(known_time(key) is None for key in keys):
        feeds = _values(placed, [name for part in parts for name in part.inputs])
    return [
        (of, measure(key, cut, of, {name: feeds[name] for name in part.inputs} if feeds else {}))
        for of, key, cut, part in zip(nodes, keys, cuts, parts, strict=True)
    ]


def _extract(placed: PreparedParts, part: Part) -> Extract:
    nodes = [node for i in part.steps for node in placed.placements[i].unit.nodes]
    return extract_parts(placed.model, nodes, part.inputs, part.outputs)


def _values(placed: PreparedParts, names: Sequence[str]) -> dict[str, Any]:
    """What tensors hold where the model gets random inputs: those that nodes compute are computed, in onnxruntime."""
    model = placed.model
    known: dict[str, Any] = dict(next(iter(random_inputs(model))))
    for value in model.ir.graph.inputs:
        if (steps := sequence_length(value)) is not None:  # a sequence of no steps would take no time
            known[value.name or ""][...] = steps
    wanted = [name for name in dict.fromkeys(names) if name not in known]
    if wanted:
        nodes = list(model.ir.graph)
        inputs = [value.name or "" for value in model.ir.graph.inputs]
        whole = CpuPart(extract_parts(model, nodes, inputs, wanted), [n.name or "" for n in nodes], one_thread)
        known |= run_bounded(whole, {name: known[name] for name in inputs})
    return known


def transfers_us(graphs: Sequence[Graph], lines: Sequence[Timeline], placed: PreparedParts | None) -> float:
    """Of the NPU's time, what passing tensors between NPU and CPU takes: calls after the first, and copies."""
    calls = sum(line.rpc_us for line in lines[1:])
    if placed is None:
        return calls
    own = {value.name for value in (*placed.model.ir.graph.inputs, *placed.model.ir.graph.outputs)}
    copied = 0.0
    for graph, line in zip(graphs, lines, strict=True):
        border = [*graph.inputs, *graph.outputs]
        total = sum(value.type.size for value in border)
        passed = sum(value.type.size for value in border if value.name not in own)
        copied += line.io_us * (passed / total if total else 0.0)
    return copied + calls
