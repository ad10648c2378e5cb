# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own tests, from the installed wheel, on hexforge: `python -m benchmarks.executorch [CLASS[.TEST] ...]`.

Every test is the wheel's, unchanged; models are run by `hexforge executor-runner` through the hook of these tests
(QNN_EXECUTOR_RUNNER). The last lines are the table, class by class, beside what Qualcomm's library passes on x86, after
a line for each test that did not pass.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DELEGATE = "executorch.backends.qualcomm.tests.test_qnn_delegate"
PASSES = "executorch.backends.qualcomm.tests.test_passes"
CONV_BN = "executorch.backends.qualcomm.tests.test_conv_bn_qat"
SOC = "SM8650"
SEED = 1126
"""What ExecuTorch's own scripts are run with."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A class of tests, and the group that the vendor's count is for."""

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
    Suite("TestConvBnQat", CONV_BN, "conv and batch norm, QAT"),
)
VENDOR = {"quantized operators": (191, 196), "float operators": (174, 178), "models": (52, 61), "utils": (40, 64)}
"""What Qualcomm's library passes on x86 with its own runner, and of how many tests (reference, not measured here)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test: passed, failed, skipped or expected failure; in one line why."""

    suite: str
    test: str
    result: str
    why: str = ""
    seconds: float = 0.0


class _Record(unittest.TestResult):
    """Outcomes as they come; a test whose sub-tests fail has failed."""

    def __init__(self, suite: str) -> None:
        super().__init__()
        self.suite, self.outcomes = suite, []
        self._start, self._why = 0.0, ""

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().startTest(test)
        torch = importlib.import_module("torch")
        torch.manual_seed(SEED)  # few tests set one themselves
        self._start, self._why = time.monotonic(), ""

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802 - unittest's name
        if err is not None:
            self._why = self._why or _line(err)
        super().addSubTest(test, subtest, err)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        self._add(test, "failed" if self._why else "passed", self._why)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        self._add(test, "failed", _line(err))

    addError = addFailure  # noqa: N815 - unittest's name

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - unittest's name
        self._add(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        self._add(test, "expected failure", _line(err))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        self._add(test, "passed", "was expected to fail")

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        if not any(o.test == _name(test) for o in self.outcomes):  # only sub-tests have failed
            self._add(test, "failed", self._why)
        super().stopTest(test)

    def _add(self, test: unittest.TestCase, result: str, why: str = "") -> None:
        seconds = time.monotonic() - self._start
        self.outcomes.append(Outcome(self.suite, _name(test), result, why, round(seconds, 1)))
        print(
            f"{result:>16} {seconds:6.1f} s  {_name(test)}{'  ' + why if why else ''}", file=sys.__stdout__, flush=True
        )


def _name(test: unittest.TestCase) -> str:
    return test.id().rpartition(".")[2]


def _line(err: Any) -> str:
    """The end of an error in one line."""
    kind, value, _ = err
    lines = [line.strip() for line in str(value).splitlines() if line.strip()]
    at = next((i for i, line in enumerate(lines) if "<E>" in line or "rror" in line), 0)
    return f"{kind.__name__}: {' '.join(lines[at : at + 4])[:300]}"


# -- the environment of the tests -----------------------------------------------------------------------------------


@contextlib.contextmanager
def environment() -> Iterator[None]:
    """What the tests ask for: a runner in one file, and the one tool of the SDK that some of them call."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        runner = _script(root / "qnn_executor_runner", "executor-runner")
        tools = root / "sdk" / "bin" / "x86_64-linux-clang"
        tools.mkdir(parents=True)
        _script(tools / "qnn-context-binary-utility", "tool", "qnn-context-binary-utility")
        os.environ["QNN_EXECUTOR_RUNNER"] = str(runner)
        os.environ["QNN_SDK_ROOT"] = str(root / "sdk")
        here = Path.cwd()
        os.chdir(root)  # tests write etrecord.bin where they are
        try:
            yield
        finally:
            os.chdir(here)


def _script(path: Path, *command: str) -> Path:
    words = ", ".join(repr(word) for word in command)
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom hexforge.cli import main\nmain([{words}, *sys.argv[1:]])\n")
    path.chmod(0o755)
    return path


def configure() -> None:
    """Let the tests run on this computer; their own `setup_environment` reads a command line instead."""
    import torch

    import hexforge.executorch

    hexforge.executorch.enable()
    try:
        import torchvision  # noqa: F401
    except RuntimeError:  # a build whose library does not load: its models need none of its ops
        ops = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            ops.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        configure.kept = ops  # type: ignore[attr-defined]
    base = importlib.import_module("executorch.backends.qualcomm.tests.utils").TestQNN
    base.enable_x86_64, base.backend, base.soc_model, base.build_folder = True, "htp", SOC, "build-x86"
    base.executorch_root, base.artifact_dir = str(Path.cwd()), str(Path.cwd() / "artifacts")


def unskip() -> None:
    """Let tests run that say themselves that x86, or a version of the vendor's library, cannot."""
    module = importlib.import_module(DELEGATE)
    importlib.import_module("executorch.backends.qualcomm.tests.utils").TestQNN.skipTest = lambda self, reason: None
    for suite in SUITES:
        if suite.module == DELEGATE:
            tests = getattr(module, suite.name)
            for name, test in list(vars(tests).items()):
                if getattr(test, "__unittest_skip__", False):
                    setattr(tests, name, test.__wrapped__)


def run(suite: Suite, tests: Sequence[str]) -> list[Outcome]:
    """The outcomes of a class, or of some tests of it."""
    module = importlib.import_module(suite.module)
    names = [f"{suite.name}.{t}" for t in tests] or [suite.name]
    found = unittest.defaultTestLoader.loadTestsFromNames(names, module)
    record = _Record(suite.name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        found.run(record)
    return record.outcomes


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


def main() -> int:
    """Run what is named, all by default; 0 where nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="classes, or CLASS.TEST; all classes unless given")
    parser.add_argument("--json", type=Path, help="outcomes are written there, and read from there with --show")
    parser.add_argument("--no-skips", action="store_true", help="run what the tests skip on x86, too")
    parser.add_argument("--show", action="store_true", help="only print the table of outcomes that were written")
    given = parser.parse_args()
    if given.show:
        rows = [Outcome(**row) for row in json.loads(given.json.read_text())]
        print(table(rows))
        return 0
    output = given.json.resolve() if given.json else None
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    wanted: dict[str, list[str]] = {}
    for name in given.names or [s.name for s in SUITES]:
        suite, _, test = name.partition(".")
        wanted.setdefault(suite, []).extend([test] if test else [])
    unknown = sorted(wanted.keys() - {s.name for s in SUITES})
    if unknown:
        parser.error(f"no class {unknown[0]}; there are {', '.join(s.name for s in SUITES)}")
    outcomes: list[Outcome] = []
    with environment():
        configure()
        if given.no_skips:
            unskip()
        for suite in SUITES:
            if suite.name in wanted:
                print(suite.name, flush=True)
                outcomes += run(suite, wanted[suite.name])
                if output:
                    output.write_text(json.dumps([{k: getattr(o, k) for k in o.__slots__} for o in outcomes]))
    print(table(outcomes))
    return int(any(o.result == "failed" for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
