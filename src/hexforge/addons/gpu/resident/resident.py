# SPDX-License-Identifier: Apache-2.0
"""Resident: what a graph has in a device's context; made when first needed, and again after a context was lost.

A wrapper that makes an event for each kernel costs more than the kernel's launch; where the library that pyopencl has
loaded cannot be found, pyopencl's wrapper does it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.gpu.building import builder
from hexforge.addons.gpu.device import ClDevice, opencl
from hexforge.addons.gpu.kernel_launches import GpuLowering
from hexforge.addons.gpu.kernels.code import FAULT
from hexforge.addons.gpu.kernels.launch import Constant, Launch, Scratch
from hexforge.addons.gpu.resident import memory
from hexforge.addons.gpu.resident.loss import MemoryNeeds, opencl_error
from hexforge.ir import Array, Role, Value
from hexforge.ir.arena import arena

_LIBRARY = re.compile(r"(/[^\n]*/libOpenCL[^/\s]*)(?=\s)")
"""A path in a line of /proc/self/maps, where it comes last and may have spaces."""


def mapped_library(maps: bytes) -> str | None:
    """The path of OpenCL's library among the files that a process has mapped."""
    line = _LIBRARY.search(os.fsdecode(maps))
    return line[1] if line else None


@cache
def _function() -> Any:
    """clEnqueueNDRangeKernel of the library that is loaded already, or None."""
    try:
        library = mapped_library(Path("/proc/self/maps").read_bytes())
        function = ctypes.CDLL(library).clEnqueueNDRangeKernel if library else None
    except (OSError, AttributeError):
        return None
    if function is not None:
        sizes = ctypes.POINTER(ctypes.c_size_t)
        pointer = ctypes.c_void_p
        function.argtypes = [pointer, pointer, ctypes.c_uint, sizes, sizes, sizes, ctypes.c_uint, pointer, pointer]
        function.restype = ctypes.c_int
    return function


def prepare_launches(queue: Any, kernels: Sequence[Any], launches: Sequence[Launch]) -> Callable[[], int] | None:
    """Something that enqueues all kernels in order and gives OpenCL's first error, or None where it cannot be."""
    function = _function()
    if function is None:
        return None
    calls = []
    for kernel, launch in zip(kernels, launches, strict=True):
        count = len(launch.global_size)
        sizes = ctypes.c_size_t * count
        whole, local = sizes(*launch.global_size), sizes(*launch.local_size)
        calls.append((queue.int_ptr, kernel.int_ptr, count, None, whole, local, 0, None, None))

    def enqueue() -> int:
        for call in calls:
            error: int = function(*call)
            if error:
                return error
        return 0

    return enqueue


