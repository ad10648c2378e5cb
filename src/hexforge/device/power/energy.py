# SPDX-License-Identifier: Apache-2.0
"""Energy of an inference. Every figure here is assumed: no source has one for any chip; only orders are published.

The order that is published is that of precisions: 8-bit activations below 16-bit ones below float16. Use the figure to
compare two ways of running one model on one chip, not as joules.
"""

from __future__ import annotations

from collections.abc import Mapping

from hexforge.chips.power import Corner
from hexforge.timeline import Timeline

UNIT_WATTS: Mapping[str, float] = {"HMX": 3.0, "HVX": 1.5}
"""At the highest corner, while the unit is at work."""
RATE_WATTS: Mapping[str, float] = {"w8a8": 1.0, "w8a16": 1.15, "float": 1.4}
"""What the matrix unit takes by the type it multiplies, relative to 8 bits."""
STATIC_WATTS = 0.25
"""While an inference is on the accelerator, whatever works."""
DRAM_NJ_PER_BYTE = 0.06
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


def energy_uj(line: Timeline, core: Corner = Corner.MAX_VOLTAGE_CORNER) -> float:
    """Microjoules of one inference that was simulated at a corner (assumed)."""
    from hexforge.chips.soc import CLOCK_SHARE

    share = CLOCK_SHARE[core]
    rates: dict[str, float] = {}
    for rate, _, us in line.work_us:
        rates[rate] = rates.get(rate, 0.0) + us
    whole = sum(rates.values()) or 1.0
    factor = sum(RATE_WATTS.get(rate, 1.0) * us for rate, us in rates.items()) / whole if rates else 1.0
    hmx = sum(row.hmx_us for row in line.rows) * UNIT_WATTS["HMX"] * factor
    hvx = sum(row.hvx_us for row in line.rows) * UNIT_WATTS["HVX"]
    # at a lower corner a unit works longer at fewer watts: switches cost by the voltage, leakage by the time
    switched = (hmx + hvx) * share * VOLTAGE[core] ** 2
    leaked = STATIC_WATTS * VOLTAGE[core] * line.accelerator_us
    return switched + leaked + line.dram_bytes * DRAM_NJ_PER_BYTE / 1e3
