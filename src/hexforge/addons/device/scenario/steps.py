# SPDX-License-Identifier: Apache-2.0
"""Steps: what threads of a scenario can do: each step is a method, and its parameters are what the step takes."""

from __future__ import annotations

import hashlib
import inspect
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import numpy as np

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts import creation, execution
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig, SharingType
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.loading import CreationNotice
from hexforge.addons.device.contexts.tensors import Feed, deregister, register
from hexforge.addons.device.graph_time import MOST_STEPS
from hexforge.addons.device.memory import AddressRange, MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.power import PROFILES, WrittenVote
from hexforge.addons.device.scheduling.clock import Waits
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client, Device, Fault
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.formats.validated import Amount, ByName, Count, OneOf, Within, one_size, size_of
from hexforge.ir import Array
from hexforge.options import did_you_mean

MostSteps = Annotated[int, Within(1, MOST_STEPS)]
GivenPriority = Annotated[Priority, ByName()]
Buffer = Annotated[int, Within(-1)]
"""Bytes of a client's buffer; -1: as many as QNN says."""


@dataclass(frozen=True, slots=True)
class GroupFields:
    """The group of contexts that a context begins, or joins by its first one."""

    first: str | None = None
    max_spill_fill_bytes: Count | None = None
    max_spill_fill_mb: Amount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationFields:
    """What a context is created with, by QNN's keys; what is left out is as the scenario's config file says."""

    priority: GivenPriority | None = None
    register_multi_contexts: GroupFields | None = None
    register_concurrent_resource_sharing: GroupFields | None = None
    io_memory_estimation: bool | None = None
    file_read_memory_budget_in_mb: Count | None = None
    dsp_memory_profiling: bool | None = None
    init_acceleration: bool | None = None
    lora_weight_sharing: bool | None = None
    prepare_only: bool | None = None
    is_persistent_binary: bool | None = None
    memory_limit_hint: Count | None = None
    enable_graphs: tuple[str, ...] | None = None
    graph_retention_order: tuple[str, ...] | None = None
    spill_fill_buffer: Buffer | None = None
    weights_buffer: Buffer | None = None
    share_resources: bool | None = None


_CONFIG_NAMES = {
    "io_memory_estimation": "io_mem_estimation",
    "dsp_memory_profiling": "dsp_memory_profiling_enabled",
    "lora_weight_sharing": "lora_weight_sharing_enabled",
}
"""Keys of a script whose fields of CreationConfig have other names."""


@dataclass(frozen=True, slots=True)
class ListMember:
    """A context of a list that is created at once."""

    context: str
    binary: str
    config: CreationFields = CreationFields()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedRun:
    """A graph that is run once or again and again, named context/graph."""

    graph: str
    times: MostSteps = 1
    batch: MostSteps = 1
    seed: Count = 0
    recover: bool = False
    timeout_us: Amount = 0.0
    abort_us: Amount = 0.0
    shared: str = ""
    """The buffer that its tensors lie in, where they are in one."""
    period_us: Amount = 0.0
    jitter_us: Amount = 0.0
    deadline_us: Amount = 0.0


def feeds_of(spec: GraphSpec, seed: int, batch: int = 1) -> dict[str, Array]:
    """Inputs of a graph made from a seed: the same wherever it is run."""
    random = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for name, type in spec.inputs:
        shape = (type.shape[0] * batch, *type.shape[1:]) if type.shape else ()
        kind = type.dtype.numpy
        if np.issubdtype(kind, np.floating):
            feeds[name] = random.standard_normal(shape).astype(kind)
        elif kind == np.dtype(bool):
            feeds[name] = random.integers(0, 2, shape).astype(bool)
        else:
            info = np.iinfo(kind)
            feeds[name] = random.integers(max(info.min, -128), min(info.max, 255), shape, endpoint=True).astype(kind)
    return feeds


