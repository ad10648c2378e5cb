# SPDX-License-Identifier: Apache-2.0
"""Resizing: a graph whose tensors have dimensions that vary, compiled anew for the sizes of a run.

A context holds the graph at its largest sizes; where dimensions vary it also keeps the graph as text, and which
dimension of which tensor varies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hexforge.errors import CallError, FormatError, ModelError
from hexforge.ir import Graph, Node, TensorType, Value, text

if TYPE_CHECKING:
    from hexforge.addons.qnn_graphs.declarations import QnnOp

Shape = tuple[int, ...]


def dynamic_key(graph: str) -> str:
    """Where a context's metadata has a graph whose dimensions vary."""
    return f"dynamic graph {graph}"


def dynamic_text(graph: Graph, ops: Sequence[QnnOp]) -> str | None:
    """What the metadata has; None where no dimension varies."""
    marks = {t.name: list(t.dynamic) for op in ops for t in (*op.inputs, *op.outputs) if any(t.dynamic)}
    return json.dumps({"marks": marks, "graph": text.dumps(graph)}) if marks else None


def resize_graph(data: str, shapes: Mapping[str, Shape], where: str) -> Graph:
    """The graph with inputs of other sizes; CallError where an op cannot have them."""
    import hexforge.ops  # noqa: F401 - fills the table

    try:
        stored = json.loads(data)
        graph, marks = text.loads(stored["graph"]), stored["marks"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{where}: the graph of varying sizes is malformed: {error}") from None
    made = Graph(graph.name)
    new: dict[Value, Value] = {}
    for value in graph.values.values():
        shape = shapes.get(value.name)
        if shape is not None:
            _check(value, shape, marks.get(value.name, []), where)
        type = value.type if shape is None else value.type.with_shape(shape)
        if not any(value in node.outputs for node in graph.nodes):
            new[value] = made.value(value.name, type, value.role, value.data)
    for node in graph.nodes:
        inputs = [None if v is None else new[v] for v in node.inputs]
        types = _types(node, inputs, marks, where)
        outputs = [made.value(v.name, t, v.role) for v, t in zip(node.outputs, types, strict=True)]
        new.update(zip(node.outputs, outputs, strict=True))
        made.node(node.op.name, inputs, outputs, name=node.name, source=node.source, **node.params)
    return made


def _check(value: Value, shape: Shape, marks: Sequence[Any], where: str) -> None:
    fits = len(shape) == len(value.shape) and all(
        0 < a <= b if mark else a == b
        for a, b, mark in zip(shape, value.shape, marks or (False,) * len(shape), strict=False)
    )
    if not fits:
        raise CallError(
            f"{where}: {value.name!r} has the sizes {list(shape)}; it can have {list(value.shape)}"
            f"{' or less where dimensions vary' if marks else ''}"
        )


def _types(node: Node, inputs: Sequence[Value | None], marks: Mapping[str, Any], where: str) -> list[TensorType]:
    """The output types for other input types: by the op's inference, or by the one dimension that varies."""
    ins = tuple(None if v is None else v.type for v in inputs)
    declared = tuple(v.type for v in node.outputs)
    count = sum(1 for v in inputs if v is not None and not v.is_static)
    try:
        shapes = [t.shape for t in node.op.infer(replace(node.call, ins=ins, outs=()))]
    except ModelError:
        first = next(v for v in inputs if v is not None)
        size = 1
        for d in first.shape:
            size *= d
        shapes = [_solved(v, marks.get(v.name, []), size, count) or v.shape for v in node.outputs]
    types = [old.with_shape(shape) for old, shape in zip(declared, shapes, strict=True)]
    try:
        node.op.infer(replace(node.call, ins=ins, outs=tuple(types)))
    except ModelError as error:
        raise CallError(f"{where}: op {node.name!r} cannot have these sizes: {error}") from None
    return types


def _solved(value: Value, marks: Sequence[Any], size: int, inputs: int) -> Shape | None:
    """The declared shape with its one varying dimension such that it has `size` elements."""
    if inputs != 1 or sum(map(bool, marks)) != 1:
        return None
    at = [bool(m) for m in marks].index(True)
    rest = 1
    for i, d in enumerate(value.shape):
        rest *= 1 if i == at else d
    return (
        tuple(size // rest if i == at else d for i, d in enumerate(value.shape)) if rest and not size % rest else None
    )
