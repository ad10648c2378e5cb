# SPDX-License-Identifier: Apache-2.0
"""Tensors: in shared buffers (QnnMem_register), and of one execution: checked, and what the graph computes of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph, Process
from hexforge.addons.device.memory import MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.scheduling.clock import Waits
from hexforge.ir import Array, TensorType


def register(context: DeviceContext, descriptors: Sequence[MemDescriptor]) -> list[MemHandle]:
    """Map buffers into the context's session and note which tensors lie in them; all, or on an error none."""
    process = context.client
    context.require_alive()
    session = context.session
    assert session is not None
    require_shared_buffers(context, descriptors)
    known = {(h.descriptor.tensor, h.descriptor.buffer.fd, h.descriptor.offset) for h in _of(context)}
    for d in descriptors:
        key = d.tensor, d.buffer.fd, d.offset
        if key in known:
            raise DeviceError(
                Code.QNN_MEM_ERROR_ALREADY_REGISTERED, f"{context.label}: {d.tensor!r} has this memory already"
            )
        known.add(key)
    need = process.mappings.needs(session, [d.buffer for d in descriptors])
    take_reserve(
        context,
        need,
        f"{context.label}: {need:,} bytes cannot be mapped, its session has {session.free_bytes:,} left; estimate I/O "
        "memory when contexts are created, register a dummy buffer while they are, or create them as a list with VA "
        "optimization",
    )
    made = []
    for d in descriptors:
        process.mappings.add(session, context.label, d.buffer)
        handle = MemHandle(process.device.next_number(), context, d)
        process.memory[handle.number] = handle
        made.append(handle)
        process.device.log.write("register", context=context.label, tensor=d.tensor, fd=d.buffer.fd, offset=d.offset)
    return made


def require_shared_buffers(context: DeviceContext, descriptors: Sequence[MemDescriptor]) -> None:
    """DeviceError unless every tensor lies in a shared buffer, as a whole."""
    for d in descriptors:
        if not isinstance(d.buffer, SharedBuffer):
            kind = type(d.buffer).__name__
            raise DeviceError(
                Code.QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE,
                f"{context.label}: {d.tensor!r} lies in a {kind}; only a shared buffer (rpcmem_alloc) is mapped",
            )
        d.buffer.array(d.shape, d.dtype, d.offset)


def take_reserve(context: DeviceContext, need: int, refusal: str) -> None:
    """Use what was kept for inputs and outputs; DeviceError where the session has no room for so many bytes even so."""
    reserved, session = context.reserved, context.session
    assert session is not None
    if need > session.free_bytes + (reserved.size if reserved is not None else 0):
        log = context.client.device.log
        log.write("mapping_failed", context=context.label, session=session.number, bytes=need)
        raise DeviceError(Code.QNN_MEM_ERROR_MAPPING, refusal)
    if reserved is not None and need:
        context.client.device.memory.release(reserved)
        left = reserved.size - need
        context.reserved = session.allocate(context.label, "I/O reserved", left) if left > 0 else None


def deregister(process: Process, handles: Sequence[MemHandle]) -> None:
    """Forget registered tensors; DeviceError, after the others, where one is not registered."""
    known = [h for h in handles if isinstance(h, MemHandle) and process.memory.get(h.number) is h]
    for handle in known:
        if handle.live:
            _forget(process, handle)
    if strange := [h for h in handles if not any(h is k for k in known)]:
        words = repr(strange[0].descriptor.tensor) if isinstance(strange[0], MemHandle) else type(strange[0]).__name__
        raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"{words}: is not registered")


def deregister_all(context: DeviceContext) -> None:
    """Forget every tensor of a context."""
    for handle in _of(context):
        _forget(context.client, handle)


def _forget(process: Process, handle: MemHandle) -> None:
    del process.memory[handle.number]
    handle.live = False
    if handle.context.session is not None:
        gone = process.mappings.remove(handle.context.session, handle.descriptor.buffer)
        if gone is not None:
            process.device.memory.release(gone)
    process.device.log.write("deregister", context=handle.context.label, tensor=handle.descriptor.tensor)


