# SPDX-License-Identifier: Apache-2.0
"""GraphTime: how long each task of a graph takes under the clocks of the moment, and what energy that asks for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Protocol

from hexforge.addons.device.scheduling.scheduler import Inference
from hexforge.chips.deployment import AS_IS, Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.chips.power import Corner, Power
from hexforge.chips.soc import CLOCK_SHARE, CORES_SHARE, Soc
from hexforge.formats.validated import Amount, Count, Within
from hexforge.ir import Graph
from hexforge.runtime.registry import timed_backend
from hexforge.timeline import Timeline

MOST_STEPS = 1_000_000
"""Of what is played one by one: tasks of a graph, executions of a step."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Voltage corners in force."""

    core: Corner = Corner.MAX_VOLTAGE_CORNER
    bus: Corner = Corner.MAX_VOLTAGE_CORNER
    hmx: Corner = Corner.MAX_VOLTAGE_CORNER


class GraphTime(Protocol):
    """How long a graph takes."""

    def inference(self, clocks: Clocks, batch: int = 1, cores: int = 1) -> Inference:
        """One execution under some clocks, on one NSP core or several."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedTime:
    """The time of a graph that exists, by the simulator of its chip."""

    graph: Graph
    soc: Soc
    config: GraphConfig
    """How the graph was prepared."""
    runtime: str = "qnn_dlc"
    """Through what the graph is called, as deployments say it."""
    precision: str = AS_IS
    _known: dict[tuple[Clocks, int, int], tuple[Inference, Timeline]] = field(default_factory=dict, init=False)

    def inference(self, clocks: Clocks, batch: int = 1, cores: int = 1) -> Inference:
        """One execution under some clocks, on one NSP core or several."""
        return self._both(clocks, batch, cores)[0]

    def under(self, config: GraphConfig) -> SimulatedTime:
        """The same graph with other options."""
        return replace(self, config=config)

    def timeline(self, clocks: Clocks | None = None, batch: int = 1, cores: int = 1) -> Timeline:
        """The same, task by task and unit by unit."""
        return self._both(clocks or Clocks(), batch, cores)[1]

    def deployment(self, clocks: Clocks, cores: int = 1) -> Deployment:
        """Where and how the graph runs under some clocks."""
        own = clocks.hmx if clocks.hmx is not clocks.core else None  # an HMX vote of its own: v75 and newer
        power = Power(core_corner=clocks.core, bus_corner=clocks.bus, hmx_corner=own)
        config = replace(self.config, num_cores=cores)
        return Deployment(self.soc.name, self.precision, self.runtime, config, power)

    def _both(self, clocks: Clocks, batch: int, cores: int) -> tuple[Inference, Timeline]:
        known = self._known.get((clocks, batch, cores))
        if known is None:
            given = self.deployment(clocks, cores)
            clock = timed_backend(replace(given, precision=AS_IS))
            line = clock.timing(self.graph, self.precision, self.runtime, batch, given.power).timeline
            known = self._known[clocks, batch, cores] = Inference.of(line), line
        return known


@dataclass(frozen=True, slots=True)
class DeclaredTime:
    """The time of a graph of which only figures are known: at the highest corner, in equal tasks."""

    accelerator_us: Amount
    tasks: Annotated[int, Within(1, MOST_STEPS)] = 1
    rpc_us: Amount = 0.0
    io_us: Amount = 0.0
    vtcm_bytes: Count = 0
    energy_uj: Amount = 0.0

    def inference(self, clocks: Clocks, batch: int = 1, cores: int = 1) -> Inference:
        """One execution: all of it scales with the core's clock and the cores."""
        us = self.accelerator_us * batch / CLOCK_SHARE[clocks.core] / self.tasks / (1 + CORES_SHARE * (cores - 1))
        return Inference((us,) * self.tasks, self.rpc_us, self.io_us * batch, self.vtcm_bytes, self.energy_uj * batch)
