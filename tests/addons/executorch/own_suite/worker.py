# SPDX-License-Identifier: Apache-2.0
"""A process that runs tests of the installed ExecuTorch: names come in by lines of JSON, outcomes go out likewise.

Every test is the wheel's, unchanged; models are run through the hook of these tests: by `hexforge executor-runner`
behind the stand-in, by the wheel's own runtime behind its own adaptor. `tests.addons.executorch.own_suite` starts
as many of these as are asked for.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import json
import logging
import os
import sys
import tempfile
import time
import types
import typing
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hexforge.addons.capi.library import lib_path
from tests.addons.executorch.own_suite.output_steps import Measured, recorded
from tests.addons.executorch.own_suite.phone import NAME, Phone
from tests.addons.executorch.own_suite.warm_runner import WarmRunner

TESTS = "executorch.backends.qualcomm.tests"
ADAPTOR = "executorch.backends.qualcomm.python.PyQnnManagerAdaptor"
"""Not from hexforge.addons.executorch, whose import puts the stand-in there."""
DELEGATE = f"{TESTS}.test_qnn_delegate"
SOC, ARCH = "SM8650", 75
SEED = 1126
"""What ExecuTorch's own scripts are run with."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a test: passed, failed, skipped or expected failure; in one line why."""

    suite: str
    test: str
    result: str
    why: str = ""
    seconds: float = 0.0
    measured: Sequence[Measured] = field(default_factory=list)
    """How near its quantized outputs are to those of torch's QDQ model."""


Tell = Callable[[Outcome], None]


# -- the environment of the tests -----------------------------------------------------------------------------------


@contextlib.contextmanager
def environment(adaptor: str) -> Iterator[None]:
    """What the tests ask for: a runner in one file, a phone, and the one tool of the SDK that some of them call."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        runner = WarmRunner(root, adaptor)
        tools = root / "sdk" / "bin" / "x86_64-linux-clang"
        built = root / "build-x86" / "examples" / "qualcomm" / "executor_runner"
        for place in (tools, built):
            place.mkdir(parents=True)
        (built / runner.script.name).symlink_to(runner.script)
        libraries = root / "sdk" / "lib" / tools.name
        libraries.parent.mkdir()
        libraries.symlink_to(lib_path(), target_is_directory=True)
        _script(tools / "qnn-context-binary-utility", "tool", "qnn-context-binary-utility")
        Phone(root, root / "sdk", root / "build-x86", ARCH)
        os.environ["QNN_EXECUTOR_RUNNER"] = str(runner.script)
        os.environ["QNN_SDK_ROOT"] = str(root / "sdk")
        here = Path.cwd()
        os.chdir(root)  # tests write etrecord.bin where they are
        try:
            yield
        finally:
            os.chdir(here)
            runner.close()


def _script(path: Path, *command: str) -> None:
    words = ", ".join(repr(word) for word in command)
    path.write_text(f"#!{sys.executable}\nimport sys\nfrom hexforge.cli import main\nmain([{words}, *sys.argv[1:]])\n")
    path.chmod(0o755)


def configure(adaptor: str) -> None:
    """Let the tests run on this computer; their own `setup_environment` reads a command line instead."""
    if adaptor == "stand-in":
        import hexforge.addons.executorch

        hexforge.addons.executorch.enable()
    else:
        assert str(importlib.import_module(ADAPTOR).__file__).endswith(".so"), "the wheel has no compiled adaptor"
    declare_torchvision()
    base = importlib.import_module(f"{TESTS}.utils").TestQNN
    base.enable_x86_64, base.backend, base.soc_model, base.build_folder = True, "htp", SOC, "build-x86"
    base.executorch_root, base.artifact_dir = str(Path.cwd()), str(Path.cwd() / "artifacts")


def declare_torchvision() -> None:
    """Declare torchvision's operators where its library does not load: the tests' models need none of them."""
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        ops = torch.library.Library("torchvision", "FRAGMENT")
        for op in ("nms", "qnms"):
            ops.define(f"{op}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declare_torchvision.kept = ops  # type: ignore[attr-defined]


def remember_operators() -> None:
    """Spare torch what it does over and over for a model, with the same result: half of what a test takes.

    It lists its composite operators 40 times, makes the type `Callable[...]` anew for each of a thousand registrations,
    and collects garbage among all that was imported.
    """
    import torch
    from torch._export import utils

    torch._ops.Callable = typing.Callable  # which remembers its types
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)

    real = utils._collect_all_valid_cia_ops_for_namespace

    @functools.cache
    def collected(namespace: Any, registered: int, known: int) -> Any:
        return real(namespace)

    def collect(namespace: Any) -> Any:
        registered = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        return collected(namespace, len(registered), len(list(namespace)))

    utils._collect_all_valid_cia_ops_for_namespace = collect


def unskip() -> None:
    """Let tests run that say themselves that x86, or a version of the vendor's library, cannot."""
    module = importlib.import_module(DELEGATE)
    importlib.import_module(f"{TESTS}.utils").TestQNN.skipTest = lambda self, reason: None
    for tests in vars(module).values():
        if isinstance(tests, type) and issubclass(tests, unittest.TestCase):
            for name, test in list(vars(tests).items()):
                if getattr(test, "__unittest_skip__", False):
                    setattr(tests, name, test.__wrapped__)


# -- unittest ---------------------------------------------------------------------------------------------------------