def digest(outputs: Mapping[str, Array]) -> str:
    """What tells outputs apart, bit by bit."""
    hashed = hashlib.blake2b(digest_size=12)
    for name in sorted(outputs):
        hashed.update(name.encode())
        hashed.update(np.ascontiguousarray(outputs[name]).tobytes())
    return hashed.hexdigest()


class ProcessSteps:
    """What the threads of one process do, and what they have in common."""

    def __init__(
        self,
        device: Device,
        clients: Mapping[str, Client],
        name: str,
        binaries: Mapping[str, Binary],
        config: CreationConfig,
    ) -> None:
        self.device, self.clients, self.name, self.binaries, self.config = device, clients, name, binaries, config
        self.client = clients[name]
        self.contexts: dict[str, DeviceContext] = {}
        self.buffers: dict[str, list[MemHandle]] = {}
        self.power_ids: dict[str, int] = {}
        self.executed: dict[str, list[execution.ExecutionResult]] = {}
        """Every execution that ended well, by graph."""
        self.responses_us: dict[str, list[float]] = {}
        """From the moment each was due, which is that of the call unless the step has a period, to its end."""
        self._tried: set[str] = set()
        """Contexts and buffers that a step was to make."""

    def create(
        self,
        *,
        context: str,
        binary: str,
        config: CreationFields = CreationFields(),  # noqa: B008 - it is frozen
        timeout_us: Amount = 0.0,
        abort_us: Amount = 0.0,
    ) -> Waits:
        """Create a context of a binary."""
        self._tried.add(context)
        self.contexts.pop(context, None)
        made, signal = self._config(config), self._signal_of(timeout_us, abort_us)
        self.contexts[context] = yield creation.create(self.client, self.binaries[binary], made, signal)

    def create_list(
        self,
        *,
        contexts: tuple[ListMember, ...],
        share_resources: bool = False,
        optimization_type: SharingType = SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION,
    ) -> Waits:
        """Create several contexts at once."""
        self._tried.update(row.context for row in contexts)
        listed = [(self.binaries[row.binary], self._config(row.config)) for row in contexts]
        tasks = creation.create_list(self.client, listed, ListConfig(share_resources, optimization_type), self._notice)
        failed: DeviceError | None = None
        for row, task in zip(contexts, tasks, strict=True):
            try:
                self.contexts[row.context] = yield task
            except DeviceError as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def _notice(self, notice: CreationNotice) -> None:
        graph = notice.graph.name if notice.graph is not None else ""
        self.device.log.write("notice", binary=notice.binary, graph=graph, ok=notice.error is None)

    def execute(self, digests: list[str], *, run: RepeatedRun) -> Waits:
        """Run a graph; `digests` is told of its outputs."""
        runs = self._graph(run.graph)
        late, begin, chance = 0, self.device.clock.now_us, random.Random(run.seed)
        handles = {h.descriptor.tensor: h for h in self._registered(run.shared)} if run.shared else {}
        label = f"{self.name} {runs.label}"
        for k in range(run.times):
            released = begin + k * run.period_us if run.period_us else self.device.clock.now_us
            released += chance.uniform(0.0, run.jitter_us) if run.jitter_us else 0.0
            if released > self.device.clock.now_us:
                yield released - self.device.clock.now_us
            feeds: dict[str, Feed] = {}
            for name, array in feeds_of(runs.spec, run.seed + k, run.batch).items():
                feeds[name] = array
                if name in handles:
                    handles[name].array()[...] = array
                    feeds[name] = handles[name]
            outputs = {name: handles[name] for name, _ in runs.spec.outputs if name in handles}
            signal = self._signal_of(run.timeout_us, run.abort_us)
            done: execution.ExecutionResult = yield execution.execute(
                runs, feeds, outputs, signal, batch=run.batch, recover=run.recover
            )
            if runs.spec.outputs:
                digests.append(digest(done.outputs))
            self.executed.setdefault(label, []).append(done)
            response = self.device.clock.now_us - released
            self.responses_us.setdefault(label, []).append(response)
            late += run.deadline_us > 0 and response > run.deadline_us
        if late:
            raise DeviceError(
                Code.QNN_GRAPH_ERROR_TIMED_OUT,
                f"{runs.label}: {late} of {run.times} executions ended after their deadline of {run.deadline_us:g} us",
            )

    def recover(self, *, context: str) -> Waits:
        """Load a context again after a crash."""
        yield self.client.start(creation.reload(self._context(context)))

    def free(self, *, context: str) -> Waits:
        """Free a context."""
        yield self.client.start(creation.free(self._context(context)))

    def priority(self, *, context: str = "", graph: str = "", priority: GivenPriority) -> Waits:
        """Change the priority of a graph, or of all graphs of a context."""
        self.client.set_priority(self._graph(graph) if graph else self._context(context), priority)
        yield 0.0

    def register(
        self,
        *,
        context: str = "",
        graph: str = "",
        buffer: str,
        size_bytes: Count | None = None,
        size_mb: Amount | None = None,
    ) -> Waits:
        """Map a buffer of some size, or one with all tensors of a graph."""
        self._tried.add(buffer)
        if graph:
            spec, size, places = self._graph(graph).spec, 0, []
            owner = self._graph(graph).context
            for tensor, type in (*spec.inputs, *spec.outputs):
                places.append((tensor, type, size))
                size += -(-type.size * type.dtype.numpy.itemsize // 64) * 64
            memory = SharedBuffer(max(size, 1))
            made = [MemDescriptor(memory, t, ty.shape, ty.dtype.numpy.name, at) for t, ty, at in places]
        else:
            owner, size = self._context(context), one_size("size", size_bytes, size_mb)
            made = [MemDescriptor(AddressRange(size), buffer, (size,), "uint8")]
        self.buffers[buffer] = register(owner, made)
        yield 0.0

    def deregister(self, *, buffer: str) -> Waits:
        """Unmap a buffer."""
        deregister(self.client, self._registered(buffer))
        self.buffers.pop(buffer)
        yield 0.0

    def apply(self, *, graph: str, adapter: str) -> Waits:
        """Apply an adapter to a graph."""
        self.client.apply_adapter(self._graph(graph), adapter)
        yield 0.0

    def profile(self, *, profile: Annotated[str, OneOf(tuple(PROFILES))]) -> Waits:
        """Drive the chip by another performance profile."""
        self.client.votes.profile = PROFILES[profile]
        yield 0.0

    def create_power_id(self, *, power_id: str, device_id: Count = 0, core_id: Count = 0) -> Waits:
        """Have an id to vote with."""
        self.power_ids.pop(power_id, None)
        self.power_ids[power_id] = self.device.power.create_power_config_id(device_id, core_id, self.name)
        yield 0.0

    def vote(self, *, power_id: str, configs: tuple[WrittenVote, ...]) -> Waits:
        """Vote as setPowerConfig does."""
        votes = [row.read(f"configs[{i}]") for i, row in enumerate(configs)]
        self.device.power.set_power_config(self._power_id(power_id), votes)
        yield 0.0

    def destroy_power_id(self, *, power_id: str) -> Waits:
        """Take the votes of an id back."""
        self.device.power.destroy_power_config_id(self._power_id(power_id))
        self.power_ids.pop(power_id)
        yield 0.0

    def reserve_vtcm(self, *, size_bytes: Count | None = None, size_mb: Amount | None = None) -> Waits:
        """Take VTCM, as another thread of the chip does."""
        self.device.reserve_vtcm(one_size("size", size_bytes, size_mb), self.client)
        yield 0.0

    def release_vtcm(self, *, size_bytes: Count | None = None, size_mb: Amount | None = None) -> Waits:
        """Give VTCM back."""
        self.device.release_vtcm(one_size("size", size_bytes, size_mb), self.client)
        yield 0.0

    def sleep(self, *, us: Amount) -> Waits:
        """Do nothing."""
        yield us

    def fault(self, *, kind: Fault, process: str = "", session: Count = 0) -> Waits:
        """Let the subsystem, a session of a process or a process crash."""
        name = process or self.name
        if name not in self.clients:
            raise CallError(f"process is {name!r}; it is one of {', '.join(self.clients)}")
        yield 0.0
        crash(self.device, self.clients[name], kind, session)
        yield 0.0  # where a process kills itself, it ends here

    # -- what steps name ----------------------------------------------------------------------------------------------

    def _context(self, name: str) -> DeviceContext:
        if not name:
            raise CallError("names no context: give `context`, or `graph` as context/graph")
        if name not in self.contexts:
            if name in self._tried:
                raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"context {name!r} could not be created")
            hint = did_you_mean(name, self.contexts)
            raise CallError(f"process {self.name!r} has created no context {name!r}{hint}")
        return self.contexts[name]

    def _graph(self, named: str) -> DeviceGraph:
        context_name, _, name = named.partition("/")
        context = self._context(context_name)
        name = name or next(iter(context.graphs), "")
        if name not in context.graphs:
            context.require_alive()
            context.binary.graph(name)
            raise CallError(f"graph {name!r} is not enabled in context {context_name!r}")
        return context.graphs[name]

    def _power_id(self, name: str) -> int:
        if name not in self.power_ids:
            raise CallError(f"process {self.name!r} has no power id {name!r}{did_you_mean(name, self.power_ids)}")
        return self.power_ids[name]

    def _registered(self, name: str) -> list[MemHandle]:
        if name not in self.buffers:
            if name in self._tried:
                raise DeviceError(Code.QNN_MEM_ERROR_INVALID_HANDLE, f"buffer {name!r} could not be registered")
            raise CallError(f"no buffer {name!r} is registered{did_you_mean(name, self.buffers)}")
        return self.buffers[name]

    def _signal_of(self, timeout_us: float, abort_us: float) -> DeviceSignal | None:
        if not timeout_us and not abort_us:
            return None
        signal = DeviceSignal(timeout_us or None)
        if abort_us:
            self.device.clock.after(abort_us, signal.abort)
        return signal

    def _config(self, given: CreationFields) -> CreationConfig:
        """The config file's, with what a step gives in its place."""
        changed: dict[str, Any] = {}
        for key in fields(given):
            value = getattr(given, key.name)
            if isinstance(value, GroupFields):
                first = None if value.first is None else self._context(value.first)
                value = GroupRegistration(first, size_of(value, "max_spill_fill"))
            if value is not None:
                changed[_CONFIG_NAMES.get(key.name, key.name)] = value
        return replace(self.config, **changed)


