# SPDX-License-Identifier: Apache-2.0
"""Application memory: the most that a process takes on the host while a model runs, by the kind of host and runtime.

Fitted to the memory that was measured beside latencies (`python -m benchmarks.latency.memory`). On Linux boards and on
Windows a process holds little more than inputs and outputs, through tflite the weights as well; on Android it holds a
part of the weights and of all activations, as where a graph is prepared on the device that runs it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANDROID, LINUX, WINDOWS = "android", "linux", "windows"
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """The bytes of a model that its memory depends on."""

    io_bytes: int
    weight_bytes: int
    activation_bytes: int
    """Of every tensor that is computed."""


@dataclass(frozen=True, slots=True)
class PeakCosts:
    """What a process takes at most: a constant, and a part of each kind of bytes."""

    base_mb: float
    io: float = 0.0
    weights: float = 0.0
    activations: float = 0.0

    def bytes(self, sizes: ModelSizes) -> int:
        """The peak for a model."""
        parts = self.io * sizes.io_bytes + self.weights * sizes.weight_bytes + self.activations * sizes.activation_bytes
        return round(self.base_mb * _MB + parts)


PEAKS: Mapping[tuple[str, str], PeakCosts] = {
    (ANDROID, "qnn_dlc"): PeakCosts(27.0, weights=0.70, activations=0.18),
    (ANDROID, "onnx"): PeakCosts(30.0, weights=1.0, activations=0.20),
    (ANDROID, "tflite"): PeakCosts(22.0, weights=1.4, activations=0.17),
    (LINUX, "qnn_dlc"): PeakCosts(3.0, io=1.75),
    (LINUX, "onnx"): PeakCosts(3.1, io=1.8),
    (LINUX, "tflite"): PeakCosts(3.7, io=1.0, weights=1.03),
    (WINDOWS, "qnn_dlc"): PeakCosts(0.6, io=0.7),
    (WINDOWS, "onnx"): PeakCosts(1.3, io=1.25),
}
"""Fitted."""


def platform_of(chip: str) -> str:
    """The system that was measured with a chip: Windows on laptops, Linux on boards, Android on others."""
    if chip.startswith("SC8"):
        return WINDOWS
    return LINUX if chip.startswith(("QCS", "IPQ")) else ANDROID


def peak_bytes(sizes: ModelSizes, chip: str, runtime: str) -> int | None:
    """The most that a process takes on the host of a chip; None where nothing was measured."""
    costs = PEAKS.get((platform_of(chip), runtime))
    return None if costs is None else costs.bytes(sizes)
