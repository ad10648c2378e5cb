# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that transformers writes, of every family and with awkward settings: logits are torch's."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.addons.llm import ExportRequest, export, load
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from tests import ROOT

GENAI = ROOT / ".venv-genai" / "bin" / "python"
pytestmark = [pytest.mark.genai, pytest.mark.skipif(not GENAI.exists(), reason="make genai")]
SIZES = {
    "vocab_size": 131, "hidden_size": 64, "intermediate_size": 72, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
EYES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
        "patch_size": 14}  # fmt: skip
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
LONG = {"short_factor": [1 + 0.1 * i for i in range(6)], "long_factor": [2.0 + i for i in range(6)]}
GEMMA3 = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}, "sliding_attention": PLAIN}
OLMO3 = {
    "full_attention": {**YARN, "rope_theta": 5e5, "attention_factor": 1.2},
    "sliding_attention": {**PLAIN, "rope_theta": 5e5},
}
WINDOWED = {"head_dim": 24, "sliding_window": 6, "query_pre_attn_scalar": 20}


def case(kind: str, config: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"config": {**SIZES, "model_type": kind, **config}, **more}


def seeing(kind: str, name: str, text: Mapping[str, Any], eyes: Mapping[str, Any] = EYES) -> dict[str, Any]:
    return {
        "config": {"model_type": kind, "text_config": {**SIZES, **text}, "vision_config": eyes},
        "class": f"{name}ForConditionalGeneration",
    }


