# SPDX-License-Identifier: Apache-2.0
"""Rotation: how far pairs of elements of queries and keys turn for each position, with the scalings of checkpoints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.addons.llm.shape import LEAST, MOST, number_of
from hexforge.errors import FormatError, UnsupportedError
from hexforge.ir import Array

SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")
"""Types of rope_scaling that are followed."""
_OLD_NAMES = {"su": "longrope", "mrope": "default"}
"""Of mrope the three positions of a text's tokens are one."""
_ORIGINAL = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True)
class Rotation:
    """How far each pair of elements of a head turns for each position."""

    size: int
    """Elements of a head that turn."""
    speeds: tuple[float, ...]
    scale: float = 1.0
    """What cosines and sines are multiplied with."""

    def table(self, positions: int) -> tuple[Array, Array]:
        """Cosines and sines [positions, size / 2] in float32."""
        angles = np.outer(np.arange(positions, dtype=np.float32), np.asarray(self.speeds, np.float32))
        return (np.cos(angles) * np.float32(self.scale), np.sin(angles) * np.float32(self.scale))


def plain_rotation(theta: float, size: int) -> Rotation:
    """A rotation without a scaling."""
    speeds = np.float32(theta) ** -(np.arange(0, size, 2, dtype=np.float32) / np.float32(size))
    return Rotation(size, tuple(float(v) for v in speeds))


def scaling_of(text: Mapping[str, Any], where: str, layers: str = "full_attention") -> Mapping[str, Any]:
    """The settings of a rotation, whether or not kinds of layers have their own."""
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if isinstance(scaling, Mapping) and layers in scaling:
        scaling = scaling[layers]
    if not isinstance(scaling, Mapping):
        raise FormatError(f"{where}: rope_scaling is no object")
    return scaling


def rotation_of_config(
    text: Mapping[str, Any], head_dim: int, theta: float, where: str, layers: str = "full_attention"
) -> Rotation:
    """The rotation of one kind of layers, as a config.json says it; `theta` is the family's where it does not."""
    scaling = scaling_of(text, where, layers)
    theta = number_of(scaling, "rope_theta", number_of(text, "rope_theta", theta, where), where)
    share = number_of(scaling, "partial_rotary_factor", number_of(text, "partial_rotary_factor", 1.0, where), where)
    size = int(head_dim * share)
    if size < 2 or size % 2 or size > head_dim:
        raise FormatError(f"{where}: {size} turning elements of {head_dim}; give an even number of them")
    plain = plain_rotation(theta, size)
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    kind = _OLD_NAMES.get(kind, kind)
    if kind == "yarn" and "short_factor" in scaling:  # as the first Phi 3 with two rotations called it
        kind = "longrope"
    if kind not in SCALINGS:
        raise UnsupportedError(f"{where}: rope_scaling of type {kind!r} is not known; {', '.join(SCALINGS)} are")
    if kind in ("default", "dynamic"):
        return plain  # dynamic ones turn otherwise only in texts that are longer than the model's
    speeds: Array = np.asarray(plain.speeds, np.float32)
    try:
        scaled, scale = _SCALED[kind](speeds, _ScaledRotation(text, scaling, theta, where))
    except (KeyError, TypeError, ValueError, ZeroDivisionError, OverflowError) as error:
        raise FormatError(f"{where}: rope_scaling of type {kind!r} is malformed: {error}") from None
    return Rotation(size, tuple(float(v) for v in scaled), scale)


@dataclass(frozen=True, slots=True)
class _ScaledRotation:
    """What a config says of a rotation that is scaled."""

    text: Mapping[str, Any]
    scaling: Mapping[str, Any]
    theta: float
    where: str

    def number(self, key: str, default: float) -> float:
        """A number of the scaling."""
        return number_of(self.scaling, key, default, self.where)

    def required(self, key: str) -> float:
        """A number that the scaling must have; KeyError where it has not."""
        return self.number(key, self.scaling[key])

    def longest(self, default: float = 2048) -> float:
        """The longest text of the model."""
        return number_of(self.text, "max_position_embeddings", default, self.where)

    @property
    def original(self) -> float:
        """The length that the model was trained for first; outside the scaling it counts more (transformers)."""
        return number_of(self.text, _ORIGINAL, self.number(_ORIGINAL, self.longest()), self.where)


def _linear(speeds: Array, said: _ScaledRotation) -> tuple[Array, float]:
    return speeds / np.float32(said.required("factor")), 1.0


def _llama3(speeds: Array, said: _ScaledRotation) -> tuple[Array, float]:
    """Slow pairs turn `factor` times as slowly, fast ones as before, and those between a bit of both."""
    factor, low, high = (said.required(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if not high > low:
        raise ValueError(f"high_freq_factor {high} is not above low_freq_factor {low}")
    turns = said.original * speeds / (2 * math.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
    return (1 - smooth) * speeds / np.float32(factor) + smooth * speeds, 1.0


def _yarn(speeds: Array, said: _ScaledRotation) -> tuple[Array, float]:
    """As llama3, by the number of a pair; and scores are sharpened by the logarithm of the factor."""
    original, size = said.original, 2 * len(speeds)
    factor = said.number("factor", said.scaling["factor"] or said.longest() / original)

    def place(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(said.theta))

    def sharpened(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    low, high = (place(said.number(key, turns)) for key, turns in (("beta_fast", 32), ("beta_slow", 1)))
    if said.scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = np.clip((np.arange(len(speeds), dtype=np.float32) - low) / (high - low or 0.001), 0, 1).astype(np.float32)
    scale = sharpened(1.0)
    if said.scaling.get("mscale") and said.scaling.get("mscale_all_dim"):
        scale = sharpened(said.required("mscale")) / sharpened(said.required("mscale_all_dim"))
    return speeds / np.float32(factor) * ramp + speeds * (1 - ramp), said.number("attention_factor", scale)


def _longrope(speeds: Array, said: _ScaledRotation) -> tuple[Array, float]:
    """Each pair has a factor of its own; of the two lists the one for shorter texts."""
    original = said.original
    factors = np.asarray(said.scaling["short_factor"], np.float64)
    if factors.shape != speeds.shape or not ((factors >= LEAST) & (factors <= MOST)).all():
        raise ValueError(f"short_factor has not {len(speeds)} numbers above 0")
    stretch = said.number("factor", said.longest(original) / original)
    scale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
    return speeds / factors.astype(np.float32), said.number("attention_factor", scale)


_SCALED = {"linear": _linear, "llama3": _llama3, "yarn": _yarn, "longrope": _longrope}
