# SPDX-License-Identifier: Apache-2.0
"""Rounds: targets that make models by number and say what is wrong with each, as many as asked for."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from fuzz.api_sequences import api_sequences
from fuzz.device_rounds import device_messages, device_scenarios
from fuzz.hostile_names import hostile_names
from fuzz.odd_models import odd_models
from fuzz.tflite_files import damaged_tflite
from tests.ort.differential import arbitrated_ops, float_disagreements, qdq_disagreements

ROUNDS: dict[str, Callable[[int], Sequence[object]]] = {
    "differential_float": float_disagreements,
    "differential_qdq": lambda seed: qdq_disagreements(seed, 6),
    "arbitrated_qdq": arbitrated_ops,
    "odd_models": odd_models,
    "hostile_names": hostile_names,
    "device_scenarios": device_scenarios,
    "device_messages": device_messages,
    "api_sequences": api_sequences,
    "damaged_tflite": damaged_tflite,
}
"""By name: a function of a seed that gives what is wrong."""


def run_rounds(arguments: Sequence[str]) -> int:
    """Print everything that is wrong, and how many rounds there were; 1 where anything was."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("target", choices=ROUNDS)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no round after so many")
    parser.add_argument("--first", type=int, default=0, help="seed of the first round")
    given = parser.parse_args(arguments)
    start, rounds, count = time.perf_counter(), 0, 0
    for seed in range(given.first, given.first + given.runs):
        if time.perf_counter() - start > given.seconds:
            break
        rounds += 1
        for fault in ROUNDS[given.target](seed):
            count += 1
            print(fault, flush=True)
    print(f"{given.target}: {rounds} rounds, {count} faults, {time.perf_counter() - start:.0f} s")
    return int(count > 0)
