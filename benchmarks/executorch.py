# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own tests, from the installed wheel, on hexforge: `python -m benchmarks.executorch [CLASS[.TEST] ...]`.

Every test is the wheel's, unchanged; models are run by `hexforge executor-runner` through the hook of these tests
(QNN_EXECUTOR_RUNNER). `--jobs` processes share the tests; `--json` keeps the outcomes, so that a run which was stopped
goes on with the rest. The last lines are the table, class by class, beside what Qualcomm's library passes on x86, after
a line for each test that did not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.executorch_steps import Measured
from benchmarks.executorch_worker import DELEGATE, SEED, TESTS, Outcome

PASSES = f"{TESTS}.test_passes"
REWORK = f"{TESTS}.rework"


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of tests (of the newer tests a file), and the group that the vendor's count is for."""

    name: str
    module: str
    group: str


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
VENDOR = {"quantized operators": (191, 196), "float operators": (174, 178), "models": (52, 61), "utils": (40, 64)}
"""What Qualcomm's library passes on x86 with its own runner, and of how many tests (reference, not measured here)."""


class Worker:
    """A process that runs tests; one that ends, or takes too long for a test, is replaced."""

    def __init__(self, limit: float, no_skips: bool, seed: int) -> None:
        self.limit, self.no_skips, self.seed = limit, no_skips, seed
        self._process: subprocess.Popen[str] | None = None
        self._module = ""
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def tests(self, suite: Suite) -> list[str]:
        """The tests of a class."""
        (found,) = self._ask({"suite": suite.name, "module": suite.module})
        return list(found)

    def run(self, suite: Suite, test: str) -> Iterator[Outcome]:
        """The outcomes of a test: one, or one for each of its parameters."""
        if suite.module != self._module:  # pytest takes one file of several with one name for another
            self.close()
        self._module = suite.module
        start = time.monotonic()
        found = False
        try:
            for answer in self._ask({"suite": suite.name, "module": suite.module, "test": test, "seed": self.seed}):
                found = True
                yield outcome(answer)
        except TimeoutError:
            yield Outcome(suite.name, test, "failed", f"took longer than {self.limit:.0f} s", self.limit)
        except EOFError as error:
            yield Outcome(suite.name, test, "failed", str(error), round(time.monotonic() - start, 1))
        else:
            if not found:
                yield Outcome(suite.name, test, "failed", "cannot be collected")

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
            self._process = None

    def _ask(self, request: dict[str, Any]) -> Iterator[Any]:
        if self._process is None:
            command = [sys.executable, "-m", "benchmarks.executorch_worker"]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._lines = queue.SimpleQueue()
            threading.Thread(target=_read, args=(self._process.stdout, self._lines), daemon=True).start()
            request = {**request, "no_skips": self.no_skips}
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        end = time.monotonic() + self.limit
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                line = None
            if line == "\n":
                return
            if not line:
                process.kill()
                code, self._process = process.wait(), None
                if line is None:
                    raise TimeoutError
                raise EOFError(f"its process ended with code {code}")
            yield json.loads(line)


