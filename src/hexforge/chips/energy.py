# SPDX-License-Identifier: Apache-2.0
"""Energy of an inference: a model without measurements. No source has a figure for any chip; every one is assumed.

Use it to compare two ways of running one model on one chip, not as joules. What holds by construction, and by tests:
more work costs more; a lower corner never costs more for the same work; several cores cost at least what one does;
waking up, voting and idling cost something. Of precisions only the order is published (8-bit activations below 16-bit
ones below float16). The CPU's own energy is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hexforge.chips.power import Corner, Power
from hexforge.chips.soc import CLOCK_SHARE

HMX_WATTS, HVX_WATTS, CONTROL_WATTS = 3.0, 1.5, 0.3
"""At the highest corner, while a unit is at work; the last where a task is started and neither unit works. A unit that
waits is gated, and takes nothing but leakage."""
RATE_FACTORS: Mapping[str, float] = {"w8a8": 1.0, "w8a16": 1.15, "float": 1.4}
"""What the matrix unit takes by the type it multiplies, relative to 8 bits."""
LEAKAGE_WATTS = 0.05
"""Of one core while an inference is on it, at the highest voltage. It is so little that running slower at a lower
voltage never costs more; with more of it running fast and sleeping would, which no source says of these chips."""
DRAM_NJ_PER_BYTE, BUS_NJ_PER_BYTE = 0.02, 0.04
"""Of the memory itself, and of the way there, which goes with the voltage of the bus."""
AWAKE_WATTS, IDLE_WATTS = 0.3, 0.01
"""While the HTP wakes up, or is voted for, at the highest corner; and while it sleeps between calls."""
VOLTAGE: Mapping[Corner, float] = {
    Corner.DISABLE: 0.55,
    Corner.MIN_VOLTAGE_CORNER: 0.57,
    Corner.SVS2: 0.60,
    Corner.SVS: 0.65,
    Corner.SVS_PLUS: 0.70,
    Corner.NOM: 0.76,
    Corner.NOM_PLUS: 0.82,
    Corner.TURBO: 0.90,
    Corner.TURBO_PLUS: 0.92,
    Corner.TURBO_L2: 0.94,
    Corner.TURBO_L3: 0.96,
    Corner.MAX_VOLTAGE_CORNER: 1.00,
}
"""Relative to the highest; the energy of a switch goes with its square."""


@dataclass(frozen=True, slots=True)
class UnitTimes:
    """How long units are at work in an inference, each on its core, and what passes to and from DRAM."""

    hmx_us: Mapping[str, float]
    """By what is multiplied: w8a8, w8a16 or float."""
    hvx_us: float
    control_us: float
    """Where tasks are started and neither unit works."""
    accelerator_us: float
    dram_bytes: float


def accelerator_uj(times: UnitTimes, power: Power, cores: int = 1) -> float:
    """Microjoules of an inference on the accelerator, timed under a power on some cores that work alike (assumed)."""
    core, bus = power.corner, power.bus_corner or power.corner
    hmx = power.hmx_corner or power.corner
    matrix = HMX_WATTS * sum(RATE_FACTORS.get(rate, 1.0) * us for rate, us in times.hmx_us.items())
    vector = HVX_WATTS * times.hvx_us + CONTROL_WATTS * times.control_us
    # at a lower corner a unit works longer at fewer watts: a switch costs by the voltage, leakage by the time, too
    switched = matrix * CLOCK_SHARE[hmx] * VOLTAGE[hmx] ** 2 + vector * CLOCK_SHARE[core] * VOLTAGE[core] ** 2
    leaked = LEAKAGE_WATTS * VOLTAGE[core] * times.accelerator_us
    moved = times.dram_bytes * (DRAM_NJ_PER_BYTE + BUS_NJ_PER_BYTE * VOLTAGE[bus] ** 2) / 1e3
    return cores * (switched + leaked) + moved


def waiting_uj(power: Power, wait_us: float, idle_us: float) -> float:
    """Microjoules of wake-ups and votes, and of idling between inferences (assumed)."""
    awake = AWAKE_WATTS * CLOCK_SHARE[power.corner] * VOLTAGE[power.corner] ** 2
    return awake * wait_us + IDLE_WATTS * idle_us
