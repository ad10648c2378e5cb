# SPDX-License-Identifier: Apache-2.0
"""SimulatedRuns: the runs of a session on a simulated device, under the provider's, run and dynamic options.

Sessions of one chip and one device_id share a device, and contend for it: runs that overlap, in threads of the
application, are on the device at the same time, where priorities decide who waits. Numbers are the session's own; here
are time, memory and faults.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace

from hexforge.addons.device import Binary, CreationConfig, Device, GraphSpec, SimulatedTime
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.configs import GroupRegistration
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.addons.device.extensions import cores_of, creation_config, uses_signed_domain
from hexforge.addons.device.memory import MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.power import PerfProfile
from hexforge.addons.device.scheduling.clock import Pending
from hexforge.addons.device.shared.address import VARIABLE
from hexforge.addons.device.shared.remote import SharedDevice, qnn_for
from hexforge.backend import Backend, ContextBackend, TimedBackend
from hexforge.chips.priority import Priority
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.backend_extensions import Config
from hexforge.ort.errors import EngineFailedError
from hexforge.ort.options.backend import power_of_options
from hexforge.ort.options.config import DynamicOptions, RunConfig
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.runtime.cpu_part import CpuPart
from hexforge.runtime.stages import Stage

RUNTIME = "onnx"
EFFICIENT = "Efficient"
_DEVICES: weakref.WeakValueDictionary[tuple[str, int, int], Device] = weakref.WeakValueDictionary()
_SESSIONS = itertools.count(1)
_LOCK = threading.RLock()
"""Held while a device's clock moves, which its sessions share; not while a session computes."""


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """What one run of the session takes on the chip, its QNN graphs one after the other."""

    latency_us: float
    accelerator_us: float
    energy_uj: float
    """Assumed."""
    yields: int = 0
    mode: str = "default"
    """The performance mode while it ran."""
    post_mode: str = ""
    """The mode that was voted for after it."""
    waited_us: float = 0.0
    """Ready and not running: behind runs of other sessions, and for the core to wake."""


@dataclass(frozen=True, slots=True, eq=False)
class RunInFlight:
    """A run that has begun on the device."""

    task: Pending
    config: RunConfig
    mode: str
    """The performance mode that it began in."""


def attached_runs(
    stages: Sequence[Stage], backend: Backend, options: ProviderOptions, embedded: bool
) -> SimulatedRuns | None:
    """Runs on the device that HEXFORGE_DEVICE names; None where it names none, or the backend has no chip."""
    if not os.environ.get(VARIABLE) or not isinstance(backend, TimedBackend) or not isinstance(backend, ContextBackend):
        return None
    if not backend.targets[0].name:
        return None
    return SimulatedRuns(stages, backend, options, embedded)


def _own_device(key: tuple[str, int, int]) -> Device:
    """The device of this program for a chip, a device_id and a number of cores."""
    device = _DEVICES.get(key)
    if device is None:
        device = _DEVICES[key] = Device(key[0], cores=key[2])
    return device


