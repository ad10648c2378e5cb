# SPDX-License-Identifier: Apache-2.0
"""Graph: the tasks of an estimate and what they read, laid out in layers, each with its time and its SQNR."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hexforge.analysis.estimate import Estimate
from hexforge.analysis.quality.comparison import Comparison
from hexforge.model.reader import read
from hexforge.report.section import Section, SectionPart
from hexforge.results import Key, Result

MOST_NODES = 1500
"""The most nodes of a graph that is drawn: nobody could read a larger picture."""
_OP_SUFFIX = re.compile(r"_[A-Z][A-Za-z0-9]*(_\d+)?$")


@dataclass(frozen=True, slots=True)
class GraphNode(Result):
    """A task in the picture; x and y count boxes, from the upper left."""

    name: str
    op: str
    us: float
    sqnr_db: float | None
    row: int
    x: float
    y: int

    described = (
        "name",
        Key("label", of=lambda node: onnx_name(node.name)),
        "op",
        Key("us", rounded=4),
        Key("sqnr", of="sqnr_db", rounded=2),
        "row",
        Key("x", rounded=3),
        "y",
    )


@dataclass(frozen=True, slots=True)
class GraphPicture(SectionPart):
    """Tasks as boxes, and the edges between a task and the tasks that it reads from."""

    nodes: Sequence[GraphNode]
    edges: Sequence[tuple[int, int]]

    draw = "graph"
    described = ("draw nodes edges", Key("first", of=lambda picture: "time"))


def onnx_name(task: str) -> str:
    """The model's own name of a QNN node: conv1_Conv2d comes from conv1."""
    return _OP_SUFFIX.sub("", task)


def graph_section(estimate: Estimate, sqnr_db: Mapping[str, float] | None = None) -> Section | None:
    """The picture of a model's tasks, SQNR by the model's node names; None where there are too many or none."""
    if not 0 < len(estimate.rows) <= MOST_NODES:
        return None
    note = "Every task, and what it reads. A click shows it in the timeline and in the table."
    return Section("Graph", [picture(estimate, sqnr_db or {})], note)


def graph_section_of(model: Path, estimate: Estimate, comparison: Comparison | None = None) -> Section | None:
    """The section of a model file, with a comparison's SQNR where there is one."""
    return graph_section(estimate, {} if comparison is None else sqnr_by_node(model, comparison))


def picture(estimate: Estimate, sqnr_db: Mapping[str, float]) -> GraphPicture:
    """Layers by the longest way from an input; within a layer a task stands near those that it reads of."""
    rows = estimate.rows
    task_of = {name: i for i, row in enumerate(rows) for name in (row.name, *row.ops)}
    reads: list[set[int]] = [set() for _ in rows]
    for graph in estimate.graphs:
        makers: dict[str, set[int]] = {}  # of a value: the tasks whose work is in it, through nodes that take no time
        for node in graph:
            before = {t for v in node.inputs if v is not None for t in makers.get(v.name, ())}
            mine = task_of.get(node.name)
            if mine is not None:
                reads[mine] |= before - {mine}
            for value in node.outputs:
                makers[value.name] = before if mine is None else {mine}
    places = box_positions(reads)
    nodes = [GraphNode(row.name, row.op, row.us, _sqnr(row.ops, sqnr_db), i, *places[i]) for i, row in enumerate(rows)]
    return GraphPicture(nodes, sorted((r, t) for t, readers in enumerate(reads) for r in readers))


def box_positions(reads: Sequence[set[int]]) -> list[tuple[float, int]]:
    """Where each of some boxes stands, across and down, by what it reads."""
    layers = _layers(reads)
    at: dict[int, float] = {}
    widest = max(map(len, layers.values()))
    for depth in sorted(layers):
        best_at = {t: _mean([at[r] for r in reads[t] if r in at], (widest - 1) / 2) for t in layers[depth]}
        order = sorted(layers[depth], key=lambda t: (best_at[t], t))
        start = _mean(list(best_at.values()), 0.0) - (len(order) - 1) / 2
        for k, task in enumerate(order):
            at[task] = start + k
    least = min(at.values())
    depth_of = {task: depth for depth, tasks in layers.items() for task in tasks}
    return [(at[i] - least, depth_of[i]) for i in range(len(reads))]


def sqnr_by_node(model: Path, comparison: Comparison) -> dict[str, float]:
    """The SQNR of what each node of a quantized model makes, by its name; through a node fused to it where need be."""
    known = {row.name: row.sqnr_db for row in (*comparison.outputs, *comparison.tensors)}
    by_node: dict[str, float] = {}
    for node in reversed(list(read(model).ir.graph)):
        for value in node.outputs:
            if value.name in known:
                by_node[node.name or ""] = known[value.name]
            elif len(users := list(value.uses())) == 1 and (next_name := users[0].node.name or "") in by_node:
                by_node.setdefault(node.name or "", by_node[next_name])
    return {name: db for name, db in by_node.items() if abs(db) != float("inf")}


def _layers(reads: Sequence[set[int]]) -> dict[int, list[int]]:
    depth: list[int] = []
    for i, before in enumerate(reads):  # tasks are in an order in which they run
        depth.append(max((depth[r] + 1 for r in before if r < i), default=0))
    layers: dict[int, list[int]] = defaultdict(list)
    for task, level in enumerate(depth):
        layers[level].append(task)
    return layers


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def _sqnr(ops: Sequence[str], known: Mapping[str, float]) -> float | None:
    """The lowest SQNR of the nodes that run as one task."""
    measured = [known[name] for op in ops if (name := onnx_name(op)) in known]
    return min(measured, default=None)
