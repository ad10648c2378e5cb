# SPDX-License-Identifier: Apache-2.0
"""Stages: the parts a model runs in, whether they were compiled just now or come from a context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hexforge.backend import Program
from hexforge.errors import CallError
from hexforge.ir import Graph
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.partition import Part


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """One node of the model: where it runs, why not on the backend, and what QNN ops its unit became."""

    node: str
    op_type: str
    domain: str
    where: str
    """QNNExecutionProvider or CPUExecutionProvider."""
    reason: str | None
    qnn_ops: tuple[str, ...]
    unit: int
    """Number of the unit; nodes of one unit become QNN ops together."""
    slow: tuple[str, ...] = ()
    """QNN ops of its unit, after the passes, that have no kernel of their own on the backend."""
    ep_refuses: str = ""
    """Why onnxruntime's QNN EP leaves the node to the CPU, or nothing; said for the htp backend."""
    unsafe: tuple[str, ...] = ()
    """What of its unit the backend's real numbers cannot hold, and what would work."""
    remarks: tuple[str, ...] = ()
    """What keeps its unit from the backend's best way to run it, and what would work."""

    def __str__(self) -> str:
        domain = "" if self.domain in ("", "ai.onnx") else f"{self.domain}:"
        return f"{self.node!r} ({domain}{self.op_type})"


@dataclass(frozen=True, slots=True)
class Stage:
    """A part, ready to run."""

    name: str
    part: Part
    rows: tuple[PlacedNode, ...]
    runner: Program | CpuPart
    reads: tuple[str, ...]
    """Tensors the runner is fed."""
    names: Mapping[str, str] | None = None
    """What the runner calls tensors that the model calls otherwise."""

    def run(self, values: Mapping[str, Any], targets: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the part writes, by the model's names; in `targets` where its program can write there."""
        if targets and isinstance(self.runner, Program):
            names = self.names or {}
            feeds = {names.get(name, name): values[name] for name in self.reads}
            results = self.runner.run_into(feeds, {names.get(name, name): array for name, array in targets.items()})
            return {name: results[names.get(name, name)] for name in self.part.outputs}
        if isinstance(self.runner, CpuPart):
            fed = {name: values[name] for name in self.part.inputs if name in values}
            return self.runner.run_into(fed, targets) if targets else self.runner.run(fed)
        if not self.names:
            return self.runner.run({name: values[name] for name in self.reads})
        results = self.runner.run({self.names.get(name, name): values[name] for name in self.reads})
        return {name: results[self.names.get(name, name)] for name in self.part.outputs}


class Stages:
    """Parts that run one after another."""

    def __init__(self, stages: Sequence[Stage], constants: Mapping[str, Any]) -> None:
        self._stages = list(stages)
        self.constants = constants
        """Outputs of the model that no part writes."""
        self.graphs_us = self.programs_us = 0
        """What it took to make graphs of placed nodes, and programs of these; 0 for what was loaded."""
        self._last = {name: i for i, stage in enumerate(self._stages) for name in stage.part.inputs}

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model."""
        return tuple(row for stage in self.stages for row in stage.rows)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts, in the order they run."""
        return tuple(self._stages)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The QNN graphs, in the order they run."""
        return tuple(s.runner.graph for s in self._stages if s.part.taken and not isinstance(s.runner, CpuPart))

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs of its graphs, in the order they run."""
        return tuple(stage.runner for stage in self.stages if isinstance(stage.runner, Program))

    @property
    def overflowed(self) -> bool:
        """True once a run had numbers past what the floats of its programs hold."""
        runners = (stage.runner for stage in self.current_stages())
        return any(isinstance(runner, Program) and runner.overflowed for runner in runners)

    def use_programs(self, programs: Mapping[str, Program]) -> None:
        """Run other programs of the same graphs, by the names of their stages; before the first run."""
        self._stages = [replace(s, runner=programs.get(s.name, s.runner)) for s in self._stages]

    def current_stages(self) -> Sequence[Stage]:
        """The parts as one run sees them from beginning to end."""
        return self._stages

    def stages_with_adapters(self, config: str) -> Sequence[Stage]:
        """Apply what a LoRA config file says; the parts as they are then."""
        raise CallError(
            f"qnn.lora_config={config}: adapters are for context models, and this model was compiled by the session; "
            "compile it (`hexforge compile --updatable`), `hexforge wrap` the context, and run that model"
        )

    def run(
        self,
        feeds: Mapping[str, Any],
        outputs: Sequence[str],
        *,
        targets: Mapping[str, Any] | None = None,
        stages: Sequence[Stage] | None = None,
        only_needed: bool = False,
        around: Callable[[Stage], AbstractContextManager[None]] | None = None,
    ) -> dict[str, Any]:
        """Outputs by name. May be called from several threads at once: nothing here is written to.

        `stages` is what `now` or `adapted` gave. An output is the array in `targets` where its program can write there.
        """
        chosen = self.current_stages() if stages is None else stages
        if around is None and len(chosen) == 1 and not self.constants:  # what most runs are: nothing to keep books on
            results = chosen[0].run(feeds, targets)
            return {name: results[name] if name in results else feeds[name] for name in outputs}
        known: dict[str, Any] = {**self.constants, **feeds}
        asked_for = set(outputs)
        needed = self._needed(outputs) if only_needed else set(range(len(self._stages)))
        ready = self._ready(feeds, targets) if targets else {}
        for index, stage in enumerate(chosen):
            if index not in needed:
                continue
            with nullcontext() if around is None else around(stage):
                open_to_it = (
                    {name: targets[name] for name, first in ready.items() if first <= index} if targets else None
                )
                known.update(stage.run(known, open_to_it))
            for name in stage.part.inputs:
                if self._last[name] == index and name not in asked_for:
                    known.pop(name, None)
        return {name: known[name] for name in outputs}

    def _ready(self, feeds: Mapping[str, Any], targets: Mapping[str, Any]) -> dict[str, int]:
        """For each target the first stage that may write there: the last one that reads a feed in the same memory."""
        arrays = [(a.ctypes.data, a.ctypes.data + a.nbytes, self._last[name]) for name, a in feeds.items()
                  if isinstance(a, np.ndarray) and name in self._last]  # fmt: skip
        arrays.sort()
        starts = [start for start, *_ in arrays]
        longest = max((end - start for start, end, _ in arrays), default=0)
        ready = {}
        for name, target in targets.items():
            low, high = target.ctypes.data, target.ctypes.data + target.nbytes
            near = arrays[bisect_left(starts, low - longest) : bisect_left(starts, high)]
            ready[name] = max((last for start, end, last in near if end > low), default=0)
        return ready

    def _needed(self, outputs: Iterable[str]) -> set[int]:
        names, needed = set(outputs), set()
        for index in reversed(range(len(self._stages))):
            part = self._stages[index].part
            if names & set(part.outputs):
                needed.add(index)
                names.update(part.inputs)
        return needed
