# SPDX-License-Identifier: Apache-2.0
"""Scales of inputs: channels that are large in a calibration text get finer steps, before weights are rounded (AWQ).

The weights that read a channel are multiplied with a number, and what makes the channel is divided by it: a norm's
weights, the rows of the values for attention's result, the rows of `up` for `down`. The model computes the same, the
graph has the same nodes, and rounding loses less where channels differ in size. The number is a power of the channel's
mean size; each group of products that read the same has the power of a grid that changes its results least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import EMBEDDING, FINAL_NORM, HEAD, Architecture
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.peft_adapter import LowRankAdapter
from hexforge.addons.llm.exporting.precision import BundlePrecision
from hexforge.addons.llm.exporting.weight_rounding import READ, READ_BY, InputCorrelations, rounded_weight
from hexforge.errors import UnsupportedError
from hexforge.ir import Array

ALPHAS = tuple(step / 10 for step in range(11))
"""Exponents that are tried; 0 scales nothing."""
MOST_OUTPUTS = 1024
"""Outputs of a product that an exponent is judged by, spread over all of them."""
SMALLEST = 1e-3
"""A channel counts as no smaller than this share of the largest."""
_MAKERS = {"attention_norm": "attention_norm", "mixed": "value", "feed_norm": "feed_norm", "gated": "up",
           "normalized": FINAL_NORM}  # fmt: skip
"""The weight whose outputs are the channels of each value that products read."""
_MADE = {maker: value for value, maker in _MAKERS.items()}


@dataclass(frozen=True, slots=True, eq=False)
class InputScales:
    """For each value that products read, by its name in float_decoder, what its channels are divided by."""

    architecture: Architecture
    by_value: Mapping[str, Array]

    def factors(self, name: str, layer: int | None) -> tuple[Array | None, Array | None]:
        """What a weight's inputs and its outputs are multiplied with; None: they stay."""
        at = "" if layer is None else f"layer.{layer}."
        inputs = self.by_value.get(at + READ_BY[name]) if name in READ_BY else None
        maker = name.removesuffix("_bias")
        outputs = self.by_value.get(at + _MADE[maker]) if maker in _MADE else None
        if outputs is None:
            return inputs, None
        return inputs, 1 / (self._of_values(outputs) if maker == "value" else outputs)

    def _of_values(self, scales: Array) -> Array:
        """Those of attention's result for the values it is a mean of, which several heads of queries share."""
        shape = self.architecture.shape
        return scales.reshape(shape.kv_heads, -1, shape.head_dim)[:, 0].reshape(-1)

    def scaled(self, adapter: LowRankAdapter) -> LowRankAdapter:
        """An adapter whose branches fit the scaled model: A reads divided channels, B makes them."""
        made = {}
        for (layer, name), (first, second) in adapter.factors.items():
            inputs, outputs = self.factors(name, layer)
            made[layer, name] = (
                first if inputs is None else first * inputs,
                second if outputs is None else second * outputs[:, None],
            )
        return LowRankAdapter(adapter.name, made)


class ScaledCheckpoint(Checkpoint):
    """A checkpoint with scales of inputs in its weights; its head is a matrix of its own, as the embedding stays."""

    def __init__(self, source: Checkpoint, scales: InputScales) -> None:
        shape = replace(source.architecture.shape, tied=False)
        super().__init__(replace(source.architecture, shape=shape), source.config, source.folder)
        self._source, self.scales = source, scales

    def _stored(self, name: str, layer: int | None) -> Array:
        own = self._source.architecture.head_weight if name == HEAD else name
        weight = self._source.weight(own, layer)
        if name == EMBEDDING:
            return weight
        inputs, outputs = self.scales.factors(name, layer)
        if "norm" in name:
            offset = np.float32(self.architecture.norm_offset)
            return weight if outputs is None else (weight + offset) * outputs - offset
        if outputs is not None:
            weight = weight * outputs.reshape(-1, *(1,) * (weight.ndim - 1))
        return weight if inputs is None else weight * inputs


def require_free_weights(checkpoint: Checkpoint, precision: BundlePrecision) -> None:
    """UnsupportedError for a checkpoint whose integers are kept as they are: no rounding could act on them."""
    shape = checkpoint.architecture.shape
    inner = [name for name in checkpoint.names() if name in READ_BY]
    places = [(name, layer) for layer in range(shape.layers) for name in inner]
    for name, layer in () if precision.expanded else (*places, (checkpoint.architecture.head_weight, None)):
        if checkpoint.codes(name, layer, precision.weight_bits, precision.block) is not None:
            raise UnsupportedError(
                f"{checkpoint.folder}: its {precision.weight_bits}-bit integers are kept as they are at "
                f"{precision.name}, so that nothing is left to round; leave out --rounding, or choose another precision"
            )


def searched_scales(checkpoint: Checkpoint, precision: BundlePrecision, correlations: InputCorrelations) -> InputScales:
    """The scales whose rounded products over a text are nearest to those of the checkpoint, group by group."""
    architecture = checkpoint.architecture
    found: dict[str, Array] = {}
    for layer in (*range(architecture.shape.layers), None):
        for value, products in READ.items():
            made_here = layer is None or _MAKERS[value] in checkpoint.names()
            if (layer is None) != (value == "normalized") or not made_here:
                continue
            names = [architecture.head_weight] if layer is None else products
            at = value if layer is None else f"layer.{layer}.{value}"
            weights = [_sampled(checkpoint.weight(name, layer)) for name in names]
            sizes = correlations.sizes(at)
            if value == "mixed":
                shape = architecture.shape
                groups = sizes.reshape(shape.kv_heads, -1, shape.head_dim)
                sizes = np.broadcast_to(groups.mean(1, keepdims=True), groups.shape).reshape(-1)
            scales = _best(weights, sizes, correlations.sums(at), precision)
            if scales is not None:
                found[at] = scales
    return InputScales(architecture, found)


def _sampled(weight: Array) -> Array:
    """Some outputs of a matrix, [inputs, outputs]."""
    step = -(-len(weight) // MOST_OUTPUTS)
    return np.ascontiguousarray(weight[::step].T)


def _best(weights: list[Array], sizes: Array, sums: Array, precision: BundlePrecision) -> Array | None:
    """The scales of the grid that lose least of the products' squares, each product's in shares of its own."""
    sizes = np.maximum(sizes, max(float(sizes.max()) * SMALLEST, 1e-20))
    whole = [max(_energy(weight, sums), 1e-30) for weight in weights]
    best, least = None, np.inf
    for alpha in ALPHAS:
        scales = (sizes / np.sqrt(sizes.max() * sizes.min())) ** np.float32(alpha)
        scales = scales.astype(np.float32)[:, None]
        lost = 0.0
        for weight, energy in zip(weights, whole, strict=True):
            off = rounded_weight(weight * scales, precision).real() / scales - weight
            lost += _energy(off, sums) / energy
        if lost < least:
            best, least = (scales[:, 0] if alpha else None), lost
    return best


def _energy(weight: Array, sums: Array) -> float:
    """The sum of squares of a matrix's products over the text."""
    return float(np.vdot(weight, sums @ weight))
