# SPDX-License-Identifier: Apache-2.0
"""QNNExecutionProvider as onnxruntime lists it: its devices, its plugin library, and which nodes it took.

It is always there, with one NPU and what OpenCL offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnxruntime

from hexforge.addon import Hook, hook
from hexforge.errors import CallError, UnsupportedError
from hexforge.ort.options.qnn_package import get_library_path
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import Stage

_LIBRARY = re.compile(r"(?:lib)?onnxruntime_providers_qnn(?:\.so(?:\.\d+)*|\.dll|\.dylib)?", re.IGNORECASE)
_registered: dict[str, str] = {}
"""The libraries of QNNExecutionProvider by the names they were registered under."""
_unregistered = False
"""Whether a library was registered, and the last one is gone again, as its devices are then."""


@dataclass(frozen=True, slots=True)
class HardwareDevice:
    """A piece of hardware, as onnxruntime's OrtHardwareDevice."""

    type: Any
    vendor: str = "Qualcomm"
    vendor_id: int = 0x5143
    device_id: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EpDevice:
    """A device of QNNExecutionProvider, as onnxruntime's OrtEpDevice."""

    device: HardwareDevice
    ep_name: str = QNN
    ep_vendor: str = "Qualcomm"
    ep_metadata: dict[str, str] = field(default_factory=dict)
    ep_options: dict[str, str] = field(default_factory=dict)


def get_ep_devices() -> list[Any]:
    """onnxruntime's devices, and those of QNNExecutionProvider: the NPU, and a GPU for each OpenCL device.

    The provider's are there without a library, too; they leave with the last one that is unregistered.
    """
    if _unregistered:
        return [*onnxruntime.get_ep_devices()]
    library = next(iter(_registered.values()), "")
    metadata = {"library_path": library} if library else {}
    npu = EpDevice(HardwareDevice(onnxruntime.OrtHardwareDeviceType.NPU), ep_metadata=metadata)
    return [*onnxruntime.get_ep_devices(), npu, *_gpus()]


def _gpus() -> list[EpDevice]:
    try:
        every = hook(Hook.OPENCL_DEVICES)()
    except UnsupportedError:  # no OpenCL here
        return []
    gpus = []
    for i, device in enumerate(every):
        metadata = {"name": device.name, "platform": device.platform, "kind": device.kind}
        hardware = HardwareDevice(
            onnxruntime.OrtHardwareDeviceType.GPU, device.vendor, int(device.handle.vendor_id), i, metadata
        )
        gpus.append(EpDevice(hardware, ep_options={"backend_type": "gpu", "gpu_device": str(i)}))
    return gpus


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Register a plugin library; QNNExecutionProvider's needs none, so its library is looked for and not loaded.

    Its name alone is enough; a path must be that of a file. CallError for another library under the provider's name.
    """
    global _unregistered
    given = str(library_path)
    folder, name = re.fullmatch(r"(?s)(.*[\\/])?(.*)", given).groups()  # type: ignore[union-attr]
    if _LIBRARY.fullmatch(name):
        if folder and not Path(given).is_file() and given != get_library_path():
            raise CallError(
                f"register_execution_provider_library: there is no file {given}; the name {name} alone is enough, "
                "hexforge loads no library"
            )
        if registration_name in _registered:
            raise CallError(f"register_execution_provider_library: {registration_name!r} is registered already")
        _registered[registration_name] = given
        _unregistered = False
        return
    if registration_name == QNN:
        raise CallError(
            f"register_execution_provider_library: {given!r} is no library of {QNN}; expected "
            "libonnxruntime_providers_qnn.so or onnxruntime_providers_qnn.dll"
        )
    onnxruntime.register_execution_provider_library(registration_name, library_path)


def unregister_execution_provider_library(registration_name: str) -> None:
    """Undo a registration."""
    global _unregistered
    if registration_name in _registered:
        del _registered[registration_name]
        _unregistered = not _registered
        return
    onnxruntime.unregister_execution_provider_library(registration_name)


# -- which nodes each provider took -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node in a graph assignment, as onnxruntime's OrtEpAssignedNode."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True, slots=True)
class AssignedSubgraph:
    """Nodes a provider took together, as onnxruntime's OrtEpAssignedSubgraph."""

    ep_name: str
    nodes: tuple[AssignedNode, ...]

    def get_nodes(self) -> list[AssignedNode]:
        """The nodes."""
        return list(self.nodes)


def assignment(stages: Iterable[Stage]) -> Iterator[AssignedSubgraph]:
    """The nodes of each QNN graph together, those on the CPU each alone."""
    for stage in stages:
        nodes = tuple(AssignedNode(row.node, row.domain, row.op_type) for row in stage.rows)
        if stage.part.taken:
            yield AssignedSubgraph(QNN, nodes)
        else:
            yield from (AssignedSubgraph(CPU, (node,)) for node in nodes)
