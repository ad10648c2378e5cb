# SPDX-License-Identifier: Apache-2.0
"""GpuProgram: a graph as kernels on a device, enqueued one after the other without waiting in between."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.backend import KernelTime, Put, checked_feeds, interruption, kernel_times
from hexforge.backends.gpu import memory
from hexforge.backends.gpu.building import builder
from hexforge.backends.gpu.config import GpuConfig
from hexforge.backends.gpu.device import ClDevice, clear_errors, opencl
from hexforge.backends.gpu.enqueue import prepared
from hexforge.backends.gpu.kernels.code import FAULT
from hexforge.backends.gpu.kernels.launch import Constant, Scratch
from hexforge.backends.gpu.lowering import GpuLowering
from hexforge.backends.gpu.machine import Machine
from hexforge.backends.gpu.tuning import fastest
from hexforge.errors import CallError
from hexforge.ir import Array, Graph, Role, Value, text
from hexforge.ir.arena import arena


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """How long a kernel took on the device."""

    name: str
    nodes: tuple[str, ...]
    us: float
    flops: int


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run, measured: kernels by the device's own clock, the whole by the host's."""

    kernels: tuple[LaunchTime, ...]
    host_us: float
    """From the call to the outputs."""
    device_us: float
    """From the start of the first kernel to the end of the last."""

    @property
    def kernels_us(self) -> float:
        """All kernels, gaps between them left out."""
        return sum(k.us for k in self.kernels)


