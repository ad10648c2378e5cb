# SPDX-License-Identifier: Apache-2.0
"""What Qualcomm's HTP library refuses of QNN ops that hexforge computes: ExecuTorch leaves these to the CPU.

Asked was the library itself through ExecuTorch's own adaptor, with the ops of its builders, for SM8350 and SM8650; only
that of onnxruntime-qnn 2.5.0 works with executorch 1.5.1. Where 2.7.0 could be asked by onnxruntime's EP it says the
same (`frontends/onnx/ep_limits` has its limits). A graph that has such an op already, as in a .pte, runs all the same.
"""

from __future__ import annotations

from collections.abc import Callable

from hexforge.backend import ContextBackend
from hexforge.ir import DType, Node
from hexforge.rules import Rule, RuleTable

UNPREPARED_ON = "SM8350"


def _floats(node: Node) -> bool:
    """True where the op's first input is a float tensor."""
    return node.call.input(0).dtype.is_float


def _kinds(node: Node) -> tuple[list[tuple[DType, bool]], list[tuple[DType, bool]]]:
    """The types of what an op reads and writes, and whether they are fixed point."""
    sides = (v for v in node.inputs if v is not None), node.outputs
    reads, writes = ([(v.dtype, v.encoding is not None) for v in side] for side in sides)
    return reads, writes


def _several_kinds(node: Node) -> bool:
    """True where not all operands and, unless it is a condition, the result have one type."""
    reads, writes = _kinds(node)
    operands = reads[1:] if node.op.name == "ElementWiseSelect" else reads
    return len({*operands, *(() if node.op.name in _COMPARISONS else writes)}) > 1


def _power(node: Node) -> bool:
    """True unless a base has its result's type: fixed point with an exponent of any kind, or a float with its own."""
    (base, exponent, *_), (result, *_) = _kinds(node)
    fixed = base[1] and base[0] is not DType.INT16 and exponent[0] is not DType.FLOAT16
    return base != result or not (fixed or (base[0].is_float and exponent == base))


_COMPARISONS = frozenset(f"ElementWise{o}" for o in "Equal Greater GreaterEqual Less LessEqual NotEqual".split())
_ARITHMETIC = "Add Subtract Multiply Divide Maximum Minimum FloorDiv SquaredDifference Select".split()

LIBRARY = "Qualcomm's library"


def _observed(ops: str, broken: Callable[[Node], bool], reason: str, versions: str = "2.5.0") -> Rule[Node]:
    """What the library of some versions of onnxruntime-qnn was seen to refuse."""
    return Rule.of(ops, broken, reason, f"observed with onnxruntime-qnn {versions}", LIBRARY)


LIMITS: RuleTable[Node] = RuleTable(
    (
        _observed(
            " ".join([*(f"ElementWise{o}" for o in _ARITHMETIC), *_COMPARISONS]),
            _several_kinds,
            "operands of several types; cast, quantize or requantize them to one",
        ),
        _observed(
            "ElementWisePower", _power, "a base of another type than the result, or an integer; cast or quantize it"
        ),
        _observed(
            "ElementWiseAsin",
            _floats,
            "asin of floats; quantize it, or compute atan(x / sqrt(1 - x * x))",
            "2.5.0 and 2.7.0",
        ),
        _observed(
            "GridSample",
            lambda node: _floats(node) and len(node.call.input(0).shape) > 4,
            "volumes of floats; quantize them, or sample slices of 4 dimensions",
            "2.5.0 and 2.7.0",
        ),
        _observed(
            "ScatterElements",
            lambda node: _floats(node) and int(node.params["reduction"]) != 0,
            "a reduction of floats; quantize it",
            "2.5.0 and 2.7.0",
        ),
        _observed(
            "RandomUniformLike",
            lambda node: node.outputs[0].dtype.bits != 8,
            "uniform random numbers of more than 8 bits; quantize them to 8 bits, and dequantize them",
            # with 2.7.0 the EP never asks: it writes 8 bits, and a Dequantize behind them
        ),
        _observed(
            "RandomNormalLike",
            lambda node: node.outputs[0].dtype is DType.FLOAT32,
            "normal random numbers in float32; make them float16, or quantize them",
        ),
    )
)


UNPREPARED: Rule[Node] = _observed(
    "ElementWiseSelect Gather GatherElements GridSample ScatterElements ScatterNd",
    lambda node: node.params.get("reduction", 0) == 0 and node.outputs[0].dtype is DType.FLOAT32,
    f"takes float32 on {UNPREPARED_ON}, and fails to prepare the graph; quantize it, or make it float16",
    "2.5.0 and 2.7.0, on x86",
)
"""Ops that the library takes of float32 on one chip, and then fails when it prepares the graph."""
RULES = (*LIMITS, UNPREPARED)
"""All that the library does not take."""


def library_refusal(node: Node) -> str | None:
    """Why the library refuses a node that the htp backend computes, and what would work; None where it takes it."""
    if (refusal := LIMITS.refusal(node.op.name, node)) is None:
        return None
    rule, reason = refusal
    return f"{_asked(rule)} refuses it: {reason}"


def preparation_failure(node: Node, chips: ContextBackend) -> str | None:
    """Why the library fails to prepare a graph with a node that its validation takes; None if nothing is known."""
    if node.op.name not in UNPREPARED.ops or UNPREPARED_ON not in (target.name for target in chips.targets):
        return None
    reason = UNPREPARED.refusal(node)
    return None if reason is None else f"{_asked(UNPREPARED)} {reason}"


def _asked(rule: Rule[Node]) -> str:
    return f"{LIBRARY} ({rule.evidence.removeprefix('observed with ')})"
