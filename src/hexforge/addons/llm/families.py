# SPDX-License-Identifier: Apache-2.0
"""Families of language models: a row for each model type of config.json, with what it means where the config is silent.

Published: the defaults of transformers, what its models compute, and what llama.cpp calls them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Family:
    """A model type: what its layers are like."""

    known: bool = True
    """Whether its layers are counted as they are; others are taken for ones like Llama's, which the estimate says."""
    exported_as: str = ""
    """The model type whose graphs are written for it; none where it is not exported."""
    around_text: bool = False
    """Whether its text_config says which model its language part is."""
    gguf: str = ""
    """What GGUF files call it, where they are read."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Sizes that published config.json files leave out, by the names of LlmShape."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Other settings that they leave out."""
    tied: bool = False
    """Whether the head is the embedding."""
    gated: bool = True
    """Whether a feed-forward part has three matrices, and not two."""
    activation: str = "silu"
    """What gates it; the "gelu" of a family is the one with a tanh, as its makers meant it."""
    window: int = 0
    """How far windowed layers look back."""
    full_every: int = 0
    """One of so many layers looks at everything, the others at a window."""
    asks_for_windows: bool = False
    """Whether there are windows only where use_sliding_window says so; Qwen's only from max_window_layers on."""
    wide_attention: bool = False
    """Whether the published recipe keeps keys and values at 16 bits where attention multiplies with them (published:
    qai-hub-models 0.65.0 asks for 16 by 8 bits there of all others)."""
    layers: Mapping[str, Any] = field(default_factory=dict)
    """What its layers have that Llama's have not, by the names of Architecture."""
    scaled_embedding: bool = False
    """Whether embeddings are multiplied with the root of their size."""
    has_multipliers: bool = False
    """Whether settings say what embeddings, scores, residuals and logits are multiplied with."""
    plain_window_rotation: bool = False
    """Whether scalings of the rotation are of the layers alone that look everywhere."""
    skips_rotation: bool = False
    """Whether some layers turn nothing, and look at everything."""
    wide_score_layers: int = 0
    """Layers of the 27B model, whose scores are scaled by hidden size / heads and not by a head's size (llama.cpp)."""


_GEMMA = Family(
    sizes={"head_dim": 256}, tied=True, activation="gelu", scaled_embedding=True, layers={"norm_offset": 1.0}
)
_GEMMA2 = replace(_GEMMA, window=4096, full_every=2, layers={"norm_offset": 1.0, "outer_norms": True})
_OLMO = Family(settings={"rms_norm_eps": 1e-5}, layers={"joint_norms": True, "inner_norms": False, "outer_norms": True})
_QWEN2 = Family(exported_as="qwen2", asks_for_windows=True, layers={"query_bias": True})
_QWEN2_SEEING = replace(_QWEN2, wide_attention=True)
_AROUND = Family(around_text=True)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(exported_as="llama", gguf="llama"),
    "mistral": Family(exported_as="mistral"),
    "ministral": Family(exported_as="ministral", window=4096),
    "smollm3": Family(
        exported_as="smollm3", settings={"rope_theta": 2e6}, tied=True, asks_for_windows=True, skips_rotation=True
    ),
    "qwen2": replace(_QWEN2, gguf="qwen2"),
    "qwen3": Family(
        exported_as="qwen3", gguf="qwen3", sizes={"head_dim": 128}, asks_for_windows=True, layers={"head_norms": True}
    ),
    "phi3": Family(exported_as="phi3", gguf="phi3", settings={"rms_norm_eps": 1e-5}, layers={"fused": True}),
    "gemma": replace(_GEMMA, exported_as="gemma", gguf="gemma"),
    "gemma2": replace(
        _GEMMA2, exported_as="gemma2", gguf="gemma2", wide_score_layers=46,
        settings={"query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    ),
    "gemma3_text": replace(
        _GEMMA2, exported_as="gemma3_text", gguf="gemma3", full_every=6, plain_window_rotation=True,
        layers={**_GEMMA2.layers, "head_norms": True}, wide_score_layers=62,
        sizes={"heads": 8, "kv_heads": 4, "head_dim": 256, "vocab": 262208, "positions": 131072},
        settings={"rope_theta": 1e6, "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 256},
    ),
    "granite": Family(exported_as="granite", has_multipliers=True),
    "olmo2": replace(_OLMO, exported_as="olmo2"),
    "olmo3": replace(_OLMO, exported_as="olmo3", window=4096, full_every=4, plain_window_rotation=True, known=False),
    "qwen2_vl": replace(_QWEN2_SEEING, around_text=True),
    "qwen2_vl_text": _QWEN2_SEEING,
    "qwen2_5_vl": replace(_QWEN2_SEEING, around_text=True),
    "qwen2_5_vl_text": _QWEN2_SEEING,
    "gemma3": Family(around_text=True, tied=True, full_every=6),
    "llava_onevision": replace(_AROUND, known=False),
    "mistral3": replace(_AROUND, known=False),
    **dict.fromkeys(("llava", "smolvlm", "idefics3", "internvl"), _AROUND),
    "gpt2": Family(tied=True, gated=False),
    **dict.fromkeys(("phi", "opt", "gpt_neox", "starcoder2"), Family(gated=False)),
    **dict.fromkeys(("cohere", "lfm2"), Family(tied=True)),
    "gpt_oss": Family(full_every=2),
    **dict.fromkeys(
        (
            "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "falcon", "internlm2", "internvl_chat",
            "stablelm", "olmo", "cohere2", "minicpm", "baichuan", "exaone", "deepseek_v2", "deepseek_v3", "bitnet",
            "helium",
        ),
        Family(),
    ),
}  # fmt: skip
EXPORTED = tuple(name for name, family in FAMILIES.items() if family.exported_as == name)
"""Model types whose graphs are written here."""
AROUND_TEXT = tuple(name for name, family in FAMILIES.items() if family.around_text)
"""Model types around a text_config."""
_UNKNOWN = Family(known=False)


def family_of(model_type: str) -> Family:
    """The row of a model type; one like Llama's for a type that is not known."""
    return FAMILIES.get(model_type, _UNKNOWN)
