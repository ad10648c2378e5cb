# SPDX-License-Identifier: Apache-2.0
"""Tiny contexts that exist, for devices: their numbers are real and quick."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hexforge
from hexforge.addons.device import Binary
from hexforge.chips.soc import require_chip
from tests.ort.models import FLOAT, model, node

SOC = "SM8550"


def dense(seed: int, width: int = 8) -> bytes:
    """MatMul, Add and Tanh over a row of numbers."""
    random = np.random.default_rng(seed)
    weights = np.random.default_rng(7).standard_normal((width, width)).astype(np.float32)
    bias = random.standard_normal(width).astype(np.float32)
    nodes = [
        node("MatMul", ["x", "w"], ["m"], name="matmul"),
        node("Add", ["m", "b"], ["a"], name="add"),
        node("Tanh", ["a"], ["y"], name="tanh"),
    ]
    return model(nodes, {"x": (FLOAT, [1, width])}, {"y": (FLOAT, [1, width])}, {"w": weights, "b": bias})


def conv(seed: int = 0) -> bytes:
    """A quantized convolution with a ReLU."""
    random = np.random.default_rng(seed)
    constants = {
        "w": random.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8),
        "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8),
        "s": np.array(0.05, np.float32),
        "z": np.array(128, np.uint8),
        "t": np.array(0.1, np.float32),
        "o": np.array(0, np.uint8),
    }
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="q"),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="dq"),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], name="dw"),
        node("Conv", ["xd", "wd"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"], name="relu"),
        node("QuantizeLinear", ["r", "t", "o"], ["rq"], name="qo"),
        node("DequantizeLinear", ["rq", "t", "o"], ["y"], name="dqo"),
    ]
    return model(nodes, {"x": (FLOAT, [1, 3, 8, 8])}, {"y": (FLOAT, [1, 4, 8, 8])}, constants)  # type: ignore[arg-type]


def binaries(folder: Path) -> dict[str, Binary]:
    """A float context, a quantized one, one with two graphs that share weights, and an embedded one."""
    soc = require_chip(SOC)
    request = hexforge.ContextRequest(graph_names=("a", "b"), weight_sharing=True)
    files = {
        "dense": hexforge.compile(dense(1), folder / "dense.bin", SOC),
        "conv": hexforge.compile(conv(), folder / "conv.bin", SOC),
        "pair": hexforge.compile([dense(1, 40), dense(2, 40)], folder / "pair.bin", SOC, request),
    }
    found = {name: Binary.of(folder / f"{name}.bin", soc, name) for name in files}
    found["inside"] = Binary.of(files["dense"].to_bytes(), soc, "inside")
    return found
