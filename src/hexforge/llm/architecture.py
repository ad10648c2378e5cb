# SPDX-License-Identifier: Apache-2.0
"""Architecture: what a decoder-only language model computes: its shape, norms, rotation and biases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.errors import FormatError, UnsupportedError
from hexforge.ir import Array
from hexforge.llm.shape import CONFIG, LlmShape, shape_of_config

FAMILIES = ("llama", "mistral", "smollm3", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text")
"""Model types, as config.json names them, whose graphs are written here."""
_GEMMAS = ("gemma", "gemma2", "gemma3_text")
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


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


@dataclass(frozen=True, slots=True)
class Architecture:
    """A decoder-only language model: sizes, and what differs between families."""

    family: str
    shape: LlmShape
    epsilon: float
    """Added to the mean square under a norm's root."""
    rotation: Rotation
    local_rotation: Rotation
    """Of layers that look back a window."""
    activation: str
    positions: int
    """The longest text that the model was made for."""
    end_tokens: tuple[int, ...]
    begin_token: int | None
    attention_scale: float
    norm_offset: float = 0.0
    """Added to the weights of norms."""
    embedding_scale: float = 1.0
    query_bias: bool = False
    """Whether queries, keys and values have a bias."""
    output_bias: bool = False
    """Whether attention's result has a bias."""
    feed_bias: bool = False
    """Whether the three products of a feed-forward part have a bias."""
    head_norms: bool = False
    """Whether each head of queries and keys is normalized."""
    fused: bool = False
    """Whether queries, keys and values are one matrix in a checkpoint, and the two that are gated another."""
    outer_norms: bool = False
    """Whether what a layer adds is normalized before it is added."""
    score_cap: float = 0.0
    logit_cap: float = 0.0
    windows: tuple[int, ...] = ()
    """For each layer how far it looks back; 0: everywhere."""
    rotated: tuple[bool, ...] = ()
    """For each layer whether it turns queries and keys."""


def architecture_of_config(config: Mapping[str, Any], name: str, where: str = CONFIG) -> Architecture:
    """What a config.json describes; UnsupportedError for a family or a part that is not written here."""
    shape = shape_of_config(config, name, where)
    text = next((config[k] for k in ("text_config",) if isinstance(config.get(k), Mapping)), config)
    family = str(text.get("model_type", config.get("model_type", "")))
    if family not in FAMILIES:
        raise UnsupportedError(f"{where}: model_type {family!r} is not exported here; {', '.join(FAMILIES)} are")
    if shape.experts > 1 or shape.attention_layers not in (0, shape.layers):
        raise UnsupportedError(f"{where}: experts and layers without attention are not exported here")
    gemma = family in _GEMMAS
    activation = str(text.get("hidden_activation") or text.get("hidden_act") or ("gelu_pytorch_tanh" if gemma else ""))
    activation = _ACTIVATIONS.get("gelu_pytorch_tanh" if gemma else activation, "")
    if not activation:
        raise UnsupportedError(f"{where}: hidden_act {text.get('hidden_act')!r} is not known; silu is")
    rotation = local_rotation = _rotation(text, shape, where, "full_attention")
    local = text.get("rope_local_base_freq")
    if isinstance(local, (int, float)):
        local_rotation = Rotation(rotation.size, _speeds(float(local), rotation.size))
    elif isinstance(text.get("rope_parameters"), Mapping) and "sliding_attention" in text["rope_parameters"]:
        local_rotation = _rotation(text, shape, where, "sliding_attention")
    scalar = float(text.get("query_pre_attn_scalar") or shape.head_dim)
    without = text.get("no_rope_layers")
    return Architecture(
        family=family,
        shape=shape,
        epsilon=float(text.get("rms_norm_eps", 1e-6)),
        rotation=rotation,
        local_rotation=local_rotation,
        activation=activation,
        positions=_positions(text),
        end_tokens=token_numbers(config, "eos_token_id"),
        begin_token=next(iter(token_numbers(config, "bos_token_id")), None),
        attention_scale=1 / math.sqrt(scalar),
        norm_offset=1.0 if gemma else 0.0,
        embedding_scale=float(np.sqrt(np.float32(shape.hidden))) if gemma else 1.0,
        query_bias=family == "qwen2" or bool(text.get("attention_bias", False)),
        output_bias=bool(text.get("attention_bias", False)) and family != "qwen2",
        feed_bias=bool(text.get("mlp_bias", False)),
        head_norms=family in ("qwen3", "gemma3_text"),
        fused=family == "phi3",
        outer_norms=family in ("gemma2", "gemma3_text"),
        score_cap=float(text.get("attn_logit_softcapping") or 0.0),
        logit_cap=float(text.get("final_logit_softcapping") or 0.0),
        windows=_windows(text, shape),
        rotated=tuple(map(bool, without)) if isinstance(without, list) and len(without) == shape.layers else (),
    )


