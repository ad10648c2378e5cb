# SPDX-License-Identifier: Apache-2.0
"""Verify: every invariant of a graph, checked, every fault reported at once."""

from __future__ import annotations

from collections.abc import Iterator

from hexforge.errors import ModelError
from hexforge.ir.fixed_point import encoding_fault
from hexforge.ir.graph import Graph, Node, Role, Value
from hexforge.ir.op import Param, ParamValue
from hexforge.ir.types import ScaleOffset, TensorType

_SHOWN = 20
_RANGES = {"int32": (-(1 << 31), (1 << 31) - 1), "uint32": (0, (1 << 32) - 1), "uint8": (0, 255)}


def verify(graph: Graph) -> None:
    """Raise a ModelError that lists every fault of the graph; return if there is none."""
    faults = [*_order(graph), *_links(graph)]
    for value in graph.values.values():
        faults += (f"tensor {value.name!r}: {problem}" for problem in _value(value))
    for node in graph.nodes:
        faults += (f"node {node.name!r} ({node.op.name}): {problem}" for problem in node_faults(node))
    if faults:
        more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
        raise ModelError(f"graph {graph.name!r}: " + "; ".join(faults[:_SHOWN] + more))


def _order(graph: Graph) -> Iterator[str]:
    seen: set[Node] = set()
    present = set(graph.nodes)
    for node in graph.nodes:
        for value in node.inputs:
            producer = None if value is None else value.producer
            if value is None or producer is None or producer in seen:
                continue
            if producer in present:
                yield f"node {node.name!r} ({node.op.name}): reads {value.name!r} before {producer.name!r} writes it"
            else:
                yield f"node {node.name!r} ({node.op.name}): reads {value.name!r}, written by a node of no graph"
        seen.add(node)


def _links(graph: Graph) -> Iterator[str]:
    users: dict[Value, dict[Node, int]] = {}
    written: dict[Value, Node] = {}
    for node in graph.nodes:
        for value in node.inputs:
            if value is not None:
                own = users.setdefault(value, {})
                own[node] = own.get(node, 0) + 1
        for value in node.outputs:
            if value in written:
                yield f"tensor {value.name!r}: written by {written[value].name!r} and {node.name!r}"
            written[value] = node
    for value in {**users, **written}:
        if graph.values.get(value.name) is not value:
            yield f"tensor {value.name!r}: used by a node but not one of the graph's"
    for name, value in graph.values.items():
        if name != value.name:
            yield f"tensor {value.name!r}: listed under the name {name!r}"
        if value.producer is not written.get(value):
            yield f"tensor {value.name!r}: its producer is not the node that writes it"
        if value.users != users.get(value, {}):
            yield f"tensor {value.name!r}: its users are not the nodes that read it"


def _value(value: Value) -> Iterator[str]:
    if value.shape and min(value.shape) < 0:
        yield f"shape {list(value.shape)} has a negative dimension"
        return
    problem = encoding_fault(value.type)
    if problem:
        yield problem
    if value.role is Role.STATIC:
        if value.producer is not None:
            yield f"is STATIC but written by {value.producer.name!r}"
        if value.data is None:
            yield "is STATIC but has no data"
        elif (value.data.dtype, value.data.shape) != (value.dtype.numpy, value.shape):
            yield f"is {value.type} but its data are {value.data.dtype.name}{list(value.data.shape)}"
        return
    if value.data is not None:
        yield f"is {value.role.value} but has data"
    if value.role is Role.APP_WRITE and value.producer is not None:
        yield f"is APP_WRITE but written by {value.producer.name!r}"
    if value.role is not Role.APP_WRITE and value.producer is None:
        yield f"is {value.role.value} but no node writes it"
    if not isinstance(value.encoding, ScaleOffset | None) and not _only_converted(value):
        yield f"has {value.encoding.qnn_name}, which only STATIC weights may have; dequantize it first"


