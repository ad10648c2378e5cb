# SPDX-License-Identifier: Apache-2.0
"""Weights of a decoder: a row for each kind, with what files call it, its sizes, and which architectures have it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hexforge.addons.llm.checkpoints.architecture import Architecture
from hexforge.addons.llm.shape import LlmShape

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
