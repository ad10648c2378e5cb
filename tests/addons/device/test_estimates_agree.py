# SPDX-License-Identifier: Apache-2.0
"""Models that run at the same time take as long by an estimate as on the simulated device, to the last bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.device import Binary, CreationConfig, Device, Qnn
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.scheduling.concurrent import simulate_estimates
from hexforge.chips.priority import Priority
from tests.addons.device import tiny
from tests.backends.htp.test_graph_options import spilling_model

SOC = "SM8650"
COUNT = 6


class Caller:
    """A thread that calls a graph so many times, each when the one before has returned."""

    def __init__(self, qnn: Qnn, graph: DeviceGraph, feeds: dict[str, Any]) -> None:
        self.qnn, self.graph, self.feeds = qnn, graph, feeds
        self.results: list[ExecutionResult] = []

    def again(self, ended: Any = None) -> None:
        if ended is not None:
            self.results.append(ended.result())
        if len(self.results) < COUNT:
            self.qnn.QnnGraph_executeAsync(self.graph, self.feeds).then(self.again)


def on_the_device(
    folder: Path, models: Sequence[bytes], priorities: Sequence[str], deployment: hexforge.Deployment, mode: str
) -> list[list[ExecutionResult]]:
    """COUNT executions of each context, all callers at work at the same time."""
    device = Device(SOC)
    qnn = Qnn(device.process("app", privileged=True))
    qnn.use_profile(hexforge.Power(mode))
    callers = []
    for i, (model, priority) in enumerate(zip(models, priorities, strict=True)):
        hexforge.compile(model, folder / f"{i}.bin", deployment)
        config = CreationConfig(priority=Priority.of(priority))
        context = qnn.QnnContext_createFromBinary(Binary.of(folder / f"{i}.bin", device.soc), config)
        graph = next(iter(context.graphs.values()))
        feeds = {name: np.zeros(type.shape, np.float32) for name, type in graph.spec.inputs}
        callers.append(Caller(qnn, graph, feeds))
    device.clock.now_us = device.created_us = 0.0  # sums of times are rounded as in an estimate, which begins at 0
    for caller in callers:
        caller.again()
    device.clock.run()
    return [caller.results for caller in callers]


@pytest.mark.parametrize("mode", ["burst", "high_performance", "balanced", "power_saver"])
@pytest.mark.parametrize("vtcm_mb", [8, 4])
def test_co_running_models_take_the_same_time(tmp_path: Path, mode: str, vtcm_mb: int) -> None:
    models = [spilling_model(), tiny.conv(), tiny.conv(3)]
    priorities = ["low", "high", "normal"]
    deployment = hexforge.Deployment(
        SOC, config=hexforge.GraphConfig(vtcm_mb=vtcm_mb), power=hexforge.Power(performance_mode=mode)
    )
    estimates = [hexforge.estimate(model, deployment) for model in models]
    shared = simulate_estimates(estimates, priorities, count=COUNT)
    device = on_the_device(tmp_path, models, priorities, deployment, mode)
    assert [len(runs) for runs in device] == [COUNT] * 3
    assert shared.jobs[0].yields > 0
    assert (shared.jobs[0].moved_us > 0) == (vtcm_mb == 8)  # two graphs of 4 MB have room
    for outcome, runs in zip(shared.jobs, device, strict=True):
        assert outcome.yields == sum(run.yields for run in runs)
        assert outcome.moved_us == sum(run.moved_us for run in runs)
        assert outcome.latencies_us == tuple(run.latency_us for run in runs)
