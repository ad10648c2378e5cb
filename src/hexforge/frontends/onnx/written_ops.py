# SPDX-License-Identifier: Apache-2.0
"""The support matrix: which QNN ops each ONNX op type and each fusion may become, as their translators declare it."""

from __future__ import annotations

from hexforge.frontends.onnx.fusions.table import FUSIONS
from hexforge.frontends.onnx.translate.builder import WRITES


def onnx_ops() -> dict[str, tuple[str, ...]]:
    """ONNX op type -> the QNN ops it may become, by name."""
    return {op: tuple(sorted(names)) for op, names in sorted(WRITES.items())}


def fusions() -> dict[str, tuple[str, ...]]:
    """Kind of fusion -> the QNN ops it may become, by name."""
    return {fusion.kind: tuple(sorted(fusion.writes)) for fusion in sorted(FUSIONS, key=lambda f: f.kind)}
