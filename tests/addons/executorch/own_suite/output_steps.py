# SPDX-License-Identifier: Apache-2.0
"""How near the outputs of ExecuTorch's tests are to torch's QDQ models: in steps of their encodings, and as SQNR."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """An output of a test beside that of torch's model."""

    bits: int
    steps: float
    """The largest difference, in steps of its encoding."""
    sqnr_db: float


_rows: list[Measured] | None = None


def recorded() -> list[Measured]:
    """What was measured since the list was emptied; from the first call on, every output that the tests compare is.

    Nothing where ExecuTorch's tests are not loaded.
    """
    global _rows
    if _rows is None:
        utils = sys.modules.get("executorch.backends.qualcomm.tests.utils")
        if utils is None:
            return []
        _rows = []
        _record(utils.TestQNN, _rows)
    return _rows


def _record(base: Any, rows: list[Measured]) -> None:
    verify, compare = base.verify_output, base._assert_outputs_equal
    scales: list[tuple[float, int] | None] = []

    def verify_output(test: Any, module: Any, *rest: Any, **more: Any) -> Any:
        scales[:] = _output_scales(module)
        return verify(test, module, *rest, **more)

    def assert_outputs_equal(test: Any, outputs: Sequence[Any], wanted: Sequence[Any]) -> None:
        for scale, a, b in zip(scales, outputs, wanted, strict=False):
            if scale is not None and a.numel() and a.shape == b.shape:
                rows.append(_measured(*scale, a.double(), b.double()))
        compare(test, outputs, wanted)

    base.verify_output, base._assert_outputs_equal = verify_output, assert_outputs_equal


def _output_scales(module: Any) -> list[tuple[float, int] | None]:
    """Scale and bits of each output of a QDQ model; None where an output is not quantized."""
    last = next((n for n in module.graph.nodes if n.op == "output"), None) if hasattr(module, "graph") else None
    encodings: list[tuple[float, int] | None] = []
    for node in last.args[0] if last is not None else ():
        known = node is not None and "dequantize_per_tensor" in str(getattr(node, "target", ""))
        encodings.append((float(node.args[1]), (int(node.args[4]) - int(node.args[3])).bit_length()) if known else None)
    return encodings


def _measured(scale: float, bits: int, a: Any, b: Any) -> Measured:
    noise, signal = float((a - b).square().sum()), float(b.square().sum())
    sqnr = math.inf if noise == 0 else -math.inf if signal == 0 else 10 * math.log10(signal / noise)
    return Measured(bits, float((a - b).abs().max()) / scale, sqnr)
