# SPDX-License-Identifier: Apache-2.0
"""Fit the HTP's costs to measured latencies: `python -m hexforge.latency [--data FOLDER] [--check]`.

Every parameter is physical and has a prior (`hexforge.backends.htp.time.cost`); nothing is fitted per model. The costs
are those of all families; the errors and the bands kept in the file are those of families that were held out.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.latency.cost_file import SHIPPED, SOURCE, costs_of, differences, digest_of, printed, text_of
from hexforge.addons.latency.error_figures import summarize
from hexforge.addons.latency.fitting import CostFit, FitProblem
from hexforge.addons.latency.held_out import HeldOut, half_widths, predict_held_out, unmeasured_width
from hexforge.addons.latency.known_work import known_work
from hexforge.addons.latency.measurements import DATA, read_families, read_measurements
from hexforge.addons.latency.tiled_models import TiledModels
from hexforge.formats.files import write_atomically


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
    parser = argparse.ArgumentParser(prog="python -m hexforge.latency", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="a folder with measured.csv, families.csv, topologies/")
    parser.add_argument("--out", type=Path, default=SHIPPED, help="the file that is written; hexforge's own by default")
    parser.add_argument("--check", action="store_true", help="compare with the file instead; 1 where a figure differs")
    given = parser.parse_args()
    problem = FitProblem(TiledModels(given.data), read_measurements(given.data), read_families(given.data))
    held_out = predict_held_out(problem)
    fit = problem.fit(np.ones(len(problem.rows), bool))
    print(*printed(fit), sep="\n")
    contents = file_contents(problem, fit, held_out, digest_of(given.data))
    for name, row in contents["error"].items():
        print(f"held out, {name:12} median {100 * row['median']:.1f} % mean {100 * row['mean']:.1f} %")
    if given.check:
        differing = differences(contents, json.loads(given.out.read_text()))
        print("\n".join(differing) or f"{given.out}: every figure is that of this fit")
        return int(bool(differing))
    write_atomically(given.out, text_of(contents).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
