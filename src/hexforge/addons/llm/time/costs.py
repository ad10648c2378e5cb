# SPDX-License-Identifier: Apache-2.0
"""cost.json: what a fit left behind for estimates, and what a chip that was not measured stands on."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.chips.soc import Soc, require_chip

SHIPPED = Path(__file__).with_name("cost.json")
COMPUTE_POWER, MEMORY_POWER = 0.6, 0.5
"""Assumed of a chip without rows: its time goes with this power of its matrix rate and of its memory's peak, from the
nearest chip that has rows. Among those that have some, time goes with about these."""


@dataclass(frozen=True, slots=True)
class LlmCosts:
    """Fitted parameters, and factors of chips by runtime."""

    values: Mapping[str, float]
    chips: Mapping[str, Mapping[str, float]]
    deviations: Mapping[str, Mapping[str, Mapping[str, float]]]
    bands: Mapping[str, Mapping[str, float]]
    """For each runtime the logarithmic half width that nine of ten rows of other families are in, by what is timed."""
    unmeasured: Mapping[str, float]
    """What is added to that for a chip without rows: how far chips are off whose rows were left out."""

    def factors(self, soc: Soc, runtime: str) -> tuple[float, float, str]:
        """The chip's time for computing and for memory with a runtime, and the chip whose rows that stands on."""
        nearest = self._nearest(soc)
        base, deviation = self.chips[nearest.name], self.deviations[runtime][nearest.name]
        compute, memory = base["compute"] * deviation["compute"], base["memory"] * deviation["memory"]
        if nearest.name != soc.name:
            rates = [chip.hmx_kmacs * chip.core_mhz for chip in (nearest, soc)]
            compute *= (rates[0] / rates[1]) ** COMPUTE_POWER
            memory *= (nearest.dram_gbps / soc.dram_gbps) ** MEMORY_POWER
        return compute, memory, nearest.name

    def _nearest(self, soc: Soc) -> Soc:
        measured = [require_chip(name) for name in self.chips]

        def distance(chip: Soc) -> tuple[bool, int, float]:
            return chip.name != soc.name, abs(chip.htp_arch - soc.htp_arch), abs(chip.dram_gbps - soc.dram_gbps)

        return min(measured, key=distance)


@functools.cache
def read_costs(path: Path = SHIPPED) -> LlmCosts:
    """The costs of a file that `python -m hexforge.llm.time` wrote."""
    return costs_of(json.loads(path.read_text("utf-8")))


def costs_of(contents: Mapping[str, Any]) -> LlmCosts:
    """The costs that a file's contents say."""
    band = contents["band"]
    return LlmCosts(
        contents["parameters"], contents["chips"], contents["deviations"], band["half_width"], band["unmeasured_chip"]
    )
