# SPDX-License-Identifier: Apache-2.0
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
from hexforge.backends.htp.numbers.halves import LARGEST_FLOAT16, vector_half
from hexforge.errors import HexforgeError

TOLERANCE = 1e-4
"""Relative and absolute, float32. The half types get twice their own machine epsilon; integers and bools are exact."""

HALF_RELATIVE, HALF_SPREAD = 0.004, 2.0**-10
"""What float16 math (htp) may differ by: 0.4 % of the number, as in the EP's own float16 tests, and one float16 step
of the output's largest number, as sums that cancel keep the error of their terms."""

HALF_SPREADS = {"RoiAlign": 4}
"""Ops whose coordinates are computed in float16 (a step is 1/128 pixel from 8 pixels on): how many of those steps."""

HALF_STEPS = {"DynamicQuantizeLinear": 1}
"""Ops whose integers come out of several float16 results in a row: how many steps those may be off."""

RIGHT, REFUSED, WRONG, CRASHED = OUTCOMES = ("right", "refused", "wrong", "crashed")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a case: right (every node on QNN, outputs as expected), refused, wrong or crashed, and why."""

    case: Case
    outcome: str
    reason: str = ""
    rounded: bool = False
    """True where the outputs are right for the inputs as float16 holds them, and not for the inputs as they are."""


def judge(case: Case, backend: str, soc: str = "", **chosen: str) -> Verdict:
    """Load, place and run one case with CPU fallback disabled, and with provider options where some are chosen.

    A float16 backend is right where its outputs are near the expected ones, or near what the cpu backend computes in
    float32 from inputs rounded to float16: an input such as 10003 is not a float16, and what an op does with 10000 is
    another number. Beyond 65504 any number of that sign is right: the chip has no infinity, and none of them for NaN.
    """
    try:
        outputs = _run(case, backend, case.feeds, soc, **chosen)
    except HexforgeError as error:
        return Verdict(case, REFUSED, str(error))
    except Exception:  # a crash is what this counts
        return Verdict(case, CRASHED, traceback.format_exc())
    half = backend == "htp"
    faults = _faults(case, outputs, list(case.expected.values()), half)
    if not faults or not half:
        return Verdict(case, WRONG if faults else RIGHT, "; ".join(faults))
    with np.errstate(over="ignore"):
        rounded = {name: _rounded(array) for name, array in case.feeds.items()}
    remaining = _faults(case, outputs, _run(case, "cpu", rounded), half)
    return Verdict(case, WRONG if remaining else RIGHT, "; ".join(remaining), rounded=not remaining)


def _run(case: Case, backend: str, feeds: dict[str, Any], soc: str = "", **chosen: str) -> list[Any]:
    options = hexforge.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider = {"backend_type": backend, **({"soc_model": soc} if soc else {}), **chosen}
    session = hexforge.InferenceSession(case.model, options, providers=[("QNNExecutionProvider", provider)])
    return session.run(None, feeds)


def _rounded(array: Any) -> Any:
    """float32 numbers as the chip's halves, float16 ones without infinities and NaN; anything else as it is."""
    if not isinstance(array, np.ndarray) or array.dtype not in (np.float32, np.float16):
        return array
    return vector_half(array) if array.dtype == np.float32 else np.nan_to_num(array, nan=LARGEST_FLOAT16)


def _faults(case: Case, outputs: list[Any], expected: list[Any], half: bool) -> list[str]:
    random = bool(case.ops & RANDOM)
    steps = max(HALF_STEPS.get(op, 0) for op in case.ops) if half else 0
    spread = HALF_SPREAD * max(HALF_SPREADS.get(op, 1) for op in case.ops) if half else 0.0
    faults = (_fault(g, e, random, steps, spread) for g, e in zip(outputs, expected, strict=True))
    return [f"{name}: {fault}" for name, fault in zip(case.expected, faults, strict=True) if fault]


def _fault(got: Any, expected: Any, random: bool, steps: int, spread: float) -> str:
    """How an output differs from the expected one, empty where it does not; with a `spread` math is float16."""
    if not isinstance(got, np.ndarray) or not isinstance(expected, np.ndarray):
        return f"got {type(got).__name__}, expected {type(expected).__name__}"
    if got.dtype != expected.dtype:
        return f"got {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"got shape {got.shape}, expected {expected.shape}"
    if random:
        inside = bool(np.all((got >= 0) & (got <= 1)))
        return "" if inside else "random numbers outside 0..1"
    if not _is_float(got.dtype):
        # bools and 4-bit integers have no difference of their own
        wrong = got != expected if steps == 0 else np.abs(got.astype(np.int64) - expected.astype(np.int64)) > steps
        different = int(np.sum(wrong))
        return f"{different} of {got.size} elements differ" if different else ""
    with np.errstate(over="ignore", invalid="ignore"):
        # the half types are compared in float64, which holds them exactly
        a, b = got.astype(np.float64), expected.astype(np.float64)
        relative = absolute = tolerance(got.dtype)
        if spread and got.dtype != np.dtype(ml_dtypes.bfloat16):
            b = b.astype(np.float16).astype(np.float64)
            relative = HALF_RELATIVE
            absolute = spread * float(np.max(np.abs(b[np.isfinite(b)]), initial=0))
        close = np.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True)
        if spread:
            beyond = ~(np.abs(a) < LARGEST_FLOAT16) & ~(np.abs(b) < LARGEST_FLOAT16)  # NaN is
            close |= beyond & (np.isnan(a) | np.isnan(b) | (np.sign(a) == np.sign(b)))
        if close.all():
            return ""
        worst = np.nanmax(np.abs(a - b)[~close], initial=0)
    return f"{int(np.sum(~close))} of {got.size} elements differ, by up to {worst:g}"


def _is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype == np.dtype(ml_dtypes.bfloat16)


def tolerance(dtype: np.dtype[Any]) -> float:
    """How far from the expected output a right one may be, relative and absolute, where math is as ONNX defines it."""
    if dtype in (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)):
        return 2 * float(ml_dtypes.finfo(dtype).eps)
    return TOLERANCE if dtype.kind == "f" else 0.0


Row = tuple[str, int, int, int, int, int]


def rows(verdicts: Iterable[Verdict]) -> list[Row]:
    """The table: cases, right, refused, wrong and crashed of each group."""
    every = list(verdicts)
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
        count = Counter(v.outcome for v in every if inside(v.case))
        right, refused, wrong, crashed = (count[outcome] for outcome in OUTCOMES)
        table.append((name, count.total(), right, refused, wrong, crashed))
    return table
