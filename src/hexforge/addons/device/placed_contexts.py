# SPDX-License-Identifier: Apache-2.0
"""Contexts on a simulated device: what a config file says of contexts, groups, process domains and power acts there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hexforge.backend import Program
from hexforge.errors import CallError
from hexforge.formats.backend_extensions import Config
from hexforge.ir import Array, Graph

if TYPE_CHECKING:
    from hexforge.addons.device import Binary, CreationConfig, Qnn
    from hexforge.addons.device.contexts.binary import Tensors
    from hexforge.addons.device.contexts.execution import ExecutionResult
    from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
    from hexforge.addons.device.memory import MemHandle
    from hexforge.chips.graph_config import GraphConfig


class DeviceProgram(Program):
    """A graph of a context that lies on a device: it computes what its program does, and takes the device's time."""

    def __init__(self, qnn: Qnn, handle: DeviceGraph, *, shared: bool = False, timeout_us: int = 0) -> None:
        program = handle.program
        self.qnn, self._handle, self._timeout_us = qnn, handle, timeout_us
        self._known: Graph | None = program.graph if program is not None else None
        self._inputs: dict[str, MemHandle] = {}
        self._outputs: dict[str, MemHandle] = {}
        if shared:
            self._inputs = _register_buffers(qnn, handle, handle.spec.inputs)
            self._outputs = _register_buffers(qnn, handle, handle.spec.outputs)
        self.results: list[ExecutionResult] = []
        """Of each run: its time and the clocks that it ran under; outputs are left out."""

    @property
    def program(self) -> Program:
        """The program that computes the graph."""
        computing = self._handle.program
        if computing is None:  # one that is switched out
            opened, backend = self._handle.context.opened, self._handle.context.backend
            assert opened is not None
            computing = opened.program(self._handle.name, backend)
        return computing

    @property
    def handle(self) -> DeviceGraph:
        """The graph on the device."""
        return self._handle

    @property
    def graph(self) -> Graph:
        """The graph that it computes."""
        if self._known is None:
            self._known = self.program.graph
        return self._known

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One execution; of shared buffers a copy of what is in them afterwards."""
        from hexforge.addons.device import DeviceSignal

        signal = DeviceSignal(self._timeout_us) if self._timeout_us else None
        for name, handle in self._inputs.items():
            handle.array()[...] = feeds[name]
        done = self.qnn.QnnGraph_execute(self._handle, self._inputs or feeds, self._outputs, signal)
        self.results.append(replace(done, outputs={}))
        return {name: np.array(array) if self._outputs else array for name, array in done.outputs.items()}

    @property
    def graph_config(self) -> GraphConfig | None:
        """How the graph was prepared, where it is one that exists."""
        from hexforge.addons.device import SimulatedTime

        time = self._handle.time
        return time.config if isinstance(time, SimulatedTime) else None

    @property
    def context(self) -> DeviceContext:
        """The context that the graph is of."""
        return self._handle.context

    def apply(self, adapter: Path) -> None:
        """Put an adapter on the graph."""
        self.qnn.QnnContext_applyBinarySection(self._handle, str(adapter))


def on_device(
    sources: Sequence[Path | bytes], chip: str, config: Config, perf_profile: str = "", *, shared: bool = False,
    timeout_us: int = 0, load_timeout_us: int = 0,
) -> dict[str, DeviceProgram]:  # fmt: skip
    """The graphs of contexts on one device, as the config file says; DeviceError with QNN's code otherwise."""
    from hexforge.addons.device import Binary, DeviceSignal
    from hexforge.addons.device.extensions import cores_of, creation_config, profile_of, uses_signed_domain
    from hexforge.addons.device.shared.remote import qnn_for
    from hexforge.chips.soc import require_chip

    signed = uses_signed_domain(config)
    binaries = [Binary.of(source, require_chip(chip)) for source in sources]
    prepared_for = max((graph.num_cores for binary in binaries for graph in binary.graphs), default=1)
    cores = max(cores_of(config), prepared_for)
    qnn = qnn_for(chip, "qnn-net-run", cores=cores, signed=signed)
    qnn.use_profile(profile_of(config, perf_profile))
    own = creation_config(config)
    signal = DeviceSignal(load_timeout_us) if load_timeout_us else None
    if config.htp.groupContext.share_resources:
        contexts = _create_sharing_contexts(qnn, [(binary, own) for binary in binaries])
    else:
        contexts = []
        for binary in binaries:
            group = own.register_multi_contexts
            if group is not None and contexts:
                group = replace(group, first_group_handle=contexts[0])
            given = replace(own, register_multi_contexts=group)
            if signal is None:
                contexts.append(qnn.QnnContext_createFromBinary(binary, given))
            else:
                contexts.append(qnn.QnnContext_createFromBinaryWithSignal(binary, signal, given))
    programs: dict[str, DeviceProgram] = {}
    for context in contexts:
        for name, handle in context.graphs.items():
            if name in programs:
                raise CallError(f"two contexts have a graph {name!r}; give one of them a time, or rename one")
            programs[name] = DeviceProgram(qnn, handle, shared=shared or config.shares_buffers, timeout_us=timeout_us)
    return programs


def memory_lines(programs: Sequence[DeviceProgram]) -> list[str]:
    """What graphs have in memory on their device, for what; the most there was; and how often graphs were switched."""
    if not programs:
        return []
    facts = programs[0].qnn.memory_facts()
    listed = ", ".join(f"{what} {size:,}" for what, size in sorted(facts["by_kind"].items()))
    held = f"{facts['bytes']:,} bytes in {facts['sessions']} session{'s' if facts['sessions'] != 1 else ''}"
    lines = [f"memory on the device: {held}, at most {facts['peak_bytes']:,}"]
    lines += [f"  {listed}"] if listed else []
    for row in facts["contexts"]:
        label, group_bytes = row["context"], row["group_bytes"]
        if row["switching"]:
            lines.append(f"  {label}: loaded {', '.join(row['loaded'])} after {row['switches']} switches")
        if group_bytes is not None:
            kind = "shares resources" if row["shares_resources"] else "is in a group"
            lines.append(f"  {label}: {kind}, one spill-fill buffer of {group_bytes:,} bytes")
    return lines


def _create_sharing_contexts(qnn: Qnn, members: Sequence[tuple[Binary, CreationConfig]]) -> list[DeviceContext]:
    """Create contexts as one list, so that they share resources in the way that the chip supports."""
    from hexforge.addons.device import ListConfig, SharingType
    from hexforge.addons.device.contexts.configs import VA_ARCH

    arch = qnn.client.device.soc.htp_arch
    kind = SharingType.SEQUENTIAL_WITH_VA_OPTIMIZATION
    if arch < VA_ARCH:
        kind = SharingType.SEQUENTIAL_WITHOUT_VA_OPTIMIZATION
    tasks = qnn.QnnContext_createFromBinaryListAsync(members, ListConfig(True, kind), lambda notice: None)
    return [qnn.wait(task) for task in tasks]


def _register_buffers(qnn: Qnn, handle: DeviceGraph, tensors: Tensors) -> dict[str, MemHandle]:
    """A shared buffer for each tensor."""
    from hexforge.addons.device import MemDescriptor

    rows = [
        MemDescriptor(
            qnn.rpcmem_alloc(max(1, type.size * type.dtype.numpy.itemsize)), name, type.shape, type.dtype.numpy.name
        )
        for name, type in tensors
    ]
    return dict(zip([name for name, _ in tensors], qnn.QnnMem_register(handle.context, rows), strict=True))
