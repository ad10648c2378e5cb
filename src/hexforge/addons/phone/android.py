# SPDX-License-Identifier: Apache-2.0
"""What Android says of a virtual phone: users, memory, processor, temperatures, services. It is at rest."""

from __future__ import annotations

from collections.abc import Mapping

from hexforge.addons.phone.phones import Phone

ROOT, SHELL = 0, 2000
"""The users of `adb root` and of the shell."""
_CORES = 8
_MEMORY_KB, _FREE_KB = 8 << 20, 6 << 20
_ZONES = (
    ("cpu-0-0", 31.0),
    ("gpuss-0", 30.5),
    ("nsphvx-0", 30.2),
    ("ddr", 30.0),
    ("battery", 28.0),
    ("skin-therm", 27.5),
)
"""Thermal zones by Qualcomm's names, with the temperatures of a phone that lies on a table; assumed, and they stay."""


def texts(phone: Phone) -> Mapping[str, str]:
    """The files that Android has for it, by path."""
    name = phone.soc.name
    files = {
        "/etc/passwd": f"root:x:{ROOT}:{ROOT}::/:/system/bin/sh\nshell:x:{SHELL}:{SHELL}::/:/system/bin/sh\n",
        "/etc/group": f"root:x:{ROOT}:\nshell:x:{SHELL}:\n",
        "/dev/__properties__/all": "".join(f"{key}={value}\n" for key, value in phone.properties.items()),
        "/proc/meminfo": (
            f"MemTotal:       {_MEMORY_KB:8} kB\nMemFree:        {_FREE_KB:8} kB\nMemAvailable:   {_FREE_KB:8} kB\n"
            "Buffers:               0 kB\nCached:                0 kB\nSwapCached:            0 kB\n"
            "SwapTotal:             0 kB\nSwapFree:              0 kB\nShmem:                 0 kB\n"
            "SReclaimable:          0 kB\nSlab:                  0 kB\n"
        ),
        "/proc/version": "Linux version 6.1.0-hexforge (virtual phone) #1 SMP PREEMPT\n",
        "/proc/cpuinfo": "".join(f"processor\t: {n}\nCPU implementer\t: 0x41\n\n" for n in range(_CORES))
        + f"Hardware\t: Qualcomm Technologies, Inc {name}\n",
        "/sys/devices/soc0/soc_id": f"{phone.soc.soc_model}\n",
        "/sys/devices/soc0/machine": f"{name}\n",
        "/sys/devices/system/cpu/possible": f"0-{_CORES - 1}\n",
        "/sys/devices/system/cpu/online": f"0-{_CORES - 1}\n",
    }
    for number, (kind, celsius) in enumerate(_ZONES):
        files[f"/sys/class/thermal/thermal_zone{number}/type"] = f"{kind}\n"
        files[f"/sys/class/thermal/thermal_zone{number}/temp"] = f"{celsius * 1000:.0f}\n"
    return {**files, **{f"/dev/__services__/{service}": text for service, text in _services(phone).items()}}


def _services(phone: Phone) -> Mapping[str, str]:
    """What `dumpsys` prints of each service."""
    kinds = {"cpu-0-0": ("CPU0", 0), "gpuss-0": ("GPU0", 1), "nsphvx-0": ("nsp0", 9), "battery": ("battery", 2),
             "skin-therm": ("skin", 3)}  # fmt: skip
    temperatures = "".join(
        f"\tTemperature{{mValue={celsius}, mType={kinds[zone][1]}, mName={kinds[zone][0]}, mStatus=0}}\n"
        for zone, celsius in _ZONES
        if zone in kinds
    )
    return {
        "battery": (
            "Current Battery Service state:\n  AC powered: false\n  USB powered: true\n  status: 5\n  health: 2\n"
            "  present: true\n  level: 100\n  scale: 100\n  voltage: 4350\n  temperature: 280\n  technology: Li-ion\n"
        ),
        "cpuinfo": "Load: 0.0 / 0.0 / 0.0\n0% TOTAL: 0% user + 0% kernel\n",
        "meminfo": f"Total RAM: {_MEMORY_KB:,}K (status normal)\n Free RAM: {_FREE_KB:,}K\n",
        "power": "POWER MANAGER (dumpsys power)\n\n  mWakefulness=Awake\n  mStayOn=true\n",
        "thermalservice": (
            "IsStatusOverride: false\nThermalEventListeners:\nThermal Status: 0\nCached temperatures:\n"
            f"{temperatures}HAL Ready: true\nHAL connection:\n\tThermalHAL AIDL 2 connected: yes\n"
            f"Current temperatures from HAL:\n{temperatures}Current cooling devices from HAL:\n"
        ),
    }
