# SPDX-License-Identifier: Apache-2.0
"""What an ONNX decoder with a genai_config.json computes: sizes of its settings, everything else of its nodes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir

from hexforge.addons.llm.checkpoints.architecture import Architecture, architecture_of_config
from hexforge.addons.llm.checkpoints.decoder_constants import DecoderConstants, evaluated, is_constant, number, upstream
from hexforge.addons.llm.checkpoints.rotation import Rotation
from hexforge.errors import FormatError, UnsupportedError
from hexforge.ir import Array

_TYPES = {"gemma3_text": "gemma3_text", "gemma3": "gemma3_text", "phi3small": ""}
_PLAIN = "llama"
"""The family of a model whose type is not told: nothing that its nodes do not say is taken from it."""


def decoder_architecture(
    model: Mapping[str, Any], decoder: Mapping[str, Any], graph: onnx_ir.Graph, constants: DecoderConstants, name: str
) -> tuple[Architecture, dict[str, Any], bool]:
    """What the model computes, the config.json that says so, and whether neighbours of a head turn, not its halves."""
    where = constants.where
    nodes = _checked(attentions(graph), where)
    layers = len(nodes)
    embedding = constants.matrix(None, "embed_tokens")
    table = embedding if isinstance(embedding, np.ndarray) else embedding.integers
    gate = "gate_proj" if constants.has(0, "gate_proj") else "gate_up_proj"
    matrix = constants.matrix(0, gate)
    gated = len(matrix if isinstance(matrix, np.ndarray) else matrix.integers)
    heads, groups = (int(number(nodes[0], key, 0)) for key in ("num_heads", "kv_num_heads"))
    size = decoder.get("head_size")
    kind = str(model.get("type", ""))
    tied = constants.shares_its_table()
    config: dict[str, Any] = {
        "model_type": kind, "vocab_size": table.shape[0], "hidden_size": table.shape[1], "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": size,
        "intermediate_size": gated if gate == "gate_proj" else gated // 2,
        "max_position_embeddings": model.get("context_length"), "tie_word_embeddings": tied, "hidden_act": "silu",
        "eos_token_id": model.get("eos_token_id"), "bos_token_id": model.get("bos_token_id"),
        "rms_norm_eps": _epsilon(constants),
    }  # fmt: skip
    plain = {**config, "model_type": _PLAIN}
    arch = architecture_of_config({k: v for k, v in plain.items() if v is not None}, name, where)
    rotations = [_layer_rotation(graph, node, layer, where) for layer, node in enumerate(nodes)]
    turning = [r for r in rotations if r is not None]
    windows = [max(int(number(node, "local_window_size", -1)), 0) for node in nodes]
    whole, local = (
        {r for r, window in zip(rotations, windows, strict=True) if r is not None and bool(window) == wanted}
        for wanted in (False, True)
    )
    pairs = {pair for _, pair in turning}
    if len(whole) > 1 or len(local) > 1 or len(pairs) > 1 or not turning:
        raise UnsupportedError(f"{where}: its layers turn heads in more ways than windowed and other layers")
    window = max(windows)
    if any(w not in (0, window) for w in windows):
        raise UnsupportedError(f"{where}: its layers look back windows of several sizes")
    first = next(iter(whole or local))[0]
    shape = replace(arch.shape, window=window, windowed_layers=sum(map(bool, windows)))
    caps = {number(node, "softcap", 0.0) for node in nodes}
    scales = {number(node, "scale", 0.0) or 1 / math.sqrt(shape.head_dim) for node in nodes}
    if len(caps) > 1 or len(scales) > 1:
        raise UnsupportedError(f"{where}: its layers scale scores differently")
    arch = replace(
        arch, family=kind or _PLAIN, shape=shape, rotation=first,
        local_rotation=next(iter(local))[0] if local else first,
        activation=_activation(constants), attention_scale=scales.pop(), score_cap=caps.pop(),
        logit_cap=_logit_cap(graph), embedding_scale=_embedding_scale(constants),
        query_bias=any(constants.has(0, m, "addend") for m in ("q_proj", "qkv_proj")),
        output_bias=constants.has(0, "o_proj", "addend"), feed_bias=constants.has(0, "down_proj", "addend"),
        head_norms=constants.has(0, "q_norm", "norm"),
        outer_norms=constants.has(0, "pre_feedforward_layernorm", "norm"),
        windows=tuple(windows) if window else (),
        rotated=tuple(r is not None for r in rotations) if None in rotations else (),
    )  # fmt: skip
    if window:
        kinds = ["sliding_attention" if w else "full_attention" for w in windows]
        config |= {"sliding_window": window, "layer_types": kinds}
    said = {**config, "model_type": _TYPES.get(kind, kind) or _PLAIN, "attention_bias": arch.query_bias}
    return arch, {k: v for k, v in said.items() if v is not None}, next(iter(pairs))


def attentions(graph: onnx_ir.Graph) -> list[onnx_ir.Node]:
    """The GroupQueryAttention of each layer, in the order of their numbers."""
    numbered: list[tuple[int, onnx_ir.Node]] = []
    for node in graph:
        if node.op_type == "GroupQueryAttention":
            words = [word for word in (node.name or "").replace("/", ".").split(".") if word.isdigit()]
            numbered.append((int(words[0]) if words else len(numbered), node))
    return [node for _, node in sorted(numbered, key=lambda pair: pair[0])]


def _checked(nodes: list[onnx_ir.Node], where: str) -> list[onnx_ir.Node]:
    """UnsupportedError for attention that no graph is written for."""
    if not nodes:
        raise UnsupportedError(
            f"{where}: has no GroupQueryAttention, by which a decoder without a config.json beside it is read"
        )
    for node in nodes:
        given = [i for i in range(9, len(node.inputs)) if node.inputs[i] is not None]
        if given or number(node, "smooth_softmax", 0) > 0 or number(node, "causal", 1) == 0:
            raise UnsupportedError(
                f"{where}: {node.name}: a bias, a head sink, quantized caches or attention to both sides are not "
                "exported; build the model without"
            )
        if any(number(node, key, 0) != number(nodes[0], key, 0) for key in ("num_heads", "kv_num_heads")):
            raise UnsupportedError(f"{where}: {node.name}: layers have different numbers of heads")
    return nodes


def _layer_rotation(
    graph: onnx_ir.Graph, attention: onnx_ir.Node, layer: int, where: str
) -> tuple[Rotation, bool] | None:
    """How a layer turns queries and keys, and whether neighbours turn; None where it does not."""
    nodes = [attention] if number(attention, "do_rotary", 0) else []
    tables = (7, 8)
    if not nodes:
        tables = (2, 3)
        nodes = [n for v in attention.inputs[:2] for n in upstream(v) if n.op_type == "RotaryEmbedding"]
        if any(number(n, "scale", 1.0) != 1.0 or number(n, "is_packed_batching", 0) for n in nodes):
            raise UnsupportedError(f"{where}: layer {layer}: a scaled RotaryEmbedding is not read")
    if not nodes:
        return None
    node = nodes[0]
    pairs = bool(number(node, "rotary_interleaved", number(node, "interleaved", 0)))
    values = [node.inputs[i] if i < len(node.inputs) else None for i in tables]
    if any(v is None or not is_constant(v) for v in values):
        raise UnsupportedError(f"{where}: layer {layer}: its cosines are chosen at run time; build for one length")
    cosines, sines = (evaluated(v, where) for v in values)
    return rotation_of_tables(cosines, sines, where), pairs


def rotation_of_tables(cosines: Array, sines: Array, where: str) -> Rotation:
    """The speeds that tables of cosines and sines [positions, half] were made with.

    A speed follows from the second row to the accuracy of its numbers; each later row that is looked at is twice as far
    on, and halves what is uncertain. The speeds are as exact as float32 has them then.
    """
    if cosines.ndim != 2 or cosines.shape != sines.shape or len(cosines) < 2 or not cosines.shape[1]:
        raise FormatError(f"{where}: tables of rotations {list(cosines.shape)} and {list(sines.shape)}")
    scale = float(np.hypot(cosines[0], sines[0]).mean())
    speeds = np.arctan2(sines[1].astype(np.float64), cosines[1].astype(np.float64))
    place = 2
    while place < len(cosines):
        angle = np.arctan2(sines[place].astype(np.float64), cosines[place].astype(np.float64))
        turns = np.rint((speeds * place - angle) / (2 * np.pi))
        speeds = (angle + 2 * np.pi * turns) / place
        place *= 2
    scale = 1.0 if abs(scale - 1) < 1e-6 else scale
    return Rotation(2 * cosines.shape[1], tuple(float(v) for v in speeds.astype(np.float32)), scale)


def _epsilon(constants: DecoderConstants) -> float:
    """What the first layer's norm adds under its root."""
    for node in constants.modules[0, "input_layernorm"].nodes if (0, "input_layernorm") in constants.modules else ():
        if "epsilon" in node.attributes:
            return float(f"{number(node, 'epsilon', 1e-6):.6g}")
    raise UnsupportedError(f"{constants.where}: its first norm is no SimplifiedLayerNormalization; RMSNorms are read")


