# SPDX-License-Identifier: Apache-2.0
"""The device that contexts share: a virtual clock, cDSP sessions and their memory, priorities, power, faults, buffers.

from hexforge.device import Binary, Device, Qnn

device = Device("SM8650")
qnn = Qnn(device.process("app"))
context = qnn.QnnContext_createFromBinary(Binary.of("model.bin", device.soc))
graph = qnn.QnnGraph_retrieve(context, "model")
outputs = qnn.QnnGraph_execute(graph, {"x": x}).outputs
"""

from hexforge.addons.device.api import Qnn
from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.contexts.binary import Binary, GraphSpec
from hexforge.addons.device.contexts.callbacks import DataRequest, DmaBufferCallback, DmaDataResponse
from hexforge.addons.device.contexts.configs import CreationConfig, GroupRegistration, ListConfig, SharingType
from hexforge.addons.device.graph_time import DeclaredTime, SimulatedTime
from hexforge.addons.device.log import audit
from hexforge.addons.device.memory import MemDescriptor, SharedBuffer
from hexforge.addons.device.shared.remote import SharedDevice, connect
from hexforge.addons.device.signal import DeviceSignal
from hexforge.addons.device.simulated_device import Device

__all__ = [
    "Binary",
    "Code",
    "CreationConfig",
    "DataRequest",
    "DeclaredTime",
    "Device",
    "DeviceError",
    "DeviceSignal",
    "DmaBufferCallback",
    "DmaDataResponse",
    "GraphSpec",
    "GroupRegistration",
    "ListConfig",
    "MemDescriptor",
    "Qnn",
    "SharedBuffer",
    "SharedDevice",
    "SharingType",
    "SimulatedTime",
    "audit",
    "connect",
]
