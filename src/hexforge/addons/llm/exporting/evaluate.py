# SPDX-License-Identifier: Apache-2.0
"""Evaluation of a bundle: perplexity of a text, agreement with the float model, what each layer's rounding costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hexforge.addons.llm.bundle import Bundle
from hexforge.addons.llm.checkpoints.checkpoint import ChangedCheckpoint, Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.exporting.precision import precision_named
from hexforge.addons.llm.exporting.weight_rounding import rounded_weight
from hexforge.addons.llm.generate import LanguageModel, load
from hexforge.errors import CallError
from hexforge.ir import Array

LENGTH = 256


@dataclass(frozen=True, slots=True)
class LlmEvaluation:
    """How well a bundle predicts a text, and how near it is to the float model."""

    tokens: int
    perplexity: float
    float_perplexity: float
    same_first: float
    """The share of places where both prefer the same token."""
    divergence: float
    """The mean Kullback-Leibler divergence from the float model's shares, in nats."""
    blame: dict[str, float] = field(default_factory=dict)
    """By layer, the divergence where only that layer's weights are rounded."""


def evaluate_bundle(
    bundle: LanguageModel | str | Path,
    checkpoint: Checkpoint | str | Path,
    text: str,
    *,
    length: int = LENGTH,
    rows: int = 0,
    blame: bool = False,
) -> LlmEvaluation:
    """Compare a bundle with the checkpoint that it was made of, over rows of a text, each of which begins anew.

    `rows`: at most so many, 0: all. With `blame` the weights of one layer after the other are rounded in the float
    model, which says where more bits would pay.
    """
    model = bundle if isinstance(bundle, LanguageModel) else load(bundle)
    source = checkpoint if isinstance(checkpoint, Checkpoint) else open_checkpoint(checkpoint)
    if source.architecture.shape.vocab != model.bundle.vocabulary or (
        source.architecture.shape.layers != model.bundle.layers
    ):
        raise CallError(f"{source.folder}: is not the checkpoint of {model.bundle.folder}: its sizes are others")
    precision = model.bundle.precision if isinstance(model.bundle, Bundle) else ""
    if blame and not precision:
        raise CallError("what rounding costs is told of bundles; `hexforge llm export` makes one")
    if length < 2 or rows < 0:
        raise CallError(f"rows of {length} tokens, {rows} of them: give 2 or more tokens, and 0 rows for all")
    length = min(length, model.bundle.context)
    tokens = model.text.encode(text)
    count = len(tokens) // length
    count = min(count, rows) if rows else count
    if count < 1:
        raise CallError(f"the text has {len(tokens)} tokens, and a row has {length}; give a longer one")
    texts = [tokens[i * length : (i + 1) * length] for i in range(count)]
    expected = FloatDecoder(source).logits(texts)
    lost, lost_float, same, divergence = 0.0, 0.0, 0, 0.0
    for row, reference in zip(texts, expected, strict=True):
        given, wanted = log_shares(model.session().feed(row, all_logits=True)), log_shares(reference)
        places, following = np.arange(length - 1), np.asarray(row[1:])
        lost -= float(given[places, following].sum())
        lost_float -= float(wanted[places, following].sum())
        same += int((given[:-1].argmax(-1) == wanted[:-1].argmax(-1)).sum())
        divergence += divergence_of(wanted[:-1], given[:-1])
    total = count * (length - 1)
    return LlmEvaluation(
        total, math.exp(lost / total), math.exp(lost_float / total), same / total, divergence / total,
        _blame(source, precision, texts[:2], expected[:2]) if blame else {},
    )  # fmt: skip


def log_shares(logits: Array) -> Array:
    """Logarithms of the shares of tokens, in float64."""
    scores = np.asarray(logits, np.float64)
    scores = scores - scores.max(-1, keepdims=True)
    result: Array = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    return result


def divergence_of(wanted: Array, given: Array) -> float:
    """The sum over rows of how much is lost by taking one's shares for the other's."""
    return float((np.exp(wanted) * (wanted - given)).sum())


def _blame(
    source: Checkpoint, precision: str, texts: Sequence[Sequence[int]], expected: Sequence[Array]
) -> dict[str, float]:
    """The divergence that each layer's rounded weights bring alone; nothing for float weights."""
    if not precision_named(precision).weight_bits:
        return {}
    wanted = [log_shares(x) for x in expected]
    total = sum(map(len, texts))
    blame = {}
    for layer in (*range(source.architecture.shape.layers), None):
        given = FloatDecoder(_rounded_checkpoint(source, precision, layer)).logits(texts)
        lost = sum(divergence_of(w, log_shares(g)) for w, g in zip(wanted, given, strict=True))
        blame["head" if layer is None else f"layer {layer}"] = lost / total
    return blame


def _rounded_checkpoint(source: Checkpoint, precision: str, own: int | None) -> Checkpoint:
    """A checkpoint with the matrices of one layer, or the head's, rounded as a precision has them."""

    def rounded(weight: Array, name: str, layer: int | None) -> Array:
        if weight.ndim != 2 or layer != own or (layer is None and name != source.architecture.head_weight):
            return weight
        return rounded_weight(np.ascontiguousarray(weight.T), precision_named(precision)).real().T

    return ChangedCheckpoint(source, rounded)