def _positions(text: Mapping[str, Any]) -> int:
    """The longest text; of two rotations (longrope), the one for longer texts is another model's, and not exported."""
    longest = int(text.get("max_position_embeddings", 2048))
    scaling = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(scaling, Mapping) and scaling.get("long_factor") not in (None, scaling.get("short_factor")):
        key = "original_max_position_embeddings"
        return min(longest, int(text.get(key, scaling.get(key, longest))))
    return longest


def token_numbers(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The token or tokens that settings name."""
    value = config.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0)


def _speeds(theta: float, size: int) -> tuple[float, ...]:
    return tuple(float(v) for v in np.float32(theta) ** -(np.arange(0, size, 2, dtype=np.float32) / np.float32(size)))


def _rotation(text: Mapping[str, Any], shape: LlmShape, where: str, layers: str) -> Rotation:
    """Rotary embedding with the scalings that checkpoints of these families have, of one kind of layers."""
    scaling = text.get("rope_scaling") or text.get("rope_parameters") or {}
    if isinstance(scaling, Mapping) and layers in scaling:
        scaling = scaling[layers]
    if not isinstance(scaling, Mapping):
        raise FormatError(f"{where}: rope_scaling is no object")
    theta = float(scaling.get("rope_theta", text.get("rope_theta", 10000.0)))
    size = int(shape.head_dim * float(text.get("partial_rotary_factor", scaling.get("partial_rotary_factor", 1.0))))
    if not theta > 0 or size < 2 or size % 2 or size > shape.head_dim:
        raise FormatError(f"{where}: rope_theta {theta} with {size} turning elements of {shape.head_dim}")
    speeds: Array = np.asarray(_speeds(theta, size), np.float32)
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    scale = 1.0
    try:
        if kind == "linear":
            speeds = speeds / np.float32(scaling["factor"])
        elif kind == "llama3":
            factor, low, high = (float(scaling[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
            turns = float(scaling["original_max_position_embeddings"]) * speeds / (2 * math.pi)
            smooth = np.clip((turns - low) / (high - low), 0, 1).astype(np.float32)
            speeds = (1 - smooth) * speeds / np.float32(factor) + smooth * speeds
        elif kind in ("longrope", "su"):
            key = "original_max_position_embeddings"
            original = int(text.get(key, scaling.get(key, 4096)))
            speeds = speeds / np.asarray(scaling["short_factor"], np.float32)
            stretch = int(text.get("max_position_embeddings", original)) / original
            scale = math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0
        elif kind != "default":
            raise UnsupportedError(f"{where}: rope_scaling of type {kind!r}; linear, llama3 and longrope are known")
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise FormatError(f"{where}: rope_scaling of type {kind!r} is malformed: {error}") from None
    return Rotation(size, tuple(float(v) for v in speeds), scale)


def _windows(text: Mapping[str, Any], shape: LlmShape) -> tuple[int, ...]:
    """Which layers look back a window, in the order that checkpoints have."""
    if not shape.window:
        return ()
    kinds = text.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == shape.layers:
        return tuple(shape.window if kind == "sliding_attention" else 0 for kind in kinds)
    whole = shape.layers - shape.windowed_layers
    if not whole:
        return (shape.window,) * shape.layers
    every = shape.layers // whole
    return tuple(0 if (i + 1) % every == 0 else shape.window for i in range(shape.layers))
