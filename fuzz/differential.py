# SPDX-License-Identifier: Apache-2.0
"""Random models held against onnxruntime and between the backends, as many as asked for."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from tests.ort.differential import Disagreement, float_disagreements, qdq_disagreements

COMPARISONS: dict[str, Callable[[int, int], list[Disagreement]]] = {
    "differential_float": float_disagreements,
    "differential_qdq": qdq_disagreements,
}


def compare(arguments: Sequence[str]) -> int:
    """Print every disagreement and how many models were compared; 1 where there was one."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("target", choices=COMPARISONS)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first model")
    parser.add_argument("--steps", type=int, default=6, help="ops of a model, at most")
    given = parser.parse_args(arguments)
    start, count = time.perf_counter(), 0
    for seed in range(given.first, given.first + given.runs):
        for disagreement in COMPARISONS[given.target](seed, given.steps):
            count += 1
            print(disagreement, flush=True)
    print(f"{given.target}: {given.runs} models, {count} disagreements, {time.perf_counter() - start:.0f} s")
    return int(count > 0)
