# SPDX-License-Identifier: Apache-2.0
"""Seconds of ExecuTorch's operator tests and models behind its front end: hexforge, and Qualcomm's library beside it.

    python -m benchmarks.executorch.vendor LIBRARIES [--each 20] [--models mobilenet_v2 inception_v3 deeplabv3]

LIBRARIES is a folder with libQnnHtp.so for x86, which ExecuTorch's own adaptor and runtime load: that of the wheel
onnxruntime-qnn 2.5.0 works with executorch 1.5.1 (2.3.0, 2.4.0 and 2.7.0 end with error 14001 when the device is made).
Each side is a process, and both lower and run one test after the other, in turn. Counted is the processor time (of
processes that are started, too) of the adaptor's calls, of loading and running the .pte, and of the whole test: what is
left is torch's export and ExecuTorch's own front end, which both sides have. Of a model one inference is counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.executorch.vendor_side import CLASSES, MODELS

FIRST = "TestQNNFloatingPointOperator.test_qnn_backend_relu"
"""Loads what a side needs; it is shown, and not counted among the others."""


class Side:
    """The process of a side; one that ends is started again for the next test."""

    def __init__(self, name: str, environment: dict[str, str]) -> None:
        self.name, self._environment = name, environment
        self._process: subprocess.Popen[str] | None = None
        self.tests: dict[str, list[str]] = {}

    def ask(self, what: str) -> dict[str, Any]:
        """The seconds of a test or model; `fine` is False where it failed, and `why` says how."""
        if self._process is None:
            command = [sys.executable, "-m", "benchmarks.executorch.vendor_side", self.name]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                env={**os.environ, **self._environment},
            )  # fmt: skip
            self.tests = json.loads(self._line() or "{}")
        answer = self._line(what) if what else "{}"
        if answer:
            return dict(json.loads(answer))
        code, self._process = self._process.wait(), None
        return {"fine": False, "why": [f"its process ended with code {code}"]}

    def _line(self, what: str = "") -> str:
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if what:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate("\n")


@contextlib.contextmanager
def sides(libraries: Path) -> Iterator[tuple[Side, Side]]:
    """Hexforge and the vendor's library."""
    with tempfile.TemporaryDirectory() as root:
        place = Path(root) / "lib" / "x86_64-linux-clang"  # where an SDK has them
        place.parent.mkdir()
        place.symlink_to(libraries.resolve(), target_is_directory=True)
        beside = libraries.with_name("onnxruntime_qnn.libs")  # what the wheel's libraries need themselves
        path = os.pathsep.join(str(p.resolve()) for p in (libraries, beside) if p.is_dir())
        both = Side("hexforge", {}), Side("vendor", {"LD_LIBRARY_PATH": path, "QNN_SDK_ROOT": root})
        try:
            yield both
        finally:
            for one in both:
                one.close()


def compared(both: tuple[Side, Side], names: Sequence[str]) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What both sides took for each name that both can do, in turn; printed as it comes."""
    pairs = []
    for i, name in enumerate(names):
        answers = {one.name: one.ask(name) for one in (both if i % 2 else both[::-1])}
        ours, theirs = answers["hexforge"], answers["vendor"]
        failed = [one for one, answer in answers.items() if not answer["fine"]]
        if failed:
            last = " ".join(answers[failed[0]]["why"]).strip().splitlines()[-1:]
            print(f"{name:<66} not by {' and '.join(failed)}: {' '.join(last)[:80]}", flush=True)
            continue
        pairs.append((name, ours, theirs))
        print(row(name, ours, theirs), flush=True)
    return pairs


WHAT = "processor seconds: compiling + loading and running"
HEAD = f"{WHAT:<66} {'hexforge':>15} {'vendor':>17} {'of it':>7} {'whole tests':>17}"


def row(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    """A line of the table; `of it`: our seconds over theirs."""
    cells = [f"{one['compile']:.4f}+{one['run']:.4f}" for one in (ours, theirs)]
    whole = f"{ours['whole']:.2f} {theirs['whole']:.2f}"
    return f"{name:<66} {cells[0]:>15} {cells[1]:>17} {behind(ours) / behind(theirs):>7.3f} {whole:>17}"


def behind(seconds: dict[str, Any], clock: str = "") -> float:
    """What a test takes behind the front end."""
    return float(seconds[f"compile{clock}"] + seconds[f"run{clock}"])


def summary(pairs: Sequence[tuple[str, dict[str, Any], dict[str, Any]]]) -> str:
    """Totals, and our seconds over theirs: in total and the median of the tests."""
    total = [{k: sum(entry[i][k] for entry in pairs) for k in pairs[0][i] if k not in ("fine", "why")} for i in (1, 2)]  # type: ignore[index, misc]
    lines = [row(f"all {len(pairs)} that both lower and run", *total)]
    for part, what in (("", "processor"), (" on the clock", "clock")):
        ratios = sorted(behind(ours, part) / behind(theirs, part) for _, ours, theirs in pairs)
        lines.append(
            f"{what}: behind the front end {behind(total[0], part):.3f} s and {behind(total[1], part):.3f} s: "
            f"{behind(total[0], part) / behind(total[1], part):.3f} in total, median {statistics.median(ratios):.3f}, "
            f"{ratios[0]:.3f} to {ratios[-1]:.3f}; compiling "
            f"{total[0][f'compile{part}'] / total[1][f'compile{part}']:.3f}, loading and running "
            f"{total[0][f'run{part}'] / total[1][f'run{part}']:.3f}; whole tests "
            f"{total[0][f'whole{part}']:.1f} s and {total[1][f'whole{part}']:.1f} s: "
            f"{total[0][f'whole{part}'] / total[1][f'whole{part}']:.2f}"
        )
    return "\n".join(lines)


def main() -> int:
    """Both sides, in turn, then the totals and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", type=Path, nargs="?", help="folder of Qualcomm's libraries for x86")
    parser.add_argument("--each", type=int, default=20, help="every so many-th test of a class, 0 for none: 20")
    parser.add_argument("--models", nargs="*", choices=MODELS, default=[], help="models, beside the tests")
    given = parser.parse_args()
    if given.libraries is None or not (given.libraries / "libQnnHtp.so").is_file():
        parser.error("give the folder with libQnnHtp.so for x86 (onnxruntime_qnn of the wheel onnxruntime-qnn 2.5.0)")
    with sides(given.libraries) as both:
        print(HEAD)
        if given.each:
            print("once, with all that is loaded then:")
            compared(both, [FIRST])
            listed = [f"{name}.{test}" for name in CLASSES for test in both[0].tests[name][:: given.each]]
            pairs = compared(both, listed)
            if pairs:
                print(summary(pairs))
        for name, ours, theirs in compared(both, given.models):
            print(
                f"{name}: one inference {ours['run on the clock']:.3f} s and {theirs['run on the clock']:.3f} s on the "
                f"clock, {ours['run'] / theirs['run']:.4f} of the processor time; compiling "
                f"{ours['compile']:.2f} s and {theirs['compile']:.2f} s, lowering whole "
                f"{ours['whole']:.0f} s and {theirs['whole']:.0f} s"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
