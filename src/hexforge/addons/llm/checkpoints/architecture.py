# SPDX-License-Identifier: Apache-2.0
"""Architecture: what a decoder-only language model computes: its shape, norms, rotation and biases, and its weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hexforge.addons.llm.checkpoints.rotation import Rotation, plain_rotation, rotation_of_config, scaling_of
from hexforge.addons.llm.families import AROUND_TEXT, EXPORTED, Family, family_of
from hexforge.addons.llm.shape import CONFIG, LlmShape, number_of, rotated_layers, shape_of_config, windowed_layers
from hexforge.errors import FormatError, UnsupportedError

_CHANGES = ("use_bidirectional_attention", "clip_qkv", "quantization_config")
"""Settings that change what is computed, or how weights are stored, and are not followed."""
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}


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
    joint_norms: bool = False
    """Whether all heads of queries, and all of keys, are normalized together."""
    inner_norms: bool = True
    """Whether what attention and the feed-forward part read is normalized."""
    fused: bool = False
    """Whether queries, keys and values are one matrix in a checkpoint, and the two that are gated another."""
    outer_norms: bool = False
    """Whether what a layer adds is normalized before it is added."""
    residual_scale: float = 1.0
    """What attention's result and the feed-forward part's are multiplied with."""
    logit_scale: float = 1.0
    score_cap: float = 0.0
    logit_cap: float = 0.0
    windows: tuple[int, ...] = ()
    """For each layer how far it looks back; 0: everywhere."""
    rotated: tuple[bool, ...] = ()
    """For each layer whether it turns queries and keys."""

    @property
    def head_weight(self) -> str:
        """The weight that is the head."""
        return "embedding" if self.shape.tied else "head"

    @property
    def normed_queries(self) -> bool:
        """Whether a norm makes queries and keys."""
        return self.head_norms or self.joint_norms

    def result_scale(self, name: str) -> float:
        """What the results of a product, or its bias, are multiplied with."""
        if name in ("embedding", "head"):
            return self.logit_scale
        return self.residual_scale if name.removesuffix("_bias") in ("output", "down") else 1.0


def architecture_of_config(config: Mapping[str, Any], name: str, where: str = CONFIG) -> Architecture:
    """What a config.json describes; UnsupportedError for a family or a part that is not written here."""
    shape = shape_of_config(config, name, where)
    nested = isinstance(config.get("text_config"), Mapping)
    text: Mapping[str, Any] = config["text_config"] if nested else config
    said, outer = str(text.get("model_type", config.get("model_type", ""))), str(config.get("model_type", ""))
    family = family_of(family_of(said).exported_as)
    if not family.exported_as:
        raise UnsupportedError(f"{where}: model_type {said!r} is not exported here; {', '.join(EXPORTED)} are")
    if nested and outer not in AROUND_TEXT:
        raise UnsupportedError(
            f"{where}: model_type {outer!r} around a {said} is not exported; {', '.join(AROUND_TEXT)} are"
        )
    if shape.experts > 1 or shape.attention_layers not in (0, shape.layers):
        raise UnsupportedError(f"{where}: experts and layers without attention are not exported here")
    if changes := [key for key in _CHANGES if text.get(key) or config.get(key)]:
        raise UnsupportedError(f"{where}: {changes[0]} is not followed; export a checkpoint without it")
    kinds = text.get("layer_types") or ()
    if other := [kind for kind in kinds if kind not in ("full_attention", "sliding_attention")]:
        raise UnsupportedError(f"{where}: layer_types has {other[0]!r}; full_attention and sliding_attention are known")
    text = {**family.settings, **text}

    def number(key: str, default: float) -> float:
        return number_of(text, key, default, where, zero=True)

    def flag(key: str) -> bool:
        if not isinstance(value := text.get(key) or False, bool):
            raise FormatError(f"{where}: {key} is {value!r}; it is true or false")
        return value

    def multiplier(key: str, default: float = 1.0) -> float:
        return number(key, default) if family.has_multipliers else default

    rotation, local_rotation = _rotations(text, family, shape, where)
    scale = 1 / math.sqrt(number_of(text, "query_pre_attn_scalar", shape.head_dim, where))
    windows = windowed_layers(text, shape.layers) if shape.window else ()
    bias = flag("attention_bias")
    return Architecture(
        family=family.exported_as,
        shape=shape,
        epsilon=number("rms_norm_eps", 1e-6),
        rotation=rotation,
        local_rotation=local_rotation,
        activation=_activation(text, family, where),
        positions=_positions(text, where),
        end_tokens=token_numbers(config, "eos_token_id"),
        begin_token=next(iter(token_numbers(config, "bos_token_id")), None),
        attention_scale=number("attention_multiplier", 1.0) if family.has_multipliers else scale,
        embedding_scale=(
            float(np.sqrt(np.float32(shape.hidden))) if family.scaled_embedding else multiplier("embedding_multiplier")
        ),
        output_bias=bias and "query_bias" not in family.layers,
        feed_bias=flag("mlp_bias"),
        residual_scale=multiplier("residual_multiplier"),
        logit_scale=1 / number_of(text, "logits_scaling", 1.0, where) if family.has_multipliers else 1.0,
        score_cap=number("attn_logit_softcapping", 0.0),
        logit_cap=number("final_logit_softcapping", 0.0),
        windows=tuple(shape.window if windowed else 0 for windowed in windows),
        rotated=rotated_layers(text, shape.layers, where) if family.skips_rotation else (),
        **{"query_bias": bias, **family.layers},
    )


def _activation(text: Mapping[str, Any], family: Family, where: str) -> str:
    """What gates a feed-forward part."""
    said = text.get("hidden_activation") or text.get("hidden_act") or family.activation
    known = {**_ACTIVATIONS, "gelu": "gelu_tanh"} if family.activation == "gelu" else _ACTIVATIONS
    if not isinstance(said, str) or said not in known:
        raise UnsupportedError(f"{where}: hidden_act {said!r} is not exported; {', '.join(known)} are")
    return known[said]


def _rotations(text: Mapping[str, Any], family: Family, shape: LlmShape, where: str) -> tuple[Rotation, Rotation]:
    """That of layers that look everywhere, and that of windowed ones."""
    theta = number_of(text, "rope_theta", 10000.0, where)
    whole = rotation_of_config(text, shape.head_dim, theta, where)
    settings = text.get("rope_scaling") or text.get("rope_parameters")
    if isinstance(settings, Mapping) and "sliding_attention" in settings:
        return whole, rotation_of_config(text, shape.head_dim, theta, where, "sliding_attention")
    if family.plain_window_rotation:
        return whole, plain_rotation(number_of(text, "rope_local_base_freq", theta, where), whole.size)
    return whole, whole


def _positions(text: Mapping[str, Any], where: str) -> int:
    """The longest text; of two rotations (longrope), the one for longer texts is another model's, and not exported."""
    longest = int(number_of(text, "max_position_embeddings", 2048, where))
    scaling = scaling_of(text, where)
    if scaling.get("long_factor") not in (None, scaling.get("short_factor")):
        key = "original_max_position_embeddings"
        return min(longest, int(number_of(text, key, number_of(scaling, key, longest, where), where)))
    return longest


