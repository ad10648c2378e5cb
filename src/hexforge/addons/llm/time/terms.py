# SPDX-License-Identifier: Apache-2.0
"""What a chunk of a prompt and a token of an answer take: the terms of the model, and what was believed before the fit.

A chunk of 128 tokens is bound by products: multiply-accumulates of all layers and of the head, something for each
layer, and attention, which reads the whole context that its graph was made for. A token is bound by memory: the bytes
of weights and of the cache, something for each layer and for the host. Its attention is a part of a chunk's, because
the matrix unit works on tiles of 32 rows, whether one or all of them are of use; of that a share falls with the
positions of the context that are still empty, as HTP's guide says of MaskedSoftmax. Bytes arrive while attention
computes, so that the two together take less than their sum.

Every field may be a number or an array, so that a fit and an estimate use the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hexforge.addons.llm.shape import LlmShape

CHUNK = 128
"""Tokens of a prompt that a graph takes at once: AR-128, as all measured bundles have it."""
Amount = Any
"""A number, or an array with one for each row of a fit."""


class LlmParameter(NamedTuple):
    """A parameter of the model: what it counts, what is believed of it, and how firmly (logarithmic)."""

    name: str
    unit: str
    prior: float
    spread: float


PARAMETERS = (
    LlmParameter("product", "ms per 1e12 multiply-accumulates of a chunk", 80.0, 1.5),
    LlmParameter("logits", "ms per 1e5 words of a chunk's vocabulary", 2.0, 1.0),
    LlmParameter("attention_layer", "us per layer of a chunk and 1000 positions", 70.0, 0.7),
    LlmParameter("attention_head", "us per head and layer of a chunk and 1000 positions", 2.0, 0.5),
    LlmParameter("attention_kv_head", "us per head of keys and values, and so on", 8.0, 0.5),
    LlmParameter("byte", "ms per 1e9 bytes that a token reads", 20.0, 1.5),
    LlmParameter("token_layer", "ms per layer of a token, with 32 heads of both kinds", 0.2, 0.5),
    LlmParameter("token_host", "ms per token", 1.0, 1.0),
    LlmParameter("tile_share", "of a chunk's attention, for the one token of a tile of 32", 0.25, 0.2),
    LlmParameter("unmasked_share", "of a token's attention, whatever part of the context is empty", 0.5, 0.7),
    LlmParameter("wide_operand", "us per head of 128, layer and 1000 positions, of 16-bit keys and values", 37.5, 0.5),
    LlmParameter("host_embedding", "ms per token whose embedding the host looks up, where that is slow", 10.0, 2.0),
    LlmParameter("float_product", "of the time of products, with float activations", 2.0, 0.5),
    LlmParameter("float_byte", "of the time of bytes, with float activations", 2.0, 0.5),
    LlmParameter("speculative", "tokens for the time of one, with speculative decoding", 2.2, 0.3),
)
"""All parameters of the model; each chip has two factors more, and each chip and runtime two. Believed of a wide
operand: 73 us per MB, which is what the time model of other graphs has for a 16-bit operand of a product (cost.json:
hvx.operand times deviation.w8a16.move), of 2 x 2 x 128 bytes for each head and position."""
NAMES = tuple(parameter.name for parameter in PARAMETERS)
OVERLAP = 1.3
"""The norm by which bytes and attention of a token add up: 1 is one after the other, more the larger of the two.
Chosen of 1, 1.2, 1.3 and 1.5 by folds within folds."""
SLOW_HOST = ("SC8380XP", "genie")
"""The chip and runtime where tokens of models that see pictures, whose embeddings the host looks up, wait for it:
measured for two families, which differ by four times in size and agree on about 140 ms."""
HEAD_TASKS, HEADS = 0.5, 32
"""Assumed: half of a layer's tasks are of its heads, which bundles compute one by one. A task takes about 1 us
(cost.json), and a layer of 32 heads has some 200 of them. Chosen of 0, 0.25, 0.5 and 0.75."""
FACTORS = ("compute", "memory")
"""What a chip is: its time for a chunk's work and for bytes, relative to others'."""


class StoredBits(NamedTuple):
    """How many bits values of a precision take where they are stored."""

    weight: float
    head: float
    cache: float
    activations: str
    """The name that energy has for products of such activations."""
    measured: bool


PRECISIONS: Mapping[str, StoredBits] = {
    "w4a16": StoredBits(4, 8, 8, "w8a16", True),
    "w4": StoredBits(4, 8, 16, "float", True),
    "w4a16_lpbq": StoredBits(4, 8, 8, "w8a16", True),
    "w4a16_channel": StoredBits(4, 8, 8, "w8a16", True),
    "w8a16": StoredBits(8, 8, 8, "w8a16", False),
    "float": StoredBits(16, 16, 16, "float", False),
}
"""Published (AI Hub's recipes): 4-bit weights, the head in 8 bits, an 8-bit cache where activations are integers. Of
w8a16 and float no row was measured: as many times the bytes."""


@dataclass(frozen=True, slots=True)
class LlmWork:
    """What a chunk and a token ask for, at one context."""

    layers: Amount
    heads: Amount
    spans: Amount
    """Thousands of positions that attention looks at, summed over layers."""
    kv_heads: Amount
    vocab: Amount
    """1e5 words."""
    chunk_tmacs: Amount
    """1e12 multiply-accumulates of a chunk, attention's left out."""
    layer_gb: Amount
    """1e9 bytes of weights that a token reads, the head's left out."""
    head_gb: Amount
    cache_gb: Amount
    empty: Amount
    """The part of the context that is still empty when tokens are timed."""
    wide: Amount = 0.0
    """Heads, each of 128 values, that are multiplied with keys and values of 16 bits."""
    waits_for_host: Amount = 0.0
    """1 where a token's embedding comes from a host that is slow at it."""
    is_float: Amount = 0.0
    """1 where activations are float16."""
    speculative: Amount = 0.0


class ChunkTime(NamedTuple):
    """Milliseconds of a chunk, by part."""

    products: Amount
    logits: Amount
    attention: Amount


class TokenTime(NamedTuple):
    """Milliseconds of a token, by part; attention's is what it adds to the bytes that arrive meanwhile."""

    weights: Amount
    head: Amount
    cache: Amount
    attention: Amount
    layers: Amount
    host: Amount


def work_of(shape: LlmShape, precision: str, context: int, filled: int) -> LlmWork:
    """What a model asks for in a graph of a context of which some positions are filled."""
    bits = PRECISIONS[precision]
    return LlmWork(
        shape.layers,
        shape.heads,
        shape.spans(context) / 1e3,
        shape.kv_heads,
        shape.vocab / 1e5,
        (shape.active_parameters + shape.head_parameters) * CHUNK / 1e12,
        shape.active_parameters * bits.weight / 8e9,
        shape.head_parameters * bits.head / 8e9,
        shape.cached_values(context) * bits.cache / 8e9,
        1 - min(filled, context) / context,
        wide=shape.heads * shape.head_dim / 128 if shape.wide_attention and bits.activations != "float" else 0.0,
        is_float=float(bits.activations == "float"),
    )


def _chosen(flag: Amount, factor: float) -> Amount:
    """A factor where a flag is set, else 1."""
    return 1 + flag * (factor - 1)


def chunk_time(values: Mapping[str, float], work: LlmWork, compute: Amount) -> ChunkTime:
    """What a chunk of a prompt takes with these parameters on a chip of this factor."""
    per_span = values["attention_layer"] + values["attention_head"] * work.heads
    per_span = per_span + values["attention_kv_head"] * work.kv_heads
    at_float = _chosen(work.is_float, values["float_product"])
    return ChunkTime(
        compute * at_float * values["product"] * work.chunk_tmacs,
        compute * values["logits"] * work.vocab,
        compute * at_float * per_span * work.spans / 1e3,
    )


def token_time(values: Mapping[str, float], work: LlmWork, compute: Amount, memory: Amount) -> TokenTime:
    """What a token of an answer takes with these parameters on a chip of these factors."""
    per_gb = memory * values["byte"] * _chosen(work.is_float, values["float_byte"])
    tokens = _chosen(work.speculative, values["speculative"])
    busy = 1 - np.minimum(1, np.maximum(0, 1 - values["unmasked_share"])) * work.empty
    attention = chunk_time(values, work, compute).attention * values["tile_share"] * busy
    per_head = 1 - HEAD_TASKS + HEAD_TASKS * (work.heads + work.kv_heads) / HEADS
    bytes_ms = per_gb * (work.layer_gb + work.head_gb) + memory * values["byte"] * work.cache_gb
    attention = attention + compute * values["wide_operand"] * work.wide * work.spans / 1e3
    together = (bytes_ms**OVERLAP + attention**OVERLAP) ** (1 / OVERLAP)
    return TokenTime(
        per_gb * work.layer_gb / tokens,
        per_gb * work.head_gb / tokens,
        memory * values["byte"] * work.cache_gb / tokens,
        (together - bytes_ms) / tokens,
        compute * values["token_layer"] * work.layers * per_head / tokens,
        (values["token_host"] + values["host_embedding"] * work.waits_for_host) / tokens + 0 * work.layers,
    )
