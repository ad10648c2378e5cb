# SPDX-License-Identifier: Apache-2.0
"""Settings: a chip's costs under graph options and power, checked against what the chip has."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from hexforge.backends.htp.time.cost import Costs, fitted_costs
from hexforge.backends.htp.time.tile import Task
from hexforge.chips.graph_config import MB, VTCM_BYTES_ARCH, VTCM_GRANULE, GraphConfig
from hexforge.chips.power import Corner, Power
from hexforge.chips.soc import CORES_SHARE, Soc, require_cores
from hexforge.errors import CallError

PARTS = tuple(VTCM_GRANULE << n for n in range(4))
"""What is tried of a VTCM below 1 MB."""
PARALLEL = 0.9
"""Assumed: the part of vector work that spreads over HVX threads."""
DLBC_ACTIVATIONS, DLBC_WEIGHTS = 0.75, 0.85
"""Assumed: bytes left of what DLBC compresses."""
SLC_SPILL = 0.6
"""Assumed: bytes left of what spills where the system level cache may hold it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How tasks run: costs with clocks and threads in them, VTCM, what compression leaves of the traffic."""

    costs: Costs
    config: GraphConfig
    power: Power
    vtcm_bytes: int

    @classmethod
    def of(cls, costs: Costs, config: GraphConfig, power: Power) -> Settings:
        """CallError for what the chip cannot do."""
        chip = costs.soc
        threads = config.threads_on(chip)
        if not 1 <= threads <= chip.hvx_threads:
            raise CallError(f"hvx_threads {threads}: {chip.name} has {chip.hvx_threads}; give 1 to {chip.hvx_threads}")
        require_cores(chip, config.num_cores, "num_cores")
        if config.optimization not in (0, 1, 2, 3):
            raise CallError(f"optimization {config.optimization} is not a level; it is 1, 2 or 3 (0: 2)")
        if (config.dlbc or config.dlbc_weights) and not chip.dlbc:
            raise CallError(f"{chip.name} has no DLBC; leave dlbc and dlbc_weights off")
        if config.slc_alloc_enable and not chip.slc:
            raise CallError(f"{chip.name} has no system level cache allocator; leave slc_alloc_enable off")
        if power.hmx_corner is not None and chip.htp_arch < 75:
            raise CallError(f"{chip.name} is v{chip.htp_arch}: an HMX vote of its own needs v75 or newer")
        full = chip.clock_mhz(Corner.MAX_VOLTAGE_CORNER)
        core = full / chip.clock_mhz(power.corner)
        bus = core if power.bus_corner is None else full / chip.clock_mhz(power.bus_corner)
        hmx = core if power.hmx_corner is None else full / chip.clock_mhz(power.hmx_corner)
        several = 1 + CORES_SHARE * (config.num_cores - 1)
        core, hmx = core / several, hmx / several
        spread = 1 - PARALLEL + PARALLEL * chip.hvx_threads / threads
        slowed = costs.slowed({"hmx_float": hmx, "hmx_fixed": hmx, "hvx": core * spread, "dram": bus})
        return cls(slowed, config, power, _vtcm_bytes(costs, config))

    @property
    def core_mhz(self) -> float:
        """The clock cycles are counted in."""
        return self.costs.soc.clock_mhz(self.power.corner)

    @property
    def hvx_threads(self) -> int:
        """Vector threads that run the graph."""
        return self.config.threads_on(self.costs.soc)

    @property
    def ahead_eighths(self) -> int:
        """Eighths of VTCM for weights fetched ahead: higher levels plan further."""
        return self.config.level + 1

    @property
    def budgets(self) -> tuple[int, ...]:
        """How much of VTCM the compiler tries to use: more is not always faster, and it may leave some.

        Steps that do not depend on what it may use, so that a larger VTCM is tried at all that a smaller one is.
        """
        chip = self.costs.soc
        parts = PARTS if chip.htp_arch >= VTCM_BYTES_ARCH else ()
        return tuple(size for size in (*parts, *range(MB, chip.vtcm_mb * MB + 1, MB)) if size <= self.vtcm_bytes)

    def weights_left(self, task: Task) -> float:
        """What packing and compression leave of a task's weights on their way from DRAM."""
        return task.packed * (DLBC_WEIGHTS if self.config.dlbc_weights else 1.0)

    @property
    def spill_left(self) -> float:
        """What compression and the system level cache leave of spilled activations on their way to and from DRAM."""
        return (DLBC_ACTIVATIONS if self.config.dlbc else 1.0) * (SLC_SPILL if self.config.slc_alloc_enable else 1.0)


@functools.lru_cache(256)
def fitted_settings(soc: Soc, config: GraphConfig, power: Power, cost_file: str = "") -> Settings:
    """The settings of a chip as it was fitted, made once for each set of options; CallError for what it cannot do."""
    return Settings.of(fitted_costs(soc, cost_file), config, power)


def _vtcm_bytes(costs: Costs, config: GraphConfig) -> int:
    chip, has = costs.soc, costs.vtcm_bytes
    if config.vtcm_mb < 0 or config.vtcm_size < 0:
        raise CallError("vtcm_mb and vtcm_size are not below 0; 0 is all the chip has")
    if config.vtcm_size:
        if chip.htp_arch < VTCM_BYTES_ARCH:
            raise CallError(
                f"vtcm_size needs v{VTCM_BYTES_ARCH} or newer, {chip.name} is v{chip.htp_arch}; use vtcm_mb"
            )
        if config.vtcm_size % VTCM_GRANULE:
            raise CallError(f"vtcm_size {config.vtcm_size} is not a multiple of {VTCM_GRANULE} (64 KB)")
        if config.vtcm_mb and config.vtcm_mb * MB != config.vtcm_size:
            raise CallError(f"vtcm_size {config.vtcm_size} and vtcm_mb {config.vtcm_mb} contradict each other")
    wanted = config.vtcm_bytes or has
    if wanted > has:
        raise CallError(
            f"{wanted / MB:g} MB of VTCM: {chip.name} has {has / MB:g} MB; ask for at most that, or 0 for all"
        )
    return wanted