@dataclass(slots=True)
class GraphMemory:
    """The memory that a graph will need, before any is allocated."""

    lowering: GpuLowering
    launches: Sequence[Launch]
    sizes: dict[object, int] = field(default_factory=dict)
    """Bytes of what is computed."""
    lives: dict[object, tuple[int, int]] = field(default_factory=dict)
    constants: dict[object, Constant | Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        end, lowering = len(self.launches), self.lowering
        for i, launch in enumerate(self.launches):
            for argument in launch.arguments:
                if isinstance(argument, str):
                    continue
                if isinstance(argument, Constant) or (isinstance(argument, Value) and argument.is_static):
                    self.constants[argument] = argument
                    continue
                key = lowering.placed(argument) if isinstance(argument, Value) else argument
                if isinstance(key, Value) and key.is_static:
                    self.constants[key] = key
                    continue
                self.sizes[key] = key.bytes if isinstance(key, Scratch) else lowering.bytes_of(key)
                self.lives[key] = (self.lives[key][0] if key in self.lives else i, i)
        outputs = lowering.graph.outputs
        for value in (*lowering.graph.inputs, *outputs):
            key = lowering.placed(value)
            if key.is_static:
                self.constants[key] = key
                continue
            self.sizes[key] = lowering.bytes_of(key)
            first, last = self.lives.get(key, (0, 0))
            self.lives[key] = (0 if key.role is Role.APP_WRITE else first, end if value in outputs else last)

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constants."""
        return sum(map(self.bytes_of, self.constants.values()))

    def bytes_of(self, what: Constant | Value) -> int:
        """Bytes of a constant, as the device stores it."""
        return what.bytes if isinstance(what, Constant) else self.lowering.bytes_of(what)


@dataclass(slots=True)
class DeviceTimes:
    """Measures of a run by the device's own clock."""

    kernels: list[tuple[int, int]] = field(default_factory=list)
    """Nanoseconds at the start and the end of each."""
    span_us: float = 0.0
    """From the start of the first to the end of the last."""

    @property
    def kernels_us(self) -> list[float]:
        """Microseconds of each kernel."""
        return [(end - start) / 1e3 for start, end in self.kernels]


class Resident:
    """The buffers, kernels and queue of a graph in one context."""

    def __init__(self, device: ClDevice, layout: GraphMemory) -> None:
        self.device = device
        self.layout = layout
        self.generation = device.generation
        self.buffers: dict[object, Any] = {}
        self.queue: Any = None
        self.fault_word: Any = None
        self.kernels: list[Any] = []
        self.arguments: list[list[Any]] = []
        self.enqueue: Callable[[], int] | None = None
        self.held: list[object] = []
        self.arena_bytes = self.largest_bytes = 0
        self._own: list[Any] = []

    @property
    def needs(self) -> MemoryNeeds:
        """The memory it takes, as far as it is known."""
        constants = self.layout.constant_bytes
        largest = max([self.largest_bytes, *map(self.layout.bytes_of, self.layout.constants.values())])
        return MemoryNeeds(self.arena_bytes, constants, largest)

    def place(self, binaries: Mapping[str, bytes] | None = None) -> None:
        """Take memory, bring constants there, compile what is not compiled and set the kernels' arguments."""
        made, launches = builder(self.device), self.layout.launches
        self.queue = self.device.queue()
        self._place_activations()
        self._place_constants()
        made.build(list(launches), binaries)
        if self.layout.lowering.faults:
            cl = opencl()
            self.fault_word = self.buffers[FAULT] = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, 4)
        self.kernels = [made.kernel(launch) for launch in launches]
        self.arguments = [[self.buffer(a) for a in launch.arguments] for launch in launches]
        for kernel, arguments in zip(self.kernels, self.arguments, strict=True):
            kernel.set_args(*arguments)
        self.enqueue = prepare_launches(self.queue, self.kernels, launches)

    def _place_activations(self) -> None:
        layout, device = self.layout, self.device
        share = layout.lowering.config.gpu_use_memory_optimizations
        if device.is_processor:
            offsets, self.arena_bytes = arena(layout.sizes, layout.lives, device.alignment, share=share)
            self.largest_bytes = self.arena_bytes
            whole = self._activations(self.arena_bytes)
            self._own.append(whole)
            self.buffers |= memory.sub_buffers(whole, offsets, layout.sizes)
            return
        chosen, bytes_of = memory.assign_buffers(layout.sizes, layout.lives, share)
        self.arena_bytes, self.largest_bytes = sum(bytes_of), max(bytes_of, default=0)
        for size in bytes_of:
            self._own.append(self._activations(size))
        self.buffers |= {key: self._own[slot] for key, slot in chosen.items()}

    def _place_constants(self) -> None:
        lowering = self.layout.lowering
        for key, what in self.layout.constants.items():
            if isinstance(what, Constant):
                array = what.make()
            else:
                assert what.data is not None
                array = np.ascontiguousarray(what.data).astype(lowering.storage(what).numpy)
            held = self._constant(array, lowering.config.gpu_use_weight_sharing)
            self.held.append(held)
            self.buffers[key] = held.buffer

    def _activations(self, size: int) -> Any:
        return memory.activation_buffer(self.device, size)

    def _constant(self, array: Array, share: bool) -> memory.ConstantBuffer:
        return memory.constant(self.device, array, share)

    def buffer(self, argument: Any) -> Any:
        """Where an argument of a kernel lies."""
        key = self.layout.lowering.placed(argument) if isinstance(argument, Value) else argument
        return self.buffers[key]

    def run(
        self, inputs: Sequence[tuple[Value, Array]], outputs: Sequence[tuple[Value, Array]],
        check: Callable[[], None] | None, times: DeviceTimes | None,
    ) -> int:  # fmt: skip
        """One run: inputs there, all kernels, outputs back; the number of the fault that a kernel reported, or 0."""
        cl, queue = opencl(), self.queue if times is None else self.device.queue(profiled=True)
        for value, host in inputs:
            cl.enqueue_copy(queue, self.buffers[value], host, is_blocking=False)
        if self.fault_word is not None:
            cl.enqueue_fill_buffer(queue, self.fault_word, np.int32(0), 0, 4)
        events = self._enqueued(queue, check, times is not None)
        fault = np.zeros(1, np.int32)
        back = [(host, self.buffer(value)) for value, host in outputs]
        if self.fault_word is not None:
            back.append((fault, self.fault_word))
        reads = [cl.enqueue_copy(queue, host, buffer, is_blocking=False) for host, buffer in back]
        queue.finish()
        for event in reads:  # what ended badly has not filled the array
            if (code := event.command_execution_status) < 0:
                raise opencl_error("clEnqueueReadBuffer", code)
        if times is not None and events:
            times.kernels += [(e.profile.start, e.profile.end) for e in events]
            times.span_us = (times.kernels[-1][1] - times.kernels[0][0]) / 1e3
        return int(fault[0])

    def _enqueued(self, queue: Any, check: Callable[[], None] | None, timed: bool) -> list[Any]:
        """Enqueue every kernel; their events, where they are timed."""
        cl, record, events = opencl(), self.layout.lowering.config.gpu_use_queue_recording, []
        if record and not timed and check is None and self.enqueue is not None:
            if code := self.enqueue():
                raise opencl_error("clEnqueueNDRangeKernel", code)
            return []
        for i, (launch, kernel) in enumerate(zip(self.layout.launches, self.kernels, strict=True)):
            if check is not None and i % 16 == 0:
                check()
            if not record:
                kernel.set_args(*self.arguments[i])
            events.append(cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size))
        return events

    def release(self) -> None:
        """Give memory back now, whoever still looks at this; shared constants stay while another program has them."""
        self.enqueue, self.queue, self.fault_word = None, None, None
        for everything in (self.kernels, self.arguments, self.buffers, self.held, self._own):
            everything.clear()
