# SPDX-License-Identifier: Apache-2.0
"""ChipTime: the time that runs of a method take on a simulated device, under whose clock their events are logged.

Numbers are computed here as always. A delegate takes the device's time, an operator that is left to the CPU the time of
this computer, and what the interpreter does besides takes none.
"""

from __future__ import annotations

from collections.abc import Sequence

from hexforge.addons.device import Binary
from hexforge.addons.device.contexts.binary import require_suits
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.power import PerfProfile
from hexforge.addons.device.shared.remote import qnn_for
from hexforge.addons.executorch.blob import has_header, unwrap_context
from hexforge.addons.executorch.running.delegate import QnnDelegate
from hexforge.addons.executorch.running.event_log import EventLog
from hexforge.addons.executorch.running.method import Method
from hexforge.backend import ContextBackend, TimedBackend
from hexforge.chips.power import Power
from hexforge.chips.soc import Soc
from hexforge.ir import Array
from hexforge.runtime import registry
from hexforge.runtime.contexts.compatibility import BinaryCompatibility


class ChipTime:
    """Observes runs of a method, and tells an event log of them in the time of a chip."""

    def __init__(self, soc: Soc, method: Method, mode: str) -> None:
        self._qnn = qnn_for(soc.name, "qnn_executor_runner")
        self._qnn.use_profile(PerfProfile.of(Power(mode)))
        self._graphs: dict[int, DeviceGraph] = {}
        self.now_ns = 0
        """Of the device's clock, from the method's loading on."""
        self.log: EventLog | None = None
        """What is told; nothing while runs only warm up."""
        created: dict[tuple[int, int], dict[str, DeviceGraph]] = {}
        for row, delegate in zip(method.plan.delegates, method.delegates, strict=True):
            backend = registry.backend(delegate.context.info.backend)
            if not isinstance(backend, ContextBackend) or not isinstance(backend, TimedBackend):
                continue
            require_suits(delegate.context, soc.name, BinaryCompatibility.PERMISSIVE)
            key = (row.offset, len(row.data))
            if not row.offset or key not in created:
                data = bytes(unwrap_context(row.data) if has_header(row.data) else row.data)
                binary = Binary.of(data, soc, delegate.where).without_numbers()
                created[key] = dict(self._qnn.QnnContext_createFromBinary(binary).graphs)
            self._graphs[id(delegate)] = created[key][delegate.graph]

    def kernel(self, index: int, name: str, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """An operator was run, on the CPU."""
        begin = self._pass(end_ns - start_ns)
        if self.log is not None:
            self.log.kernel(index, name, begin, self.now_ns, outputs)

    def delegate(self, index: int, delegate: QnnDelegate, start_ns: int, end_ns: int, outputs: Sequence[Array]) -> None:
        """A delegate was run, on the device where it is for one."""
        graph = self._graphs.get(id(delegate))
        if graph is None:
            begin = self._pass(end_ns - start_ns)
        else:
            begin = self._pass(round(self._qnn.QnnGraph_execute(graph).latency_us * 1e3))
        if self.log is not None:
            self.log.delegate(index, delegate, begin, self.now_ns, outputs)

    def close(self) -> None:
        """Leave the device."""
        self._qnn.client.close()

    def _pass(self, nanoseconds: int) -> int:
        """Let time pass; when it began to."""
        begin = self.now_ns
        self.now_ns += nanoseconds
        return begin
