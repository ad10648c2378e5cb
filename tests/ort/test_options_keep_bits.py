# SPDX-License-Identifier: Apache-2.0
"""Options about placement and speed never change a bit: random QDQ models, strict or not, at every level."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

import hexforge
from tests.ort.random_qdq import LIMITS, random_qdq


def outputs(model: bytes, feeds: dict[str, Any], strict: bool, **options: str) -> list[np.ndarray]:
    config = hexforge.SessionOptions()
    config.add_session_config_entry("session.disable_cpu_ep_fallback", str(int(strict)))
    session = hexforge.InferenceSession(model, config, providers=[("QNNExecutionProvider", options)])
    return session.run(None, feeds)


@pytest.mark.parametrize("kind", list(LIMITS))
@pytest.mark.parametrize("seed", range(12))
def test_strict_mode_and_levels_keep_every_bit(kind: str, seed: int) -> None:
    model, feeds = random_qdq(seed, kind)
    loose = outputs(model, feeds, strict=False)
    for how in ({}, {"htp_graph_finalization_optimization_mode": "1"}, {"offload_graph_io_quantization": "0"}):
        strict = outputs(model, feeds, strict="offload_graph_io_quantization" not in how, **how)
        for a, b in zip(loose, strict, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", list(LIMITS))
@pytest.mark.parametrize("seed", range(100, 106))
def test_random_quantized_models_are_near_onnxruntime(kind: str, seed: int) -> None:
    """One step off may grow through what follows; most elements are within one."""
    model, feeds = random_qdq(seed, kind, steps=3)
    plain = onnxruntime.SessionOptions()
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want = onnxruntime.InferenceSession(model, plain, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, theirs in zip(outputs(model, feeds, strict=True), want, strict=True):
        steps = np.unique(np.round(np.abs(np.diff(np.sort(theirs, axis=None))), 12))
        step = steps[steps > 0].min(initial=np.inf)
        assert (np.abs(ours - theirs) <= 1.01 * step).mean() >= 0.97 or not np.isfinite(step)
