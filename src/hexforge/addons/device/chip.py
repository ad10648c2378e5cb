# SPDX-License-Identifier: Apache-2.0
"""Chip: what all processes of a device have in common: clock, log, memory, power, cores."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hexforge.addons.device.codes import Code, DeviceError
from hexforge.addons.device.cores import Cores
from hexforge.addons.device.log import DeviceLog
from hexforge.addons.device.memory import CdspSession, DeviceMemory
from hexforge.addons.device.scheduling.clock import Pending, VirtualClock
from hexforge.addons.device.votes import PowerVotes
from hexforge.chips.deployment import Deployment
from hexforge.chips.soc import DEFAULT_SOC, require_chip, require_cores
from hexforge.errors import CallError
from hexforge.runtime.registry import timed_backend

PLATFORMS = ("android", "windows", "linux", "qnx")
MB = 1 << 20
CONCURRENT_ARCH = 81


@dataclass(frozen=True, slots=True)
class ChipFacts:
    """What of a device decides which options it has."""

    name: str
    arch: int
    platform: str

    def require_concurrent(self, what: str) -> None:
        """DeviceError unless several contexts can share buffers by priority here."""
        if self.arch < CONCURRENT_ARCH or self.platform != "android":
            raise DeviceError(
                Code.QNN_CONTEXT_ERROR_UNSUPPORTED_FEATURE,
                f"{what} is on Android with v{CONCURRENT_ARCH}, this is {self.name} (v{self.arch}) with "
                f"{self.platform}",
            )


class Chip:
    """A simulated Snapdragon without the processes that use it."""

    def __init__(
        self,
        soc: str = DEFAULT_SOC,
        *,
        platform: str = "android",
        cores: int = 1,
        ram_bytes: int = 16 << 30,
        user_driver: bool = False,
        signed_image: bool = False,
    ) -> None:
        """A chip with so many of its NSP cores in use.

        `user_driver`: the Hexagon NPU Runtime Driver is installed, which is of Windows. `signed_image`: a signed DSP
        image was pushed to the device, which signed process domains need.
        """
        if platform not in PLATFORMS:
            raise CallError(f"platform {platform!r} is not known; it is one of {', '.join(PLATFORMS)}")
        if cores < 1 or ram_bytes < 1:
            raise CallError("a device has 1 core or more, and some RAM")
        if user_driver and platform != "windows":
            raise CallError(f"the Hexagon NPU Runtime Driver is of Windows, this is {platform}")
        self.user_driver, self.signed_image = user_driver, signed_image
        self.soc = require_chip(soc)
        require_cores(self.soc, cores, "cores")
        self.facts = ChipFacts(self.soc.name, self.soc.htp_arch, platform)
        self.clock = VirtualClock()
        self.log = DeviceLog(self.clock)
        self.memory = DeviceMemory(self.log, ram_bytes)
        self.power = PowerVotes(self.log, self.soc.htp_arch, cores, platform)
        shared = timed_backend(Deployment(self.soc.name)).accelerator()
        self.cores = Cores(self.clock, self.log, self.power, shared, cores)
        self.owners: dict[Pending, CdspSession | None] = {}
        """The session of each execution that is on its way."""
        self.down_until_us = 0.0
        self.created_us = -math.inf
        """When the last context was created, which the HTP was awake for."""
        self.energy_uj = 0.0
        """Of all executions (assumed)."""
        self._numbers = 0

    def next_number(self) -> int:
        """A number that nothing else of the device has."""
        self._numbers += 1
        return self._numbers

    def platform_info(self) -> dict[str, Any]:
        """QnnDevice_getPlatformInfo: what the device info extension says."""
        return {
            "deviceType": "ON_CHIP",
            "socModel": self.soc.soc_model,
            "arch": self.soc.htp_arch,
            "vtcmSize": self.soc.vtcm_mb,
            "numNsp": self.soc.nsp_cores,
            "signedPdSupport": True,
            "dlbcSupport": self.soc.dlbc,
        }
