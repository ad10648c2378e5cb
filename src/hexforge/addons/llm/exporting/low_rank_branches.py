# SPDX-License-Identifier: Apache-2.0
"""Low-rank branches: what a graph adds to a product, so that an adapter is two thin matrices.

A product y = W x that some adapter changes becomes W x + B (A x) for all of them, with room for the largest rank. Of
the base A and B are zeros. Adapters have weights and weight scales of their own; steps of activations are those of all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import weight_shapes
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder, Ranges, widen
from hexforge.addons.llm.checkpoints.peft_adapter import LowRankAdapter, Place, adapted_checkpoint
from hexforge.addons.llm.exporting.weight_rounding import READ
from hexforge.ir import Array

FACTOR_BITS = 8
"""Bits of A and B where weights are integers, with one scale each."""
PATTERN = "*.lora_[AB]*"
"""Constants that adapters change."""


class LowRankBranches:
    """The branches that a bundle's graphs have for its adapters."""

    def __init__(self, checkpoint: Checkpoint, adapters: Sequence[LowRankAdapter] = ()) -> None:
        self.checkpoint = checkpoint
        self.adapters = {adapter.name: adapter for adapter in adapters}
        self._ranks: dict[Place, int] = {}
        for adapter in adapters:
            for place, (first, _) in adapter.factors.items():
                self._ranks[place] = max(self._ranks.get(place, 0), first.shape[0])

    def rank(self, layer: int | None, name: str) -> int:
        """The rank that a product has room for; 0 where no adapter changes it."""
        return 0 if layer is None else self._ranks.get((layer, name), 0)

    def changed(self, adapter: str, first: int, last: int) -> bool:
        """Whether an adapter changes one of the layers from the first to before the last."""
        return any(first <= layer < last for layer, _ in self.adapters[adapter].factors)

    def factors(self, adapter: str, layer: int, name: str) -> tuple[Array, Array]:
        """An adapter's A [inputs, rank] and B [rank, outputs]; zeros for the base, called ""."""
        outputs, inputs = weight_shapes(self.checkpoint.architecture)[name]
        rank = self.rank(layer, name)
        given = self.adapters[adapter].factors.get((layer, name)) if adapter else None
        first, second = np.zeros((inputs, rank), np.float32), np.zeros((rank, outputs), np.float32)
        if given is not None:
            first[:, : given[0].shape[0]], second[: given[0].shape[0]] = given[0].T, given[1].T
        return first, second

    def widened(self, ranges: Ranges, texts: Sequence[Sequence[int]]) -> Ranges:
        """Ranges of the base's values as wide as every adapter needs them, and those of the branches."""
        made = dict(ranges)
        for layer, name in self._ranks:
            made[f"layer.{layer}.{name}_base"] = made[f"layer.{layer}.{name}"]
            made |= {f"layer.{layer}.{name}_{part}": (0.0, 0.0) for part in ("low", "delta")}
        for adapter in self.adapters.values():
            _observe(self.checkpoint, adapter, texts, made)
        return made


def _observe(checkpoint: Checkpoint, adapter: LowRankAdapter, texts: Sequence[Sequence[int]], ranges: Ranges) -> None:
    deltas: dict[str, Array] = {}

    def seen(name: str, value: Array) -> None:
        widen(ranges, name, value)
        prefix, _, what = name.rpartition(".")
        for product in READ.get(what, ()) if prefix else ():
            at = f"{prefix}.{product}"
            if (factors := adapter.factors.get((int(prefix.rpartition(".")[2]), product))) is not None:
                thin = value @ factors[0].T
                deltas[at] = thin @ factors[1].T * np.float32(checkpoint.architecture.result_scale(product))
                widen(ranges, f"{at}_low", thin)
                widen(ranges, f"{at}_delta", deltas[at])
        if name in deltas:
            widen(ranges, f"{name}_base", value - deltas.pop(name))

    FloatDecoder(adapted_checkpoint(checkpoint, adapter)).logits(texts, seen)


def quantized_factor(matrix: Array) -> tuple[Array, Array]:
    """Integers of a factor and their one scale, so that an adapter is not much more than its integers."""
    top = np.float32((1 << FACTOR_BITS - 1) - 1)
    scale = np.abs(matrix).max() / top or 1 / top
    return np.rint(matrix / scale).astype(np.int8), np.array(scale, np.float32)
