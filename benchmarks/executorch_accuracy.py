# SPDX-License-Identifier: Apache-2.0
"""How near ExecuTorch's tests come to torch's QDQ models: `python -m benchmarks.executorch_accuracy [CLASS[.TEST]...]`.

The tests' tolerance is loose (a tenth, or as much again); here each output is measured in steps of its quantization
and as a signal-to-noise ratio: the last lines are every 8-bit output that is more than one step off, and the counts.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import logging
import math
import os
import sys
import types
import unittest
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.executorch import DELEGATE, configure, environment

CLASSES = ("TestQNNQuantizedOperator", "TestQNNQuantizedModel")
ONE_STEP = 1.01  # float32 outputs are a step apart up to rounding

EXPLAINED = {
    "test_qnn_backend_avg_pool3d": "ExecuTorch's builder drops count_include_pad where it is the default, true",
    "test_qnn_backend_layer_norm": "ExecuTorch's builder writes a missing weight, 1, in steps of the output's encoding",
    "test_qnn_backend_scatter_value": "ExecuTorch's builder makes the scalar an integer before it quantizes it",
    "test_qnn_backend_rms_norm": "ExecuTorch's builder writes a missing weight, 1, in steps of the output's encoding",
}
"""Where the graph that ExecuTorch hands over is not the one that torch's model computes."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An output of a test beside that of torch's model."""

    test: str
    bits: int
    steps: float
    """The largest difference, in steps of its encoding."""
    sqnr_db: float


class _Recorder:
    """Measures every output that the tests compare."""

    def __init__(self, base: Any) -> None:
        self.rows: list[Measured] = []
        self._scales: list[tuple[float, int] | None] = []
        verify, compare = base.verify_output, base._assert_outputs_equal

        def verify_output(test: Any, module: Any, *rest: Any, **more: Any) -> Any:
            self._scales = _output_scales(module)
            return verify(test, module, *rest, **more)

        def assert_outputs_equal(test: Any, found: Sequence[Any], wanted: Sequence[Any]) -> None:
            for scale, a, b in zip(self._scales, found, wanted, strict=False):
                if scale is not None and a.numel():
                    self.rows.append(_measured(test._testMethodName, *scale, a.double(), b.double()))
            compare(test, found, wanted)

        base.verify_output, base._assert_outputs_equal = verify_output, assert_outputs_equal


def _output_scales(module: Any) -> list[tuple[float, int] | None]:
    """Scale and bits of each output of a QDQ model; None where an output is not quantized."""
    last = next((n for n in module.graph.nodes if n.op == "output"), None) if hasattr(module, "graph") else None
    found: list[tuple[float, int] | None] = []
    for node in last.args[0] if last is not None else ():
        known = node is not None and "dequantize_per_tensor" in str(node.target)
        found.append((float(node.args[1]), (int(node.args[4]) - int(node.args[3])).bit_length()) if known else None)
    return found


def _measured(test: str, scale: float, bits: int, a: Any, b: Any) -> Measured:
    noise, signal = float((a - b).square().sum()), float(b.square().sum())
    sqnr = math.inf if noise == 0 else -math.inf if signal == 0 else 10 * math.log10(signal / noise)
    return Measured(test, bits, float((a - b).abs().max()) / scale, sqnr)


@contextlib.contextmanager
def _runner_in_process(tests: Any) -> Iterator[None]:
    """Run the tests' models here instead of in a process each: the same runner, without its start."""
    from hexforge.cli import main

    real = tests.subprocess.run

    def run(command: Any, *rest: Any, **more: Any) -> Any:
        if not isinstance(command, list) or command[0] != os.environ["QNN_EXECUTOR_RUNNER"]:
            return real(command, *rest, **more)
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                main(["executor-runner", *command[1:]])
            code = 0
        except SystemExit as stop:
            code = stop.code or 0
        return types.SimpleNamespace(returncode=code, stdout=said.getvalue(), stderr="")

    tests.subprocess = types.SimpleNamespace(**{**vars(tests.subprocess), "run": run})
    yield


def table(rows: Sequence[Measured], classes: Sequence[str]) -> str:
    """What is more than a step off at 8 bits, then the counts."""
    lines = [f"{'output':<56} {'bits':>4} {'steps':>9} {'SQNR dB':>8}"]
    off = [r for r in rows if r.bits <= 8 and r.steps > ONE_STEP]
    for row in sorted(off, key=lambda r: -r.steps):
        why = EXPLAINED.get(row.test, "")
        lines.append(f"{row.test:<56} {row.bits:>4} {row.steps:>9.2f} {row.sqnr_db:>8.1f}  {why}")
    for bits in sorted({r.bits for r in rows}):
        own = [r for r in rows if r.bits == bits]
        exact, one = sum(r.steps < 0.01 for r in own), sum(r.steps <= ONE_STEP for r in own)
        worst = min((r.sqnr_db for r in own), default=math.inf)
        lines.append(
            f"{len(own)} outputs of {bits} bits: {exact} equal, {one} within one step; lowest SQNR {worst:.1f} dB"
        )
    lines.append(f"{', '.join(classes)}: {len({r.test for r in rows})} tests with quantized outputs")
    return "\n".join(lines)


def main() -> int:
    """Run what is named, the quantized operators and models by default; 0 where all 8-bit outputs are in reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="classes, or CLASS.TEST")
    given = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    names = given.names or list(CLASSES)
    with environment():
        configure()
        tests = importlib.import_module("executorch.backends.qualcomm.tests.utils")
        recorder = _Recorder(tests.TestQNN)
        module = importlib.import_module(DELEGATE)
        with _runner_in_process(tests), contextlib.redirect_stdout(io.StringIO()):
            unittest.defaultTestLoader.loadTestsFromNames(names, module).run(unittest.TestResult())
    print(table(recorder.rows, names))
    return int(any(r.bits <= 8 and r.steps > ONE_STEP and r.test not in EXPLAINED for r in recorder.rows))


if __name__ == "__main__":
    sys.exit(main())
