# SPDX-License-Identifier: Apache-2.0
"""Encoding plan: what every tensor of a float ONNX model becomes. Calibration makes it, improvements change it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from hexforge.ir import Array, DType, Encoding


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-point type: how the integers of a tensor are stored and what they mean."""

    dtype: DType
    encoding: Encoding


@dataclass(frozen=True, slots=True)
class ChipArithmetic:
    """What a chip computes, as far as encodings depend on it."""

    wide_products: bool = True
    """Whether it multiplies two run-time tensors of 16 bits (v73 and newer)."""
    floats: bool = True
    """Whether it computes in float16."""
    on_cpu: tuple[tuple[str, str], ...] = ()
    """Nodes of the model that stay with the CPU, each with why; they get no encodings."""


@dataclass(slots=True)
class EncodingPlan:
    """How a model is quantized, by ONNX tensor and node names. What is not in it stays as it is."""

    tensors: dict[str, Fixed] = field(default_factory=dict)
    """Activations and constants that become fixed point."""
    converts: dict[tuple[str, str], Fixed] = field(default_factory=dict)
    """(tensor, node that reads it): the type that node reads instead, where regions of different precision meet."""
    integers: dict[str, Array] = field(default_factory=dict)
    """Constants whose integers were chosen otherwise than by rounding to the nearest."""
    constants: dict[str, Array] = field(default_factory=dict)
    """Float constants that were changed before quantizing (equalized weights, corrected biases)."""
    floats: dict[str, str] = field(default_factory=dict)
    """Nodes left in float, with why."""
    mixed_heads: dict[str, str] = field(default_factory=dict)
    """Outputs that join parts of very different ranges, and how the parts are kept apart."""
    mixed_parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The tensors that such outputs join."""
    on_cpu: dict[str, str] = field(default_factory=dict)
    """Of the nodes left in float those that stay with the CPU, with why."""

    def copied(self) -> EncodingPlan:
        """A copy that can be changed without changing this plan."""
        return EncodingPlan(*(dict(getattr(self, part.name)) for part in fields(self)))
