# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured latency through the public call: `python -m benchmarks.latency`.

`hexforge.estimates(model, deployments)`, which is `hexforge.estimate` for each deployment, predicts every measured row
of the devices that figures are published for, with costs whose switches were chosen and whose parameters were fitted
without the row's family and those with its backbone (nested: outer folds of families), and again without any model of
its kind (no transformer, no detector, no video model, ...). `families_sight` are the same folds with the switches that
all families chose, which contains the choice. Prints the errors, how many models are in their bands, the worst models,
what a new chip is off by after a few rows of it, and simpler predictors on the same folds, and writes all that to
benchmarks/latency/results.json, which README and docs/time.md quote.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency.baselines import Baselines
from benchmarks.latency.new_chip import new_chips
from benchmarks.latency.public_call import Fold, PredictedRow, family_folds, kind_folds, predict, write_costs
from hexforge.addons.latency.cost_file import digest_of
from hexforge.addons.latency.error_figures import figures_of, select
from hexforge.addons.latency.fitting import MEMBERS, FitProblem
from hexforge.addons.latency.held_out import model_weights
from hexforge.addons.latency.measurements import (
    DATA,
    MEASURED_PRECISIONS,
    TARGET_DEVICES,
    read_families,
    read_measurements,
)
from hexforge.addons.latency.tiled_graphs import TiledGraphs
from hexforge.chips.deployment import RUNTIMES
from hexforge.ir import Graph

RESULTS = Path(__file__).with_name("results.json")
WORST = 25
"""Models and precisions that are named."""
SUSPECTED = {
    "pspnet": "large average pools of floats, element by element",
    "hfnet": "TopK of 307,200 scores and a 9 x 9 MaxPool of one channel",
    "video_mae": "attention of 59 MB, which a DLC moves four times as long as a tflite graph (101 ms)",
    "ddcolor": "norms over channels and products with 65,536 pixels",
    "yolov7": "five-dimensional detection heads in float",
    "beit": "a constant added to attention in float",
    "yolox": "a DLC's SpaceToDepth is strided slices in an onnx graph",
    "yolov5_face": "a DLC's joins of rows are cheaper than an onnx graph's",
    "convnext_v2_base": "global response norm: sums of squares over pixels",
    "openai_clip": "sequence-first attention of five texts",
    "whisper_base__decoder": "products of one row with a cache",
    "trocr__decoder": "products of one row with a cache",
}
"""What is thought to be behind large errors."""


def errors_of(problem: FitProblem, predicted: Sequence[PredictedRow], rows: Iterable[int]) -> dict[str, Any]:
    """Figures of the rows that were predicted: a row may be predicted more than once, by folds of several kinds."""
    among = set(rows)
    mine = [p for p in predicted if p.row in among]
    index = np.array([p.row for p in mine])
    logs = np.log([p.latency_us for p in mine])
    found = figures_of(problem, logs, index)
    errors = np.abs(np.exp(logs - problem.log_us[index]) - 1)
    weights = model_weights(problem, index.tolist())
    inside = np.abs(logs - problem.log_us[index]) <= np.log1p([p.band for p in mine])
    models = sorted({problem.rows[i].model for i in index})
    of_model = np.array([models.index(problem.rows[i].model) for i in index])
    within = [errors[of_model == k].mean() <= 0.1 for k in range(len(models))]
    return {
        **found,
        "models": len(models),
        "within_10": round(float(np.mean(within)), 4),
        "in_band": round(float((inside * weights).sum() / weights.sum()), 4),
    }


def by_precision(problem: FitProblem, predicted: Sequence[PredictedRow], among: np.ndarray) -> dict[str, Any]:
    """The figures of each runtime and precision."""
    table: dict[str, Any] = {}
    for runtime in RUNTIMES:
        for precision in MEASURED_PRECISIONS:
            rows = [i for i in select(problem, precision, TARGET_DEVICES, runtime) if among[i]]
            rows = sorted({p.row for p in predicted} & set(rows))
            if rows:
                table.setdefault(runtime, {})[precision] = errors_of(problem, predicted, rows)
    return table


def bands_of_kinds(problem: FitProblem, predicted: Sequence[PredictedRow]) -> dict[str, float]:
    """For each kind of model how many of its models, at any precision and runtime, lie in their bands."""
    kinds = {p.row: problem.families[problem.rows[p.row].model].kinds for p in predicted}
    return {
        kind: errors_of(problem, predicted, [row for row, of_row in kinds.items() if kind in of_row])["in_band"]
        for kind in sorted({kind for of_row in kinds.values() for kind in of_row})
    }


def without_bands(problem: FitProblem, folds: Sequence[Fold]) -> list[PredictedRow]:
    """Rows of folds as the fits predict them, which is what the public call says, without a band."""
    logs = [(i, log) for fold in folds for i, log in zip(fold.test, problem.predict(fold.fit, fold.test), strict=True)]
    return [PredictedRow(int(i), float(np.exp(log)), 0.0) for i, log in logs]


def worst(problem: FitProblem, predicted: Sequence[PredictedRow]) -> list[dict[str, Any]]:
    """The models and precisions that are off most over the devices, with what is suspected."""
    off: dict[tuple[str, str, str], list[float]] = {}
    for p in predicted:
        row = problem.rows[p.row]
        off.setdefault((row.model, row.precision, row.runtime), []).append(np.log(p.latency_us) - problem.log_us[p.row])
    ordered = sorted(off.items(), key=lambda item: -abs(float(np.mean(item[1]))))
    return [
        {
            "model": model,
            "precision": precision,
            "runtime": runtime,
            "predicted_by_measured": round(float(np.exp(np.mean(errors))), 3),
            "suspected": SUSPECTED.get(model, ""),
        }
        for (model, precision, runtime), errors in ordered[:WORST]
    ]


