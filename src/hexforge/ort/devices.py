# SPDX-License-Identifier: Apache-2.0
"""Devices and plugin libraries: QNNExecutionProvider is always there, with one NPU and what OpenCL offers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import onnxruntime

from hexforge.errors import UnsupportedError
from hexforge.runtime.cpu_part import QNN

_LIBRARY = re.compile(r"(?:^|[\\/])(?:lib)?onnxruntime_providers_qnn(?:\.so|\.dll|\.dylib)?$", re.IGNORECASE)
_registered: set[str] = set()


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
    """onnxruntime's devices, and those of QNNExecutionProvider: the NPU, and a GPU for each OpenCL device."""
    npu = EpDevice(HardwareDevice(onnxruntime.OrtHardwareDeviceType.NPU))
    return [*onnxruntime.get_ep_devices(), npu, *_gpus()]


def _gpus() -> list[EpDevice]:
    from hexforge.backends.gpu.device import devices

    try:
        every = devices()
    except UnsupportedError:  # no OpenCL here
        return []
    found = []
    for i, device in enumerate(every):
        metadata = {"name": device.name, "platform": device.platform, "kind": device.kind}
        hardware = HardwareDevice(
            onnxruntime.OrtHardwareDeviceType.GPU, device.vendor, int(device.handle.vendor_id), i, metadata
        )
        found.append(EpDevice(hardware, ep_options={"backend_type": "gpu", "gpu_device": str(i)}))
    return found


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Register a plugin library; QNNExecutionProvider's needs none, so its library is not loaded."""
    if registration_name == QNN or _LIBRARY.search(str(library_path)):
        _registered.add(registration_name)
        return
    onnxruntime.register_execution_provider_library(registration_name, library_path)


def unregister_execution_provider_library(registration_name: str) -> None:
    """Undo a registration."""
    if registration_name in _registered:
        _registered.discard(registration_name)
        return
    onnxruntime.unregister_execution_provider_library(registration_name)
