"""Run cases through the session in strict mode and judge what comes out against the expected outputs."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import hexforge
from benchmarks.conformance.cases import RANDOM, Case
from hexforge.errors import HexforgeError

TOLERANCE = 1e-4
"""Relative and absolute, float32. The half types get twice their own machine epsilon; integers and bools are exact."""

RIGHT, REFUSED, WRONG, CRASHED = OUTCOMES = ("right", "refused", "wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case: right (every node on QNN, outputs as expected), refused, wrong or crashed, and why."""

    case: Case
    outcome: str
    reason: str = ""


def tolerance(dtype: np.dtype[Any]) -> float:
    """How far from the expected output a right one may be."""
    if dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        return 2 * float(ml_dtypes.finfo(dtype).eps)
    return TOLERANCE if dtype.kind == "f" else 0.0


def judge(case: Case, backend: str) -> Verdict:
    """Load, place and run one case with CPU fallback disabled."""
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    providers = [("QNNExecutionProvider", {"backend_type": backend})]
    try:
        session = hexforge.InferenceSession(case.model, options, providers=providers)
        outputs = session.run(None, case.feeds)
    except HexforgeError as error:
        return Verdict(case, REFUSED, str(error))
    except Exception:  # a crash is what this counts
        return Verdict(case, CRASHED, traceback.format_exc())
    faults = [
        f"{name}: {fault}"
        for (name, expected), got in zip(case.expected.items(), outputs, strict=True)
        if (fault := _fault(got, expected, bool(case.ops & RANDOM)))
    ]
    return Verdict(case, WRONG if faults else RIGHT, "; ".join(faults))


def _fault(got: Any, expected: Any, random: bool) -> str:
    """How an output differs from the expected one, empty where it does not."""
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
        return f"got {type(got).__name__}, expected {type(expected).__name__}"
    if got.dtype != expected.dtype:
        return f"got {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"got shape {got.shape}, expected {expected.shape}"
    if random:
        inside = bool(np.all((got >= 0) & (got <= 1)))
        return "" if inside else "random numbers outside 0..1"
    allowed = tolerance(got.dtype)
    if allowed == 0:
        different = int(np.sum(got != expected))
        return f"{different} of {got.size} elements differ" if different else ""
    # the half types are compared in float64, which holds them exactly
    a, b = got.astype(np.float64), expected.astype(np.float64)
    close = np.isclose(a, b, rtol=allowed, atol=allowed, equal_nan=True)
    if close.all():
        return ""
    worst = np.nanmax(np.abs(a - b)[~close], initial=0)
    return f"{int(np.sum(~close))} of {got.size} elements differ, by up to {worst:g}"


Row = tuple[str, int, int, int, int, int]


def rows(verdicts: Iterable[Verdict]) -> list[Row]:
    """The table: cases, right, refused, wrong and crashed of each group."""
    found = list(verdicts)
    plain = "float32, int32, int64 and bool tensors only"
    groups = {
        f"77 op types, {plain}": lambda c: c.seed and c.plain,
        "— of these, with a float32 tensor": lambda c: c.seed and c.plain and c.has_float32,
        "77 op types, all QNN tensor types": lambda c: c.seed and c.qnn_types,
        "newer op types, all QNN tensor types": lambda c: not c.seed and c.qnn_types,
        "**all op types, all QNN tensor types**": lambda c: c.qnn_types,
        "tensor types QNN does not have": lambda c: not c.qnn_types,
    }
    table = []
    for name, inside in groups.items():
        count = Counter(v.outcome for v in found if inside(v.case))
        right, refused, wrong, crashed = (count[outcome] for outcome in OUTCOMES)
        table.append((name, count.total(), right, refused, wrong, crashed))
    return table
