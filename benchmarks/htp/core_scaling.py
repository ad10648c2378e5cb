# SPDX-License-Identifier: Apache-2.0
"""What cores that this machine may not have could gain at most: `python -m benchmarks.htp.core_scaling [MODEL ...]`.

A run is timed step by step: one thread does all work, piece by piece in the order in which the members of a crew
would take it if each had a core of its own, and every piece is timed. A step then takes as long as its busiest
member, besides what is not split. The sum over the steps is what no machine of these cores undercuts; caches that are
shared, clocks that fall and the hand-overs between steps come on top (`--handover`, us for each split loop). What is
left of that `benchmarks.inference --scaling` measures.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_names
from benchmarks.models.quantized import MODELS, VARIANTS, file
from benchmarks.peers.engines import hexforge_session, programs
from hexforge import _native
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.backends.htp.numbers.segment import NativeCall, Segment

_ROUNDS = 9


@dataclass(frozen=True, slots=True)
class TimedStep:
    """A step: milliseconds on one thread, and as long as its busiest member has to do; loops that are split."""

    step: NativeCall
    alone: float
    shared: float
    loops: int


def time_steps(program: HtpProgram, threads: int) -> list[TimedStep]:
    """Every native step of a program, the best of several rounds."""
    steps: list[TimedStep] = []
    for segment, runner in zip(program._stages, program._runners, strict=True):
        if not isinstance(segment, Segment):
            continue
        sizes = [t for t in segment.tensors if not isinstance(t, np.ndarray)]
        ins = [np.zeros(size, np.uint8) for place, _, size in sizes if place == "input"]
        outs = [np.zeros(size, np.uint8) for place, _, size in sizes if place == "output"]
        native = runner._program
        rounds = np.array([native.time_steps(ins, outs, threads) for _ in range(_ROUNDS)])
        best = rounds.min(axis=0)
        steps += [TimedStep(c, a * 1e3, s * 1e3, int(n)) for c, (a, s, n) in zip(segment.calls, best, strict=True)]
    return steps


def table(steps: list[TimedStep], title: str, most: int) -> Table:
    """Kinds of steps, then the steps that keep most of the cores waiting longest."""
    made = Table("step", "alone, ms", "shared, ms", "times", "sizes", title=title)
    kinds: dict[str, list[TimedStep]] = {}
    for one in steps:
        kinds.setdefault(one.step.kind, []).append(one)
    for kind, of in sorted(kinds.items(), key=lambda item: -sum(s.shared for s in item[1])):
        alone, shared = sum(s.alone for s in of), sum(s.shared for s in of)
        whole = Counter(bool(s.loops) for s in of)[False]
        made.add_row(
            f"all {len(of)} {kind}", f"{alone:.3f}", f"{shared:.3f}", f"{alone / shared:.1f}", f"{whole} on one thread"
        )
    made.add_section()
    shown = "in out kernel stride channels out_channels groups dims count".split()
    for one in sorted(steps, key=lambda s: -s.shared)[:most]:
        sizes = " ".join(f"{k}={one.step.attributes[k]}" for k in shown if k in one.step.attributes)
        made.add_row(one.step.kind, f"{one.alone:.3f}", f"{one.shared:.3f}", f"{one.alone / one.shared:.1f}", sizes)
    return made


def main(arguments: list[str]) -> int:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_names(parser, "model", MODELS, ["resnet50"])
    parser.add_argument("--variant", choices=list(VARIANTS), default="a8w8-int8")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--handover", type=float, default=1.5, help="us that the threads of a split loop meet in")
    parser.add_argument("--level", choices=_native.levels(), help="hold hexforge to a lower instruction set")
    parser.add_argument("--steps", type=int, default=8, metavar="N", help="how many steps are shown")
    given = parser.parse_args(arguments)
    if given.level:
        _native.set_level(given.level)
    out = Console(width=None if sys.stdout.isatty() else 170)
    for model in given.models:
        session = hexforge_session(file(model, given.variant), 1)
        for threads in given.threads:
            steps = [s for program in programs(session) for s in time_steps(program, threads)]
            alone, shared = sum(s.alone for s in steps), sum(s.shared for s in steps)
            if threads == given.threads[-1]:
                out.print(table(steps, f"{model} {given.variant}, {threads} threads", given.steps))
            loops = sum(s.loops for s in steps)
            met = shared + loops * given.handover / 1e3
            serial = sum(s.alone for s in steps if not s.loops) / alone
            out.print(
                f"{model}: {threads} threads at most {alone / shared:.1f} times one ({alone:.2f} to {shared:.2f} ms), "
                f"{alone / met:.1f} with {loops} hand-overs of {given.handover:g} us; {serial:.1%} is not split"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
