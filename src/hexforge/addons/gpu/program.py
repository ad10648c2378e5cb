# SPDX-License-Identifier: Apache-2.0
"""GpuProgram: a graph as kernels on a device, enqueued one after the other without waiting in between."""

from __future__ import annotations

import base64
import logging
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from hexforge.addons.gpu.building import builder
from hexforge.addons.gpu.config import GpuConfig
from hexforge.addons.gpu.device import ClDevice
from hexforge.addons.gpu.kernel_launches import GpuLowering
from hexforge.addons.gpu.kernels.launch import Machine
from hexforge.addons.gpu.resident.cuda_graph import resident
from hexforge.addons.gpu.resident.loss import Attempt, MemoryNeeds
from hexforge.addons.gpu.resident.resident import DeviceTimes, GraphMemory, Resident
from hexforge.addons.gpu.tuning import fastest
from hexforge.backend import KernelTime, Program, ProgramFacts, Put, checked_feeds, interruption, kernel_times
from hexforge.errors import CallError
from hexforge.ir import Array, Graph, text

_LOG = logging.getLogger("hexforge")


class GpuProgram(Program):
    """A compiled graph. One run at a time uses its memory; threads take turns."""

    def __init__(
        self, graph: Graph, device: ClDevice, config: GpuConfig, binaries: Mapping[str, bytes] | None = None
    ) -> None:
        super().__init__(graph)
        self.device = device
        self.config = config
        self._lock = threading.Lock()
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._layout: GraphMemory | None = None
        self._resident: Resident | None = None
        device.programs.add(self)
        self._attempt("loaded").carried_out(lambda: self._load(binaries))

    def _load(self, binaries: Mapping[str, bytes] | None) -> None:
        """Write the kernels, and bring everything to the device."""
        device, made = self.device, builder(self.device)
        machine = Machine(device.is_processor, device.units, device.local_bytes, device.most_items, device.half_math)
        lowering = GpuLowering(self.graph, self.config, machine)
        if self.config.gpu_tuning:
            lowering.choose = lambda key, choices: fastest(made, key, choices, lowering.storage)
        self.launches = lowering.launches()
        self._layout = GraphMemory(lowering, self.launches)
        self._takes = [(v, lowering.storage(v).numpy) for v in self._inputs if v.type.size]
        self._gives = [(v, lowering.storage(v).numpy, v.dtype.numpy) for v in self._outputs]
        self._on_device(binaries)
        _LOG.info("graph %r on gpu device %r: %s", self.graph.name, device.name, self.arithmetic)

    # -- on the device ------------------------------------------------------------------------------------------------

    def _attempt(self, doing: str) -> Attempt:
        return Attempt(self.device, self.graph.name, doing, self._needs, self.forget)

    def _needs(self) -> MemoryNeeds:
        return MemoryNeeds() if self._resident is None else self._resident.needs

    def _on_device(self, binaries: Mapping[str, bytes] | None = None) -> Resident:
        """Buffers and kernels in the device's context, made where they are not."""
        if self._resident is None:
            assert self._layout is not None
            self._resident = resident(self.device, self._layout)
            self._resident.place(binaries)
        return self._resident

    def forget(self) -> None:
        """Let go of everything on the device: the next run makes it again."""
        left, self._resident = self._resident, None
        if left is not None:
            left.release()

    @property
    def arithmetic(self) -> str:
        """What it computes in, and why: the precision and the device decide."""
        assert self._layout is not None
        name, real = self.device.name, self._layout.lowering.real
        return {
            "fp32": "float32",
            "hybrid": "float32, stored in float16",
            "user_provided": "float32, stored as the model has it",
            "fp16": f"float32, every result rounded to float16 ({name} has no cl_khr_fp16)"
            if real == "float"
            else f"float16, sums of more than 16 products in float32 ({name} has cl_khr_fp16)",
        }[self.config.gpu_precision]

    @property
    def facts(self) -> ProgramFacts:
        """What it computes in, and its memory for what is computed."""
        return ProgramFacts(arithmetic=self.arithmetic, arena_bytes=self._needs().activations)

    @property
    def constant_bytes(self) -> int:
        """Memory for constants."""
        return self._needs().constants

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs (APP_READ) by name for inputs (APP_WRITE) by name, in the tensors' own data types."""
        times = kernel_times.get()
        if times is not None:
            results, measured = self.timed(feeds)
            for launch, (start, end) in zip(self.launches, measured.kernels, strict=True):
                times.append(KernelTime(launch.nodes[0].name, "GPU", start, end))
            return results
        arrays = checked_feeds(self.graph.name, self._inputs, feeds)
        with self._lock:
            return self._attempt("ran").carried_out(lambda: self._run(arrays))

    def timed(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], DeviceTimes]:
        """A run, and the time of each of its launches by the device's own clock."""
        arrays = checked_feeds(self.graph.name, self._inputs, feeds)

        def measured_run() -> tuple[dict[str, Array], DeviceTimes]:
            times = DeviceTimes()
            return self._run(arrays, times), times

        with self._lock:
            return self._attempt("ran").carried_out(measured_run)

    def _run(self, arrays: Mapping[str, Array], times: DeviceTimes | None = None) -> dict[str, Array]:
        resident = self._on_device()
        inputs = [
            (v, np.ascontiguousarray(arrays[v.name]).astype(stored, copy=False))
            for v, stored in self._takes
            if v in resident.buffers
        ]
        results = {v.name: np.empty(v.shape, stored) for v, stored, _ in self._gives}
        outputs = [(v, results[v.name]) for v, _, _ in self._gives if v.type.size]
        if fault := resident.run(inputs, outputs, interruption.get(), times):
            node = resident.layout.lowering.faults[fault - 1]
            raise CallError(f"{node.op.name} {node.name!r}: an index is outside the axis it counts along")
        return {v.name: results[v.name].astype(own, copy=False) for v, _, own in self._gives}

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
