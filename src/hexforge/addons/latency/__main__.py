# SPDX-License-Identifier: Apache-2.0
"""Fit the HTP's costs to measured latencies: `python -m hexforge.latency [choose] [--data FOLDER] [--check]`.

FOLDER has measured.csv, families.csv and topologies/.
Every parameter is physical and has a prior (`hexforge.backends.htp.time.cost`); nothing is fitted per model. The costs
are those of all families; the errors and the bands kept in the file are those of families that were held out while the
switches were chosen, too. `choose` only prints which switches all families keep, what each is worth in folds inside
them, and in how many of the outer folds it is kept.
"""

from __future__ import annotations

import sys
from collections import Counter
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
from hexforge.addons.latency.fitting import BASE, CostFit, FitProblem
from hexforge.addons.latency.held_out import HeldOut, folds, half_widths, predict_held_out, unmeasured_width
from hexforge.addons.latency.known_work import known_work
from hexforge.addons.latency.measurements import DATA, read_families, read_measurements
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.backends.htp.time.mechanisms import MECHANISMS, SWITCHES


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


def print_choice(problem: FitProblem) -> None:
    """A line for each switch: whether all families keep it, what it is worth, and in how many folds it is kept."""
    whole = problem.choose(np.ones(len(problem.rows), bool))
    kept = Counter(name for train, _ in folds(problem.fold) for name in set(SWITCHES) - problem.choose(train).off)
    print(f"{'switch':24} on   gain  families helped  kept in outer folds  because")
    for m in MECHANISMS:
        on = " - " if m.name in whole.off else "yes"
        gain, helped = f"{whole.gain[m.name]:5.2f} %", f"{whole.helped[m.name]:15}"
        print(f"{m.name:24} {on} {gain} {helped} {kept[m.name]:20}  {m.reason}")


def main() -> int:
    """Fit on everything, print the parameters, the chips and the error that is left, and write or check the file."""
    given = fit_arguments("hexforge.latency", __doc__, DATA, SHIPPED)
    rows = [row for row in read_measurements(given.data) if not given.choose or row.chip in BASE]
    problem = FitProblem(TiledGraphs(given.data), rows, read_families(given.data))
    if given.choose:
        print_choice(problem)
        return 0
    held_out = predict_held_out(problem)
    fit = problem.fit(np.ones(len(problem.rows), bool))
    print(*printed(fit), sep="\n")
    contents = file_contents(problem, fit, held_out, digest_of(given.data))
    for name, row in contents["error"].items():
        print(f"held out, {name:12} median {100 * row['median']:.1f} % mean {100 * row['mean']:.1f} %")
    return keep_or_check(contents, given)


if __name__ == "__main__":
    sys.exit(main())
