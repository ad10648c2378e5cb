# SPDX-License-Identifier: Apache-2.0
"""Fields of requests: what each field of QNN's calls is in a message, how a program writes it and a device reads it.

A request has what its call's row (`hexforge.qnn_api.calls`) asks for, and the answer what the row gives. What a field
may hold is checked by the types that stand here before anything is done with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.configs import CreationConfig, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.addons.device.graph_time import MOST_STEPS
from hexforge.addons.device.memory import AddressRange, MemDescriptor, MemHandle
from hexforge.addons.device.power import PerfProfile, PowerConfig, WrittenVote
from hexforge.addons.device.shared.binaries import binary_from_json, binary_to_json, config_from_json, config_to_json
from hexforge.addons.device.shared.messages import Message, to_json
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client
from hexforge.chips.priority import Priority
from hexforge.formats.validated import Amount, ByName, Count, Positive, Within, validated
from hexforge.qnn_api.calls import QnnCall

_LEFT_OUT: Any = object()


@dataclass(frozen=True, slots=True)
class ProcessHandles:
    """What a process has on the device, by the numbers that its program knows."""

    client: Client

    def context(self, number: int) -> DeviceContext:
        """A context of the process by its number."""
        self.client.require_running()
        if number not in self.client.contexts:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"context {number} is none of {self.client.name}, or was freed"
            )
        return self.client.contexts[number]

    def graph(self, context: int, name: str) -> DeviceGraph:
        """A graph of a context of the process."""
        known = self.context(context)
        return known.graphs.get(name) or known.retrieve(name)

    def handle(self, number: int) -> MemHandle:
        """Registered memory of the process by its number."""
        handle = self.client.memory.get(number)
        if handle is None:
            raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"memory {number}: is not registered")
        return handle

    def own_power_id(self, number: int) -> int:
        """A power config id of this process: those of others are not touched."""
        self.client.device.power.require_owner(number, self.client.name)
        return number


@dataclass(frozen=True, slots=True)
class _Member:
    """A context of a list."""

    binary: dict[str, Any]
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _NamedGraph:
    context: Count
    graph: str


@dataclass(frozen=True, slots=True)
class _SharedTensor:
    """A tensor in a buffer of the program, which has a number of its own for it."""

    buffer: Count
    bytes: Positive
    tensor: str
    offset: Count = 0


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of calls in messages."""

    keys: Mapping[str, Any]
    """The keys of the message with their types."""
    read: Callable[..., Any]
    """What it is on the device, of the process that asks and its keys as keyword arguments."""
    write: Callable[[Any], Message]
    """The keys of the message for what a program gives."""


def _as_it_is(name: str, kind: Any) -> RequestField:
    """A field that is a key with the same value on both sides."""
    return RequestField({name: kind}, lambda process, **given: given[name], lambda value: {name: to_json(value)})


def _read_members(process: ProcessHandles, members: Sequence[_Member]) -> list[tuple[Binary, CreationConfig]]:
    soc = process.client.device.soc
    return [
        (binary_from_json(row.binary, soc, f"members[{i}].binary"), config_from_json(row.config, process.context))
        for i, row in enumerate(members)
    ]


def _write_members(members: Sequence[tuple[Binary, CreationConfig]]) -> Message:
    return {"members": [{"binary": binary_to_json(b), "config": config_to_json(c)} for b, c in members]}


def _read_feeds(process: ProcessHandles, shared: Sequence[int] = (), raw: bool = False) -> dict[str, Feed]:
    """Registered memory by its numbers; `raw`: other tensors are copied."""
    feeds: dict[str, Feed] = {f"handle {number}": process.handle(number) for number in shared}
    return feeds | ({"raw": np.empty(0, np.uint8)} if raw else {})


def _write_feeds(feeds: Sequence[Feed | None]) -> Message:
    """The tensors of a call: registered memory by its numbers, and whether there are others."""
    handles = [feed.number for feed in feeds if isinstance(feed, MemHandle)]
    return {"shared": handles, "raw": len(handles) < len(feeds)}


def _read_tensors(process: ProcessHandles, tensors: Sequence[_SharedTensor]) -> list[MemDescriptor]:
    """Buffers by the program's own numbers for them: a buffer that has several tensors is mapped once."""
    buffers, made = dict[int, AddressRange](), []
    for row in tensors:
        buffer = buffers.get(row.buffer)
        if buffer is None:
            buffer = buffers[row.buffer] = AddressRange(row.bytes)
            buffer.fd = row.buffer
        made.append(MemDescriptor(buffer, row.tensor, (row.bytes,), "uint8", row.offset))
    return made


def _write_tensors(tensors: Sequence[MemDescriptor]) -> Message:
    return {
        "tensors": [
            {"buffer": d.buffer.fd, "bytes": d.buffer.size, "tensor": d.tensor, "offset": d.offset} for d in tensors
        ]
    }


def _read_votes(process: ProcessHandles, configs: Sequence[WrittenVote]) -> list[PowerConfig]:
    return [row.read(f"configs[{i}]") for i, row in enumerate(configs)]


def _read_profile(process: ProcessHandles, profile: PerfProfile | None) -> PerfProfile | None:
    if profile is not None:
        profile.check()
    return profile


def _named(graph: DeviceGraph) -> Message:
    return {"context": graph.context.number, "graph": graph.name}


