# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured latency through the public call: `python -m benchmarks.latency`.

`hexforge.estimates(model, deployments)`, which is `hexforge.estimate` for each deployment, predicts every measured row
of the devices that figures are published for, with costs that were fitted without the row's family and those with its
backbone (outer folds), and again without any model of its kind (no transformer, no detector, no video model, ...).
Prints the errors, how many models are in their bands, the worst models and simpler predictors on the same folds, and
writes all that to benchmarks/latency/results.json, which README and docs/time.md quote. `--ablate` fits without each
mechanism.
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
from benchmarks.latency.public_call import PredictedRow, family_folds, kind_folds, predict, write_costs
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


def results(data: Path, members: int) -> dict[str, Any]:
    """Everything that results.json holds."""
    families = read_families(data)
    rows = [row for row in read_measurements(data) if row.device in TARGET_DEVICES]
    models = TiledGraphs(data)
    problem = FitProblem(models, rows, families)
    every = np.ones(len(rows), bool)
    aside = np.array([families[row.model].aside for row in rows])
    contents: dict[str, Any] = {"data": {"rows": len(rows), "models": len(families), "sha256": digest_of(data)}}
    with tempfile.TemporaryDirectory() as folder:
        folds = family_folds(problem, members)
        predicted = predict(problem, folds, write_costs(problem, folds, Path(folder)), data)
        contents["families"] = by_precision(problem, predicted, every)
        contents["aside"] = by_precision(problem, predicted, aside)
        contents["worst"] = worst(problem, predicted)
        of_kind = kind_folds(problem)
        dlc = np.array([i for i, row in enumerate(rows) if row.runtime == "qnn_dlc"])
        without = predict(problem, of_kind, write_costs(problem, of_kind, Path(folder)), data, dlc)
    contents["kinds"] = by_precision(problem, without, every)
    contents["each_kind"] = {
        fold.name: by_precision(problem, [p for p in without if p.fold == fold.name], every)["qnn_dlc"]
        for fold in of_kind
    }
    baselines = Baselines(problem, models)
    for name in ("macs_only", "roofline", "boosted"):
        logs = baselines.held_out(getattr(baselines, name))
        plain = [PredictedRow(i, float(np.exp(log)), 0.0) for i, log in enumerate(logs)]
        contents[name] = by_precision(problem, plain, every)
    return contents


def show(contents: dict[str, Any]) -> None:
    """Print a line for each figure."""
    for part in ("families", "aside", "kinds", "macs_only", "roofline", "boosted"):
        for runtime, of_runtime in contents[part].items():
            for precision, f in of_runtime.items():
                low, high = f["interval"]
                print(
                    f"{part:9} {runtime:8} {precision:6} median {100 * f['median']:5.1f} % ({100 * low:.1f} to "
                    f"{100 * high:.1f}) mean {100 * f['mean']:5.1f} % within 10 %: {100 * f['within_10']:.0f} % of "
                    f"{f['models']} models, in their bands {100 * f['in_band']:.1f} %, rank {f['rank']:.3f}"
                )
    for kind, of_kind in contents["each_kind"].items():
        cells = ", ".join(f"{p} {100 * f['median']:.1f} %" for p, f in of_kind.items())
        print(f"without any {kind}: median {cells}")
    for row in contents["worst"]:
        print(
            f"{row['model']} {row['precision']} {row['runtime']}: {row['predicted_by_measured']:.2f} {row['suspected']}"
        )


def main() -> None:
    """Fit, predict, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--out", type=Path, default=RESULTS, help="the file of results")
    parser.add_argument("--members", type=int, default=MEMBERS, help="fits of a bag; 0: one fit of all families")
    parser.add_argument("--ablate", action="store_true", help="fit without each mechanism, and print what that costs")
    given = parser.parse_args()
    if given.ablate:
        from benchmarks.latency.ablation import ablate

        ablate(given.data, read_measurements(given.data), read_families(given.data))
        return
    contents = results(given.data, given.members)
    show(contents)
    given.out.write_text(json.dumps(contents, indent=1) + "\n")


if __name__ == "__main__":
    main()