class Benchmark:
    """The rows of the devices that figures are published for; each part is some entries of results.json."""

    def __init__(self, data: Path, members: int, graphs: dict[str, Graph] | None = None) -> None:
        self.data, self.members = data, members
        self.models = TiledGraphs(data, graphs)
        rows = [row for row in read_measurements(data) if row.device in TARGET_DEVICES]
        self.problem = FitProblem(self.models, rows, read_families(data))
        self.every = np.ones(len(rows), bool)

    def predicted(self, folds: Sequence[Fold], rows: np.ndarray | None = None) -> list[PredictedRow]:
        """Rows of folds by the public call."""
        with tempfile.TemporaryDirectory() as folder:
            return predict(self.problem, folds, write_costs(self.problem, folds, Path(folder)), self.data, rows)

    def nested(self) -> dict[str, Any]:
        """Families held out, from the choice of switches on."""
        folds = family_folds(self.problem, self.members)
        predicted = self.predicted(folds)
        return {
            "families": by_precision(self.problem, predicted, self.every),
            "off": {fold.name: sorted(fold.fit.off) for fold in folds},
            "band_of_kind": bands_of_kinds(self.problem, predicted),
            "worst": worst(self.problem, predicted),
        }

    def in_sight(self) -> dict[str, Any]:
        """The same folds with the switches that all families chose."""
        folds = family_folds(self.problem, self.members, self.problem.choose(self.every).off)
        return {"families_sight": by_precision(self.problem, without_bands(self.problem, folds), self.every)}

    def kinds(self) -> dict[str, Any]:
        """Every kind of model held out."""
        folds, problem = kind_folds(self.problem), self.problem
        dlc = np.array([i for i, row in enumerate(problem.rows) if row.runtime == "qnn_dlc"])
        predicted = self.predicted(folds, dlc)
        of_kind = {fold.name: [p for p in predicted if p.fold == fold.name] for fold in folds}
        each = {kind: by_precision(problem, some, self.every)["qnn_dlc"] for kind, some in of_kind.items()}
        return {"kinds": by_precision(problem, predicted, self.every), "each_kind": each}

    def new_chip(self) -> dict[str, Any]:
        """Chips learnt from a few rows."""
        return {"new_chip": new_chips(self.data, self.models.graphs)}

    def baselines(self) -> dict[str, Any]:
        """Simpler predictors."""
        baselines, contents = Baselines(self.problem, self.models), {}
        for name in ("macs_only", "roofline", "boosted"):
            logs = baselines.held_out(getattr(baselines, name))
            plain = [PredictedRow(i, float(np.exp(log)), 0.0) for i, log in enumerate(logs)]
            contents[name] = by_precision(self.problem, plain, self.every)
        return contents

    def results(self, parts: Sequence[str]) -> dict[str, Any]:
        """What some parts find, and the data that it is of."""
        size = {"rows": len(self.problem.rows), "models": len(self.problem.families)}
        contents: dict[str, Any] = {"data": {**size, "sha256": digest_of(self.data)}}
        for part in parts:
            contents |= getattr(self, part)()
        return contents


PARTS = ("nested", "in_sight", "kinds", "new_chip", "baselines")


def show(contents: dict[str, Any]) -> None:
    """Print a line for each figure."""
    for part in ("families", "families_sight", "kinds", "macs_only", "roofline", "boosted"):
        for runtime, of_runtime in contents.get(part, {}).items():
            for precision, f in of_runtime.items():
                low, high = f["interval"]
                print(
                    f"{part:14} {runtime:8} {precision:6} median {100 * f['median']:5.1f} % ({100 * low:.1f} to "
                    f"{100 * high:.1f}) mean {100 * f['mean']:5.1f} % within 10 %: {100 * f['within_10']:.0f} % of "
                    f"{f['models']} models, in their bands {100 * f['in_band']:.1f} %, rank {f['rank']:.3f}"
                )
    for kind, of_kind in contents.get("each_kind", {}).items():
        cells = ", ".join(f"{p} {100 * f['median']:.1f} %" for p, f in of_kind.items())
        print(f"without any {kind}: median {cells}")
    print(
        "in their bands:",
        ", ".join(f"{kind} {100 * part:.0f} %" for kind, part in contents.get("band_of_kind", {}).items()),
    )
    for name in ("families fitted", "families not fitted"):
        of_count = contents.get("new_chip", {}).get(name, {}).items()
        counts = (f"{n} rows {100 * f['median']:.1f} % mean {100 * f['mean']:.1f}" for n, f in of_count)
        print(f"a new chip, {name}:", ", ".join(counts))
    for row in contents.get("worst", ()):
        print(
            f"{row['model']} {row['precision']} {row['runtime']}: {row['predicted_by_measured']:.2f} {row['suspected']}"
        )


def main() -> None:
    """Fit, predict, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}: only these are made anew; all by default")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--members", type=int, default=MEMBERS, help="fits of a bag; 0: one fit of all families")
    given = parser.parse_args()
    found = Benchmark(given.data, given.members).results(given.parts or PARTS)
    show(found)
    kept = json.loads(given.out.read_text()) if given.parts and given.out.exists() else {}
    given.out.write_text(json.dumps({**kept, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
