# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured latency, on outer folds of model families: `python -m benchmarks.latency.outer_folds`.

A family is predicted by fits that saw neither it nor a family with its backbone. Prints the median, mean and 90th
percentile of the absolute percentage error and the rank correlation for every device, precision and runtime; the
devices the figures are published for together, with intervals from families drawn again; the worst ten with the task
that takes longest; how often the bands held; and simpler predictors on the same folds. `--ablate` fits without each
mechanism.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.latency.baselines import Baselines
from hexforge.backends.htp.time import cost
from hexforge.chips import soc
from hexforge.latency.bands import inside_bands
from hexforge.latency.error_figures import figures, rank_correlation, relative_errors, select
from hexforge.latency.fitting import FitProblem
from hexforge.latency.held_out import HeldOut, predict_held_out
from hexforge.latency.measurements import DATA, MEASURED_PRECISIONS, TARGET_DEVICES, read_families, read_measurements
from hexforge.latency.tiled_models import TiledModels, key_of

EXPLAINED = 2.2
"""Times too fast or too slow from which on a model is named."""


def lines(problem: FitProblem, predicted_log: np.ndarray) -> Iterator[str]:
    """A line for each device, precision and runtime, and one for the runtimes together."""
    each = relative_errors(problem, predicted_log)
    for device in (*TARGET_DEVICES, *sorted({r.device for r in problem.rows} - {*TARGET_DEVICES})):
        for precision in MEASURED_PRECISIONS:
            for runtime in ("qnn_dlc", "onnx", "tflite", "all"):
                here = select(problem, precision, (device,), runtime)
                if len(here):
                    rank = rank_correlation(predicted_log[here], problem.log_us[here])
                    yield (
                        f"{device:38} {precision:6} {runtime:8} {len(here):4} {100 * np.median(each[here]):7.1f} "
                        f"{100 * each[here].mean():7.1f} {100 * np.quantile(each[here], 0.9):7.1f} {rank:7.3f}"
                    )


def show(problem: FitProblem, held_out: HeldOut, models: TiledModels) -> None:
    """Print everything but the baselines."""
    print(f"{'device':38} {'prec.':6} {'runtime':8} {'rows':>4} {'median%':>7} {'mean%':>7} {'p90%':>7} {'rank':>7}")
    for line in lines(problem, held_out.log_us):
        print(line)
    each = relative_errors(problem, held_out.log_us)
    _worst(problem, held_out.log_us, models)
    print("\ndevice, every precision and runtime: median error")
    for device in sorted({r.device for r in problem.rows}):
        here = [i for i, r in enumerate(problem.rows) if r.device == device]
        print(f"{device:38} {100 * np.median(each[here]):6.1f} % of {len(here)}")
    inside = inside_bands(problem, held_out)
    print("\nbands, with the widths of the other folds: part of rows inside, median half width")
    for precision in MEASURED_PRECISIONS:
        here = [i for i, r in enumerate(problem.rows) if r.precision == precision]
        print(f"{precision:6} {100 * inside[here].mean():5.1f} % of {len(here)}")
    print("\ntarget devices together; intervals: 90 %, families drawn again")
    _table("outer folds", problem, held_out.log_us)
    for name in ("aside", "later"):
        among = np.array([getattr(problem.families[r.model], name) for r in problem.rows])
        _table(f"of these, families {name}", problem, held_out.log_us, among)


def _table(name: str, problem: FitProblem, predicted_log: np.ndarray, among: np.ndarray | None = None) -> None:
    for runtime in ("qnn_dlc", "onnx"):
        for precision in MEASURED_PRECISIONS:
            here = select(problem, precision, TARGET_DEVICES, runtime)
            here = here if among is None else here[among[here]]
            if len(here):
                f = figures(problem, predicted_log, here)
                low, high = f["interval"]
                print(
                    f"{name:26} {runtime:8} {precision:6} median {100 * f['median']:5.1f} % ({100 * low:.1f} to "
                    f"{100 * high:.1f}) mean {100 * f['mean']:5.1f} % p90 {100 * f['p90']:5.1f} % rank {f['rank']:.3f}"
                )


def _worst(problem: FitProblem, predicted_log: np.ndarray, models: TiledModels) -> None:
    """The worst ten rows, one of each model and precision, with the task that takes longest."""
    off = np.abs(predicted_log - problem.log_us)
    seen: dict[tuple[str, str], int] = {}
    for i in np.argsort(-off):
        seen.setdefault((problem.rows[i].model, problem.rows[i].precision), i)
    print("\nworst ten, the worst row of each model and precision")
    for i in list(seen.values())[:10]:
        r = problem.rows[i]
        task = _longest(models, problem, i)
        print(
            f"{r.model:28.28} {r.precision:6} {r.runtime:8} {r.device:30.30} measured {r.latency_us / 1e3:9.3f} ms "
            f"predicted {np.exp(predicted_log[i]) / 1e3:9.3f} ms {task}"
        )
    beyond = sorted(
        {r.model + " " + r.precision for r, e in zip(problem.rows, off, strict=True) if e > np.log(EXPLAINED)}
    )
    print(f"off by more than {EXPLAINED} times on some device: {', '.join(beyond) or 'none'}")


def _longest(models: TiledModels, problem: FitProblem, row: int) -> str:
    """The task that takes longest by the fitted costs, and its part of all tasks."""
    r = problem.rows[row]
    costs = cost.costs(soc.require_chip(r.chip))
    tasks = models[key_of(r)].tasks
    us = [max(costs.hmx_us(t), costs.hvx_us(t), costs.dram_us(t.weight_bytes + t.spill_bytes)) for t in tasks]
    longest = int(np.argmax(us))
    return f"{tasks[longest].op} {tasks[longest].name[-24:]} ({100 * us[longest] / sum(us):.0f} %)"


def main() -> None:
    """Fit with each fold of families left out in turn, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--ablate", action="store_true", help="fit without each mechanism, and print what that costs")
    given = parser.parse_args()
    models, rows, families = TiledModels(given.data), read_measurements(given.data), read_families(given.data)
    if given.ablate:
        from benchmarks.latency.ablation import ablate

        ablate(given.data, rows, families)
        return
    problem = FitProblem(models, rows, families)
    show(problem, predict_held_out(problem), models)
    baselines = Baselines(problem, models)
    for name in ("macs_only", "roofline", "boosted"):
        print()
        _table(name, problem, baselines.held_out(getattr(baselines, name)))


if __name__ == "__main__":
    main()