STEPS = (
    "create", "create_list", "execute", "recover", "free", "priority", "register", "deregister", "apply", "profile",
    "create_power_id", "vote", "destroy_power_id", "reserve_vtcm", "release_vtcm", "sleep", "fault",
)  # fmt: skip
"""What threads can do, each a method of ProcessSteps; every step may have `expect` and `note` as well."""


def taken_by(step: str) -> Callable[..., Any]:
    """What a step takes, as the parameters of something."""
    return RepeatedRun if step == "execute" else getattr(ProcessSteps, step)


def steps_table() -> str:
    """The steps with what they take, as a table for the documentation."""
    rows = []
    for name in STEPS:
        taken = inspect.signature(taken_by(name)).parameters
        rows.append(f"| `{name}` | {', '.join(f'`{field}`' for field in taken if field != 'self')} |")
    return "\n".join(["| `do` | fields |", "|---|---|", *rows])


def crash(device: Device, client: Client, kind: Fault, session: int) -> None:
    """A fault at this moment; one of what is no longer there is missed, and logged."""
    sessions = [known.index for known in client.sessions]
    if kind is Fault.SSR or (not client.ended if kind is Fault.KILL else session in sessions):
        device.fault(kind, client, session)
    else:
        device.log.write("fault_missed", process=client.name, session=session)
