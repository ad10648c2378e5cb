# SPDX-License-Identifier: Apache-2.0
"""genai_config.json: what onnxruntime-genai reads of a bundle, to run its ONNX model as it is."""

from __future__ import annotations

from typing import Any

from hexforge.llm.bundle import LOGITS, PAST, POSITIONS, PRESENT, TOKENS
from hexforge.llm.checkpoint import Checkpoint

GENAI_CONFIG = "genai_config.json"


def genai_config(checkpoint: Checkpoint, context: int, model: str) -> dict[str, Any]:
    """The settings for one model whose caches hold `context` tokens, in a buffer that past and present share."""
    arch, shape = checkpoint.architecture, checkpoint.architecture.shape
    ends = list(arch.end_tokens) or [0]
    return {
        "model": {
            "type": "llama",
            "bos_token_id": arch.begin_token if arch.begin_token is not None else ends[0],
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": ends[0],
            "context_length": context,
            "vocab_size": shape.vocab,
            "decoder": {
                "filename": model,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "head_size": shape.head_dim,
                "hidden_size": shape.hidden,
                "num_attention_heads": shape.heads,
                "num_key_value_heads": shape.kv_heads,
                "num_hidden_layers": shape.layers,
                "inputs": {
                    "input_ids": TOKENS,
                    "position_ids": POSITIONS,
                    "past_key_names": PAST.format("%d", "key"),
                    "past_value_names": PAST.format("%d", "value"),
                },
                "outputs": {
                    "logits": LOGITS,
                    "present_key_names": PRESENT.format("%d", "key"),
                    "present_value_names": PRESENT.format("%d", "value"),
                },
            },
        },
        "search": {
            "do_sample": False, "max_length": context, "min_length": 0, "num_beams": 1, "num_return_sequences": 1,
            "past_present_share_buffer": True, "temperature": 1.0, "top_k": 1, "top_p": 1.0,
        },
    }  # fmt: skip