def token_numbers(config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The token or tokens that settings name."""
    value = config.get(key)
    values = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(v for v in values if isinstance(v, int) and not isinstance(v, bool) and v >= 0)


EMBEDDING, FINAL_NORM, HEAD = "embedding", "final_norm", "head"


@dataclass(frozen=True, slots=True)
class Weight:
    """A kind of weight; those of a layer are called within it."""

    name: str
    transformers: str
    """What transformers calls it; ONNX exporters call modules so, too."""
    gguf: str
    sizes: str
    has: Callable[[Architecture], bool] = lambda arch: True
    """Whether an architecture has it."""


WEIGHTS = (
    Weight(EMBEDDING, "model.embed_tokens.weight", "token_embd.weight", "vocab hidden"),
    Weight(FINAL_NORM, "model.norm.weight", "output_norm.weight", "hidden"),
    Weight(HEAD, "lm_head.weight", "output.weight", "vocab hidden", lambda arch: not arch.shape.tied),
    Weight("query", "self_attn.q_proj.weight", "attn_q.weight", "queries hidden"),
    Weight("key", "self_attn.k_proj.weight", "attn_k.weight", "keys hidden"),
    Weight("value", "self_attn.v_proj.weight", "attn_v.weight", "keys hidden"),
    Weight("output", "self_attn.o_proj.weight", "attn_output.weight", "hidden queries"),
    Weight("gate", "mlp.gate_proj.weight", "ffn_gate.weight", "ffn hidden"),
    Weight("up", "mlp.up_proj.weight", "ffn_up.weight", "ffn hidden"),
    Weight("down", "mlp.down_proj.weight", "ffn_down.weight", "hidden ffn"),
    Weight("query_bias", "self_attn.q_proj.bias", "attn_q.bias", "queries", lambda arch: arch.query_bias),
    Weight("key_bias", "self_attn.k_proj.bias", "attn_k.bias", "keys", lambda arch: arch.query_bias),
    Weight("value_bias", "self_attn.v_proj.bias", "attn_v.bias", "keys", lambda arch: arch.query_bias),
    Weight("output_bias", "self_attn.o_proj.bias", "attn_output.bias", "hidden", lambda arch: arch.output_bias),
    Weight("gate_bias", "mlp.gate_proj.bias", "ffn_gate.bias", "ffn", lambda arch: arch.feed_bias),
    Weight("up_bias", "mlp.up_proj.bias", "ffn_up.bias", "ffn", lambda arch: arch.feed_bias),
    Weight("down_bias", "mlp.down_proj.bias", "ffn_down.bias", "hidden", lambda arch: arch.feed_bias),
    Weight("query_norm", "self_attn.q_norm.weight", "attn_q_norm.weight", "head", lambda arch: arch.head_norms),
    Weight("key_norm", "self_attn.k_norm.weight", "attn_k_norm.weight", "head", lambda arch: arch.head_norms),
    Weight("query_norm", "self_attn.q_norm.weight", "attn_q_norm.weight", "queries", lambda arch: arch.joint_norms),
    Weight("key_norm", "self_attn.k_norm.weight", "attn_k_norm.weight", "keys", lambda arch: arch.joint_norms),
    Weight("attention_norm", "input_layernorm.weight", "attn_norm.weight", "hidden", lambda arch: arch.inner_norms),
    Weight("feed_norm", "post_attention_layernorm.weight", "ffn_norm.weight", "hidden",
           lambda arch: arch.inner_norms and not arch.outer_norms),
    Weight("feed_norm", "pre_feedforward_layernorm.weight", "ffn_norm.weight", "hidden",
           lambda arch: arch.inner_norms and arch.outer_norms),
    Weight("attention_out_norm", "post_attention_layernorm.weight", "post_attention_norm.weight", "hidden",
           lambda arch: arch.outer_norms),
    Weight("feed_out_norm", "post_feedforward_layernorm.weight", "post_ffw_norm.weight", "hidden",
           lambda arch: arch.outer_norms),
)  # fmt: skip


def weights_of(architecture: Architecture) -> dict[str, Weight]:
    """The kinds of weights that a model of this architecture has."""
    return {weight.name: weight for weight in WEIGHTS if weight.has(architecture)}


def weight_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """The shapes of the weights that a model of this architecture has."""
    shape = architecture.shape
    sizes = {
        "vocab": shape.vocab, "hidden": shape.hidden, "ffn": shape.ffn, "head": shape.head_dim,
        "queries": shape.heads * shape.head_dim, "keys": shape.kv_heads * shape.head_dim,
    }  # fmt: skip
    own = weights_of(architecture).items()
    return {name: tuple(sizes[size] for size in weight.sizes.split()) for name, weight in own}


def fused_rows(shape: LlmShape, name: str) -> tuple[int, int, str]:
    """Where a product's rows are in a matrix that holds several: first, one after the last, and the matrix."""
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "query": (0, queries, "self_attn.qkv_proj"),
        "key": (queries, queries + keys, "self_attn.qkv_proj"),
        "value": (queries + keys, queries + 2 * keys, "self_attn.qkv_proj"),
        "gate": (0, shape.ffn, "mlp.gate_up_proj"),
        "up": (shape.ffn, 2 * shape.ffn, "mlp.gate_up_proj"),
    }[name]
