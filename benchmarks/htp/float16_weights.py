# SPDX-License-Identifier: Apache-2.0
"""Products with weights in memory as float16 against the same in float32: `python -m benchmarks.htp.float16_weights`.

Twelve products of 2048 x 2048 with as many rows as are asked for, one thread; the two take turns in this process, and
the figures are the processor's time of the best run (ms). The results are compared bit by bit.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from hexforge import _native
from hexforge.backends.htp.numbers.lower.products.weights import pack

Array = np.ndarray[Any, Any]
_SIZE, _PRODUCTS, _SLACK = 2048, 12, 1024


def program(weights: list[Array], rows: int) -> _native.Program:
    """A program of one product after the other, all of the same input."""
    made = _native.Program(0)
    given = made.input_tensor(rows * _SIZE * 4)
    one = (1, 1, 1)
    for packed in weights:
        attributes: dict[str, Any] = {
            "batch": 1, "in": (1, 1, rows), "out": (1, 1, rows), "kernel": one, "stride": one, "pad": (0, 0, 0),
            "dilation": one, "channels": _SIZE, "out_channels": _SIZE, "x_stride": _SIZE, "y_stride": _SIZE,
            "row_taps": 1, "low": -np.inf, "high": np.inf, "half": 1, "weights": packed,
            "bias_f32": np.zeros(_SIZE, np.float32), "pad_row": np.zeros(_SIZE, np.float32),
        }  # fmt: skip
        if packed.dtype == np.float16:
            attributes["half_weights"] = 1
        made.step("conv_f32", [given], [made.output_tensor(rows * _SIZE * 4)], attributes)
    return made


def main() -> int:
    """Print a line for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", type=int, default=[1, 4, 8, 16, 49, 196])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    halves = [
        pack(rng.standard_normal((1, 1, 1, _SIZE, _SIZE), np.float32), 32, True, _SLACK, True, np.float16)
        for _ in range(_PRODUCTS)
    ]
    wide = [each.astype(np.float32) for each in halves]
    print(f"{'rows':>5} {'float32':>9} {'float16':>9} {'ratio':>6}")
    for rows in given.rows:
        x = rng.standard_normal((rows, _SIZE)).astype(np.float16).astype(np.float32)
        programs = program(wide, rows), program(halves, rows)
        results = [[np.zeros((rows, _SIZE), np.float32) for _ in range(_PRODUCTS)] for _ in programs]
        best = [float("inf")] * 2
        for _ in range(given.rounds):
            for i, each in enumerate(programs):
                start = time.process_time()
                each.run([x], results[i], 1)
                best[i] = min(best[i], 1e3 * (time.process_time() - start))
        if not all(np.array_equal(a, b) for a, b in zip(*results, strict=True)):
            raise SystemExit("the results differ")
        print(f"{rows:5} {best[0]:9.2f} {best[1]:9.2f} {best[1] / best[0]:6.2f}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
