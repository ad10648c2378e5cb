# SPDX-License-Identifier: Apache-2.0
"""Comparison: how a quantized model is compared with the float one, and what it costs each tensor and layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hexforge.amounts import decibels
from hexforge.analysis.quality.decisions.metric import AUTO
from hexforge.analysis.quality.decisions.verdict import Decisions
from hexforge.analysis.quality.runners import ModelEngine
from hexforge.analysis.workers import Workers
from hexforge.quant.compare import ErrorSums, Kind, max_error_text
from hexforge.results import Column, Key, Result, select
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
class TensorError(Result):
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

    described = (
        Column("tensor", key="name"),
        Column("kind", choose=True),
        Column("op", choose=True, about="What makes it; what reads it, for a weight", of="op_type"),
        Column("type", choose=True, of="dtype"),
        "running own",
        Key("rescaled_db", rounded=6, omit_empty=True),
    )

    @property
    def sqnr_db(self) -> float:
        """What it is ranked by."""
        sums = self.running or self.own
        assert sums is not None
        return sums.sqnr_db if self.rescaled_db is None else self.rescaled_db

    @property
    def running_db(self) -> float | None:
        """Its SQNR in the running model; None for weights."""
        return None if self.running is None else self.sqnr_db

    def running_text(self) -> str:
        """The same in words, with whether it is without the factors of its channels."""
        return decibels(self.running_db) + (" (rescaled)" if self.rescaled_db is not None else "")


@dataclass(frozen=True, slots=True)
class LayerError(Result):
    """The outputs' SQNR with only this layer quantized, or with all but this one."""

    name: str
    op_type: str
    sqnr_db: float
    gain_db: float
    """All but one: what leaving it in float wins over the whole model quantized; one alone: 0."""

    described = (
        Column("layer", key="name"),
        Column("op", choose=True, of="op_type"),
        Column("SQNR dB", "decibels", 2, about="Of the output that lost most", key="sqnr_db", rounded=6),
        Column("gain dB", "decibels", 2, about="By leaving this layer in float", key="gain_db", rounded=6),
    )


@dataclass(frozen=True, slots=True)
class Comparison(Result):
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

    described = (
        Key("sqnr_db", rounded=6),
        "decisions model reference backend samples outputs tensors weights unmatched sensitivity layers",
        Key("left_out", omit_empty=True),
    )


IN_THE_MODEL = "In the running quantized model, all errors before it included"
ALONE = "What its own quantization leaves of the float model's numbers"


def layer_columns(sensitivity: str) -> tuple[Column, ...]:
    """The columns of layers: what one wins in float is known where all but it were quantized."""
    return select(LayerError.described, "name op sqnr_db" if sensitivity == "one" else "name op sqnr_db gain_db")


ERRORS = (
    *select(TensorError.described, "name kind op type"),
    Column("SQNR dB", "decibels", 2, about=IN_THE_MODEL, of="running_db", text=lambda error: error.running_text()),
    Column("cosine", "number", 6, of="running.cosine"),
    Column("max error", "number", 5, of="running.max_error", text=lambda error: max_error_text(error.running)),
    Column("own SQNR dB", "decibels", 2, about=ALONE, of="own.sqnr_db", key="own"),
)
"""A tensor's figures as a table has them."""
