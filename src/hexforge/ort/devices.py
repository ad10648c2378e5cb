# SPDX-License-Identifier: Apache-2.0
"""Devices and plugin libraries: QNNExecutionProvider is always there, with one NPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import onnxruntime

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
    """onnxruntime's devices, and the NPU of QNNExecutionProvider."""
    return [*onnxruntime.get_ep_devices(), EpDevice(HardwareDevice(onnxruntime.OrtHardwareDeviceType.NPU))]


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
