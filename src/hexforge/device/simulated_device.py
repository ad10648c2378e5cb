# SPDX-License-Identifier: Apache-2.0
"""Device: a chip that several processes share, under a virtual clock: memory, cores, power, faults, one log."""

from __future__ import annotations

from typing import Any

from hexforge.backends.htp.chip.soc import DEFAULT_SOC, named
from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.settings import BYTES_ARCH, GRANULE
from hexforge.device.client import Client
from hexforge.device.clock import Pending, VirtualClock
from hexforge.device.codes import Code, DeviceError
from hexforge.device.contexts.configs import ChipFacts
from hexforge.device.cores import Cores
from hexforge.device.log import DeviceLog
from hexforge.device.memory import CdspSession, DeviceMemory
from hexforge.device.power.votes import PowerVotes
from hexforge.errors import CallError

PLATFORMS = ("android", "windows", "linux", "qnx")
RESTART_US = 400_000.0
"""Assumed: from a crash of the subsystem to when sessions can be opened again."""
VTCM_SHARING_ARCH = 73
MB = 1 << 20


class Device:
    """A simulated Snapdragon."""

    def __init__(
        self, soc: str = DEFAULT_SOC, *, platform: str = "android", cores: int = 1, ram_bytes: int = 16 << 30
    ) -> None:
        if platform not in PLATFORMS:
            raise CallError(f"platform {platform!r} is not known; it is one of {', '.join(PLATFORMS)}")
        if cores < 1 or ram_bytes < 1:
            raise CallError("a device has 1 core or more, and some RAM")
        self.soc = named(soc)
        self.facts = ChipFacts(self.soc.name, self.soc.htp_arch, platform)
        self.clock = VirtualClock()
        self.log = DeviceLog(self.clock)
        self.memory = DeviceMemory(self.log, ram_bytes)
        self.power = PowerVotes(self.log, self.soc.htp_arch, cores, platform)
        us_per_mb = cost.costs(self.soc).dram_us(MB)
        self.cores = Cores(self.clock, self.log, self.power, cores, self.soc.vtcm_mb * MB, us_per_mb)
        self.clients: dict[str, Client] = {}
        self.owners: dict[Pending, CdspSession | None] = {}
        """The session of each execution that is on its way."""
        self.down_until_us = 0.0
        self.energy_uj = 0.0
        """Of all executions (assumed)."""
        self._numbers = 0

    def next_number(self) -> int:
        """A number that nothing else of the device has."""
        self._numbers += 1
        return self._numbers

    def process(self, name: str = "app", *, signed: bool = False, privileged: bool = False) -> Client:
        """A process that uses the device; its process domain is signed or not."""
        if name in self.clients:
            raise CallError(f"the device has a process {name!r} already; give this one another name")
        client = self.clients[name] = Client(self, name, signed=signed, privileged=privileged)
        return client

    def platform_info(self) -> dict[str, Any]:
        """QnnDevice_getPlatformInfo: what the device info extension says."""
        return {
            "deviceType": "ON_CHIP",
            "socModel": self.soc.soc_model,
            "arch": self.soc.htp_arch,
            "vtcmSize": self.soc.vtcm_mb,
            "numNsp": len(self.cores.cores),
            "signedPdSupport": True,
            "dlbcSupport": self.soc.dlbc,
        }

    # -- VTCM for others ----------------------------------------------------------------------------------------------

    def reserve_vtcm(self, size: int) -> None:
        """Another thread of a process takes VTCM; graphs that need more than is left wait until it is back."""
        if self.soc.htp_arch < VTCM_SHARING_ARCH:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_NOT_SUPPORTED,
                f"VTCM is shared from v{VTCM_SHARING_ARCH} on, {self.soc.name} is v{self.soc.htp_arch}",
            )
        step = GRANULE if self.soc.htp_arch >= BYTES_ARCH else MB
        if size < 1 or size % step:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_NOT_SUPPORTED, f"{size} bytes of VTCM: {self.soc.name} gives multiples of {step}"
            )
        if size + self.cores.reserved_bytes > self.cores.vtcm_bytes:
            raise DeviceError(
                Code.QNN_COMMON_ERROR_RESOURCE_UNAVAILABLE,
                f"{size} bytes of VTCM: {self.cores.vtcm_bytes - self.cores.reserved_bytes} are left",
            )
        self.cores.reserve_vtcm(size)

    def release_vtcm(self, size: int) -> None:
        """The other thread gives VTCM back."""
        if not 0 < size <= self.cores.reserved_bytes:
            raise CallError(f"{size} bytes of VTCM: {self.cores.reserved_bytes} are reserved")
        self.cores.release_vtcm(size)

    # -- faults -------------------------------------------------------------------------------------------------------

    def crash(self, client: Client, index: int = 0) -> None:
        """A process domain crashes: one session of one process; everybody else goes on."""
        session = next((s for s in client.sessions if s.index == index), None)
        if session is None:
            raise CallError(f"{client.name} has no session {index}; it has {len(client.sessions)}")
        self.log.write("fault", kind="pd", process=client.name, session=session.number, index=index)
        self._lose(client, session)

    def restart(self) -> None:
        """The subsystem crashes and restarts (SSR): every session of every process is gone."""
        self.log.write("fault", kind="ssr")
        self.down_until_us = self.clock.now_us + RESTART_US
        for client in list(self.clients.values()):
            for session in list(client.sessions):
                self._lose(client, session)

    def _lose(self, client: Client, session: CdspSession) -> None:
        """First the contexts are lost, then whatever waits for them is told."""
        client.lose(session)
        error = DeviceError(
            Code.QNN_COMMON_ERROR_SYSTEM_COMMUNICATION, f"session {session.index} of {client.name} crashed"
        )
        self.cores.withdraw(lambda job: self.owners.get(job.pending) is session, error)
