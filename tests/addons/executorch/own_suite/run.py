# SPDX-License-Identifier: Apache-2.0
"""Which of ExecuTorch's tests there are and which are wanted; running them, and keeping their outcomes in a file."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import hexforge
from hexforge import _native
from hexforge.formats.files import write_atomically
from tests.addons.executorch.own_suite.pool import Conditions, Suite, Worker, outcome, shared
from tests.addons.executorch.own_suite.worker import DELEGATE, SEED, TESTS, Outcome

PASSES = f"{TESTS}.test_passes"
REWORK = f"{TESTS}.rework"

SUITES = (
    Suite("TestQNNQuantizedOperator", DELEGATE, "quantized operators"),
    Suite("TestQNNFloatingPointOperator", DELEGATE, "float operators"),
    Suite("TestQNNQuantizedModel", DELEGATE, "models"),
    Suite("TestQNNFloatingPointModel", DELEGATE, "models"),
    Suite("TestQNNQuantizedUtils", DELEGATE, "utils"),
    Suite("TestQNNFloatingPointUtils", DELEGATE, "utils"),
    Suite("TestPasses", PASSES, "passes"),
    Suite("TestActivationSpecSharing", PASSES, "passes"),
    Suite("TestIoBindingCheck", PASSES, "passes"),
    Suite("TestConvBnQat", f"{TESTS}.test_conv_bn_qat", "conv and batch norm, QAT"),
    Suite("rework-op-v68", f"{REWORK}.htp.op.v68.test", "rework"),
    Suite("rework-feature-v68", f"{REWORK}.htp.feature.v68.test", "rework"),
    Suite("rework-passes", f"{REWORK}.passes.test", "rework"),
    Suite("rework-utils", f"{REWORK}.utils.test", "rework"),
)
ON_GPU = ("TestQNNFloatingPointOperator", "TestQNNFloatingPointModel")
"""Classes that have options for the gpu backend."""
ADAPTORS = ("stand-in", "wheel")


def chosen(names: Sequence[str], conditions: Conditions, parser: argparse.ArgumentParser) -> list[tuple[Suite, str]]:
    """Tests by their names, `CLASS` or `CLASS.TEST`; all that the backend can run where none is named."""
    backend = conditions.backend
    suites = {s.name: s for s in SUITES if backend == "htp" or s.name in ON_GPU}
    whole: list[str] = []
    wanted: list[tuple[Suite, str]] = []
    for name in names or suites:
        suite, _, test = name.partition(".")
        if suite not in suites:
            parser.error(f"no class {suite} for the {backend} backend; there are {', '.join(suites)}")
        if test:
            wanted.append((suites[suite], test))
        else:
            whole.append(suite)
    lister = Worker(Conditions(limit=600, adaptor=conditions.adaptor))
    for name in whole:
        wanted += [(suites[name], test) for test in lister.tests(suites[name])]
    lister.close()
    return wanted


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every run of these tests can be told."""
    parser.add_argument("names", nargs="*", help="classes, or CLASS.TEST; all classes unless given")
    parser.add_argument("--json", type=Path, help="outcomes are kept there, and those that are there are not run again")
    parser.add_argument("--resume", type=Path, metavar="FOLDER", help="the same in a file for this state of hexforge")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core unless given"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds that a test may take")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of torch's random numbers before each test: {SEED}")
    parser.add_argument("--no-skips", action="store_true", help="run what the tests skip on x86, too")
    parser.add_argument("--backend", choices=("htp", "gpu"), default="htp", help="what the tests are compiled for: htp")
    parser.add_argument(
        "--adaptor",
        choices=ADAPTORS,
        default=ADAPTORS[0],
        help="who answers ExecuTorch: hexforge's stand-in, or the wheel's compiled module over hexforge's libQnnHtp.so",
    )
    parser.add_argument("--show", action="store_true", help="only print what the outcomes that were kept say")


def state(conditions: Conditions) -> str:
    """A name for what decides the outcomes: hexforge's sources, kernels and libraries, and how the tests are run."""
    of_tests = f"{conditions.seed} {conditions.no_skips} {conditions.backend} {conditions.adaptor}"
    digest = hashlib.blake2b(of_tests.encode(), digest_size=8)
    for root in (Path(hexforge.__file__).parent, Path(_native.__file__).parent):
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".cpp", ".so", ".json")):
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def run(given: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Outcome]:
    """Outcomes of what is named: those that were kept, and those of the tests that are run now."""
    kept: list[Outcome] = []
    conditions = Conditions(given.limit, given.no_skips, given.seed, given.backend, given.adaptor)
    if given.resume is not None:
        given.resume.mkdir(parents=True, exist_ok=True)
        given.json = given.resume / f"{state(conditions)}.json"
    if given.json is not None and given.json.exists():
        kept = [outcome(row) for row in json.loads(given.json.read_text())]
    if given.show:
        return kept
    done = {name for o in kept for name in _names(o)}
    wanted = chosen(given.names, conditions, parser)
    left = [(suite, test) for suite, test in wanted if (suite.name, test) not in done]
    if kept:
        print(f"{len(kept)} outcomes are in {given.json}; {len(left)} tests are left", flush=True)
    for number, one in shared(left, given.jobs, conditions):
        kept.append(one)
        at = f"[{number}/{len(left)}]"
        print(f"{at:>10} {one.result:>16} {one.seconds:6.1f} s  {one.suite}.{one.test}  {one.why}".rstrip(), flush=True)
        if given.json is not None:
            write_atomically(given.json, json.dumps([asdict(o) for o in kept]).encode())
    named = {(suite.name, test) for suite, test in wanted}
    return [o for o in kept if named & _names(o)]


def _names(one: Outcome) -> set[tuple[str, str]]:
    """How a test may have been asked for: all of a function's cells, or one of them."""
    return {(one.suite, one.test), (one.suite, one.test.partition("[")[0])}