def _activation(constants: DecoderConstants) -> str:
    """What is done to the gated half of a feed-forward part."""
    module = "gate_proj" if constants.has(0, "gate_proj") else "gate_up_proj"
    product = constants.modules[0, module].product
    values = list(product.outputs) if product is not None else []
    for _ in range(3):  # a bias, and the split of a matrix for both halves
        kinds = {node.op_type: node for value in values for node in value.consumers()}
        if {"Sigmoid", "Silu", "Swish"} & set(kinds) or "QuickGelu" in kinds:
            return "silu"
        if {"Gelu", "FastGelu"} & set(kinds):
            return "gelu_tanh"
        values = [output for node in kinds.values() for output in node.outputs]
    raise UnsupportedError(f"{constants.where}: the first layer is gated by neither SiLU nor GELU")


def _embedding_scale(constants: DecoderConstants) -> float:
    """What embeddings are multiplied with."""
    product = constants.modules[None, "embed_tokens"].product
    for node in product.outputs[0].consumers() if product is not None else ():
        if node.op_type == "Mul":
            factors = [v for v in node.inputs if v is not None and is_constant(v)]
            if factors and (array := evaluated(factors[0], constants.where)).size == 1:
                return float(array.reshape(-1)[0])
    return 1.0


def _logit_cap(graph: onnx_ir.Graph) -> float:
    """The bound of a tanh that logits go through; 0 where there is none."""
    output = next((v for v in graph.outputs if v.name == "logits"), None)
    nodes = list(upstream(output, 4))
    for before, node in itertools.pairwise(nodes):
        if before.op_type == "Mul" and node.op_type == "Tanh":
            factors = [v for v in before.inputs if v is not None and is_constant(v)]
            return float(evaluated(factors[0], "logits").reshape(-1)[0]) if factors else 0.0
    return 0.0