def _of(context: DeviceContext) -> list[MemHandle]:
    return [handle for handle in context.client.memory.values() if handle.context is context]


def register_again(context: DeviceContext) -> Waits:
    """Map what a context that was loaded again had registered; its handles stay good."""
    yield 0.0
    session = context.session
    if session is None:
        return
    buffers = [handle.descriptor.buffer for handle in _of(context)]
    mappings = context.client.mappings
    if mappings.needs(session, buffers) > session.free_bytes:
        raise DeviceError(Code.QNN_MEM_ERROR_MAPPING, f"{context.label}: its buffers cannot be mapped again")
    for buffer in buffers:
        mappings.add(session, context.label, buffer)


Feed = Array | MemHandle


def checked_feeds(graph: DeviceGraph, inputs: dict[str, Feed], batch: int) -> tuple[dict[str, Array], int]:
    """Inputs as arrays, and the batch multiple that all of them have."""
    if type(batch) is not int or batch < 1:
        raise DeviceError(Code.QNN_GRAPH_ERROR_INVALID_ARGUMENT, f"{graph.label}: a batch of {batch!r}; give 1 or more")
    if graph.program is None and graph.context.binary.source is None:
        return {}, batch
    known = dict(graph.spec.inputs)
    if strange := sorted(inputs.keys() ^ known.keys()):
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: {strange[0]!r} is {'missing' if strange[0] in known else 'no input'}; inputs are "
            f"{', '.join(known)}",
        )
    feeds, multiples = {}, {}
    for name, given in inputs.items():
        array = given.array() if isinstance(given, MemHandle) else np.asarray(given)
        if isinstance(given, MemHandle) and (not given.live or given.context is not graph.context):
            raise _not_registered(graph, name)
        multiples[name] = _multiple(graph, name, array, known[name])
        feeds[name] = array
    if len(set(multiples.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in multiples.items())
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR, f"{graph.label}: all tensors have one batch multiple; given: {listed}"
        )
    multiple = next(iter(multiples.values()), batch)
    if batch not in (1, multiple):
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: a batch of {batch} is asked for, and the inputs have {multiple} times the graph's",
        )
    return feeds, multiple


def _not_registered(graph: DeviceGraph, name: str) -> DeviceError:
    return DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"{graph.label}: {name!r}: its memory is not registered")


def _multiple(graph: DeviceGraph, name: str, array: Array, type: TensorType) -> int:
    shape = type.shape
    if array.dtype == type.dtype.numpy and array.ndim == len(shape) and array.shape[1:] == shape[1:]:
        if not shape:
            return 1
        count, rest = divmod(int(array.shape[0]), shape[0])
        if count and not rest:
            return count
    raise DeviceError(
        Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
        f"{graph.label}: {name!r} is {array.dtype.name}{list(array.shape)}, it must be {type}, or a multiple of its "
        "batch",
    )


def check_output(graph: DeviceGraph, name: str, handle: MemHandle, multiple: int) -> None:
    known = dict(graph.spec.outputs)
    if name not in known:
        raise DeviceError(Code.QNN_GRAPH_ERROR_INVALID_TENSOR, f"{graph.label}: {name!r} is no output")
    if not handle.live or handle.context is not graph.context:
        raise _not_registered(graph, name)
    if _multiple(graph, name, handle.array(), known[name]) != multiple:
        raise DeviceError(
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR, f"{graph.label}: output {name!r} has another batch than inputs"
        )


def compute_outputs(
    graph: DeviceGraph, feeds: dict[str, Array], multiple: int, outputs: dict[str, MemHandle]
) -> dict[str, Array]:
    """What the graph computes, batch by batch; written where its outputs are registered."""
    if graph.program is None:
        return {}
    if multiple == 1:
        results = dict(graph.program.run(feeds))
    else:
        rows = {name: type.shape[0] if type.shape else 1 for name, type in graph.spec.inputs}
        parts = [
            graph.program.run({n: a[k * rows[n] : (k + 1) * rows[n]] if a.ndim else a for n, a in feeds.items()})
            for k in range(multiple)
        ]
        results = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, handle in outputs.items():
        target = handle.array()
        target[...] = results[name]
        results[name] = target
    return results
