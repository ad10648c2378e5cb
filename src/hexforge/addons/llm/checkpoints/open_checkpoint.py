# SPDX-License-Identifier: Apache-2.0
"""Open a checkpoint: whatever files hold the weights, or random numbers for a config or a model's name."""

from __future__ import annotations

from pathlib import Path

from hexforge.addons.llm.checkpoints.architecture import architecture_of_config
from hexforge.addons.llm.checkpoints.checkpoint import INDEX, WHOLE, Checkpoint, RandomCheckpoint, SafetensorsCheckpoint
from hexforge.addons.llm.checkpoints.gguf_file import GgufCheckpoint
from hexforge.addons.llm.shape import CONFIG, read_settings, read_shape
from hexforge.errors import CallError


def open_checkpoint(source: str | Path, *, random_seed: int | None = None) -> Checkpoint:
    """A checkpoint: a folder with config.json and .safetensors files, a .gguf file, or an ONNX decoder.

    With a `random_seed` the weights are random, and a config.json, a folder with one or the name of a public model
    (`hexforge llm models`) is enough.
    """
    path = Path(source)
    if path.suffix == ".gguf":
        return GgufCheckpoint(path)
    if random_seed is not None:
        return _random(path, str(source), random_seed)
    if path.is_file() and path.name == CONFIG:
        path = path.parent
    if path.suffix == ".onnx" or (path.is_dir() and not any((path / name).is_file() for name in (INDEX, WHOLE))):
        from hexforge.addons.llm.checkpoints.onnx_checkpoint import OnnxCheckpoint, find_decoder

        if (decoder := find_decoder(path)) is not None:
            return OnnxCheckpoint(decoder)
    if not path.is_dir():
        raise CallError(f"{source}: no such folder; give a folder with {CONFIG} and {WHOLE}, or a .gguf file")
    return SafetensorsCheckpoint(path)


def _random(path: Path, name: str, seed: int) -> RandomCheckpoint:
    at = path / CONFIG if path.is_dir() else path
    if at.is_file():
        config = read_settings(at)
        return RandomCheckpoint(architecture_of_config(config, at.parent.name, str(at)), config, at.parent, seed)
    shape = read_shape(name)
    family = next((f for f in ("qwen3", "qwen2", "gemma2") if f in shape.name.replace("_5", "")), "llama")
    config = {
        "model_type": family, "hidden_size": shape.hidden, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn, "vocab_size": shape.vocab, "tie_word_embeddings": shape.tied,
        "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "max_position_embeddings": 131072,
        "eos_token_id": 0, "bos_token_id": 0,
    }  # fmt: skip
    return RandomCheckpoint(architecture_of_config(config, shape.name), config, None, seed)