def _only_converted(value: Value) -> bool:
    """A run-time tensor may be per-axis between conversions only: there every element's scale is known."""
    nodes = (*value.users, *([value.producer] if value.producer else []))
    return bool(nodes) and all(node.op.converts for node in nodes)


def node_faults(node: Node) -> Iterator[str]:
    """What is wrong with a node by itself: its inputs, parameters, and what it writes."""
    counts = [*_counts(node)]
    params = [*_params(node)]
    yield from counts
    yield from params
    if counts or params:
        return
    try:
        inferred = node.op.infer(node.call)
    except ModelError as error:
        yield str(error).removeprefix(f"{node.op.name}: ")
        return
    if len(inferred) != len(node.outputs):
        yield f"has {len(node.outputs)} outputs, not the {len(inferred)} its inputs imply"
        return
    for value, type in zip(node.outputs, inferred, strict=True):
        problem = _mismatch(node, value, type)
        if problem:
            yield f"output {value.name!r} {problem}"


def _counts(node: Node) -> Iterator[str]:
    names, count = node.op.inputs, len(node.inputs)
    if count == len(names) and None not in node.inputs and len(node.outputs) == len(node.op.outputs):
        return
    if count > len(names) and not node.op.variadic:
        yield f"has {count} inputs, not {len(names)} ({', '.join(names)})"
    for i in range(max(count, len(names))):
        name = names[min(i, len(names) - 1)] if names else ""
        if not name.endswith("?") and (i >= count or node.inputs[i] is None):
            yield f"input {i} ({name.rstrip('*')}) is missing"
    outs, written = node.op.outputs, len(node.outputs)
    least = sum(not name.endswith("?") for name in outs)
    if written < least or (written > len(outs) and not outs[-1].endswith("*")):
        yield f"has {written} outputs, not {len(outs)} ({', '.join(outs)})"


def _params(node: Node) -> Iterator[str]:
    declared = {p.name: p for p in node.op.params}
    for name in node.params:
        if name not in declared:
            yield f"has no parameter {name!r}"
    for param in node.op.params:
        if param.name not in node.params:
            yield f"parameter {param.name} is missing"
            continue
        value = node.params[param.name]
        if value is None and param.default is None:
            continue
        problem = _param(param, value, param.rank)
        if problem:
            yield f"parameter {param.name} {problem}"


def _param(param: Param, value: ParamValue, rank: int) -> str | None:
    if rank:
        if not isinstance(value, tuple):
            return f"is {value!r}, not a tensor of rank {param.rank}"
        problems = (_param(param, v, rank - 1) for v in value)
        return next((problem for problem in problems if problem), None)
    if param.type == "bool" or isinstance(value, bool):
        good = param.type == "bool" and isinstance(value, bool)
    elif param.type == "float32":
        good = isinstance(value, (float, int))
    else:
        low, high = _RANGES[param.type]
        good = isinstance(value, int) and low <= value <= high
    if not good:
        return f"is {value!r}, not {param.type}{f' of rank {param.rank}' if param.rank else ''}"
    if param.choices and value not in param.choices.values():
        return f"is {value}, not one of {', '.join(f'{k} ({v})' for k, v in param.choices.items())}"
    return None


def _mismatch(node: Node, value: Value, inferred: TensorType) -> str | None:
    if value.shape != inferred.shape:
        return f"has shape {list(value.shape)}, not {list(inferred.shape)}"
    if value.encoding is not None:
        if node.op.quant.output == "never" and inferred.encoding is None:
            return f"is fixed point, which {node.op.name} never gives"
        if inferred.dtype is not value.dtype and not (inferred.dtype.is_float or _reads_fixed_point(node)):
            return f"is {value.dtype.value}, not {inferred.dtype.value}"
        return None
    if inferred.encoding is not None:
        return f"is plain {value.dtype.value}, but its input is fixed point; give it an encoding"
    return None if value.dtype is inferred.dtype else f"is {value.dtype.value}, not {inferred.dtype.value}"


def _reads_fixed_point(node: Node) -> bool:
    return any(v is not None and v.encoding is not None for v in node.inputs)
