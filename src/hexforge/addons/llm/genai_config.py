# SPDX-License-Identifier: Apache-2.0
"""genai_config.json: what onnxruntime-genai reads of a model: those of others read, and those of bundles written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.addons.llm.bundle import LOGITS, PAST, POSITIONS, PRESENT, STATE, TOKENS
from hexforge.errors import FormatError

if TYPE_CHECKING:
    from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint

GENAI_CONFIG = "genai_config.json"


@dataclass(frozen=True, slots=True)
class DecoderStage:
    """A model that has some layers of a decoder: its file, and the names of what goes in and comes out."""

    file: str
    inputs: list[str]
    outputs: list[str]


def genai_settings(settings: Any, where: Path) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The "model" part of a genai_config.json, and its "decoder"; FormatError where they are not there."""
    model = settings.get("model") if isinstance(settings, Mapping) else None
    decoder = model.get("decoder") if isinstance(model, Mapping) else None
    if not isinstance(model, Mapping) or not isinstance(decoder, Mapping):
        raise FormatError(f"{where}: has no model.decoder")
    return model, decoder


def genai_config(checkpoint: Checkpoint, context: int, stages: Sequence[DecoderStage]) -> dict[str, Any]:
    """The settings for models whose caches hold `context` tokens, in a buffer that past and present share.

    Several stages are a pipeline, in which each hands its state to the next.
    """
    arch, shape = checkpoint.architecture, checkpoint.architecture.shape
    ends = list(arch.end_tokens) or [0]
    return {
        "model": {
            "type": "decoder-pipeline" if len(stages) > 1 else "llama",
            "bos_token_id": arch.begin_token if arch.begin_token is not None else ends[0],
            "eos_token_id": ends if len(ends) > 1 else ends[0],
            "pad_token_id": ends[0],
            "context_length": context,
            "vocab_size": shape.vocab,
            "decoder": {
                **({"pipeline": _pipeline(stages)} if len(stages) > 1 else {"filename": stages[0].file}),
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


def _pipeline(stages: Sequence[DecoderStage]) -> list[dict[str, Any]]:
    handed = f"{STATE}_out"
    return [
        {
            f"part{index}": {
                "filename": stage.file,
                "inputs": stage.inputs,
                "outputs": stage.outputs,
                **({"output_names_forwarder": {handed: STATE}} if handed in stage.outputs else {}),
            }
        }
        for index, stage in enumerate(stages, 1)
    ]
