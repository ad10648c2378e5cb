# SPDX-License-Identifier: Apache-2.0
"""Comparison: how a quantized model is compared with the float one, and what it costs each tensor and layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hexforge.analysis.quality.decisions.metric import AUTO
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.runners import ModelEngine
from hexforge.analysis.spread.workers import Workers
from hexforge.formats.json_text import finite_or_none
from hexforge.quant.compare import ErrorSums, Kind
from hexforge.runtime import registry


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """How a quantized model is compared with the float one."""

    backend: str | ModelEngine = registry.DEFAULT
    soc: str = ""
    limit: int | None = None
    """The most samples that are used; all where it is None."""
    sensitivity: str = "none"
    """Whether layers are measured too: none, one (only it is quantized) or all-but-one."""
    workers: Workers = Workers()  # noqa: RUF009 - it is frozen
    metric: str = AUTO
    """What both models' decisions are: `decisions` looks at the outputs, others say it; sqnr: none are judged."""


@dataclass(frozen=True, slots=True)
class TensorError:
    """What quantization costs a tensor."""

    name: str
    kind: Kind
    op_type: str
    """The op that makes it, or reads it where it is a weight."""
    dtype: str
    """Its integer type, empty where it is not quantized."""
    running: ErrorSums | None
    """Its error in the running quantized model, all errors before it included; None for weights."""
    own: ErrorSums | None
    """The error its own quantization adds to the float model's numbers; None where it has none."""
    rescaled_db: float | None = None
    """Where it is the float model's but for factors of its channels (equalized): the SQNR without these."""

    @property
    def sqnr_db(self) -> float:
        """What it is ranked by."""
        sums = self.running or self.own
        assert sums is not None
        return sums.sqnr_db if self.rescaled_db is None else self.rescaled_db

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        named = {"name": self.name, "kind": self.kind, "op": self.op_type, "type": self.dtype}
        figures = {"running": _figures(self.running), "own": _figures(self.own)}
        return named | figures | ({} if self.rescaled_db is None else {"rescaled_db": finite_or_none(self.rescaled_db)})


@dataclass(frozen=True, slots=True)
class LayerError:
    """The outputs' SQNR with only this layer quantized, or with all but this one."""

    name: str
    op_type: str
    sqnr_db: float
    gain_db: float
    """All but one: what leaving it in float wins over the whole model quantized; one alone: 0."""

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "name": self.name,
            "op": self.op_type,
            "sqnr_db": finite_or_none(self.sqnr_db),
            "gain_db": finite_or_none(self.gain_db),
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """How far one quantized model is from the float model, tensor by tensor."""

    model: str
    reference: str
    backend: str
    samples: int
    outputs: tuple[TensorError, ...]
    tensors: tuple[TensorError, ...]
    """Activations, the worst first."""
    weights: tuple[TensorError, ...]
    unmatched: int
    """Quantized activations that the float model has no tensor of the same name for."""
    sensitivity: str = "none"
    layers: tuple[LayerError, ...] = field(default=())
    decisions: Decisions | None = None
    """How often both models decide alike, and alarms; None where that was not asked for."""
    left_out: str = ""
    """How many samples could not be read, and why the first; empty where all could."""

    @property
    def sqnr_db(self) -> float:
        """The SQNR of the output that lost most."""
        return min((row.sqnr_db for row in self.outputs), default=math.nan)

    def to_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return {
            "sqnr_db": finite_or_none(self.sqnr_db),
            "decisions": None if self.decisions is None else self.decisions.to_json(),
            "model": self.model,
            "reference": self.reference,
            "backend": self.backend,
            "samples": self.samples,
            "outputs": [row.to_json() for row in self.outputs],
            "tensors": [row.to_json() for row in self.tensors],
            "weights": [row.to_json() for row in self.weights],
            "unmatched": self.unmatched,
            "sensitivity": self.sensitivity,
            "layers": [row.to_json() for row in self.layers],
        } | ({"left_out": self.left_out} if self.left_out else {})


def _figures(sums: ErrorSums | None) -> dict[str, float | int | None] | None:
    if sums is None:
        return None
    figures: dict[str, float | int | None] = {
        "sqnr_db": finite_or_none(sums.sqnr_db),
        "cosine": finite_or_none(sums.cosine),
    }
    return figures | {"max_error": sums.max_error, "not_finite": sums.not_finite}
