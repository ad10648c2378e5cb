# SPDX-License-Identifier: Apache-2.0
"""Fit the time model of language models: `python -m hexforge.llm.time [--data CSV] [--out FILE] [--check]`.

The parameters are those of all families; errors and bands in the file are those of families that were held out.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hexforge.addons.latency.cost_file import fit_arguments, keep_or_check
from hexforge.addons.latency.held_out import share_quantile
from hexforge.addons.llm.time.costs import SHIPPED, costs_of
from hexforge.addons.llm.time.estimate import estimate_llm
from hexforge.addons.llm.time.fitting import LlmFit, fit_rows, predict_families_held_out
from hexforge.addons.llm.time.measurements import MEASURED, RUNTIMES, LlmMeasurement, read_llm_measurements
from hexforge.addons.llm.time.terms import FACTORS, PARAMETERS

SOURCE = "fitted by hexforge.llm.time on the language models of qai-hub-models 0.65.0"
INSIDE = 0.9


def file_contents(rows: Sequence[LlmMeasurement], digest: str) -> dict[str, Any]:
    """What cost.json holds."""
    judged = [row for row in rows if row.judged]
    chunk, token = predict_families_held_out(judged)
    return {
        "source": SOURCE,
        "data": {"rows": len(rows), "models": len({r.model for r in rows}), "sha256": digest},
        **costs_of_fit(fit_rows(rows)),
        "band": {"half_width": half_widths(judged, chunk, token), "unmeasured_chip": unmeasured_widths(judged)},
        "error": {runtime: error_figures(judged, chunk, token, runtime) for runtime in RUNTIMES},
    }


def costs_of_fit(fit: LlmFit) -> dict[str, Any]:
    """The part of the file that estimates read."""
    return {
        "parameters": {name: float(f"{value:.5g}") for name, value in fit.values.items()},
        "chips": {chip: _factors(fit.factors[:, i]) for i, chip in enumerate(fit.chips)},
        "deviations": {
            runtime: {chip: _factors(fit.deviations[:, k, i]) for i, chip in enumerate(fit.chips)}
            for k, runtime in enumerate(RUNTIMES)
        },
    }


def _factors(logs: np.ndarray) -> dict[str, float]:
    return {name: float(f"{np.exp(log):.4g}") for name, log in zip(FACTORS, logs, strict=True)}


def half_widths(rows: Sequence[LlmMeasurement], chunk: np.ndarray, token: np.ndarray) -> dict[str, dict[str, float]]:
    """For each runtime the logarithmic half widths of a chunk and of a token that nine of ten rows are in.

    Once with all rows alike and once with all families alike, however many rows they have: the wider counts.
    """
    widths = {}
    for runtime in RUNTIMES:
        here = [i for i, row in enumerate(rows) if row.runtime == runtime]
        of_family = Counter(rows[i].family for i in here)
        shares = np.array([1 / of_family[rows[i].family] for i in here])
        first = np.abs(np.log(chunk[here] / [rows[i].chunk_ms for i in here]))
        later = np.abs(np.log(token[here] / [rows[i].token_ms for i in here]))
        widths[runtime] = {
            what: round(max(float(np.quantile(errors, INSIDE)), share_quantile(errors, shares)), 4)
            for what, errors in (("chunk", first), ("token", later))
        }
    return widths


def unmeasured_widths(rows: Sequence[LlmMeasurement]) -> dict[str, float]:
    """How far (logarithmic) chips are off in the mean when all their rows are left out, of a chunk and of a token."""
    no_bands = {runtime: {"chunk": 0.0, "token": 0.0} for runtime in RUNTIMES}
    band = {"band": {"half_width": no_bands, "unmeasured_chip": no_bands[RUNTIMES[0]]}}
    off: dict[str, list[float]] = {"chunk": [], "token": []}
    for chip in sorted({row.chip for row in rows}):
        costs = costs_of(costs_of_fit(fit_rows([row for row in rows if row.chip != chip])) | band)
        mine = [row for row in rows if row.chip == chip]
        told = [
            estimate_llm(
                r.shape, chip, context=r.context, precision=r.precision, runtime=r.runtime,
                graph_contexts=r.graph_contexts, costs=costs,
            )
            for r in mine
        ]  # fmt: skip
        for what, logs in off.items():
            times = ((getattr(e, f"{what}_ms"), getattr(r, f"{what}_ms")) for e, r in zip(told, mine, strict=True))
            logs.append(float(np.median([np.log(estimated / measured) for estimated, measured in times])))
    return {what: round(float(np.sqrt(np.mean(np.square(logs)))), 4) for what, logs in off.items()}


def error_figures(
    rows: Sequence[LlmMeasurement], chunk: np.ndarray, token: np.ndarray, runtime: str
) -> dict[str, dict[str, float]]:
    """Errors of tokens per second and of the time to the first token through a runtime."""
    here = [i for i, row in enumerate(rows) if row.runtime == runtime]
    rate = np.array([1e3 / rows[i].token_ms for i in here])
    first = np.array([rows[i].chunk_ms for i in here])
    return {"tokens_per_second": figures(1e3 / token[here], rate), "first_token": figures(chunk[here], first)}


def figures(predicted: np.ndarray, measured: np.ndarray) -> dict[str, float]:
    """Median, mean and 90th percentile of the relative error, and the rank correlation."""
    error = np.abs(predicted / measured - 1)
    ranks = np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1]
    of_error = {"median": np.median(error), "mean": error.mean(), "p90": np.quantile(error, INSIDE), "rank": ranks}
    return {"rows": len(error)} | {name: round(float(value), 4) for name, value in of_error.items()}


def _ranks(values: np.ndarray) -> np.ndarray:
    """The place of each value among all, ties in the middle of theirs."""
    return np.array([(values < v).sum() + ((values == v).sum() - 1) / 2 for v in values])


def main() -> int:
    """Fit, print what came out, and write or check the file."""
    given = fit_arguments("hexforge.llm.time", __doc__, MEASURED, SHIPPED)
    rows, unknown = read_llm_measurements(given.data)
    for name in unknown:
        print(f"{name}: left out, nothing says its shape", file=sys.stderr)
    contents = file_contents(rows, hashlib.sha256(given.data.read_bytes()).hexdigest())
    for parameter in PARAMETERS:
        value = contents["parameters"][parameter.name]
        print(f"{parameter.name:18} {value:10.4g} {parameter.unit} (prior {parameter.prior:g})")
    for runtime, errors in contents["error"].items():
        for what, row in errors.items():
            print(f"held out, {runtime:13} {what:18}", *(f"{name} {value:g}" for name, value in row.items()))
    return keep_or_check(contents, given)


if __name__ == "__main__":
    sys.exit(main())