def _read_signal(process: ProcessHandles, signal_us: float | None) -> DeviceSignal | None:
    """A signal with or without a time; None where the call has none."""
    return None if signal_us is None else DeviceSignal(signal_us or None)


FIELDS: Mapping[str, RequestField] = {
    "context": RequestField(
        {"context": Count},
        lambda process, context: process.context(context),
        lambda context: {"context": context.number},
    ),
    "graph": RequestField(
        {"context": Count, "graph": str}, lambda process, context, graph: process.graph(context, graph), _named
    ),
    "graphs": RequestField(
        {"graphs": list[_NamedGraph]},
        lambda process, graphs: [process.graph(row.context, row.graph) for row in graphs],
        lambda graphs: {"graphs": [_named(graph) for graph in graphs]},
    ),
    "binary": RequestField(
        {"binary": dict[str, Any]},
        lambda process, binary: binary_from_json(binary, process.client.device.soc, "binary"),
        lambda binary: {"binary": binary_to_json(binary)},
    ),
    "config": RequestField(
        {"config": dict[str, Any]},
        lambda process, config: config_from_json(config, process.context),
        lambda config: {"config": config_to_json(config)},
    ),
    "members": RequestField({"members": list[_Member]}, _read_members, _write_members),
    "signal": RequestField(
        {"signal_us": Amount | None}, _read_signal, lambda signal: {"signal_us": signal.timeout_us or 0.0}
    ),
    "inputs": RequestField({"shared": tuple[Count, ...], "raw": bool}, _read_feeds, _write_feeds),
    "descriptors": RequestField({"tensors": list[_SharedTensor]}, _read_tensors, _write_tensors),
    "handles": RequestField(
        {"handles": list[Count]},
        lambda process, handles: [process.handle(number) for number in handles],
        lambda handles: {"handles": [handle.number for handle in handles]},
    ),
    "priority": RequestField(
        {"priority": Annotated[Priority, ByName()] | None},
        lambda process, priority: priority,
        lambda priority: {"priority": priority.name},
    ),
    "powerConfigId": RequestField(
        {"power_id": Count},
        lambda process, power_id: process.own_power_id(power_id),
        lambda number: {"power_id": number},
    ),
    "configs": RequestField(
        {"configs": list[WrittenVote]},
        _read_votes,
        lambda configs: {"configs": [{"kind": type(c).__name__, "fields": to_json(c)} for c in configs]},
    ),
    "profile": RequestField(
        {"profile": PerfProfile | None}, _read_profile, lambda profile: {"profile": to_json(profile)}
    ),
    "list_config": _as_it_is("shared", ListConfig),
    "adapter": _as_it_is("adapter", str),
    "kinds": _as_it_is("events", tuple[str, ...]),
    "us": _as_it_is("us", Amount),
    "batch": _as_it_is("batch", Annotated[int, Within(1, MOST_STEPS)]),
    "recover": _as_it_is("recover", bool),
    "now": _as_it_is("now", bool),
    "slc": _as_it_is("slc", bool | None),
    "dsp_memory_profiling": _as_it_is("dsp_memory_profiling", bool | None),
    "num_hvx_threads": _as_it_is("num_hvx_threads", Count | None),
    "deviceId": _as_it_is("device_id", Count),
    "coreId": _as_it_is("core_id", Count),
}
"""By the kinds that fields have in the table of calls. What has none here is not sent: it stays in the program."""


def _execution_to_json(done: ExecutionResult) -> Message:
    made: Message = to_json(replace(done, outputs={}), without=("outputs",))
    return made


ANSWERS: Mapping[str, Callable[[Any], Any]] = {
    "nothing": lambda made: {},
    "context": lambda made: {"context": made.number, "graphs": list(made.graphs)},
    "execution": _execution_to_json,
    "executions": lambda made: {"results": [_execution_to_json(done) for done in made[0]], "took_us": made[1]},
    "handles": lambda made: [handle.number for handle in made],
    "power_id": lambda made: {"power_id": made},
    "facts": lambda made: made,
}
"""What is sent of what a call gives, by the word that its row has for it."""


@functools.cache
def _request(call: QnnCall) -> Any:
    """What a request for a call may hold, as a record."""
    rows = [
        (key, kind, dataclasses.field(default=_LEFT_OUT if field.is_optional else dataclasses.MISSING))
        for field in call.fields
        if field.kind in FIELDS
        for key, kind in FIELDS[field.kind].keys.items()
    ]
    return dataclasses.make_dataclass(call.message, rows, frozen=True, slots=True, kw_only=True)


def read_request(process: ProcessHandles, call: QnnCall, data: Message) -> dict[str, Any]:
    """The fields of a call as a request of a process has them; what it leaves out is left out."""
    record = validated(_request(call), data, f"request {call.message}")
    given: dict[str, Any] = {}
    for field in call.fields:
        if (known := FIELDS.get(field.kind)) is not None:
            keys = {key: value for key in known.keys if (value := getattr(record, key)) is not _LEFT_OUT}
            if keys:
                given[field.name] = known.read(process, **keys)
    return given


def write_request(call: QnnCall, given: Mapping[str, Any]) -> Message:
    """The request for a call with some fields; what may be left out and is None is left out."""
    sent: Message = {}
    for field in call.fields:
        if field.kind in FIELDS and field.name in given and not (given[field.name] is None and field.is_optional):
            sent |= FIELDS[field.kind].write(given[field.name])
    return sent
