# SPDX-License-Identifier: Apache-2.0
"""Terms: the amounts of work that a latency is a sum of, and the parameters whose product prices each of them."""

from __future__ import annotations

import numpy as np

from hexforge.backends.htp.time import cost
from hexforge.backends.htp.time.mechanisms import BY_BYTES, BY_COUNT
from hexforge.chips.deployment import RUNTIMES

RATES = tuple(cost.RATES)
HMX_KINDS = ("conv", *sorted(cost.UNDEVIATING), *cost.MATRIX, *cost.ON_TOP)
HVX_KINDS = (*cost.VECTOR, *cost.PRICED_AS, *cost.COUNTED, *BY_BYTES, *BY_COUNT)
PARAMETER_NAMES = [p.name for p in cost.PARAMETERS]
PARAMETER_INDEX = {name: i for i, name in enumerate(PARAMETER_NAMES)}
OFF = np.log([p.prior if p.off is None else p.off for p in cost.PARAMETERS])
"""What each parameter is where its switch is off."""
TERMS: tuple[tuple[str, ...], ...] = (
    *(cost.factors_of(kind, rate) for rate in RATES for kind in HMX_KINDS),
    *(cost.factors_of(kind, rate) for rate in RATES for kind in HVX_KINDS),
    ("task",),
    ("dram",),
    *(("host.call", *((f"call.{runtime}",) if f"call.{runtime}" in PARAMETER_INDEX else ())) for runtime in RUNTIMES),
    ("host.io",),
)
"""The parameters whose product each amount of work is multiplied by."""
HMX_TERMS, HVX_TERMS = len(RATES) * len(HMX_KINDS), len(RATES) * len(HVX_KINDS)
"""How many terms, the first, are of the matrix unit, and how many after them of the vector units."""
WORK_TERMS = HMX_TERMS + HVX_TERMS
TASK, DRAM, CALL, IO = WORK_TERMS, WORK_TERMS + 1, WORK_TERMS + 2, len(TERMS) - 1
"""Where the other terms are; there is a call for each runtime."""
TERMS_OF_RATES = np.array(
    [
        [
            *range(rate * len(HMX_KINDS), (rate + 1) * len(HMX_KINDS)),
            *range(HMX_TERMS + rate * len(HVX_KINDS), HMX_TERMS + (rate + 1) * len(HVX_KINDS)),
            *range(WORK_TERMS, len(TERMS)),
        ]
        for rate in range(len(RATES))
    ]
)
"""The terms that a graph at each rate may have; it has none of the others."""
SERIAL = PARAMETER_INDEX["serial"]


def _parameters_of_terms() -> np.ndarray:
    of_terms = np.zeros((len(TERMS), len(PARAMETER_NAMES)))
    for row, term in enumerate(TERMS):
        for name in term:
            of_terms[row, PARAMETER_INDEX[name]] = 1
    return of_terms


def _factors_of_terms() -> np.ndarray:
    of_terms = np.zeros((len(TERMS), len(cost.FACTORS)))
    for row, term in enumerate(TERMS):
        for name in term:
            factor = cost.PARAMETERS[PARAMETER_INDEX[name]].factor
            if factor:
                of_terms[row, cost.FACTORS.index(factor)] = 1
    return of_terms


def _parameters_of_runtimes() -> np.ndarray:
    of_runtimes = np.zeros((len(RUNTIMES), len(PARAMETER_NAMES)))
    for row, runtime in enumerate(RUNTIMES):
        if f"runtime.{runtime}" in PARAMETER_INDEX:
            of_runtimes[row, PARAMETER_INDEX[f"runtime.{runtime}"]] = 1
    return of_runtimes


PARAMETERS_OF_TERMS = _parameters_of_terms()
"""A row for each term, 1 for each of its parameters."""
FACTORS_OF_TERMS = _factors_of_terms()
"""A row for each term, 1 for each of a chip's factors of time that it is multiplied by."""
PARAMETERS_OF_RUNTIMES = _parameters_of_runtimes()
"""A row for each runtime, 1 for the parameter that the whole latency is multiplied by."""


def unit_us(logs: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """What a unit of each term takes, from logarithms of parameters and of a chip's factors."""
    return np.asarray(np.exp(PARAMETERS_OF_TERMS @ logs + FACTORS_OF_TERMS @ factors))


def serial_of(logs: np.ndarray) -> float:
    """The part of overlapping work that adds up."""
    return float(min(1.0, np.exp(logs[SERIAL])))
