# SPDX-License-Identifier: Apache-2.0
"""Held against onnxruntime and against the cpu backend: a random model, and what is said where they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime

import hexforge
from tests.ort.arbiter import Ruling, rulings
from tests.ort.random_float import random_float
from tests.ort.random_qdq import LIMITS, random_qdq

Feeds = dict[str, np.ndarray]
MOST_STEPS = 4
"""What a step of one op may grow to through the few that follow it."""


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Two runs of one model that differ by more than their arithmetic explains."""

    seed: int
    what: str
    between: str

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.between}: {self.what}"


def onnxruntime_outputs(model: bytes, feeds: Feeds) -> list[np.ndarray]:
    """By onnxruntime's CPU provider, without rewrites."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def backend_outputs(model: bytes, feeds: Feeds, backend: str) -> list[np.ndarray]:
    """By a backend of hexforge."""
    options: list[Any] = [("QNNExecutionProvider", {"backend_type": backend})]
    return hexforge.InferenceSession(model, providers=options).run(None, feeds)


def _float_fault(ours: np.ndarray, theirs: np.ndarray, tolerance: float) -> str:
    if ours.shape != theirs.shape:
        return f"shape {list(ours.shape)}, not {list(theirs.shape)}"
    if not np.array_equal(np.isnan(ours), np.isnan(theirs)):
        return f"{np.isnan(ours).sum()} NaN, not {np.isnan(theirs).sum()}"
    size = np.nanmax(np.abs(theirs), initial=1.0)
    worst = np.nanmax(np.abs(ours - theirs), initial=0.0)
    return f"off by {worst:.3g} of {size:.3g}" if worst > tolerance * size else ""


def float_disagreements(seed: int, steps: int = 6) -> list[Disagreement]:
    """A random float model: cpu within float32, htp within float16's rounding of each of a few ops.

    Steps (Floor, Ceil, Sign and a threshold) turn any rounding into a whole step, so a model with one is held to the
    share of elements that agree.
    """
    model, feeds = random_float(seed, steps)
    want = onnxruntime_outputs(model, feeds)
    jumps = any(op in model for op in (b"Floor", b"Ceil", b"Sign", b"ThresholdedRelu"))
    found = []
    for backend, tolerance in (("cpu", 1e-4), ("htp", 2e-2)):
        try:
            got = backend_outputs(model, feeds, backend)
        except Exception as error:
            found.append(Disagreement(seed, f"{type(error).__name__}: {error}", backend))
            continue
        for ours, theirs in zip(got, want, strict=True):
            fault = _float_fault(ours, theirs, tolerance)
            if fault and jumps and ours.shape == theirs.shape:
                near = np.abs(ours - theirs) <= tolerance * np.abs(theirs).max(initial=1.0)
                fault = "" if near.mean() > 0.5 else fault
            if fault:
                found.append(Disagreement(seed, fault, f"{backend} and onnxruntime"))
    return found


def qdq_disagreements(seed: int, steps: int = 4) -> list[Disagreement]:
    """A random QDQ model: htp and cpu within a step of each other, and of onnxruntime but for a step here and there.

    Where one is further away, the arbiter says whether an op of it is wrong.
    """
    kind = list(LIMITS)[seed % len(LIMITS)]
    model, feeds = random_qdq(seed, kind, steps)
    want = onnxruntime_outputs(model, feeds)
    found = []
    for backend in ("cpu", "htp"):
        try:
            got = backend_outputs(model, feeds, backend)
        except Exception as error:
            found.append(Disagreement(seed, f"{kind}: {type(error).__name__}: {error}", backend))
            continue
        for ours, theirs in zip(got, want, strict=True):
            if ours.shape != theirs.shape:
                found.append(Disagreement(seed, f"{kind}: shape {ours.shape}, not {theirs.shape}", backend))
                continue
            values = np.unique(np.concatenate([ours.ravel(), theirs.ravel()]))
            gaps = np.diff(values)
            step = gaps[gaps > 1e-7].min(initial=np.inf)
            far = (np.abs(ours - theirs) > 1.01 * step).mean()
            worst = np.abs(ours - theirs).max(initial=0.0) / step
            if far > 0.03 and worst > MOST_STEPS and (wrong := _wrong_ops(model, feeds, backend)):
                found.append(
                    Disagreement(seed, f"{kind}: {far:.0%} beyond a step, up to {worst:.0f}: {wrong[0]}", backend)
                )
    return found


def _wrong_ops(model: bytes, feeds: Feeds, backend: str) -> list[Ruling]:
    """The ops that a backend computes otherwise than their text says; rounding alone takes deep models far apart."""
    made = rulings(model, feeds, lambda exposed, given: backend_outputs(exposed, given, backend))
    return [ruling for ruling in made if ruling.is_wrong]


def arbitrated_ops(seed: int, steps: int = 6) -> list[Disagreement]:
    """A random QDQ model: each op of cpu and htp within a step of its text in float64, on the backend's own inputs."""
    kind = list(LIMITS)[seed % len(LIMITS)]
    model, feeds = random_qdq(seed, kind, steps)
    found = []
    for backend in ("cpu", "htp"):
        try:
            found += [Disagreement(seed, f"{kind}: {op}", backend) for op in _wrong_ops(model, feeds, backend)]
        except Exception as error:
            found.append(Disagreement(seed, f"{kind}: {type(error).__name__}: {error}", backend))
    return found
