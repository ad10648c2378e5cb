# SPDX-License-Identifier: Apache-2.0
"""Precision: how many bits weights, activations and caches of a bundle have, and the encodings that follow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.options import did_you_mean

CACHE_ZERO = 128
"""The zero point of 8-bit caches, which native ones must have."""
_LARGEST_16 = 65535
_STRIPE = 256
"""Outputs of a matrix that are quantized at a time: what is computed of them stays in a cache."""
_STRETCH = 1 << 20
"""Numbers of a table that are quantized at a time."""
_LEAST_SCALE = 2.0**-24
"""Of a block: float16's least."""


@dataclass(frozen=True, slots=True)
class BundlePrecision:
    """Bits of weights and activations; `block` weights along the inputs share a scale, 0: all of an output's."""

    name: str
    weight_bits: int
    activation_bits: int
    block: int = 0
    expanded: bool = False
    """Whether scales of blocks are whole numbers of their output's (LPBQ)."""

    @property
    def quantized(self) -> bool:
        """Whether activations are integers."""
        return self.activation_bits > 0


PRECISIONS = {
    precision.name: precision
    for precision in (
        BundlePrecision("float", 0, 0),
        BundlePrecision("w8a16", 8, 16),
        BundlePrecision("w4a16", 4, 16, 32),
        BundlePrecision("w4a16_lpbq", 4, 16, 32, True),
        BundlePrecision("w4a16_channel", 4, 16),
    )
}


def precision_named(name: str) -> BundlePrecision:
    """A precision by its name; CallError for one that is not exported."""
    if name not in PRECISIONS:
        raise CallError(
            f"precision {name!r} is not exported; {', '.join(PRECISIONS)} are{did_you_mean(name, PRECISIONS)}"
        )
    return PRECISIONS[name]


@dataclass(frozen=True, slots=True)
class CodeSteps:
    """An unsigned encoding of one scale: real = (integer - zero) * scale."""

    scale: float
    zero: int
    bits: int = 16

    def quantized(self, array: Array) -> Array:
        """Integers nearest to numbers."""
        codes: Array = np.empty(array.shape, np.uint16 if self.bits == 16 else np.uint8)
        flat, to = array.reshape(-1), codes.reshape(-1)
        for start in range(0, flat.size, _STRETCH):
            own = slice(start, start + _STRETCH)
            integers = np.rint(flat[own] / np.float32(self.scale)) + self.zero
            to[own] = np.clip(integers, 0, (1 << self.bits) - 1)
        return codes


def steps_between(low: float, high: float) -> CodeSteps:
    """16-bit steps from the lowest to the highest number, zero among them."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32(max(high - low, 1e-6) / _LARGEST_16))
    return CodeSteps(scale, round(min(max(-low / scale, 0), _LARGEST_16)))


def cache_steps(largest: float) -> CodeSteps:
    """8-bit steps on both sides of zero."""
    return CodeSteps(float(np.float32(max(largest, 1e-6) / 127)), CACHE_ZERO, 8)


def quantized_weight(weight: Array, bits: int, block: int) -> tuple[Array, Array]:
    """Integers and float32 scales of a matrix [inputs, outputs]: a scale for each output, or for each block of inputs.

    Scales of blocks are float16's numbers, which programs keep in two bytes. The scale of 4 bits is the one of sixteen
    candidates that loses least of the squares. Few outputs are done at a time, so that what is computed of a large
    matrix stays small in comparison.
    """
    inputs, outputs = weight.shape
    integers = np.empty((inputs, outputs), np.int8)
    scales = np.empty((inputs // block if block else 1, outputs), np.float32)
    for start in range(0, outputs, _STRIPE):
        own = slice(start, start + _STRIPE)
        integers[:, own], scales[:, own] = _quantized_stripe(np.ascontiguousarray(weight[:, own]), bits, block)
    return integers, scales if block else scales[0]


def _quantized_stripe(weight: Array, bits: int, block: int) -> tuple[Array, Array]:
    inputs, outputs = weight.shape
    groups = weight.reshape(inputs // block if block else 1, block or inputs, outputs)
    top = (1 << bits - 1) - 1
    largest = np.abs(groups).max(1, keepdims=True) / np.float32(top)

    def scale_of(share: np.float32) -> Array:
        scale: Array = np.maximum(largest * share, np.float32(1e-8))
        if block and scale.max() < np.finfo(np.float16).max:
            scale = np.maximum(scale.astype(np.float16).astype(np.float32), np.float32(_LEAST_SCALE))
        return scale

    best = scale_of(np.float32(1))
    if bits == 4:
        least, off = np.full(best.shape, np.inf, np.float32), np.empty_like(groups)
        for share in np.linspace(0.7, 1.0, 16, dtype=np.float32):
            scale = scale_of(share)
            np.divide(groups, scale, out=off)
            np.rint(off, out=off)
            np.clip(off, -top - 1, top, out=off)
            off *= scale
            off -= groups
            off *= off
            lost = off.sum(1, keepdims=True)
            best, least = np.where(lost < least, scale, best), np.minimum(lost, least)
    integers = np.clip(np.rint(groups / best), -top - 1, top).astype(np.int8).reshape(inputs, outputs)
    return integers, best.reshape(-1, outputs).astype(np.float32)
