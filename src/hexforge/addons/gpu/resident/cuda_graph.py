# SPDX-License-Identifier: Apache-2.0
"""CudaResident: what a graph has on an NVIDIA GPU, where CUDA starts all of its kernels by one call."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from itertools import pairwise
from typing import Any

import numpy as np

from hexforge.addons.gpu.building import builder
from hexforge.addons.gpu.device import ClDevice
from hexforge.addons.gpu.kernels.code import FAULT
from hexforge.addons.gpu.kernels.launch import Launch
from hexforge.addons.gpu.resident import memory
from hexforge.addons.gpu.resident.cuda import Cuda, CudaBuffer, CudaHandles, call
from hexforge.addons.gpu.resident.resident import DeviceTimes, GraphMemory, Resident
from hexforge.ir import Array, Value

_RELAXED, _IN_GRAPH, _OWN_STREAM = 2, 1, 1
_STAGED, _DIRECT = 4 << 20, 64 << 10
"""Bytes up to which inputs and outputs have memory of the host that the device fetches from and writes to by itself,
and up to which every kernel does."""
_FETCH = """
kernel void run(global const uint4* restrict from, global uint4* restrict to, int count) {
  const int i = get_group_id(0) * 256 + get_local_id(0);
  if (i < count) to[i] = from[i];
}
"""
"""How an input is fetched that is not small: a kernel of the graph waits less than a copy that runs meanwhile."""


class CudaResident(Resident):
    """The buffers of a graph in CUDA's memory, and its kernels recorded as a graph of CUDA's."""

    def __init__(self, device: ClDevice, layout: GraphMemory, cuda: Cuda) -> None:
        super().__init__(device, layout)
        self.cuda = cuda
        self._handles = CudaHandles(cuda)
        self._stream = c_void_p()
        self._graphs: dict[bool, c_void_p] = {}
        self._events: list[c_void_p] = []
        self._fetching = c_void_p()
        self._functions: list[c_void_p] = []
        self._staged: dict[Value, CudaBuffer] = {}
        self._direct: set[Value] = set()
        self._fault = ctypes.c_int32()

    def place(self, binaries: Mapping[str, bytes] | None = None) -> None:
        """Take memory, bring constants there, load what OpenCL compiled, and record the kernels."""
        fetch = Launch("Fetch", (), _FETCH, (), (), (256,), (256,))
        launches = [fetch, *self.layout.launches]
        with self.device.giving_up_cuda(), ThreadPoolExecutor(1) as meanwhile:
            kernels = meanwhile.submit(builder(self.device).functions, launches, binaries, self.cuda)
            self._place_activations()
            self._place_constants()
            if self.layout.lowering.faults:
                self.fault_word = self.buffers[FAULT] = CudaBuffer(self.cuda, 4, host=True)
                self._fault = ctypes.c_int32.from_address(self.fault_word.address)
            self._fetching, *self._functions = kernels.result()
            self._stage()
            with self.cuda.current():
                call("cuStreamCreate", byref(self._stream), _OWN_STREAM)
                self._handles.add("cuStreamDestroy_v2", self._stream)
                self._graphs[False] = self._recorded(timed=False)

    def _stage(self) -> None:
        """Memory of the host for inputs and outputs that are not large; kernels use it where it is small."""
        lowering = self.layout.lowering
        used = [
            (launch, {lowering.placed(a) for a in launch.arguments if isinstance(a, Value)})
            for launch in self.layout.launches
        ]
        for value in {*lowering.graph.inputs, *lowering.graph.outputs}:
            size, key = lowering.bytes_of(value), lowering.placed(value)
            if key.is_static or not 0 < size <= _STAGED:
                continue
            self._staged[value] = CudaBuffer(self.cuda, size, host=True)
            writers = [launch for launch, values in used if key in values]
            written = all(any(lowering.placed(w) is key for w in x.writes if isinstance(w, Value)) for x in writers)
            inner = value in lowering.graph.outputs and (key is not value or not written)
            if size <= _DIRECT and not inner:
                self._direct.add(value)
                self.buffers[key] = self._staged[value]

    def _activations(self, size: int) -> CudaBuffer:
        return CudaBuffer(self.cuda, size)

    def _constant(self, array: Array, share: bool) -> memory.ConstantBuffer:
        def made() -> memory.ConstantBuffer:
            buffer, data = CudaBuffer(self.cuda, array.nbytes), np.ascontiguousarray(array)
            with self.cuda.current():
                call("cuMemcpyHtoD_v2", buffer.pointer, c_void_p(data.ctypes.data), c_size_t(data.nbytes))
            return memory.ConstantBuffer(buffer)

        return memory.shared_constant((int(self.cuda.context.value or 0), 0), array, made) if share else made()

    def _recorded(self, timed: bool) -> c_void_p:
        """All kernels as a graph; where they are timed, with an event before each and one at the end."""
        launches, graph, ready = self.layout.launches, c_void_p(), c_void_p()
        call("cuStreamBeginCapture_v2", self._stream, _RELAXED)
        for value in self.layout.lowering.graph.inputs:
            if value in self._staged and value not in self._direct and value in self.buffers:
                self._record_fetch(self._staged[value], self.buffers[value], self.layout.lowering.bytes_of(value))
        for i, (launch, function) in enumerate(zip(launches, self._functions, strict=True)):
            if timed:
                call("cuEventRecordWithFlags", self._event(i), self._stream, _IN_GRAPH)
            pointers = [self.buffer(a).pointer for a in launch.arguments]
            addresses = (c_void_p * len(pointers))(*(ctypes.addressof(p) for p in pointers))
            call("cuLaunchKernel", function, *_sizes(launch), 0, self._stream, addresses, None)
        if timed:
            call("cuEventRecordWithFlags", self._event(len(launches)), self._stream, _IN_GRAPH)
        call("cuStreamEndCapture", self._stream, byref(graph))
        call("cuGraphInstantiateWithFlags", byref(ready), graph, c_ulonglong(0))
        call("cuGraphDestroy", graph)
        return self._handles.add("cuGraphExecDestroy", ready)

    def _record_fetch(self, source: CudaBuffer, target: CudaBuffer, size: int) -> None:
        count = c_int(-(-size // 16))
        places = (source.pointer, target.pointer, count)
        addresses = (c_void_p * 3)(*(ctypes.addressof(p) for p in places))
        grid = [c_uint(n) for n in (-(-count.value // 256), 1, 1, 256, 1, 1)]
        call("cuLaunchKernel", self._fetching, *grid, 0, self._stream, addresses, None)

    def _event(self, number: int) -> c_void_p:
        while len(self._events) <= number:
            event = c_void_p()
            call("cuEventCreate", byref(event), 0)
            self._events.append(self._handles.add("cuEventDestroy_v2", event))
        return self._events[number]

    def run(
        self, inputs: Sequence[tuple[Value, Array]], outputs: Sequence[tuple[Value, Array]],
        check: Callable[[], None] | None, times: DeviceTimes | None,
    ) -> int:  # fmt: skip
        """One run: inputs there, all kernels, outputs back; the number of the fault that a kernel reported, or 0."""
        if check is not None:
            check()
        self._fault.value = 0
        with self.device.giving_up_cuda(), self.cuda.current():
            self._bring(inputs)
            if times is None:
                call("cuGraphLaunch", self._graphs[False], self._stream)
            else:
                self._timed(inputs, times)
            for value, host in outputs:
                if value not in self._direct:
                    self._fetch(self.buffer(value), self._staged.get(value), host)
            call("cuStreamSynchronize", self._stream)
        for value, host in outputs:
            if (staged := self._staged.get(value)) is not None:
                ctypes.memmove(host.ctypes.data, staged.address, host.nbytes)
        return self._fault.value

    def _fetch(self, buffer: Any, staged: CudaBuffer | None, host: Array) -> None:
        target = c_void_p(host.ctypes.data) if staged is None else staged.pointer
        call("cuMemcpyDtoHAsync_v2", target, buffer.pointer, c_size_t(host.nbytes), self._stream)

    def _bring(self, inputs: Sequence[tuple[Value, Array]]) -> None:
        """Inputs where kernels read them or fetch them from, or on their way to the device where they are large."""
        for value, host in inputs:
            if (staged := self._staged.get(value)) is not None:
                ctypes.memmove(staged.address, host.ctypes.data, host.nbytes)
            else:
                source, size = c_void_p(host.ctypes.data), c_size_t(host.nbytes)
                call("cuMemcpyHtoDAsync_v2", self.buffers[value].pointer, source, size, self._stream)

    def _timed(self, inputs: Sequence[tuple[Value, Array]], times: DeviceTimes) -> None:
        """All kernels twice: as they always run, and with events between them."""
        if True not in self._graphs:
            self._graphs[True] = self._recorded(timed=True)
        count, passed = len(self.layout.launches), c_float()
        first, last = self._event(count + 1), self._event(count + 2)
        call("cuEventRecord", first, self._stream)
        call("cuGraphLaunch", self._graphs[False], self._stream)
        call("cuEventRecord", last, self._stream)
        self._bring(inputs)  # kernels write over inputs that none reads any more
        call("cuGraphLaunch", self._graphs[True], self._stream)
        call("cuStreamSynchronize", self._stream)
        call("cuEventElapsedTime", byref(passed), first, last)
        times.span_us = 1e3 * passed.value
        ends = [0]
        for event in self._events[1 : count + 1]:
            call("cuEventElapsedTime", byref(passed), self._events[0], event)
            ends.append(round(1e6 * passed.value))
        times.kernels += list(pairwise(ends))

    def release(self) -> None:
        """Give everything back now; constants that others share stay."""
        own = [b for b in (*self._own, *self._staged.values(), self.fault_word) if b is not None]
        self._handles.release()
        super().release()
        for buffer in own:
            buffer.release()


def _sizes(launch: Launch) -> list[c_uint]:
    """Work-groups along three axes, and work-items of each."""
    filled = (1,) * (3 - len(launch.global_size))
    groups = (*(n // local for n, local in zip(launch.global_size, launch.local_size, strict=True)), *filled)
    return [c_uint(n) for n in (*groups, *launch.local_size, *filled)]


def resident(device: ClDevice, layout: GraphMemory) -> Resident:
    """Where a graph lives on a device: in CUDA's memory where its kernels are recorded and CUDA has the device."""
    recorded = layout.lowering.config.gpu_use_queue_recording and not layout.lowering.machine.is_processor
    cuda = device.cuda if recorded else None
    return CudaResident(device, layout, cuda) if cuda is not None else Resident(device, layout)
