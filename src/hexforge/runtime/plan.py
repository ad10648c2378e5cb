# SPDX-License-Identifier: Apache-2.0
"""Plan: a prepared model compiled, ready to run part by part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from hexforge.backend import Backend, Program
from hexforge.frontends.onnx.ep_limits import ep_departs
from hexforge.frontends.onnx.placing import writes_of
from hexforge.ir import Array, Graph
from hexforge.model.extraction import extract_parts
from hexforge.model.load_check import Extract
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.partition import Part
from hexforge.runtime.prepare import PreparedParts
from hexforge.runtime.stages import PlacedNode, Stage, Stages


def no_cpu_part(model: Extract, nodes: Sequence[str]) -> Any:
    """Nothing in place of an onnxruntime session, for plans whose nodes on the CPU are never run."""
    return None


class Plan(Stages):
    """What a session does with a model on a backend."""

    def __init__(
        self,
        parts: PreparedParts,
        backend: Backend,
        make_cpu_part: Callable[[Extract, Sequence[str]], CpuPart] = CpuPart,
        exposed: Sequence[str] = (),
        before_compiling: Callable[[Graph, Part], None] | None = None,
    ) -> None:
        """`exposed`: patterns of the names of tensors inside that become outputs of their graphs, too.

        `before_compiling` is given each graph with its part, and may say how its tensors lie.
        """
        self.parts = parts
        """The model as it was placed."""
        stages: list[Stage] = []
        graphs_ns = programs_ns = 0
        for part, name in zip(parts.parts, parts.names(), strict=True):
            rows = tuple(row for i in part.steps for row in parts.rows_by_unit[i])
            runner: Program | CpuPart
            reads = tuple(part.inputs)
            if part.taken:
                began = time.perf_counter_ns()
                graph = parts.graph(part, name)
                if exposed:
                    expose(graph, exposed)
                if before_compiling is not None:
                    before_compiling(graph, part)
                rows = _with_warnings(rows, graph, backend)
                made = time.perf_counter_ns()
                runner = backend.compile(graph)
                graphs_ns, programs_ns = graphs_ns + made - began, programs_ns + time.perf_counter_ns() - made
                reads = tuple(v.name for v in runner.graph.inputs)
            else:
                nodes = [node for i in part.steps for node in parts.placements[i].unit.nodes]
                cut = extract_parts(parts.model, nodes, part.inputs, part.outputs)
                runner = make_cpu_part(cut, [str(row) for row in rows])
            stages.append(Stage(name, part, _with_slow_ops(rows, runner), runner, reads))
        placed = {(row.node, row.unit): row for stage in stages for row in stage.rows}
        self._rows = tuple(placed.get((row.node, row.unit), row) for row in parts.rows)
        super().__init__(stages, _constant_outputs(parts))
        self.graphs_us, self.programs_us = graphs_ns // 1000, programs_ns // 1000

    @property
    def rows(self) -> tuple[PlacedNode, ...]:
        """Every node of the model, in the model's order."""
        return self._rows


def expose(graph: Graph, patterns: Sequence[str]) -> None:
    """Let tensors inside whose names have one of the patterns be outputs, too."""
    written = [value.name for node in graph for value in node.outputs]
    kept = {value.name for value in graph.outputs}
    graph.expose(kept | {name for name in written if any(fnmatchcase(name, pattern) for pattern in patterns)})


def _with_slow_ops(rows: tuple[PlacedNode, ...], runner: Program | CpuPart) -> tuple[PlacedNode, ...]:
    """The rows of a part, with what its program says of their QNN ops."""
    if not isinstance(runner, Program) or not (references := runner.facts.references):
        return rows
    slow: dict[str, list[str]] = {}
    for node in references:
        for name in node.source:
            slow.setdefault(name, []).append(node.op.name)
    return tuple(replace(row, slow=tuple(slow.get(row.node, ()))) for row in rows)


def _with_warnings(rows: tuple[PlacedNode, ...], graph: Graph, backend: Backend) -> tuple[PlacedNode, ...]:
    """The rows of a part, with what the backend's real numbers cannot hold of it, and what it and the EP make of it."""
    unsafe: dict[str, dict[str, None]] = {}
    remarks: dict[str, dict[str, None]] = {}
    ops = {row.node: row.op_type for row in rows}
    for node in graph:
        for said, reason in ((unsafe, backend.float16_hazard(node)), (remarks, backend.remark(node))):
            for name in node.source if reason is not None else ():
                said.setdefault(name, {})[str(reason)] = None
        for name in node.source:
            if (departure := ep_departs(ops.get(name, ""), node)) is not None:
                remarks.setdefault(name, {})[departure] = None
    return tuple(
        replace(row, unsafe=tuple(unsafe.get(row.node, ())), remarks=tuple(remarks.get(row.node, ()))) for row in rows
    )


def _constant_outputs(parts: PreparedParts) -> dict[str, Array]:
    """Outputs of the model that are constants, which no part writes."""
    written = {name for placement in parts.placements for name in writes_of(placement)}
    return {
        str(value.name): np.asarray(value.const_value.numpy())
        for value in parts.model.ir.graph.outputs
        if value.name not in written and value.const_value is not None
    }
