# SPDX-License-Identifier: Apache-2.0
"""Qnn: QNN's calls by their names, for one process. Each lets the device's time pass until it is done.

What fails raises `DeviceError` with QNN's code name and number. Calls that end in Async return at once; `wait` lets
time pass until what they gave is there. Each call is a row of `hexforge.qnn_api.calls`, with its parameters as fields.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts import creation, execution
from hexforge.addons.device.contexts.binary import Binary
from hexforge.addons.device.contexts.callbacks import DmaBufferCallback
from hexforge.addons.device.contexts.configs import CreationConfig, ListConfig
from hexforge.addons.device.contexts.execution import ExecutionResult
from hexforge.addons.device.contexts.handles import DeviceContext, DeviceGraph
from hexforge.addons.device.contexts.loading import Notify
from hexforge.addons.device.contexts.tensors import Feed, deregister, register
from hexforge.addons.device.memory import MemDescriptor, MemHandle, SharedBuffer
from hexforge.addons.device.power import PROFILES, PerfProfile, PowerConfig
from hexforge.addons.device.scheduling.clock import ClockTask, Pending, Waits
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Client
from hexforge.chips.power import Power
from hexforge.chips.priority import Priority
from hexforge.errors import CallError
from hexforge.options import did_you_mean

HTP_API_VERSION = (5, 39, 0)
"""QNN_HTP_API_VERSION_MAJOR, MINOR and PATCH."""
TRADITIONAL, USER_DRIVER = "traditional", "user driver"
DRIVER_SDK = (2, 22, 2)
DRIVER_LINES = (
    "Traditional path not available. Switching to user driver path",
    "HTP user driver is loaded. Switched to user driver path",
)
"""What the backend logs on its way to the Hexagon NPU Runtime Driver."""


class Qnn:
    """The calls of one process."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def wait(self, pending: Pending) -> Any:
        """Let time pass until a result is there."""
        return self.client.device.clock.wait(pending)

    def sleep(self, us: float) -> None:
        """Let time of the device pass."""
        self.wait(self.client.start(_sleeping(us)))

    # -- libraries ----------------------------------------------------------------------------------------------------

    def QnnBackend_getApiVersion(self) -> dict[str, tuple[int, int, int]]:  # noqa: N802
        """The version of the HTP backend's API that these calls follow."""
        return {"backendApiVersion": HTP_API_VERSION}

    def load_backend(self, path: str, *, bundled: bool = True, sdk: str = "") -> str:
        """dlopen of libQnnHtp.so; from a second path, calls that need the library fail from then on.

        `bundled`: the application brings the libraries of its chip (stub and skel). One that does not has the
        system's, the Hexagon NPU Runtime Driver of Windows, which takes SDKs (`sdk`) from 2.22.2 on. The path taken.
        """
        taken = TRADITIONAL if bundled else self._user_driver(sdk)
        self.client.libraries.add(path)
        return taken

    def _user_driver(self, sdk: str) -> str:
        chip, least = self.client.device, ".".join(map(str, DRIVER_SDK))
        if chip.facts.platform != "windows" or not chip.user_driver:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_LOADING_BINARIES,
                "the application bundles no library of the chip, and the system has none: the Hexagon NPU Runtime "
                "Driver is of Windows (Device(platform='windows', user_driver=True)); bundle them",
            )
        numbers = [int(part) for part in sdk.split(".") if part.isascii() and part.isdigit()]
        if sdk and tuple(numbers) < DRIVER_SDK:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_LOADING_BINARIES,
                f"SDK {sdk} is older than {least}, the first that the Hexagon NPU Runtime Driver takes",
            )
        for line in DRIVER_LINES:
            chip.log.write("warning", process=self.client.name, message=line)
        return USER_DRIVER

    def _one_library(self, call: str) -> None:
        if len(self.client.libraries) > 1:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_LOADING_BINARIES,
                f"{call}: the backend library is loaded from {', '.join(sorted(self.client.libraries))}; one process "
                "uses one copy",
            )

    def QnnBackend_registerOpPackage(self, path: str) -> None:  # noqa: N802
        """Checks the library only: op packages are not the device's."""
        self._one_library("QnnBackend_registerOpPackage")

    def QnnBackend_validateOpConfig(self) -> None:  # noqa: N802
        """Checks the library only: ops are the backend's."""
        self._one_library("QnnBackend_validateOpConfig")

    def QnnDevice_create(self) -> dict[str, Any]:  # noqa: N802
        """The platform info of the one device that there is."""
        self._one_library("QnnDevice_create")
        return self.QnnDevice_getPlatformInfo()

    def QnnDevice_getPlatformInfo(self) -> dict[str, Any]:  # noqa: N802
        """VTCM, chip, architecture, NSP cores, signed PD and DLBC."""
        return self.client.device.platform_info()

    # -- contexts -----------------------------------------------------------------------------------------------------

    def check_config(self, config: CreationConfig) -> None:
        """Refuse what a context cannot be created with, before there is a graph: what its creation would refuse."""
        creation.require_config(self.client, _require_config(config))

    def QnnContext_create(self, binary: Binary, config: CreationConfig | None = None) -> DeviceContext:  # noqa: N802
        """A context prepared online: as from a binary that is in no file."""
        self._one_library("QnnContext_create")
        return self.QnnContext_createFromBinary(_require_binary(binary).embed(), config)

    def QnnContext_createFromBinary(  # noqa: N802
        self, binary: Binary, config: CreationConfig | None = None
    ) -> DeviceContext:
        """A context, ready to run."""
        return self._create(binary, config)

    def QnnContext_createFromBinaryWithSignal(  # noqa: N802
        self, binary: Binary, signal: DeviceSignal | None = None, config: CreationConfig | None = None
    ) -> DeviceContext:
        """As createFromBinary, ended by an abort or a timeout; nothing stays behind."""
        return self._create(binary, config, signal)

    def QnnContext_createFromBinaryWithCallback(  # noqa: N802
        self, binary: Binary, callback: DmaBufferCallback, config: CreationConfig | None = None,
        signal: DeviceSignal | None = None,
    ) -> DeviceContext:  # fmt: skip
        """As createFromBinary, with the weights in the client's DMA buffers; not on a shared device."""
        return self._create(binary, config, signal, callback)

    def _create(
        self, binary: Binary, config: CreationConfig | None, signal: DeviceSignal | None = None,
        callback: DmaBufferCallback | None = None,
    ) -> DeviceContext:  # fmt: skip
        task = creation.create(self.client, _require_binary(binary), _require_config(config), signal, callback)
        made: DeviceContext = self.wait(task)
        return made

    def QnnContext_createFromBinaryListAsync(  # noqa: N802
        self, members: Sequence[tuple[Binary, CreationConfig]], config: ListConfig, notify: Notify = lambda notice: None
    ) -> list[ClockTask]:
        """Begin to create several contexts and return; `notify` is told of every graph and context as time passes."""
        checked = [(_require_binary(binary), _require_config(own)) for binary, own in members]
        return creation.create_list(self.client, checked, config, notify)

    def QnnContext_setConfig(  # noqa: N802
        self, context: DeviceContext, *, priority: Priority | None = None, dsp_memory_profiling: bool | None = None
    ) -> None:
        """The priority of all graphs, and DSP heap profiling, from now on."""
        self._set_context(self._own_context(context), priority, dsp_memory_profiling)

    def _set_context(
        self, context: DeviceContext, priority: Priority | None, dsp_memory_profiling: bool | None
    ) -> None:
        context.require_alive()
        if priority is not None:
            self.client.set_priority(context, priority)
        if dsp_memory_profiling is not None:
            context.config = replace(context.config, dsp_memory_profiling_enabled=dsp_memory_profiling)

    def QnnContext_applyBinarySection(self, graph: DeviceGraph, adapter: str) -> None:  # noqa: N802
        """Apply an adapter to a graph."""
        self.client.apply_adapter(self._own_graph(graph), adapter)

    def QnnContext_free(self, context: DeviceContext) -> None:  # noqa: N802
        """Give back all that a context has."""
        self.wait(self.client.start(creation.free(self._own_context(context))))

    def recover(self, context: DeviceContext) -> DeviceContext:
        """Load a context again that was lost in a crash; its handles stay good."""
        made: DeviceContext = self.wait(self.client.start(creation.reload(self._own_context(context))))
        return made

    # -- graphs -------------------------------------------------------------------------------------------------------

    def QnnGraph_create(self, context: DeviceContext, name: str) -> DeviceGraph:  # noqa: N802
        """Checks the library, then as retrieve: graphs come from binaries here."""
        self._one_library("QnnGraph_create")
        return self.QnnGraph_retrieve(context, name)

    def QnnGraph_retrieve(self, context: DeviceContext, name: str) -> DeviceGraph:  # noqa: N802
        """A graph of a context."""
        return self._own_context(context).retrieve(name)

    def QnnGraph_setConfig(  # noqa: N802
        self,
        graph: DeviceGraph,
        *,
        priority: Priority | None = None,
        slc: bool | None = None,
        num_hvx_threads: int | None = None,
    ) -> None:
        """Priority and use of the system level cache from now on; HVX threads until the graph first runs."""
        self._set_graph(self._own_graph(graph), priority, slc, num_hvx_threads)

    def _set_graph(
        self, graph: DeviceGraph, priority: Priority | None, slc: bool | None, num_hvx_threads: int | None
    ) -> None:
        graph.context.require_alive()
        if priority is not None:
            self.client.set_priority(graph, priority)
        graph.set_options(slc, num_hvx_threads)

    def QnnGraph_execute(  # noqa: N802
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None = None,
        outputs: Mapping[str, MemHandle] | None = None, signal: DeviceSignal | None = None, *, batch: int = 1,
        recover: bool = False,
    ) -> ExecutionResult:  # fmt: skip
        """Outputs for inputs; every tensor may have the same multiple of the batch."""
        begun = self.QnnGraph_executeAsync(graph, inputs, outputs, signal, batch=batch, recover=recover)
        executed: ExecutionResult = self.wait(begun)
        return executed

    def QnnGraph_executeAsync(  # noqa: N802
        self, graph: DeviceGraph, inputs: Mapping[str, Feed] | None = None,
        outputs: Mapping[str, MemHandle] | None = None, signal: DeviceSignal | None = None, *, batch: int = 1,
        recover: bool = False,
    ) -> ClockTask:  # fmt: skip
        """Begin to execute and return."""
        return execution.execute(self._own_graph(graph), inputs, outputs, signal, batch=batch, recover=recover)

    def execute_in_turn(self, graphs: Sequence[DeviceGraph], inputs: Mapping[str, Feed] | None = None) -> Pending:
        """Begin to execute graphs one after the other, contexts loaded again where they are lost.

        `inputs` are the first graph's. The result is a list with what each took, and the microseconds of all.
        """
        return self.client.start(self._in_turn([self._own_graph(graph) for graph in graphs], dict(inputs or {})))

    def _in_turn(self, graphs: Sequence[DeviceGraph], inputs: dict[str, Feed]) -> Waits:
        clock = self.client.device.clock
        start_us, done = clock.now_us, []
        for number, graph in enumerate(graphs):
            given = {} if number else inputs
            done.append((yield self.QnnGraph_executeAsync(graph, given, recover=True)))
        return done, clock.now_us - start_us

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Events of the device's log that name this process."""
        return [entry for entry in self.client.device.log.of(*kinds) if entry.get("process") == self.client.name]

    # -- memory -------------------------------------------------------------------------------------------------------

    def rpcmem_alloc(self, size: int) -> SharedBuffer:
        """A buffer that host and HTP share."""
        return SharedBuffer(size)

    def QnnMem_register(  # noqa: N802
        self, context: DeviceContext, descriptors: Sequence[MemDescriptor]
    ) -> list[MemHandle]:
        """Tensors of a context in shared buffers, one or many in one."""
        return register(self._own_context(context), descriptors)

    def QnnMem_deRegister(self, handles: Sequence[MemHandle]) -> None:  # noqa: N802
        """Forget registered tensors."""
        deregister(self.client, handles)

    # -- power --------------------------------------------------------------------------------------------------------

    def createPowerConfigId(self, deviceId: int = 0, coreId: int = 0) -> int:  # noqa: N802, N803
        """An id to vote with."""
        return self.client.device.power.create_power_config_id(deviceId, coreId, self.client.name)

    def setPowerConfig(self, powerConfigId: int, configs: Sequence[PowerConfig]) -> None:  # noqa: N802, N803
        """Vote: DCVS, HMX, RPC latency and polling."""
        self.client.device.power.set_power_config(powerConfigId, configs)

    def destroyPowerConfigId(self, powerConfigId: int) -> None:  # noqa: N802, N803
        """Remove all votes of an id."""
        self.client.device.power.destroy_power_config_id(powerConfigId)

    def use_profile(self, profile: PerfProfile | Power | str | None, *, now: bool = False) -> None:
        """Have stages vote by a profile, by its name or by the power it gives; None: the application votes itself.

        `now`: and vote for it at once, where it is another one and is voted for outside of stages.
        """
        if isinstance(profile, Power):
            profile = PerfProfile.of(profile.through("qnn_dlc"))
        if isinstance(profile, str):
            if profile not in PROFILES:
                near = did_you_mean(profile, PROFILES)
                raise CallError(f"profile {profile!r} is not known; it is one of {', '.join(PROFILES)}{near}")
            profile = PROFILES[profile]
        self._use(profile, now)

    def _use(self, profile: PerfProfile | None, now: bool) -> None:
        votes = self.client.votes
        if not (now and votes.profile == profile):
            votes.profile = profile
            if now:
                votes.vote_now()

    def vote_by(self, profile: PerfProfile | None) -> None:
        """Have stages vote by a profile from now on, and vote for it at once where it is voted for outside of them."""
        self.use_profile(profile, now=True)

    def memory_facts(self) -> dict[str, Any]:
        """What the process has in use on the device, for what, and the most that all processes had."""
        by_kind: Counter[str] = Counter()
        for session in self.client.sessions:
            by_kind.update(session.by_kind())
        return {
            "bytes": self.client.heap_bytes, "sessions": len(self.client.sessions), "by_kind": by_kind,
            "peak_bytes": self.client.device.log.peak_bytes,
            "contexts": [
                {
                    "context": context.label, "state": str(context.state), "loaded": list(context.loaded),
                    "switching": context.config.switching, "switches": context.switches,
                    "group_bytes": None if context.group is None else context.group.max_spill_fill,
                    "shares_resources": context.sharing is not None,
                }
                for context in self.client.contexts.values()
            ],
        }  # fmt: skip

    # -- handles ------------------------------------------------------------------------------------------------------

    def _own_context(self, context: DeviceContext) -> DeviceContext:
        """A context of this process, living or not; DeviceError for anything else."""
        if not isinstance(context, DeviceContext) or context.client is not self.client:
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_INVALID_HANDLE, f"{_handle_name(context)} is no context of {self.client.name}"
            )
        return context

    def _own_graph(self, graph: DeviceGraph) -> DeviceGraph:
        """A graph of this process; DeviceError for anything else."""
        if not isinstance(graph, DeviceGraph) or graph.context.client is not self.client:
            raise DeviceError(
                Code.QNN_GRAPH_ERROR_INVALID_HANDLE, f"{_handle_name(graph)} is no graph of {self.client.name}"
            )
        return graph


def _sleeping(us: float) -> Waits:
    yield us


def _handle_name(handle: object) -> str:
    return handle.label if isinstance(handle, DeviceContext | DeviceGraph) else f"a {type(handle).__name__}"


def _require_binary(binary: Binary) -> Binary:
    if not isinstance(binary, Binary):
        kind = type(binary).__name__
        raise DeviceError(
            Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"a binary is a {kind}; give Binary.of(file, device.soc)"
        )
    return binary


def _require_config(config: CreationConfig | None) -> CreationConfig:
    if config is not None and not isinstance(config, CreationConfig):
        kind = type(config).__name__
        raise DeviceError(Code.QNN_CONTEXT_ERROR_INVALID_ARGUMENT, f"a config is a {kind}; give a CreationConfig")
    return config or CreationConfig()
