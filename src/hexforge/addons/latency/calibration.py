# SPDX-License-Identifier: Apache-2.0
"""Calibration: what makes a chip, fitted to times that somebody measured on a device of their own.

The costs of work are those of the file that is shipped; only the factors of one chip move, as the logarithms of what
they are multiplied by. All of them may move together far, and apart from each other a little, so that few measurements
do not bend what they say nothing about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hexforge.addons.latency.cost_file import FACTORS
from hexforge.errors import CallError

SCALE = 0.1
"""The logarithm of a ratio by which a measured time may be off, for reasons that are nobody's fault."""
TOGETHER, APART = 1.0, 0.25
"""How far factors are from what they were: all of them, and each from the others."""
_ROUNDS, _STEP = 6, 0.02

Predict = Callable[[Mapping[str, float]], Sequence[float]]
"""Times of all measured models, in ms, where a chip's factors are multiplied by these."""


def fit_factors(measured_ms: Sequence[float], predict: Predict) -> dict[str, float]:
    """What a chip's factors are multiplied by so that predictions come near to what was measured."""
    if not measured_ms or min(measured_ms) <= 0:
        raise CallError("give measured times, each more than 0 ms")
    target = np.log(np.array(measured_ms, float))
    logs = np.zeros(len(FACTORS))
    common = np.full(len(FACTORS), 1 / len(FACTORS))
    apart = (np.eye(len(FACTORS)) - common) / APART
    beliefs = np.vstack([apart, common[None] / TOGETHER])

    def errors(at: np.ndarray) -> np.ndarray:
        times = predict(dict(zip(FACTORS, np.exp(at).tolist(), strict=True)))
        return np.asarray((np.log(np.array(times, float)) - target) / SCALE)

    for _ in range(_ROUNDS):
        here = errors(logs)
        slopes = np.stack([(errors(logs + _STEP * row) - here) / _STEP for row in np.eye(len(FACTORS))], 1)
        whole = np.vstack([slopes, beliefs])
        step, *_rest = np.linalg.lstsq(whole, -np.concatenate([here, beliefs @ logs]), rcond=None)
        logs = logs + step
        if float(np.abs(step).max()) < 1e-3:
            break
    return dict(zip(FACTORS, np.exp(logs).tolist(), strict=True))
