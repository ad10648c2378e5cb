# SPDX-License-Identifier: Apache-2.0
"""Recorded calls become graphs and executions again; an error names the line of the recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hexforge.addons.qnn_graphs.declarations import ROLES
from hexforge.addons.saver.recording import RecordedCall, Recording
from hexforge.errors import FormatError, HexforgeError
from hexforge.ir import Array, Graph, Role, text
from hexforge.ir.types import unpack

_MOST_DIMENSIONS = 32


@dataclass(slots=True)
class RecordedGraph:
    """A graph of a recording, and what it was run on."""

    name: str
    graph: Graph
    executions: list[tuple[dict[str, Array], dict[str, Array]]] = field(default_factory=list)
    """(what went in, what came out) of each."""


@dataclass(slots=True)
class RecordedSession:
    """What a recording holds."""

    backend: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    graphs: dict[str, RecordedGraph] = field(default_factory=dict)


def read_session(recording: Recording) -> RecordedSession:
    """The graphs and executions of a recording."""
    import hexforge.ops  # noqa: F401 - fills the table

    session = RecordedSession()
    for call in recording.calls():
        known = _CALLS.get(call.name)
        if known is None:
            raise FormatError(f"{recording.script}: line {call.line}: hexforge has no call {call.name}")
        try:
            known(session, recording, call)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            raise FormatError(f"{recording.script}: line {call.line}: {call.name} has other arguments") from None
        except HexforgeError as error:
            place = f"{recording.script}: line {call.line}"
            raise FormatError(str(error) if place in str(error) else f"{place}: {error}") from None
    return session


def _backend(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    name, settings = call.arguments
    session.backend = str(name)
    session.settings = {str(key): str(value) for key, value in settings.items()}


def _nothing(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    pass


def _graph(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    _, name, own = call.arguments
    if name in session.graphs:
        raise FormatError(f"graph {name!r} is made twice")
    session.graphs[str(name)] = RecordedGraph(str(name), Graph(str(own)))


def _tensor(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    graph, name, role, type, *data = call.arguments
    tensor_type = text.load_type(type)
    array = None
    if data:
        array = unpack(recording.bytes_at(data[0], call), tensor_type)
    elif ROLES[role] is Role.STATIC:
        raise FormatError(f"tensor {name!r} is static and has no data")
    session.graphs[graph].graph.value(str(name), tensor_type, ROLES[role], array)


def _node(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    graph, name, _, op, params, reads, writes = call.arguments
    into = session.graphs[graph].graph
    inputs = [None if read is None else into.values[read] for read in reads]
    outputs = [into.values[write] for write in writes]
    plain = {str(key): _parameter(value) for key, value in params.items()}
    into.node(str(op), inputs, outputs, name=str(name), source=(str(name),), **plain)


def _parameter(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_parameter(item) for item in value)
    if isinstance(value, dict):
        return float(value["float"])
    return value


def _execute(session: RecordedSession, recording: Recording, call: RecordedCall) -> None:
    graph, reads, writes = call.arguments
    recorded = session.graphs[graph]
    feeds, outputs = (_arrays(recording, call, side) for side in (reads, writes))
    for given, known in ((feeds, recorded.graph.inputs), (outputs, recorded.graph.outputs)):
        if not given.keys() <= {value.name for value in known}:
            raise FormatError(f"{', '.join(given)} are not inputs and outputs of graph {graph!r}")
    recorded.executions.append((feeds, outputs))


def _arrays(recording: Recording, call: RecordedCall, side: Mapping[str, Any]) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for name, (dtype, shape, place) in side.items():
        kind = np.dtype(str(dtype))
        data = recording.bytes_at(place, call)
        sizes = [int(size) for size in shape]
        if kind.hasobject or len(sizes) > _MOST_DIMENSIONS or min(sizes, default=0) < 0:
            raise FormatError(f"tensor {name!r}: {dtype} {shape} is no tensor")
        count = 1
        for size in sizes:
            count *= size
        if count * kind.itemsize != len(data):
            raise FormatError(f"tensor {name!r}: {dtype} {shape} has not {len(data)} bytes")
        made[name] = np.frombuffer(data, kind).reshape(sizes)
    return made


_CALLS: dict[str, Callable[[RecordedSession, Recording, RecordedCall], None]] = {
    "QnnBackend_create": _backend,
    "QnnContext_create": _nothing,
    "QnnGraph_create": _graph,
    "QnnTensor_createGraphTensor": _tensor,
    "QnnGraph_addNode": _node,
    "QnnGraph_finalize": _nothing,
    "QnnGraph_execute": _execute,
}