class GpuProgram:
    """A compiled graph. One run at a time uses its memory; threads take turns."""

    def __init__(
        self, graph: Graph, device: ClDevice, config: GpuConfig, binaries: Mapping[str, bytes] | None = None
    ) -> None:
        self.graph = graph
        self.device = device
        self.config = config
        self._lock = threading.Lock()
        self._inputs, self._outputs = graph.inputs, graph.outputs
        machine = Machine(device.is_processor, device.units, device.local_bytes, device.most_items)
        made = builder(device)
        lowering = GpuLowering(graph, config, machine)
        if config.gpu_tuning:
            lowering.choose = lambda key, choices: fastest(made, key, choices, lowering.storage)
        self.launches = lowering.launches()
        self._faults = lowering.faults
        self._lowering = lowering
        made.build(self.launches, binaries)
        self._queue = device.queue()
        self._allocate(lowering)
        self._kernels = [made.kernel(launch) for launch in self.launches]
        self._arguments = [[self._buffer(a) for a in launch.arguments] for launch in self.launches]
        with clear_errors(device.name):
            for kernel, arguments in zip(self._kernels, self._arguments, strict=True):
                kernel.set_args(*arguments)
        self._enqueue = prepared(self._queue, self._kernels, self.launches)

    # -- memory -------------------------------------------------------------------------------------------------------

    def _allocate(self, lowering: GpuLowering) -> None:
        """The arena, and a buffer for each constant, the inputs and the word that faults are reported in."""
        sizes: dict[object, int] = {}
        lives: dict[object, tuple[int, int]] = {}
        constants: dict[object, Constant | Value] = {}
        end = len(self.launches)
        for i, launch in enumerate(self.launches):
            for argument in launch.arguments:
                if isinstance(argument, str):
                    continue
                if isinstance(argument, Constant) or (isinstance(argument, Value) and argument.is_static):
                    constants[argument] = argument
                    continue
                key = lowering.placed(argument) if isinstance(argument, Value) else argument
                if isinstance(key, Value) and key.is_static:
                    constants[key] = key
                    continue
                sizes[key] = key.bytes if isinstance(key, Scratch) else lowering.storage(key).bytes * key.type.size
                first = lives[key][0] if key in lives else i
                lives[key] = (first, i)
        for value in (*self._inputs, *self._outputs):
            key = lowering.placed(value)
            if key.is_static:
                constants[key] = key
                continue
            sizes[key] = lowering.storage(key).bytes * key.type.size
            first, last = lives.get(key, (0, 0))
            lives[key] = (0 if key.role is Role.APP_WRITE else first, end if value in self._outputs else last)
        share = self.config.gpu_use_memory_optimizations
        self._buffers: dict[object, Any]
        if self.device.is_processor:
            offsets, self.arena_bytes = arena(sizes, lives, self.device.alignment, share=share)
            self._arena = memory.activations(self.device, self.arena_bytes)
            with clear_errors(self.device.name):
                self._buffers = memory.pieces(self._arena, offsets, sizes)
        else:
            chosen, bytes_of = memory.slots(sizes, lives, share)
            self.arena_bytes = sum(bytes_of)
            made = [memory.activations(self.device, size) for size in bytes_of]
            self._buffers = {key: made[slot] for key, slot in chosen.items()}
        self._held = []
        self.constant_bytes = 0
        for constant, what in constants.items():
            if isinstance(what, Constant):
                array = what.make()
            else:
                assert what.data is not None
                array = np.ascontiguousarray(what.data).astype(lowering.storage(what).numpy)
            held = memory.constant(self.device, array, self.config.gpu_use_weight_sharing)
            self.constant_bytes += array.nbytes
            self._held.append(held)
            self._buffers[constant] = held.buffer
        self._fault_word = None
        if self._faults:
            cl = opencl()
            with clear_errors(self.device.name):
                self._fault_word = cl.Buffer(self.device.context, cl.mem_flags.READ_WRITE, 4)
            self._buffers[FAULT] = self._fault_word

    def _buffer(self, argument: Any) -> Any:
        key = self._lowering.placed(argument) if isinstance(argument, Value) else argument
        return self._buffers[key]

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        arrays = checked_feeds(self.graph.name, self._inputs, feeds)
        times = kernel_times.get()
        if times is not None:
            return self._timed(arrays, times)
        with self._lock, clear_errors(self.device.name, f"while it ran graph {self.graph.name!r}"):
            return self._run(arrays, self._queue, None)

    def _timed(self, arrays: Mapping[str, Array], times: list[KernelTime]) -> dict[str, Array]:
        """A run whose kernels are timed by the device's own clock, each under the node it is for."""
        events: list[Any] = []
        with self._lock, clear_errors(self.device.name, f"while it ran graph {self.graph.name!r}"):
            results = self._run(arrays, self.device.queue(profiled=True), events)
            for launch, event in zip(self.launches, events, strict=True):
                times.append(KernelTime(launch.nodes[0].name, "GPU", event.profile.start, event.profile.end))
        return results

    def _run(self, arrays: Mapping[str, Array], queue: Any, events: list[Any] | None) -> dict[str, Array]:
        cl = opencl()
        for value in self._inputs:
            if value.type.size and value in self._buffers:
                host = np.ascontiguousarray(arrays[value.name]).astype(self._lowering.storage(value).numpy, copy=False)
                cl.enqueue_copy(queue, self._buffers[value], host, is_blocking=False)
        if self._fault_word is not None:
            cl.enqueue_fill_buffer(queue, self._fault_word, np.int32(0), 0, 4)
        check = interruption.get()
        record = self.config.gpu_use_queue_recording
        if record and events is None and check is None and self._enqueue is not None:
            if error := self._enqueue():
                raise cl.RuntimeError(f"clEnqueueNDRangeKernel failed: {cl.status_code.to_string(error, '%d')}")
            return self._results(queue)
        for i, (launch, kernel) in enumerate(zip(self.launches, self._kernels, strict=True)):
            if check is not None and i % 16 == 0:
                check()
            if not record:
                kernel.set_args(*self._arguments[i])
            event = cl.enqueue_nd_range_kernel(queue, kernel, launch.global_size, launch.local_size)
            if events is not None:
                events.append(event)
        return self._results(queue)

    def _results(self, queue: Any) -> dict[str, Array]:
        """The outputs, once everything that was enqueued is done."""
        cl = opencl()
        results: dict[str, Array] = {}
        for value in self._outputs:
            host = np.empty(value.shape, self._lowering.storage(value).numpy)
            if value.type.size:
                cl.enqueue_copy(queue, host, self._buffer(value), is_blocking=False)
            results[value.name] = host
        fault = np.zeros(1, np.int32)
        if self._fault_word is not None:
            cl.enqueue_copy(queue, fault, self._fault_word, is_blocking=False)
        queue.finish()
        if fault[0]:
            node = self._faults[fault[0] - 1]
            raise CallError(f"{node.op.name} {node.name!r}: an index is outside the axis it counts along")
        return {name: array.astype(self.graph.values[name].dtype.numpy, copy=False) for name, array in results.items()}

    def profile(self, feeds: Mapping[str, Array]) -> MeasuredRun:
        """One run with every kernel timed by the device."""
        arrays = checked_feeds(self.graph.name, self._inputs, feeds)
        queue = self.device.queue(profiled=True)
        events: list[Any] = []
        with self._lock, clear_errors(self.device.name):
            begin = time.perf_counter()
            self._run(arrays, queue, events)
            host_us = 1e6 * (time.perf_counter() - begin)
            kernels = tuple(
                LaunchTime(
                    launch.name,
                    tuple(n.name for n in launch.nodes),
                    (e.profile.end - e.profile.start) / 1e3,
                    launch.flops,
                )
                for launch, e in zip(self.launches, events, strict=True)
            )
            span = (events[-1].profile.end - events[0].profile.start) / 1e3 if events else 0.0
        return MeasuredRun(kernels, host_us, span)

    # -- contexts -----------------------------------------------------------------------------------------------------

    def save(self, put: Put) -> dict[str, Any]:
        """What a context file holds of it: the graph, and its kernels compiled for this device."""
        binaries = builder(self.device).binaries(self.launches)
        stored = {key: base64.b64encode(binary).decode() for key, binary in sorted(binaries.items())}
        return {
            "graph": text.dumps(self.graph, put=put),
            "device": self.device.name,
            "driver": self.device.driver,
            "kernels": stored,
        }
