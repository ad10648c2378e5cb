# SPDX-License-Identifier: Apache-2.0
"""Fit the HTP's costs to measured latencies: `python -m hexforge.latency [--data FOLDER] [--check]`.

FOLDER has measured.csv, families.csv and topologies/.
Every parameter is physical and has a prior (`hexforge.backends.htp.time.cost`); nothing is fitted per model. The costs
are those of all families; the errors and the bands kept in the file are those of families that were held out.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from hexforge.addons.latency.cost_file import (
    SHIPPED,
    SOURCE,
    costs_of,
    digest_of,
    fit_arguments,
    keep_or_check,
    printed,
)
from hexforge.addons.latency.error_figures import summarize
from hexforge.addons.latency.fitting import CostFit, FitProblem
from hexforge.addons.latency.held_out import HeldOut, half_widths, predict_held_out, unmeasured_width
from hexforge.addons.latency.known_work import known_work
from hexforge.addons.latency.measurements import DATA, read_families, read_measurements
from hexforge.addons.latency.tiled_graphs import TiledGraphs


def file_contents(problem: FitProblem, fit: CostFit, held_out: HeldOut, digest: str) -> dict[str, Any]:
    """What cost.json holds."""
    every = np.arange(len(problem.rows))
    return {
        "source": SOURCE,
        "data": {"rows": len(problem.rows), "models": len({r.model for r in problem.rows}), "sha256": digest},
        **costs_of(fit),
        **known_work(problem, fit, every),
        "band": {
            "half_width": {
                rate: {runtime: round(width, 4) for runtime, width in widths.items()}
                for rate, widths in half_widths(problem, held_out, every).items()
            },
            "unmeasured_chip": round(unmeasured_width(problem, fit), 4),
        },
        "error": summarize(problem, held_out.log_us),
    }


def main() -> int:
    """Fit on everything, print the parameters, the chips and the error that is left, and write or check the file."""
    given = fit_arguments("hexforge.latency", __doc__, DATA, SHIPPED)
    problem = FitProblem(TiledGraphs(given.data), read_measurements(given.data), read_families(given.data))
    held_out = predict_held_out(problem)
    fit = problem.fit(np.ones(len(problem.rows), bool))
    print(*printed(fit), sep="\n")
    contents = file_contents(problem, fit, held_out, digest_of(given.data))
    for name, row in contents["error"].items():
        print(f"held out, {name:12} median {100 * row['median']:.1f} % mean {100 * row['mean']:.1f} %")
    return keep_or_check(contents, given)


if __name__ == "__main__":
    sys.exit(main())
