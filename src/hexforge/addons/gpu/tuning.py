# SPDX-License-Identifier: Apache-2.0
"""Tuning: of kernels that compute the same numbers, the one that is fastest on the device, found by measuring it.

What was found is kept in the device's cache by what the work is, so that the next program need not measure.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hexforge.addons.gpu.building import KernelBuilder
from hexforge.addons.gpu.device import opencl
from hexforge.addons.gpu.kernels.code import BufferType
from hexforge.addons.gpu.kernels.launch import Argument, Constant, Launch, Scratch
from hexforge.errors import HexforgeError
from hexforge.ir import Value

_LOG = logging.getLogger("hexforge")
RUNS = 5
TypeOf = Callable[[Value], BufferType]


def _bytes(argument: Argument, type_of: TypeOf) -> int:
    if isinstance(argument, Constant | Scratch):
        return argument.bytes
    return 4 if isinstance(argument, str) else type_of(argument).bytes * argument.type.size


def measure(builder: KernelBuilder, launches: Sequence[Launch], type_of: TypeOf, runs: int = RUNS) -> float:
    """Microseconds that launches take one after the other, the best of some runs, on memory of their own."""
    cl = opencl()
    device = builder.device
    builder.build(list(launches))
    queue = device.queue(profiled=True)
    buffers: dict[Argument, Any] = {}
    kernels = []
    for launch in launches:
        for argument in launch.arguments:
            if argument not in buffers:
                size = max(_bytes(argument, type_of), 4)
                buffers[argument] = cl.Buffer(device.context, cl.mem_flags.READ_WRITE, size)
                cl.enqueue_fill_buffer(queue, buffers[argument], b"\0", 0, size)
        kernel = builder.kernel(launch)
        kernel.set_args(*(buffers[a] for a in launch.arguments))
        kernels.append(kernel)
    best = float("inf")
    for _ in range(runs):
        events = [
            cl.enqueue_nd_range_kernel(queue, k, launch.global_size, launch.local_size)
            for k, launch in zip(kernels, launches, strict=True)
        ]
        queue.finish()
        best = min(best, sum(e.profile.end - e.profile.start for e in events) / 1e3)
    return best


def fastest(
    builder: KernelBuilder, key: str, choices: Sequence[tuple[str, Sequence[Launch]]], type_of: TypeOf
) -> Sequence[Launch]:
    """The choice that the cache knows, or the one that measuring finds; one that does not run is left out."""
    cl, known = opencl(), builder.cache.choice(key)
    for name, launches in choices:
        if name == known:
            return launches
    measured: list[tuple[float, int]] = []
    for i, (_, launches) in enumerate(choices):
        try:
            measured.append((measure(builder, launches, type_of), i))
        except HexforgeError:
            continue
        except (cl.Error, MemoryError) as error:  # too little memory or too few registers for this one
            if not builder.device.answers():
                raise
            _LOG.warning("gpu_tuning: a tile could not be measured on %r: %s", builder.device.name, error)
    if not measured:
        _LOG.warning("gpu_tuning: nothing could be measured for %s; the likeliest tile is taken", key)
        return choices[0][1]
    name, launches = choices[min(measured)[1]]
    builder.cache.choose(key, name)
    builder.cache.flush()
    return launches
