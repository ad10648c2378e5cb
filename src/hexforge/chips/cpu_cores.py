# SPDX-License-Identifier: Apache-2.0
"""The fastest CPU core of each chip, and how fast it is about, for a rough time of what an NPU leaves to the CPU.

No phone was measured for this table. A speed is a Geekbench 6 single-core score, rounded to what reviews and public
result lists show for the chip (marked p), or that of a chip with a core like it, by its clock (marked a). One score
says little about one op: take what is computed with it as right within a factor of two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from hexforge.chips.soc import Provenance, find_chip
from hexforge.errors import CallError

REFERENCE_POINTS = 1900
"""The score of the core that REFERENCE_US was measured on, an AMD Zen 4 at 3.6 GHz: that of desktop ones with 5.7 GHz,
2,950 to 3,000, by the clock."""
REFERENCE_US = 880.0
"""What the reference work of `runtime.cpu_timing` takes on that core, in the quieter of ten processes: measured."""


@dataclass(frozen=True, slots=True)
class CpuCore:
    """A chip's fastest CPU core."""

    name: str
    ghz: float
    points: int
    """About its Geekbench 6 single-core score."""
    provenance: Provenance

    @property
    def speed(self) -> float:
        """How fast it is, the reference core being 1."""
        return self.points / REFERENCE_POINTS

    def __str__(self) -> str:
        return f"{self.name} at {self.ghz:g} GHz"


def _core(name: str, ghz: float, points: int, mark: str) -> CpuCore:
    return CpuCore(name, ghz, points, next(p for p in Provenance if p.mark == mark))


CPU_CORES: Mapping[str, CpuCore] = MappingProxyType(
    {
        "SM8350": _core("Cortex-X1", 2.84, 1100, "p"),
        "SM8450": _core("Cortex-X2", 3.0, 1200, "p"),
        "SC8280XP": _core("Cortex-X1C", 3.0, 1150, "p"),
        "SA8295P": _core("Cortex-X1", 2.38, 900, "a"),
        "SM8475": _core("Cortex-X2", 3.2, 1300, "p"),
        "SM8550": _core("Cortex-X3", 3.2, 2000, "p"),
        "SXR1230P": _core("Cortex-A78", 1.9, 700, "a"),
        "SSG2115P": _core("Cortex-A78", 1.9, 700, "a"),
        "SA8775P": _core("Cortex-X1", 2.55, 950, "a"),
        "SXR2230P": _core("Cortex-A78", 2.36, 900, "a"),
        "SM8650": _core("Cortex-X4", 3.3, 2250, "p"),
        "SSG2125P": _core("Cortex-A78", 1.9, 700, "a"),
        "SC8380XP": _core("Oryon", 3.8, 2700, "p"),
        "SA7255P": _core("Cortex-A78", 2.2, 850, "a"),
        "SM8750": _core("Oryon", 4.32, 3100, "p"),
        "SA8797": _core("Oryon", 3.4, 2400, "a"),
        "SXR2330P": _core("Cortex-A78", 2.4, 900, "a"),
        "QCS9075": _core("Cortex-X1", 2.55, 950, "a"),
        "QCM6690": _core("Cortex-A78", 2.7, 1000, "a"),
        "QCS8275": _core("Cortex-A78", 2.35, 900, "a"),
        "SM7750": _core("Cortex-A720", 2.8, 1250, "p"),
        "SM8850": _core("Oryon", 4.6, 3700, "p"),
        "SC8480XP": _core("Oryon", 4.7, 3900, "p"),
        "QCS6490": _core("Cortex-A78", 2.7, 1050, "p"),
        "SAR2230P": _core("Cortex-A78", 1.9, 700, "a"),
        "SW6100": _core("Cortex-A78", 1.7, 650, "a"),
        "SM8845": _core("Oryon", 3.8, 3000, "a"),
        "SM8975": _core("Oryon", 4.6, 3900, "a"),
        "SM8950": _core("Oryon", 4.6, 3900, "a"),
        "SM7350": _core("Cortex-A78", 2.4, 1000, "a"),
        "SM7325": _core("Cortex-A78", 2.4, 1000, "a"),
        "SM7315": _core("Cortex-A78", 2.4, 1000, "a"),
        "SM7450": _core("Cortex-A710", 2.4, 1000, "a"),
        "SM6450": _core("Cortex-A78", 2.2, 900, "a"),
        "SM7475": _core("Cortex-X2", 2.91, 1200, "a"),
        "SM7435": _core("Cortex-A78", 2.4, 1000, "a"),
        "SA8540P": _core("Cortex-A78", 2.4, 950, "a"),
        "SM7550": _core("Cortex-A715", 2.63, 1150, "a"),
        "QCS8550": _core("Cortex-X3", 3.2, 2000, "a"),
        "SM8635": _core("Cortex-X4", 3.0, 1950, "a"),
        "SM7675": _core("Cortex-X4", 2.8, 1850, "a"),
        "SM8735": _core("Cortex-X4", 3.2, 2100, "a"),
        "QCS8625": _core("Cortex-A78", 2.35, 900, "a"),
    }
)
"""By the chip's name in the table of chips."""


def cpu_core(soc: str) -> CpuCore:
    """The fastest CPU core of a chip by any of its names; CallError for a chip that is not known."""
    chip = find_chip(soc)
    if chip is None or chip.name not in CPU_CORES:
        raise CallError(f"{soc!r} has no CPU core in the table of chips; name a chip (hexforge socs)")
    return CPU_CORES[chip.name]
