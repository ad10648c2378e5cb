# SPDX-License-Identifier: Apache-2.0
"""Advice on a .pte: which time on the chip comes from how it was lowered; the simulator times each idea."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hexforge.addons.tuning.advice.result import Advice
from hexforge.analysis.estimate import estimate
from hexforge.analysis.timed_graphs import TimedGraphs
from hexforge.chips.deployment import Deployment
from hexforge.timeline import Row

BORDERS = ("Quantize", "Dequantize")
FLOATS = ("float32", "float16", "bfloat16")


def pte_advice(timed: TimedGraphs, deployment: Deployment, min_gain: float = 0.01) -> tuple[float, list[Advice]]:
    """The latency in us, and what would lower it, the largest gain first."""
    whole = estimate(timed, deployment)
    before = whole.latency_ms * 1e3
    advices = [*_one_call(timed, deployment, before), *_quantized(timed, deployment, before),
             *_quantized_borders(whole.rows, before)]  # fmt: skip
    worth = [advice for advice in advices if advice.gain_us >= min_gain * before]
    return before, sorted(worth, key=lambda advice: -advice.gain_us)


def _one_call(timed: TimedGraphs, deployment: Deployment, before: float) -> list[Advice]:
    """Operators left to the CPU cut the model into delegates, and each of these is a call to the NPU."""
    if len(timed.graphs) < 2:
        return []
    single = [estimate(TimedGraphs(timed.name, (graph,)), deployment).timeline for graph in timed.graphs]
    calls = [line.host_us for line in single]
    names = tuple(row.op_type for row in timed.left_on_cpu)
    reasons = tuple(f"{row.op_type}: {row.reason}" for row in timed.left_on_cpu)
    return [
        Advice(
            "one_delegate", f"let the NPU take all of it: {len(timed.graphs)} delegates are as many calls", names,
            reasons, "each delegate is a call to the NPU and back, with its tensors through DRAM",
            "the calls of all delegates but the longest, as simulated", "give the operators another form, or another "
            "precision, that the backend takes; see `hexforge check`", False, before, before - sum(calls) + max(calls),
        )
    ]  # fmt: skip


def _quantized(timed: TimedGraphs, deployment: Deployment, before: float) -> list[Advice]:
    """Float graphs at 8 bits."""
    kinds = {node.outputs[0].dtype.value for graph in timed.graphs for node in graph.nodes}
    if not kinds <= {*FLOATS, "bool", "int32"} or not kinds & {*FLOATS}:
        return []
    after = estimate(timed, replace(deployment, precision="w8a8")).latency_ms * 1e3
    return [
        Advice(
            "quantize", "quantize it: QnnQuantizer with use_8a8w", (), (f"computes in {', '.join(sorted(kinds))}",),
            "the matrix unit multiplies 8-bit integers at several times the rate of float16, and weights are half as "
            "large", "the same graphs timed at w8a8", "prepare_pt2e and convert_pt2e with QnnQuantizer; compare the "
            "outputs with `hexforge compare`", False, before, after,
        )
    ]  # fmt: skip


def _quantized_borders(rows: Sequence[Row], before: float) -> list[Advice]:
    """Conversions of a graph's inputs and outputs, which the application can do without."""
    ends = [row for row in rows if row.op in BORDERS]
    if not ends:
        return []
    return [
        Advice(
            "quantized_io", "keep inputs and outputs quantized", tuple(row.name for row in ends),
            tuple(f"{row.name}: {row.us:.1f} us" for row in ends),
            "the graph converts floats to integers and back, and floats are four times as many bytes",
            "the tasks that convert, as simulated", "tag_quant_io and the pass TagQuantIO of ExecuTorch's Qualcomm "
            "backend", False, before, before - sum(row.us for row in ends),
        )
    ]  # fmt: skip
