# SPDX-License-Identifier: Apache-2.0
"""Tensors of one execution: arrays or registered memory, checked; and what the graph computes of them."""

from __future__ import annotations

import numpy as np

from hexforge.addons.device.buffers import MemHandle
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.ir import Array, TensorType

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
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: all tensors have one batch multiple; given: {listed}",
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
            Code.QNN_GRAPH_ERROR_INVALID_TENSOR,
            f"{graph.label}: output {name!r} has another batch than inputs",
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
