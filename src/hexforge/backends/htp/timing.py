# SPDX-License-Identifier: Apache-2.0
"""Timing: the time half of the backend behind the contract: a prepared graph on a chip, under options and power."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from hexforge.backend import SharedWork
from hexforge.backends.htp.time import band, capacity, cost, schedule, simulate, tile
from hexforge.backends.htp.time.settings import fitted_settings
from hexforge.backends.htp.time.task_sequence import TaskSequence
from hexforge.backends.htp.time.work import constant_input
from hexforge.chips.deployment import AS_IS
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import Power
from hexforge.chips.soc import A16W16_ARCH, ChipTarget, Soc
from hexforge.errors import UnsupportedError
from hexforge.ir import Graph, Work
from hexforge.timeline import Timeline, Timing

EIGHT, SIXTEEN, WIDE = "w8a8", "w8a16", "w16a16"
FRAMES_THROUGH_TFLITE = "3-D convolutions through tflite (15 to 160 times as long as here on the devices measured)"
"""Measured: resnet_3d, resnet_2plus1d and resnet_mixed, which take as long as that against qnn_dlc."""


@functools.lru_cache(32)
def _measured_profiles(cost_file: str) -> dict[str, np.ndarray]:
    return band.measured_profiles(cost.fitted(cost_file))


@dataclass(frozen=True, slots=True)
class Clock:
    """A chip under graph options and power, ready to time graphs."""

    soc: Soc
    config: GraphConfig
    power: Power
    cost_file: str = ""
    """Costs that were fitted elsewhere; hexforge's own where none is named."""

    def timing(
        self, graph: Graph, precision: str, runtime: str, batch: int = 1, shared: SharedWork | None = None
    ) -> Timing:
        """One inference; CapacityError for what does not fit, UnsupportedError for floats on a chip without them."""
        shared = shared or SharedWork(graph)
        fit = cost.fitted(self.cost_file)
        costs = cost.fitted_costs(self.soc, self.cost_file)
        line = self.timeline(graph, precision, runtime, batch, shared)
        known = band.certainty(line.work_us, costs, fit["support"], _measured_profiles(self.cost_file))
        rates = {tile.PRECISIONS[kind].rate for kind in _kinds(graph, precision, shared)}
        width = band.band_width(known, rates, runtime, costs.provenance == "fitted", fit)
        little_known = known.little_known
        if runtime == "tflite" and any(node.op.name == "Conv3d" for node in graph):
            little_known = (FRAMES_THROUGH_TFLITE, *little_known)
        return Timing(line, math.expm1(width), costs.provenance, little_known)

    def timeline(
        self, graph: Graph, precision: str, runtime: str, batch: int = 1, shared: SharedWork | None = None
    ) -> Timeline:
        """The timeline of one inference, without how far to trust it."""
        shared = shared or SharedWork(graph)
        wanted = None if precision == AS_IS else tile.precision(precision)
        if "float" in _kinds(graph, precision, shared) and not ChipTarget(self.soc.htp_arch, self.soc).float16:
            raise UnsupportedError(f"{self.soc.name} has no float16; {_float_remedy(graph, precision)}")
        if wanted is not None and wanted.name == WIDE and self.soc.htp_arch < A16W16_ARCH and _has_weights(graph):
            raise UnsupportedError(
                f"{self.soc.name} is v{self.soc.htp_arch}: 16-bit weights need v{A16W16_ARCH}; choose precision "
                f"{SIXTEEN} instead of {WIDE}, or another chip"
            )
        settings = fitted_settings(self.soc, self.config, self.power, self.cost_file)
        shared.once(
            ("capacity", wanted, settings.vtcm_bytes, batch),
            lambda: capacity.require_capacity(graph, wanted, settings.vtcm_bytes, batch),
        )
        tasks = shared.once(
            ("tasks", wanted, runtime, settings.costs.vtcm_bytes, settings.config),
            lambda: simulate.tasks_of(graph, settings, wanted, runtime),
        )
        elements = shared.once("elements", lambda: simulate.io_elements(graph))
        return simulate.fastest_timeline(tasks, settings, elements, runtime, batch)

    def mixed_us(self, graph: Graph, precision: str, runtime: str, nodes: Collection[str]) -> float | None:
        """The latency with some 8-bit nodes at 16 bit, conversions included; None where none of them is 8-bit."""
        settings = fitted_settings(self.soc, self.config, self.power, self.cost_file)
        wanted = tile.PRECISIONS.get(precision)
        tasks = schedule.schedule(graph, wanted, runtime, settings.costs.vtcm_bytes, self.config)
        wide = schedule.schedule(graph, tile.PRECISIONS[SIXTEEN], runtime, settings.costs.vtcm_bytes, self.config)
        chosen = set(nodes)
        if [t.ops for t in tasks] != [t.ops for t in wide]:
            return None  # a path that schedules 16 bit otherwise: there is no task for task
        changed = {i for i, t in enumerate(tasks) if t.precision.name == EIGHT and chosen & set(t.ops)}
        if not changed:
            return None
        mixed = [wide[i] if i in changed else t for i, t in enumerate(tasks)]
        for i, task in enumerate(mixed):
            for source, size in task.reads:
                if source >= 0 and (source in changed) != (i in changed):
                    codes = size // task.precision.activation_bytes
                    task.add("cast", codes * 2 / 1e6)
        elements = simulate.io_elements(graph)
        return simulate.fastest_timeline(TaskSequence(mixed), settings, elements, runtime).latency_us


def _float_remedy(graph: Graph, precision: str) -> str:
    """What would work on a chip without float math: nodes that are float in their own encodings are named."""
    if precision != AS_IS:
        return f"choose precision w8a8 or w8a16 instead of {precision}, or another chip"
    floats = [
        node.name for node in graph if node.op.kind is not Work.CONVERT and schedule.precision_of(node).name == "float"
    ]
    more = f" and {len(floats) - 3} more" if len(floats) > 3 else ""
    names = ", ".join(map(repr, floats[:3])) + more
    return f"{names} compute in float: quantize them to 8 or 16 bits, or choose another chip"


def _has_weights(graph: Graph) -> bool:
    """Whether a graph multiplies by constants."""
    return any(node.op.kind in schedule.WEIGHTED and constant_input(node) is not None for node in graph)


def _kinds(graph: Graph, precision: str, shared: SharedWork) -> set[str]:
    """The precisions of a graph's math."""
    if precision != AS_IS:
        return {tile.precision(precision).name}

    # a conversion at the border, which the host or a chip without float math does too, is no float math
    def own() -> set[str]:
        return {schedule.precision_of(node).name for node in graph if node.op.kind is not Work.CONVERT}

    return shared.once("kinds", own)
