# SPDX-License-Identifier: Apache-2.0
"""Mixed precision found by search, next to uniform w8a16: is there a mix that is faster and no less accurate?

    python -m benchmarks.accuracy.precision_search [--low RECIPE] [--high RECIPE] [--budget N] [--groups N] [--jobs N]
        [PAIR ...]

For each pair of `models_with_data`: every mix that no other beats, with its score on the emulator and its simulated
latency on SM8650 as a share of uniform w8a16's; then which of them dominate uniform w8a16 (faster, no less accurate),
also by the pair's score on samples that the search did not see, or that there is none.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

import numpy as np

from benchmarks.accuracy.models_with_data import PAIRS, Array, Pair
from benchmarks.arguments import add_names
from hexforge.addons.tuning.mixes import Point
from hexforge.addons.tuning.requests import Scoring, SearchSpace
from hexforge.addons.tuning.search import SearchResult, search
from hexforge.analysis.quality.quantize import quantize
from hexforge.analysis.quality.runners import runner
from hexforge.analysis.workers import Workers
from hexforge.runtime.registry import backend_for

DEFAULT = ("digits", "ppocr_cls")
SOC = "SM8650"
_UNSEEN = 400
_CALIBRATION = {"digits": 32}
"""Samples to calibrate on, where there are fewer than are taken otherwise."""
_OFTEN = 64
_JUDGED = {"digits": 68, "ppocr_cls": 200, "magika": 120}
"""Samples of classifiers that mixes are judged on, by how sure they are of the float model's answers; other models are
judged by SQNR, on fewer."""
_FEW = 24


def sureness(outputs: Mapping[str, Array], label: int) -> float:
    """The probability of the right answer: unlike the share of right answers it tells good mixes from better ones."""
    (scores,) = (np.ravel(array).astype(np.float64) for array in outputs.values())
    if abs(scores.sum() - 1) > 0.1 or scores.min() < 0:  # before a Softmax
        scores = np.exp(scores - scores.max())
    return float(scores[label] / scores.sum())


def searched(pair: Pair, low: str, high: str, budget: int, groups: int, jobs: int) -> SearchResult:
    """The search of a pair, on samples for calibration."""
    judged = _JUDGED.get(pair.name, _FEW)
    first = _CALIBRATION.get(pair.name, _OFTEN)
    calibration = list(pair.calibration(first + judged))
    labels = None
    if pair.name in _JUDGED:
        labels = [int(next(iter(pair.float_run(feeds).values())).argmax()) for feeds in calibration[first:]]
    return search(
        pair.model(),
        calibration[:first],
        SOC,
        space=SearchSpace(low=low, high=high, groups=groups, budget=budget),
        scoring=Scoring(
            metric="sqnr" if labels is None else sureness, labels=labels, data=calibration[first:], samples=judged
        ),
        workers=Workers(jobs=jobs),
    )


def score(pair: Pair, result: SearchResult, point: Point) -> float:
    """What the model of a point does on samples that the search did not see."""
    data = list(pair.calibration(_CALIBRATION.get(pair.name, _OFTEN)))
    made = quantize(pair.model(), data, result.recipe(point), soc=SOC).model
    assert made is not None
    return pair.score(runner(made, backend_for(SOC)), min(pair.samples, _UNSEEN))


def show(pair: Pair, result: SearchResult, seconds: float) -> None:
    """Print the front, and what it says of uniform w8a16."""
    points, high, name = result.mixes, result.mixes.high, result.high.name
    count = len(points.points)
    print(f"{pair.name}: {count} of {2 ** len(result.groups)} mixes of {len(result.groups)} groups, {seconds:.0f} s")
    rows = [*points.front(), *([] if high in points.front() else [high])]
    for point in rows:
        kind = name if point == high else result.low.name if point == points.low else "mix"
        share = point.latency_ms / high.latency_ms
        print(
            f"  {kind:13}  {result.metric} {point.quality:7.4f}  {point.latency_ms:.4f} ms, {share:.3f} of {name}'s"
            f"  {len(point.high)} groups at it"
        )
    better = points.dominating()
    if better:
        uniform, scores = score(pair, result, high), [score(pair, result, p) for p in better]
        held = [(p, s) for p, s in zip(better, scores, strict=True) if s >= uniform]
        print(
            f"  {len(better)} mixes dominate uniform {name} on samples searched on; {len(held)} of them on "
            f"{min(pair.samples, _UNSEEN)} others, by {pair.metric}: {', '.join(f'{s:.4f}' for s in scores)} against "
            f"{uniform:.4f}"
        )
        if held:
            best, mine = held[0]
            print(f"  the fastest on both: {best.latency_ms / high.latency_ms:.3f} of {name}'s time at {mine:.4f}")
    elif points.exhausted:
        print(f"  no mix dominates uniform {name}: all {count} of the space were measured")
    else:
        print(f"  no measured mix dominates uniform {name}; the space has {2 ** len(result.groups)}")


def main(arguments: list[str]) -> int:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "pair", PAIRS, DEFAULT)
    parser.add_argument("--low", default="w8a8_channel")
    parser.add_argument("--high", default="w8a16_channel")
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    for name in given.pairs:
        start = time.perf_counter()
        result = searched(PAIRS[name], given.low, given.high, given.budget, given.groups, given.jobs)
        show(PAIRS[name], result, time.perf_counter() - start)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