class _Record(unittest.TestResult):
    """Outcomes as they come; a test whose sub-tests fail has failed."""

    def __init__(self, suite: str, seed: int, tell: Tell) -> None:
        super().__init__()
        self.suite, self.seed, self.tell = suite, seed, tell
        self._start, self._why, self._told = 0.0, "", False

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        super().startTest(test)
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(self.seed)  # few tests set one themselves
        recorded().clear()
        self._start, self._why, self._told = time.monotonic(), "", False

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:  # noqa: N802 - unittest's name
        if err is not None:
            self._why = self._why or line(err[0], err[1])
        super().addSubTest(test, subtest, err)

    def addSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        self._add(test, "failed" if self._why else "passed", self._why)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        self._add(test, "failed", line(err[0], err[1]))

    addError = addFailure  # noqa: N815 - unittest's name

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802 - unittest's name
        self._add(test, "skipped", reason)

    def addExpectedFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802 - unittest's name
        self._add(test, "expected failure", line(err[0], err[1]))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        self._add(test, "passed", "was expected to fail")

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's name
        if not self._told:  # only sub-tests have failed
            self._add(test, "failed", self._why)
        super().stopTest(test)

    def _add(self, test: unittest.TestCase, result: str, why: str = "") -> None:
        self._told = True
        seconds = round(time.monotonic() - self._start, 1)
        self.tell(Outcome(self.suite, test.id().rpartition(".")[2], result, why, seconds, list(recorded())))


def line(kind: type, value: object) -> str:
    """The end of an error in one line."""
    lines = [part.strip() for part in str(value).splitlines() if part.strip()]
    at = next((i for i, part in enumerate(lines) if "<E>" in part or "rror" in part), 0)
    return f"{kind.__name__}: {' '.join(lines[at : at + 4])[:300]}"


def run_class(name: str, module: str, test: str, seed: int, tell: Tell) -> None:
    """Tell the outcome of a test of a class."""
    suite = unittest.defaultTestLoader.loadTestsFromName(f"{name}.{test}", importlib.import_module(module))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        suite.run(_Record(name, seed, tell))


# -- pytest -----------------------------------------------------------------------------------------------------------


class _Reports:
    """Outcomes of pytest's cells; a cell whose sub-tests fail has failed."""

    def __init__(self, suite: str, seed: int, tell: Tell) -> None:
        self.suite, self.seed, self.tell = suite, seed, tell
        self._why: dict[str, str] = {}

    def pytest_runtest_call(self) -> None:
        """A test is about to run: with the same random numbers whatever ran before."""
        importlib.import_module("torch").manual_seed(self.seed)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A part of a test has ended."""
        name = report.nodeid.rpartition("::")[2]
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            said = crash.message if crash is not None else str(report.longrepr)
            self._why.setdefault(name, " ".join(said.split())[:300])
        skipped = report.skipped and (report.when == "setup" or type(report).__name__ == "TestReport")
        if skipped:
            self.tell(Outcome(self.suite, name, "skipped", str(report.longrepr)[-120:], 0.0))
        elif type(report).__name__ == "TestReport" and report.when == "call":
            why = self._why.get(name, "")
            self.tell(Outcome(self.suite, name, "failed" if why else "passed", why, round(report.duration, 1)))
        elif report.when == "setup" and report.failed:
            self.tell(Outcome(self.suite, name, "failed", self._why[name], round(report.duration, 1)))


def run_function(suite: str, module: str, test: str, seed: int, tell: Tell) -> None:
    """Tell the outcomes of a function of pytest's, one for each of its parameters."""
    import pytest
    from _pytest import subtests

    # the tests' summary names this plugin, which pytest 9 has taken in
    plugin = types.ModuleType("pytest_subtests.plugin")
    plugin.SubTestReport = subtests.SubtestReport  # type: ignore[attr-defined]
    sys.modules.setdefault("pytest_subtests", types.ModuleType("pytest_subtests"))
    sys.modules.setdefault("pytest_subtests.plugin", plugin)
    file = importlib.import_module(module).__file__
    options = ["-q", "--import-mode=importlib", "-c", os.devnull]
    for unused in ("cacheprovider", "xdist", "unraisableexception", "threadexception"):  # the last two collect garbage
        options += ["-p", f"no:{unused}"]
    options += ["--soc_model", SOC, "--build_folder", "build-x86", "--enable_x86_64", "--device", NAME]
    pytest.main([*options, f"{file}::{test}"], plugins=[_Reports(suite, seed, tell)])


def listed(name: str, module: str) -> list[str]:
    """The tests of a class, or of a file of functions where there is no such class."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, name):
        return list(unittest.defaultTestLoader.getTestCaseNames(getattr(loaded, name)))
    return [name for name, value in vars(loaded).items() if name.startswith("test_") and callable(value)]


@contextlib.contextmanager
def prepared(adaptor: str) -> Iterator[None]:
    """ExecuTorch's tests ready to run on hexforge, through the stand-in or the wheel's own adaptor."""
    with environment(adaptor):
        configure(adaptor)
        remember_operators()
        yield


def serve(ready: contextlib.AbstractContextManager[None]) -> None:
    """Answer requests, a class and its module with a test or without: outcomes, or a list; then an empty line.

    The first empty line says that the process is ready.
    """
    answers, requests = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0))  # `exit()` in a test closes the standard input
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    def say(answer: Any) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    def tell(outcome: Outcome) -> None:
        say(asdict(outcome))

    def done() -> None:
        answers.write("\n")
        answers.flush()

    with ready:
        done()
        for request in map(json.loads, requests):
            if request.pop("no_skips", False):
                unskip()
            if (backend := request.pop("backend", "htp")) != "htp":
                importlib.import_module(f"{TESTS}.utils").TestQNN.backend = backend
            suite, module = request["suite"], request["module"]
            if "test" not in request:
                say(listed(suite, module))
            elif hasattr(importlib.import_module(module), suite):
                run_class(suite, module, request["test"], request["seed"], tell)
            else:
                run_function(suite, module, request["test"], request["seed"], tell)
            done()


if __name__ == "__main__":
    serve(prepared(sys.argv[1]))