def _read(stream: Any, lines: queue.SimpleQueue[str]) -> None:
    """Lines as they come, and an empty one at the end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def outcome(row: dict[str, Any]) -> Outcome:
    """An outcome as it was written."""
    known = {f.name for f in fields(Outcome)}
    return Outcome(**{**{k: v for k, v in row.items() if k in known},
                      "measured": [Measured(**m) for m in row.get("measured", ())]})  # fmt: skip


def shared(
    wanted: Sequence[tuple[Suite, str]], jobs: int, limit: float, no_skips: bool, seed: int
) -> Iterator[Outcome]:
    """Outcomes of tests as they come, from several processes."""
    left: queue.SimpleQueue[tuple[Suite, str]] = queue.SimpleQueue()
    found: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
    for item in wanted:
        left.put(item)

    def work() -> None:
        worker = Worker(limit, no_skips, seed)
        with contextlib.suppress(queue.Empty):
            while True:
                for one in worker.run(*left.get_nowait()):
                    found.put(one)
        worker.close()
        found.put(None)

    jobs = max(1, min(jobs, len(wanted)))
    for _ in range(jobs):
        threading.Thread(target=work, daemon=True).start()
    while jobs:
        if (one := found.get()) is None:
            jobs -= 1
        else:
            yield one


def table(outcomes: Sequence[Outcome]) -> str:
    """A line for each test that did not pass, then the table."""
    lines = [f"{o.suite}.{o.test}: {o.result}: {o.why}" for o in outcomes if o.result != "passed"]
    head = f"{'class':<32} {'passed':>6} {'of':>4} {'skipped':>8} {'seconds':>8}   vendor's library"
    lines += ["", head]
    names = [s for s in SUITES if any(o.suite == s.name for o in outcomes)]
    for suite in names:
        own = [o for o in outcomes if o.suite == suite.name]
        lines.append(_row(suite.name, own, ""))
    for group, (passed, of) in VENDOR.items():
        members = [s.name for s in SUITES if s.group == group]
        own = [o for o in outcomes if o.suite in members]
        if own and all(any(o.suite == m for o in own) for m in members):
            lines.append(_row(f"= {group}", own, f"{passed} of {of}"))
    return "\n".join(lines)


def _row(name: str, own: Sequence[Outcome], vendor: str) -> str:
    count = {kind: sum(o.result == kind for o in own) for kind in ("passed", "skipped", "expected failure")}
    seconds = sum(o.seconds for o in own)
    skipped = count["skipped"] + count["expected failure"]
    return f"{name:<32} {count['passed']:>6} {len(own):>4} {skipped:>8} {seconds:>8.0f}   {vendor}"


def chosen(names: Sequence[str], parser: argparse.ArgumentParser) -> list[tuple[Suite, str]]:
    """Tests by their names, `CLASS` or `CLASS.TEST`; all where none is named."""
    suites = {s.name: s for s in SUITES}
    whole: list[str] = []
    found: list[tuple[Suite, str]] = []
    for name in names or suites:
        suite, _, test = name.partition(".")
        if suite not in suites:
            parser.error(f"no class {suite}; there are {', '.join(suites)}")
        if test:
            found.append((suites[suite], test))
        else:
            whole.append(suite)
    lister = Worker(600, False, 0)
    for name in whole:
        found += [(suites[name], test) for test in lister.tests(suites[name])]
    lister.close()
    return found


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What every run of these tests can be told."""
    parser.add_argument("names", nargs="*", help="classes, or CLASS.TEST; all classes unless given")
    parser.add_argument("--json", type=Path, help="outcomes are kept there, and those that are there are not run again")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes; one for each core unless given"
    )
    parser.add_argument("--limit", type=float, default=900, help="seconds that a test may take")
    parser.add_argument("--seed", type=int, default=SEED, help=f"of torch's random numbers before each test: {SEED}")
    parser.add_argument("--no-skips", action="store_true", help="run what the tests skip on x86, too")
    parser.add_argument("--show", action="store_true", help="only print what the outcomes that were kept say")


def run(given: argparse.Namespace, parser: argparse.ArgumentParser) -> list[Outcome]:
    """Outcomes of what is named: those that were kept, and those of the tests that are run now."""
    kept: list[Outcome] = []
    if given.json is not None and given.json.exists():
        kept = [outcome(row) for row in json.loads(given.json.read_text())]
    if given.show:
        return kept
    done = {(o.suite, o.test.partition("[")[0]) for o in kept}
    left = [(suite, test) for suite, test in chosen(given.names, parser) if (suite.name, test) not in done]
    for one in shared(left, given.jobs, given.limit, given.no_skips, given.seed):
        kept.append(one)
        print(f"{one.result:>16} {one.seconds:6.1f} s  {one.suite}.{one.test}  {one.why}".rstrip(), flush=True)
        if given.json is not None:
            given.json.write_text(json.dumps([asdict(o) for o in kept]))
    return kept


def main() -> int:
    """Run what is named, all by default; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    outcomes = run(parser.parse_args(), parser)
    print(table(outcomes))
    return int(any(o.result == "failed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
