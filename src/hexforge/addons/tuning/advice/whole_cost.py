# SPDX-License-Identifier: Apache-2.0
"""Whole cost: what advice compares models by: nodes whose time nobody knows, then the time of NPU and CPU together."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hexforge.analysis.estimate import Estimate, estimate
from hexforge.analysis.timed_graphs import TimedSource, built_graphs, timed_graphs
from hexforge.chips.deployment import Deployment
from hexforge.errors import CapacityError, UnsupportedError

if TYPE_CHECKING:
    from hexforge.model.reader import Model


@dataclass(frozen=True, order=True, slots=True)
class WholeCost:
    """The time of an inference, less being better: a node on the CPU that was not measured outweighs any time."""

    unknown_nodes: int
    """Nodes on the CPU whose time was not measured."""
    us: float
    """NPU and CPU one after the other, rough where there are nodes on the CPU; without them the NPU's latency."""
    cpu_nodes: int = field(default=0, compare=False)
    cpu_us: float = field(default=0.0, compare=False)
    """The CPU's part of the time."""

    @classmethod
    def of(cls, timed: Estimate) -> WholeCost:
        """What an estimate says."""
        cpu_us, count = timed.cpu_us_rough, len(timed.left_on_cpu)
        return cls(count, timed.npu_us, count) if cpu_us is None else cls(0, timed.npu_us + cpu_us, count, cpu_us)


IMPOSSIBLE = WholeCost(sys.maxsize, math.inf)
"""Of a model that cannot be timed, or does not fit."""


def whole_cost(
    model: Model | TimedSource, deployment: Deployment, cpu_part: bool, like: WholeCost, *, built: bool = False
) -> WholeCost:
    """What a variant of a model costs; IMPOSSIBLE where it cannot be timed.

    Its CPU part is measured where that is wanted and where it has other nodes than the model it is `like`: with as many
    it takes as long, and measuring it again would only add noise. With `built` it is the file that `quantize` builds.
    """
    try:
        graphs = (built_graphs if built else timed_graphs)(model, deployment)
        count = len(graphs.left_on_cpu)
        same = bool(count) and count == like.cpu_nodes and not like.unknown_nodes
        timed = estimate(graphs, deployment, cpu_part=cpu_part and not same)
    except (UnsupportedError, CapacityError):
        return IMPOSSIBLE
    return WholeCost(0, timed.npu_us + like.cpu_us, count, like.cpu_us) if same else WholeCost.of(timed)
