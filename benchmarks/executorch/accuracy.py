# SPDX-License-Identifier: Apache-2.0
"""How near ExecuTorch's tests come to torch's QDQ models: `python -m benchmarks.executorch.accuracy [CLASS[.TEST]...]`.

The tests' tolerance is loose (a tenth, or as much again); here each output is measured in steps of its quantization
and as a signal-to-noise ratio: the last lines are every 8-bit output that is more than one step off, the models, and
the counts. With `--json FILE --show` it is what a run of `tests.addons.executorch.own_suite --json FILE` measured.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence

from tests.addons.executorch.own_suite.output_steps import Measured
from tests.addons.executorch.own_suite.run import add_arguments, run
from tests.addons.executorch.own_suite.worker import Outcome

CLASSES = ("TestQNNQuantizedOperator", "TestQNNQuantizedModel")
ONE_STEP = 1.01  # float32 outputs are a step apart up to rounding

EXPLAINED = {
    "test_qnn_backend_avg_pool3d": "ExecuTorch's builder drops count_include_pad where it is the default, true",
    "test_qnn_backend_layer_norm": "ExecuTorch's builder writes a missing weight, 1, in steps of the output's encoding",
    "test_qnn_backend_scatter_value": "ExecuTorch's builder makes the scalar an integer before it quantizes it",
    "test_qnn_backend_rms_norm": "ExecuTorch's builder writes a missing weight, 1, in steps of the output's encoding",
}
"""Where the graph that ExecuTorch hands over is not the one that torch's model computes."""


def off(outcome: Outcome) -> list[Measured]:
    """The 8-bit outputs of a test that are more than one step off."""
    return [m for m in outcome.measured if m.bits <= 8 and not m.steps <= ONE_STEP]


def table(outcomes: Sequence[Outcome]) -> str:
    """What is more than a step off at 8 bits, then the models, then the counts."""
    lines = [f"{'output':<60} {'bits':>4} {'steps':>9} {'SQNR dB':>8}"]
    for one in sorted(outcomes, key=lambda o: -max((m.steps for m in off(o)), default=0.0)):
        lines += [_row(one.test, m, EXPLAINED.get(one.test, "")) for m in off(one)]
    lines += ["", "models"]
    for one in outcomes:
        if one.suite.endswith("Model"):
            lines += [_row(one.test, m) for m in one.measured]
    lines.append("")
    rows = [m for o in outcomes for m in o.measured]
    for bits in sorted({r.bits for r in rows}):
        own = [r for r in rows if r.bits == bits]
        exact, one_step = sum(r.steps < 0.01 for r in own), sum(r.steps <= ONE_STEP for r in own)
        worst = min((r.sqnr_db for r in own), default=math.inf)
        lines.append(
            f"{len(own)} outputs of {bits} bits: {exact} equal, {one_step} within one step; lowest SQNR {worst:.1f} dB"
        )
    lines.append(f"{sum(bool(o.measured) for o in outcomes)} tests with quantized outputs")
    return "\n".join(lines)


def _row(test: str, measured: Measured, why: str = "") -> str:
    return f"{test:<60} {measured.bits:>4} {measured.steps:>9.2f} {measured.sqnr_db:>8.1f}  {why}".rstrip()


def main() -> int:
    """Run what is named, the quantized operators and models by default; 0 where all 8-bit outputs are in reach."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    given = parser.parse_args()
    given.names = given.names or list(CLASSES)
    outcomes = run(given, parser)
    print(table(outcomes))
    return int(any(off(o) and o.test not in EXPLAINED for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
