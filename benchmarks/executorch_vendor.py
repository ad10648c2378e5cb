# SPDX-License-Identifier: Apache-2.0
"""Seconds of ExecuTorch's operator tests behind its front end: hexforge, and Qualcomm's library beside it.

    python -m benchmarks.executorch_vendor LIBRARIES

LIBRARIES is a folder with libQnnHtp.so for x86, which ExecuTorch's own adaptor and runtime load: that of the wheel
onnxruntime-qnn 2.5.0 works with executorch 1.5.1 (2.3.0, 2.4.0 and 2.7.0 end with error 14001 when the device is made).
Every `--each`-th test of both operator classes is lowered and run once; processor time of the adaptor's calls and of
loading and running the .pte is counted, on both sides in this process's own, torch's part is not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path
from typing import Any

from benchmarks.executorch_worker import TESTS, declare_torchvision

ADAPTOR = "executorch.backends.qualcomm.python.PyQnnManagerAdaptor"
CLASSES = ("TestQNNQuantizedOperator", "TestQNNFloatingPointOperator")
CALLS = "InitBackend InitContext InitContextCache IsNodeSupportedByBackend Compile Destroy DestroyContext".split()


class Spent:
    """Processor seconds by what they were spent on."""

    def __init__(self) -> None:
        self.compile, self.run = 0.0, 0.0

    @contextlib.contextmanager
    def on(self, what: str) -> Any:
        """Count what happens meanwhile."""
        start = time.process_time()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.process_time() - start)


def side(ours: bool, each: int) -> None:
    """Run the tests on one side, and print a line of JSON for each."""
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if ours:
        import hexforge.executorch

        hexforge.executorch.enable()
    declare_torchvision()
    spent = Spent()
    adaptor = importlib.import_module(ADAPTOR)
    adaptor.QnnManager = _timed(adaptor.QnnManager, spent)  # type: ignore[attr-defined]
    base = importlib.import_module(f"{TESTS}.utils").TestQNN
    base.enable_x86_64, base.backend, base.soc_model, base.build_folder = True, "htp", "SM8650", "build-x86"
    base.verify_output = _verify(ours, spent)
    module = importlib.import_module(f"{TESTS}.test_qnn_delegate")
    for name in CLASSES:
        for test in unittest.defaultTestLoader.getTestCaseNames(getattr(module, name))[::each]:
            importlib.import_module("torch").manual_seed(0)
            spent.compile = spent.run = 0.0
            found = unittest.TestResult()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                unittest.defaultTestLoader.loadTestsFromName(f"{name}.{test}", module).run(found)
            fine = found.wasSuccessful() and not found.skipped
            row = {"test": f"{name}.{test}", "fine": fine, "compile": spent.compile, "run": spent.run}
            answers.write(json.dumps(row) + "\n")
            answers.flush()


def _timed(manager: Any, spent: Spent) -> Any:
    """The adaptor's class with its calls counted."""

    def counted(name: str) -> Any:
        def call(self: Any, *rest: Any) -> Any:
            with spent.on("compile"):
                return getattr(manager, name)(self, *rest)

        return call

    return type("QnnManager", (manager,), {name: counted(name) for name in CALLS if hasattr(manager, name)})


def _verify(ours: bool, spent: Spent) -> Any:
    """Load and run a program, instead of the tests' runner and comparison."""

    def verify(test: Any, module: Any, sample_inputs: Any, executorch_prog: Any, *rest: Any, **more: Any) -> None:
        inputs, buffer = list(sample_inputs), bytes(executorch_prog.buffer)
        if ours:
            import hexforge.executorch as product

            with spent.on("run"):
                product.load(buffer).run("forward", inputs)
            return
        from executorch.runtime import Runtime

        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pte"
            path.write_bytes(buffer)
            with spent.on("run"):
                Runtime.get().load_program(path).load_method("forward").execute(inputs)

    return verify


def main() -> int:
    """Both sides, then the table and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", type=Path, nargs="?", help="folder of Qualcomm's libraries for x86")
    parser.add_argument("--each", type=int, default=16, help="every so many-th test of a class")
    parser.add_argument("--side", choices=("hexforge", "vendor"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        side(given.side == "hexforge", given.each)
        return 0
    if given.libraries is None or not (given.libraries / "libQnnHtp.so").is_file():
        parser.error("give the folder with libQnnHtp.so for x86 (onnxruntime_qnn of the wheel onnxruntime-qnn 2.5.0)")
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as root:
        place = Path(root) / "lib" / "x86_64-linux-clang"  # where an SDK has them
        place.parent.mkdir()
        place.symlink_to(given.libraries.resolve(), target_is_directory=True)
        beside = given.libraries.with_name("onnxruntime_qnn.libs")  # what the wheel's libraries need themselves
        path = os.pathsep.join(str(p.resolve()) for p in (given.libraries, beside) if p.is_dir())
        for name, more in (("hexforge", {}), ("vendor", {"LD_LIBRARY_PATH": path, "QNN_SDK_ROOT": root})):
            command = [sys.executable, "-m", "benchmarks.executorch_vendor", "--side", name, "--each", str(given.each)]
            done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
            rows = [json.loads(line) for line in done.stdout.splitlines()]
            found[name] = {row["test"]: row for row in rows}
            print(f"{name}: {len(rows)} tests, exit code {done.returncode}", flush=True)
            if not rows:
                print(done.stderr[-2000:])
    print(f"{'test':<72} {'hexforge':>16} {'vendor':>18}   times as long")
    both = [t for t, row in found["hexforge"].items() if row["fine"] and found["vendor"].get(t, {}).get("fine")]
    total = {name: {what: sum(found[name][t][what] for t in both) for what in ("compile", "run")} for name in found}
    for test in both:
        print(_row(test, found["hexforge"][test], found["vendor"][test]))
    print(_row(f"all {len(both)} that both lower and run", total["hexforge"], total["vendor"]))
    return 0


def _row(name: str, ours: dict[str, float], theirs: dict[str, float]) -> str:
    a, b = ours["compile"] + ours["run"], theirs["compile"] + theirs["run"]
    cells = [f"{side['compile']:8.3f}+{side['run']:.3f} s" for side in (ours, theirs)]
    return f"{name:<72} {cells[0]:>16} {cells[1]:>18} {b / max(a, 1e-9):>8.1f}"


if __name__ == "__main__":
    sys.exit(main())