CASES: dict[str, dict[str, Any]] = {
    "llama": case("llama", {"hidden_size": 60, "head_dim": 20, "num_attention_heads": 6, "num_key_value_heads": 3}),
    "llama biases in half": case("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
                                 dtype="float16"),
    "llama3 in shards": case("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, dtype="bfloat16",
                             shard="40KB"),
    "llama3 of old": case("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, drop=["rope_parameters"],
                          set={"rope_theta": 5e5, "rope_scaling": LLAMA3}),
    "llama linear of old": case("llama", {"rope_parameters": {**PLAIN, "rope_type": "linear", "factor": 4.0}},
                                drop=["rope_parameters"], set={"rope_scaling": {"type": "linear", "factor": 4.0}}),
    "llama dynamic": case("llama", {"rope_parameters": {**PLAIN, "rope_type": "dynamic", "factor": 4.0}}),
    "llama yarn": case("llama", {"rope_parameters": {**YARN, "rope_theta": 1e4, "mscale": 0.7, "mscale_all_dim": 1.0,
                                                     "beta_fast": 16, "beta_slow": 2, "truncate": False}}),
    "mistral": case("mistral", {"sliding_window": 7, "head_dim": 24, "num_attention_heads": 3,
                                "num_key_value_heads": 1}),
    "ministral": case("ministral", {"sliding_window": 6, "head_dim": 16, "layer_types": [
        "sliding_attention", "full_attention", "sliding_attention"]}),
    "qwen2 windows of old": case("qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
                                 drop=["layer_types"]),
    "qwen2 yarn of old": case("qwen2", {"rope_parameters": {**YARN, "rope_theta": 1e4}}, drop=["rope_parameters"],
                              set={"rope_scaling": {**YARN, "type": "yarn"}}),
    "qwen3": case("qwen3", {"head_dim": 12, "attention_bias": True, "tie_word_embeddings": True}),
    "qwen3 without head_dim": case("qwen3", {"head_dim": 128}, drop=["head_dim"]),
    "smollm3 of few words": case("smollm3", {"num_hidden_layers": 5, "use_sliding_window": True, "sliding_window": 6},
                                 drop=["no_rope_layers", "layer_types", "tie_word_embeddings", "rope_parameters"]),
    "phi3": case("phi3", {"sliding_window": 9, "rms_norm_eps": 1e-5}, drop=["rms_norm_eps"]),
    "phi4 mini": case("phi3", {"tie_word_embeddings": True, "original_max_position_embeddings": 64, "rope_parameters": {
        **LONG, "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}),
    "phi3 of old": case("phi3", {"original_max_position_embeddings": 64, "rope_parameters": {
        **LONG, "rope_type": "longrope", "rope_theta": 1e4, "partial_rotary_factor": 0.75}}, drop=["rope_parameters"],
        set={"rope_theta": 1e4, "partial_rotary_factor": 0.75, "rope_scaling": {**LONG, "type": "su"}}),
    "gemma": case("gemma", {"head_dim": 24}, set={"hidden_act": "gelu"}),
    "gemma2 of old": case("gemma2", {**WINDOWED, "attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0},
                          drop=["layer_types"]),
    "gemma3": case("gemma3_text", {**WINDOWED, "num_hidden_layers": 7, "rope_parameters": GEMMA3}, dtype="bfloat16"),
    "gemma3 of few words": case(
        "gemma3_text", {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4, "sliding_window": 6,
                        "num_hidden_layers": 8, "rope_parameters": GEMMA3},
        drop=["layer_types", "rope_parameters", "query_pre_attn_scalar", "head_dim", "num_attention_heads",
              "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings", "hidden_activation",
              "max_position_embeddings"],
        set={"rope_scaling": {"factor": 8.0, "rope_type": "linear"}}),
    "granite": case("granite", {"embedding_multiplier": 3.0, "logits_scaling": 8.0, "residual_multiplier": 0.22,
                                "attention_multiplier": 0.09, "attention_bias": True, "mlp_bias": True}),
    "granite tied": case("granite", {"embedding_multiplier": 12.0, "logits_scaling": 0.5, "residual_multiplier": 0.7,
                                     "attention_multiplier": 0.3, "tie_word_embeddings": True}),
    "olmo2": case("olmo2", {"attention_bias": True}),
    "olmo3 of old": case("olmo3", {"sliding_window": 6, "num_hidden_layers": 5, "rope_parameters": OLMO3},
                         drop=["rope_parameters", "layer_types"],
                         set={"rope_theta": 5e5, "rope_scaling": {**YARN, "attention_factor": 1.2}}),
    "gemma3 that sees": seeing("gemma3", "Gemma3", {**WINDOWED, "num_hidden_layers": 7}),
    "qwen2 that sees": seeing("qwen2_vl", "Qwen2VL", {"rope_parameters": {**PLAIN, "mrope_section": [2, 3, 3]}},
                              {"depth": 1, "embed_dim": 32, "hidden_size": 64, "num_heads": 2}),
    "llava": seeing("llava", "Llava", {"model_type": "llama"}, {**EYES, "model_type": "clip_vision_model"}),
    "smolvlm": seeing("smolvlm", "SmolVLM", {"model_type": "llama"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("checkpoints")
    (at / "cases.json").write_text(json.dumps(CASES))
    script = ROOT / "tests" / "addons" / "llm" / "with_transformers.py"
    ran = subprocess.run(
        [GENAI, script, at / "cases.json", at], env=os.environ | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return at


@pytest.mark.parametrize("name", CASES)
def test_logits_are_torchs(name: str, checkpoints: Path, tmp_path: Path) -> None:
    """Of the float model after each of 48 tokens, of its graphs, and near them where weights have 8 bits."""
    with np.load(checkpoints / name / "expected.npz") as expected:
        tokens, logits = [int(token) for token in expected["tokens"]], expected["logits"]
    largest = np.abs(logits).max()
    assert np.abs(FloatDecoder(open_checkpoint(checkpoints / name)).logits([tokens])[0] - logits).max() < 2e-5 * largest
    request = ExportRequest(context=64, tokens=(16, 1), precision="float", compiled=False)
    export(checkpoints / name, tmp_path / "b", request)
    given = load(tmp_path / "b", backend="cpu").session().feed(tokens, all_logits=True)
    assert np.abs(given - logits).max() < 2e-5 * largest
    export(checkpoints / name, tmp_path / "b", ExportRequest(context=64, tokens=(16, 1), precision="w8a16"))
    near = load(tmp_path / "b").session().feed(tokens, all_logits=True)
    assert np.square(near - logits).mean() < 0.02 * np.square(logits).mean()
