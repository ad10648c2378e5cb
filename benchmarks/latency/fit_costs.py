# SPDX-License-Identifier: Apache-2.0
"""Fit the HTP's costs on measured latencies: `python -m benchmarks.latency.fit_costs` writes cost.json.

Every parameter is physical and has a prior (hexforge.backends.htp.time.cost); nothing is fitted per model. The fit is
that of `fitting` on all families; the errors and the bands kept in the file are those of outer folds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from pathlib import Path

import numpy as np

from benchmarks.latency import outer_folds
from benchmarks.latency.fitting import Problem
from benchmarks.latency.folds import file, outer
from benchmarks.latency.rows import DATA, Instances, families, measured
from hexforge.backends.htp.time import cost

TARGET = Path(cost.__file__).with_name("cost.json")


def main() -> None:
    """Fit on everything, print what was found and what error is left, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=TARGET)
    given = parser.parse_args()
    problem = Problem(Instances(given.data), measured(given.data), families(given.data))
    held_out = outer(problem)
    fit = problem.fit(np.ones(len(problem.rows), bool))
    for parameter, log in zip(cost.PARAMETERS, fit.parameters, strict=True):
        print(f"{parameter.name:28} {math.exp(log):10.4g} {parameter.unit} (prior {parameter.prior:g})")
    for chip, factors in fit.chips.items():
        print(f"{chip:10}", *(f"{n} {math.exp(f):.2f}" for n, f in zip(cost.FACTORS, factors, strict=True)))
    outer_folds.show(problem, held_out)
    digest = hashlib.sha256((given.data / "measured.csv").read_bytes()).hexdigest()
    contents = file(problem, fit, held_out, outer_folds.summary(problem, held_out.log), digest)
    given.out.write_text(_text(contents))


def _text(contents: object) -> str:
    """JSON with a line for each entry, lists on their line."""
    text = json.dumps(contents, indent=1)
    lines: list[str] = []
    for line in text.splitlines():
        inside = bool(lines) and lines[-1].rstrip().endswith(("[", ",")) and "[" in lines[-1] and "]" not in lines[-1]
        if inside:
            lines[-1] += line.strip() if lines[-1].endswith("[") else " " + line.strip()
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