class SimulatedRuns:
    """A session on a simulated device."""

    def __init__(self, stages: Sequence[Stage], backend: Backend, options: ProviderOptions, embedded: bool) -> None:
        if not isinstance(backend, TimedBackend) or not isinstance(backend, ContextBackend):
            raise UnsupportedError(f"the {backend.name} backend runs on no chip that is simulated; use htp")
        if not backend.targets[0].name:
            raise CallError("simulated: name a chip to simulate: provider option soc_model, such as SM8650")
        self._options = options
        self._handles: dict[tuple[str, int], MemHandle] = {}
        file = options.extensions()
        self._file = Config() if file is None else file
        cores = max(backend.graph_config.num_cores, cores_of(self._file))
        signed = uses_signed_domain(self._file)
        with _LOCK:
            own = functools.partial(_own_device, (backend.chip_name, options.device_id, cores))
            name = f"session {next(_SESSIONS)}"
            self._qnn = qnn_for(backend.chip_name, name, cores=cores, signed=signed, own=own)
            self.device: Device | SharedDevice = self._qnn.client.device
            """What the session runs on: HEXFORGE_DEVICE's; else sessions of one chip and device_id share one."""
            weakref.finalize(self, self._qnn.client.close)
            self._power = power_of_options(options)
            self._voted: PerfProfile | None = None
            self._vote()
            self._config = creation_config(self._file)
            self._priority = Priority.of(options.qnn_context_priority)
            if "qnn_context_priority" not in options.pairs():
                self._priority = self._config.priority
            self._graphs = self._created(stages, backend, embedded)
        self.runs: list[SimulatedRun] = []
        """The last thousand, oldest first."""

    @property
    def last(self) -> SimulatedRun:
        """The last run."""
        return self.runs[-1]

    @property
    def latency_us(self) -> float:
        """Of the last run, as the application sees it."""
        return self.last.latency_us

    @property
    def memory_bytes(self) -> int:
        """What the session has in use on the device."""
        return self._qnn.client.heap_bytes

    def run(self, config: RunConfig | None = None, shared: Sequence[SharedBuffer] = ()) -> SimulatedRun:
        """One run under run options, with inputs in shared buffers where some are.

        EngineFailedError where the device crashed and nothing can be loaded again.
        """
        return self.finish(self.begin(config, shared))

    def begin(self, config: RunConfig | None = None, shared: Sequence[SharedBuffer] = ()) -> RunInFlight:
        """Begin a run: it is on the device from now on, with those of other sessions that have begun."""
        with _LOCK:
            given = config or RunConfig()
            self._drive(given.htp_perf_mode)
            if given.rpc_control_latency is not None:
                self._power = replace(self._power, rpc_control_latency_us=given.rpc_control_latency)
            self._vote()
            feeds = self._registered(self._graphs[0], shared) if self._graphs else {}
            return RunInFlight(self._qnn.execute_in_turn(self._graphs, feeds), given, self.mode)

    def finish(self, flight: RunInFlight) -> SimulatedRun:
        """Let time pass until a run is over."""
        if isinstance(self.device, SharedDevice):
            self._waited_for(flight)  # its clock moves elsewhere, for other threads, too
        with _LOCK:
            done, took = self._waited_for(flight)
            post = flight.config.htp_perf_mode_post_run
            if post:
                self._drive(post)
                self._vote()
            run = SimulatedRun(
                took, sum(d.accelerator_us for d in done), sum(d.energy_uj for d in done),
                sum(d.yields for d in done), flight.mode, post, sum(d.waited_us for d in done),
            )  # fmt: skip
            self.runs = [*self.runs[-999:], run]
            return run

    def _waited_for(self, flight: RunInFlight) -> tuple[list[ExecutionResult], float]:
        try:
            ended: tuple[list[ExecutionResult], float] = self._qnn.wait(flight.task)
        except DeviceError as error:
            if error.code != Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION.number:
                raise
            raise EngineFailedError(
                f"NPU crashed. SSR detected: {error}; create the session again (ENGINE_ERROR)", error.code
            ) from None
        return ended

    def _registered(self, graph: DeviceGraph, shared: Sequence[SharedBuffer]) -> dict[str, Feed]:
        """Shared buffers as memory of a graph, each registered once."""
        registered: dict[str, Feed] = {}
        for buffer in shared:
            key = graph.label, buffer.fd
            if key not in self._handles:
                whole = MemDescriptor(buffer, f"fd {buffer.fd}", (buffer.size,), "uint8")
                (self._handles[key],) = self._qnn.QnnMem_register(graph.context, [whole])
            registered[f"fd {buffer.fd}"] = self._handles[key]
        return registered

    def follow(self, options: DynamicOptions, changed: Sequence[str]) -> None:
        """Dynamic options from now on."""
        with _LOCK:
            if "ep.dynamic.qnn_htp_performance_mode" in changed:
                self._drive(options.qnn_htp_performance_mode)
                self._vote()
            if "ep.dynamic.workload_type" in changed:
                wanted = Priority.LOW if options.workload_type == EFFICIENT else self._priority
                for graph in self._graphs:
                    self._qnn.QnnGraph_setConfig(graph, priority=wanted)

    @property
    def mode(self) -> str:
        """The performance mode that holds."""
        return self._power.performance_mode

    def _drive(self, mode: str) -> None:
        """Another performance mode from now on, where one is named."""
        self._power = self._power.in_mode(mode) if mode else self._power

    def _vote(self) -> None:
        profile = PerfProfile.of(self._power)
        if not profile.votes and profile.control_latency_us:  # nothing is voted for but the latency
            profile = replace(profile, votes=True)
        if profile != self._voted:
            self._qnn.vote_by(profile)
            self._voted = profile

    def _created(self, stages: Sequence[Stage], backend: TimedBackend, embedded: bool) -> list[DeviceGraph]:
        """The QNN graphs on the device: one context each, in one group where buffers are shared."""
        options, made, first = self._options, [], None
        specs = [_spec(stage, backend) for stage in stages]
        known = [spec for spec in specs if spec is not None]
        shares = options.enable_vtcm_backup_buffer_sharing or options.htp_share_resource_optimization == "1"
        shares = shares or self._file.htp.groupContext.share_resources
        most = max((spec.spill_fill_bytes for spec in known), default=0)
        for spec in known:
            group = GroupRegistration(first, 0 if first is not None else max(most, 1)) if shares else None
            config = CreationConfig(
                priority=self._priority,
                register_multi_contexts=group or self._config.register_multi_contexts,
                io_mem_estimation=self._config.io_mem_estimation,
                file_read_memory_budget_in_mb=self._config.file_read_memory_budget_in_mb,
                init_acceleration=self._config.init_acceleration,
                graph_priorities=self._config.graph_priorities,
                reused_io_limit_bytes=options.htp_reused_io_limit_mb << 20,
            )
            binary = Binary(
                spec.name, (spec,), embedded=embedded, udma64=backend.config.pairs().get("extended_udma") == "1",
                dlbc=bool(backend.graph_config.kinds_of_dlbc),
            )  # fmt: skip
            context = self._qnn.QnnContext_createFromBinary(binary, config)
            first = first if first is not None else context
            made.append(context.graphs[spec.name])
        return made


def _spec(stage: Stage, backend: TimedBackend) -> GraphSpec | None:
    if isinstance(stage.runner, CpuPart):
        return None
    config = backend.graph_config
    time = SimulatedTime(stage.runner.graph, require_chip(backend.chip_name), config, RUNTIME)
    line = time.timeline()
    io = sum(v.type.size * v.dtype.numpy.itemsize for v in (*stage.runner.graph.inputs, *stage.runner.graph.outputs))
    return GraphSpec(stage.name, line.weight_bytes, line.spill_fill_bytes, io, line.vtcm_bytes, time, config.num_cores)
