# SPDX-License-Identifier: Apache-2.0
"""How far predictions are from measurements: medians, means, ranks, and how much they say about other families."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.addons.latency.fitting import FitProblem
from hexforge.addons.latency.measurements import MEASURED_PRECISIONS, TARGET_DEVICES

DRAWS = 1000
"""How often families are drawn again for the interval of a median."""


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rank correlation, for numbers with few ties."""
    if len(a) < 3:
        return float("nan")
    return float(np.corrcoef(np.argsort(np.argsort(a)), np.argsort(np.argsort(b)))[0, 1])


def select(problem: FitProblem, precision: str, devices: tuple[str, ...], runtime: str = "all") -> np.ndarray:
    """The numbers of the rows of a precision on devices, of a runtime or of all."""
    return np.array(
        [
            i
            for i, r in enumerate(problem.rows)
            if r.precision == precision and r.device in devices and runtime in (r.runtime, "all")
        ],
        int,
    )


def figures(problem: FitProblem, predicted_log: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """Median, mean, 90th percentile, rank, and the interval of the median when families are drawn again."""
    return figures_of(problem, predicted_log[rows], rows)


def figures_of(problem: FitProblem, logs: np.ndarray, rows: np.ndarray) -> dict[str, Any]:
    """The same of predictions of some rows alone, of which one may be there more than once."""
    errors = np.abs(np.exp(logs - problem.log_us[rows]) - 1)
    names = problem.family[rows]
    by_family = [errors[names == name] for name in sorted(set(names))]
    random = np.random.default_rng(0)
    drawn = [
        np.median(np.concatenate([by_family[k] for k in random.integers(0, len(by_family), len(by_family))]))
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, (0.05, 0.95))
    return {
        "median": round(float(np.median(errors)), 4),
        "interval": [round(float(low), 4), round(float(high), 4)],
        "mean": round(float(errors.mean()), 4),
        "p90": round(float(np.quantile(errors, 0.9)), 4),
        "rank": round(rank_correlation(logs, problem.log_us[rows]), 4),
        "rows": len(rows),
    }


def summarize(problem: FitProblem, predicted_log: np.ndarray) -> dict[str, Any]:
    """The figures of each precision on the target devices: through qnn_dlc by its name, through onnx with that word."""
    summary: dict[str, Any] = {}
    for runtime, word in (("qnn_dlc", ""), ("onnx", " onnx")):
        for precision in MEASURED_PRECISIONS:
            rows = select(problem, precision, TARGET_DEVICES, runtime)
            if len(rows):
                summary[f"{precision}{word}"] = figures(problem, predicted_log, rows)
    return summary
