# SPDX-License-Identifier: Apache-2.0
"""Rounding of weights to integers: with scales as LPBQ has them, and with errors that later inputs make up for.

LPBQ stores one float scale for each output, and a whole number from 1 to 16 for each block of its inputs.
Compensated rounding takes the inputs of a matrix one after the other: what rounding one of them changes in the products
over a calibration text is put onto those that are not rounded yet, as far as they go together with it (GPTQ).
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import EMBEDDING, HEAD
from hexforge.addons.llm.exporting.precision import BundlePrecision, quantized_weight
from hexforge.ir import Array

EXPANSION = 16
"""The largest whole number that a block's scale is of its output's."""
DAMPING = 0.01
"""A share of the mean square of inputs that is added to each, so that rare ones have a bound."""
_TOGETHER = 128
"""Inputs whose errors are put onto the later ones at once."""
READ = {
    "attention_norm": ("query", "key", "value"), "mixed": ("output",), "feed_norm": ("gate", "up"), "gated": ("down",),
    "normalized": (EMBEDDING, HEAD),
}  # fmt: skip
"""The products that read each value, as float_decoder calls it."""
READ_BY = {name: value for value, names in READ.items() for name in names}
"""The value that each product reads."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundedWeight:
    """Integers [inputs, outputs] of a matrix and the scales of outputs, or of blocks of inputs [blocks, outputs]."""

    integers: Array
    scales: Array
    expansion: Array | None = None
    """Whole numbers [blocks, outputs] that the scales of outputs are multiplied with."""

    def real(self) -> Array:
        """The matrix that the integers stand for, in float32."""
        scales = np.atleast_2d(self.scales)
        scales = scales if self.expansion is None else scales * self.expansion
        real: Array = self.integers.astype(np.float32) * np.repeat(scales, len(self.integers) // len(scales), 0)
        return real


class InputCorrelations:
    """How inputs of each product go together over a text: sums of their products, in files that go with them."""

    def __init__(self) -> None:
        self._sums: dict[str, Array] = {}
        self._sizes: dict[str, Array] = {}
        self._factor: tuple[str, Array] = ("", np.zeros((0, 0), np.float32))

    def observe(self, name: str, value: Array) -> None:
        """Add what a product reads."""
        if name.rpartition(".")[2] not in READ:
            return
        rows = value.reshape(-1, value.shape[-1])
        if name not in self._sums:
            with tempfile.TemporaryFile(prefix="hexforge-correlations-") as file:
                file.truncate(4 * rows.shape[1] ** 2)
                self._sums[name] = np.memmap(file, np.float32, "r+", shape=(rows.shape[1],) * 2)
            self._sizes[name] = np.zeros(rows.shape[1], np.float32)
        self._sums[name] += rows.T @ rows
        self._sizes[name] += np.abs(rows).sum(0)

    def sums(self, value: str) -> Array:
        """The sums of products of a value's channels [channels, channels]."""
        return self._sums[value]

    def sizes(self, value: str) -> Array:
        """The sum of each channel's sizes."""
        return self._sizes[value]

    def factor(self, name: str, layer: int | None) -> Array:
        """The upper factor of the inverse of a product's sums; the last one is kept for products that read the same."""
        value = READ_BY[name] if layer is None else f"layer.{layer}.{READ_BY[name]}"
        if self._factor[0] != value:
            sums = np.asarray(self._sums[value], np.float64)
            sums[np.diag_indices_from(sums)] += DAMPING * max(float(np.diag(sums).mean()), 1e-12)
            self._factor = (value, np.linalg.cholesky(np.linalg.inv(sums)).T)
        return self._factor[1]


def rounded_weight(weight: Array, precision: BundlePrecision, factor: Array | None = None) -> RoundedWeight:
    """A matrix [inputs, outputs] in integers of a precision; compensated where a `factor` of its inputs is given."""
    block = precision.block if precision.block and weight.shape[0] % precision.block == 0 else 0
    integers, scales = quantized_weight(weight, precision.weight_bits, block)
    expansion = None
    if precision.expanded and block:
        expansion, scales = expanded(scales)
    whole = scales if expansion is None else expansion.astype(np.float32) * scales
    if factor is not None:
        integers = _compensated(weight, whole, precision.weight_bits, block, factor)
    elif expansion is not None:
        integers = _nearest(weight, np.repeat(whole, block, 0), precision.weight_bits)
    return RoundedWeight(integers, scales, expansion)


def expanded(scales: Array) -> tuple[Array, Array]:
    """Scales of blocks [blocks, outputs] as whole numbers from 1 to 16 of one scale for each output."""
    largest = (scales.max(0) / np.float32(EXPANSION)).astype(np.float32)
    return np.clip(np.rint(scales / largest), 1, EXPANSION).astype(np.uint8), largest


def _nearest(weight: Array, scales: Array, bits: int) -> Array:
    top = (1 << bits - 1) - 1
    nearest: Array = np.clip(np.rint(weight / scales), -top - 1, top).astype(np.int8)
    return nearest


def _compensated(weight: Array, scales: Array, bits: int, block: int, factor: Array) -> Array:
    """Integers whose products over the text are near, input by input; some inputs together for the sake of speed."""
    left = np.array(weight, np.float64)
    integers = np.empty(weight.shape, np.int8)
    for start in range(0, len(left), _TOGETHER):
        end = min(start + _TOGETHER, len(left))
        errors = np.empty((end - start, left.shape[1]))
        for row in range(start, end):
            scale = scales[row // block] if block else scales
            integers[row] = _nearest(left[row], scale, bits)
            error = (left[row] - integers[row] * scale.astype(np.float64)) / factor[row, row]
            left[row + 1 : end] -= np.outer(factor[row, row + 1 : end], error)
            errors[row - start] = error
        left[end:] -= factor[start:end, end:].T @ errors
    return integers
