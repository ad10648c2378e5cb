# SPDX-License-Identifier: Apache-2.0
"""Predicted against measured speed of language models through the public call: `python -m benchmarks.llm_latency`.

`hexforge.llm.estimate_llm` predicts every measured row of 4-bit weights and 16-bit activations (no draft) with costs
that were fitted without the row's family. Prints for each runtime the errors of tokens per second and of the time to
the first token, what a bandwidth with a cost for each layer gives on the same folds, how many rows are in their bands,
and the worst models. With `--data` rows of other models may come along: families that the shipped costs have not seen
are predicted by those. `--configs` is a folder with a NAME.json, in the form of config.json, for each model that no
table names.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hexforge.addons.llm import LlmEstimate, LlmShape, estimate_llm
from hexforge.addons.llm.shape import shape_of_config
from hexforge.addons.llm.time.__main__ import costs_of_fit, figures, half_widths
from hexforge.addons.llm.time.costs import LlmCosts, costs_of, read_costs
from hexforge.addons.llm.time.fitting import fit_rows, predict_families_held_out
from hexforge.addons.llm.time.measurements import ASIDE, MEASURED, RUNTIMES, LlmMeasurement, read_llm_measurements
from hexforge.formats.json_text import read_json

GOALS = {"median": 0.10, "p90": 0.30, "rank": 0.95}
ODD = ("SC8380XP", "genie")
"""The chip and runtime whose rows contradict each other."""
WORST = 8


def predict(row: LlmMeasurement, costs: LlmCosts) -> LlmEstimate:
    """What people would be told of a row."""
    return estimate_llm(
        row.shape, row.chip, context=row.context, precision=row.precision, runtime=row.runtime,
        graph_contexts=row.graph_contexts, costs=costs,
    )  # fmt: skip


def held_out_costs(rows: Sequence[LlmMeasurement], shipped: Sequence[LlmMeasurement]) -> dict[str, LlmCosts]:
    """For each family the costs and bands that were fitted without it; the shipped ones where they never saw it."""
    seen, known = {row.family for row in shipped}, read_costs()
    chips = sorted({row.chip for row in shipped if row.judged})
    found = {}
    for family in sorted({row.family for row in rows}):
        others = [r for r in shipped if r.family != family]
        judged = [r for r in others if r.judged]
        if family not in seen:
            found[family] = known
            continue
        widths = half_widths(judged, *predict_families_held_out(judged, chips=chips))
        band = {"band": {"half_width": widths, "unmeasured_chip": known.unmeasured}}
        found[family] = costs_of(costs_of_fit(fit_rows(others, chips)) | band)
    return found


def baseline(rows: Sequence[LlmMeasurement]) -> tuple[np.ndarray, np.ndarray]:
    """A bandwidth and a cost a layer for each chip and runtime, by least squares of relative errors, folded alike."""
    first, token = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    work = np.array([[(r.shape.active_parameters + r.shape.head_parameters) / 1e9, r.shape.layers] for r in rows])
    for i, row in enumerate(rows):
        alike = [
            k for k, r in enumerate(rows) if r.family != row.family and (r.chip, r.runtime) == (row.chip, row.runtime)
        ]
        if len(alike) < 2:
            continue
        for out, measured in ((first, [rows[k].chunk_ms for k in alike]), (token, [rows[k].token_ms for k in alike])):
            scale = 1 / np.array(measured)
            slopes = np.linalg.lstsq(work[alike] * scale[:, None], np.ones(len(alike)), rcond=None)[0]
            if slopes.min() < 0:  # no cost is below nothing: a bandwidth alone
                slopes = np.array([np.median(np.array(measured) / work[alike, 0]), 0])
            out[i] = float(work[i] @ slopes)
    return first, token


def show(title: str, rows: Sequence[LlmMeasurement], first: np.ndarray, token: np.ndarray, judge: bool = False) -> bool:
    """Print the errors of each runtime; whether all goals are met."""
    met = True
    for runtime in RUNTIMES:
        here = [i for i, r in enumerate(rows) if r.runtime == runtime and np.isfinite(token[i])]
        if len(here) < 3:
            continue
        measured = {
            "tokens per second": figures(1e3 / token[here], np.array([1e3 / rows[i].token_ms for i in here])),
            "first token": figures(first[here], np.array([rows[i].chunk_ms for i in here])),
        }
        for what, row in measured.items():
            missed = [n for n, goal in GOALS.items() if (row[n] < goal if n == "rank" else row[n] > goal)]
            met = met and not missed
            verdict = (f"  misses {', '.join(missed)}" if missed else "  meets the goals") if judge else ""
            print(
                f"{title:28} {runtime:13} {what:18} {row['rows']:4.0f} rows  median {100 * row['median']:5.1f} %  "
                f"mean {100 * row['mean']:5.1f} %  p90 {100 * row['p90']:5.1f} %  rank {row['rank']:.3f}{verdict}"
            )
    return met


def show_bands(rows: Sequence[LlmMeasurement], told: Sequence[LlmEstimate]) -> None:
    """Print how many rows of each runtime are in bands that were made without their family."""
    for runtime in RUNTIMES:
        pairs = [(r, e) for r, e in zip(rows, told, strict=True) if r.runtime == runtime]
        rates = [e.tokens_per_second_band[0] <= 1e3 / r.token_ms <= e.tokens_per_second_band[1] for r, e in pairs]
        firsts = [e.first_token_band()[0] <= r.chunk_ms <= e.first_token_band()[1] for r, e in pairs]
        print(
            f"in bands made without the family: {runtime:13} {100 * np.mean(rates):.0f} % of {len(pairs)} tokens per "
            f"second, {100 * np.mean(firsts):.0f} % of first tokens"
        )


def read_configs(folder: Path | None) -> Mapping[str, LlmShape]:
    """The shapes of a folder of configs, by the names of its files."""
    files = sorted(folder.glob("*.json")) if folder is not None else []
    return {path.stem: shape_of_config(read_json(path), path.stem, str(path)) for path in files}


def main() -> int:
    """Predict and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=MEASURED, help="measured rows, as llm.csv has them")
    parser.add_argument("--configs", type=Path, help="a folder with NAME.json for models that no table names")
    given = parser.parse_args()
    rows, unknown = read_llm_measurements(given.data, read_configs(given.configs))
    if unknown:
        print(f"left out, because nothing says their shape (--configs): {', '.join(unknown)}")
    shipped, _ = read_llm_measurements()
    judged = [row for row in rows if row.judged]
    costs = held_out_costs(judged, shipped)
    told = [predict(row, costs[row.family]) for row in judged]
    first, token = np.array([e.first_token_ms() for e in told]), np.array([e.token_ms for e in told])
    seen = {row.family for row in shipped}
    met = show("families held out", judged, first, token, judge=True)
    for title, among in (
        ("without the odd chip", [i for i, r in enumerate(judged) if (r.chip, r.runtime) != ODD]),
        ("families once aside", [i for i, r in enumerate(judged) if r.family in ASIDE]),
        ("families never seen", [i for i, r in enumerate(judged) if r.family not in seen]),
    ):
        show(title, [judged[i] for i in among], first[among], token[among])
    show("bandwidth and layers", judged, *baseline(judged))
    show_bands(judged, told)
    ratio = token / [r.token_ms for r in judged]
    worst = sorted({(r.model, r.runtime) for r in judged}, key=lambda key: -_worst(judged, ratio, key))
    print("worst, predicted by measured time of a token (median over chips and contexts):")
    for model, runtime in worst[:WORST]:
        mine = [q for q, r in zip(ratio, judged, strict=True) if (r.model, r.runtime) == (model, runtime)]
        print(f"  {model:32} {runtime:13} {np.median(mine):.2f}")
    print(f"goals: median 10 %, p90 30 %, rank .95: {'met' if met else 'not all met'}")
    return 0


def _worst(rows: Sequence[LlmMeasurement], ratio: np.ndarray, key: tuple[str, str]) -> float:
    mine = [q for q, r in zip(ratio, rows, strict=True) if (r.model, r.runtime) == key]
    return float(abs(np.log(np.median(mine))))


if __name__ == "__main__":
    raise SystemExit(main())
