# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets of language models' files: checkpoints, GGUF files, adapters and bundles."""

from __future__ import annotations

import contextlib
import json
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from hexforge.addons.llm.bundle import read_bundle
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.checkpoints.peft_adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, read_adapter
from hexforge.addons.llm.generate import load
from hexforge.errors import HexforgeError
from tests.addons.llm import SMALL

_FOLDER = Path(tempfile.mkdtemp(prefix="hexforge-fuzz-"))
_GGUF, _CHECKPOINT, _ADAPTER, _BUNDLE = (_FOLDER / name for name in ("m.gguf", "checkpoint", "adapter", "bundle"))
_CUT = b"\0\0\0\0"
"""Between the two files of an input that is two."""
SIZES = {
    "model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "max_position_embeddings": 16,
    "hidden_act": "silu", "eos_token_id": 2, "tie_word_embeddings": True,
}  # fmt: skip


def _weights(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    for name in checkpoint.names()[:3]:
        checkpoint.weight(name, 0)


def gguf_file(data: bytes) -> None:
    """A GGUF file, and some of its weights."""
    _GGUF.write_bytes(data)
    with contextlib.suppress(HexforgeError):
        _weights(_GGUF)


def checkpoint_files(data: bytes) -> None:
    """config.json and model.safetensors, and some weights."""
    config, _, tensors = data.partition(_CUT)
    _CHECKPOINT.mkdir(exist_ok=True)
    (_CHECKPOINT / "config.json").write_bytes(config)
    (_CHECKPOINT / "model.safetensors").write_bytes(tensors)
    with contextlib.suppress(HexforgeError):
        _weights(_CHECKPOINT)


def peft_adapter(data: bytes) -> None:
    """adapter_config.json and adapter_model.safetensors."""
    config, _, tensors = data.partition(_CUT)
    _ADAPTER.mkdir(exist_ok=True)
    (_ADAPTER / ADAPTER_CONFIG).write_bytes(config)
    (_ADAPTER / ADAPTER_WEIGHTS).write_bytes(tensors)
    with contextlib.suppress(HexforgeError):
        read_adapter("a", _ADAPTER, open_checkpoint(SMALL).architecture)


def bundle_description(data: bytes) -> None:
    """bundle.json of a bundle; what is accepted is loaded."""
    if not _BUNDLE.exists():
        from hexforge.addons.llm import ExportRequest, export

        export(SMALL, _BUNDLE, ExportRequest(context=16, tokens=(1,), precision="float"))
        shutil.copy(_BUNDLE / "bundle.json", _FOLDER / "seed.json")
    (_BUNDLE / "bundle.json").write_bytes(data)
    with contextlib.suppress(HexforgeError):
        read_bundle(_BUNDLE)
        load(_BUNDLE).session()


def _safetensors(arrays: dict[str, np.ndarray]) -> bytes:
    table, body = {}, b""
    for name, array in arrays.items():
        table[name] = {
            "dtype": "F32",
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + array.nbytes],
        }
        body += array.tobytes()
    header = json.dumps(table).encode()
    return struct.pack("<Q", len(header)) + header + body


def _gguf() -> bytes:
    def text(word: str) -> bytes:
        return struct.pack("<Q", len(word)) + word.encode()

    numbers = {"block_count": 1, "context_length": 16, "embedding_length": 8, "feed_forward_length": 8,
               "attention.head_count": 2, "attention.head_count_kv": 1, "attention.key_length": 4}  # fmt: skip
    settings = [text("general.architecture") + struct.pack("<I", 8) + text("llama")]
    settings += [text(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in numbers.items()]
    settings += [text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    words = b"".join(text(f"t{i}") for i in range(8))
    settings += [text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 8) + words]
    tensors = {"token_embd.weight": (8, 8), "output_norm.weight": (8,), "blk.0.attn_q.weight": (8, 8),
               "blk.0.attn_norm.weight": (8,), "blk.0.attn_k.weight": (4, 8)}  # fmt: skip
    table, at = b"", 0
    for name, shape in tensors.items():
        sizes = struct.pack(f"<{len(shape)}Q", *shape[::-1])
        table += text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", 0, at)
        at += 4 * int(np.prod(shape))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings)) + b"".join(settings) + table
    return head + b"\0" * (-len(head) % 32) + bytes(at)


def seeds(target: str) -> Iterator[bytes]:
    """Files a target begins with."""
    if target == "gguf_file":
        yield _gguf()
    elif target == "checkpoint_files":
        shapes = {"self_attn.q_proj": (8, 8), "self_attn.k_proj": (4, 8), "input_layernorm": (8,)}
        arrays = {f"model.layers.0.{name}.weight": np.ones(shape, np.float32) for name, shape in shapes.items()}
        yield json.dumps(SIZES).encode() + _CUT + _safetensors(arrays)
    elif target == "peft_adapter":
        factors = {"A": np.ones((2, 256), np.float32), "B": np.ones((256, 2), np.float32)}
        at = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
        arrays = {at.format(side): array for side, array in factors.items()}
        said = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "alpha_pattern": {"q_proj": 8}, "bias": "none"}
        yield json.dumps(said).encode() + _CUT + _safetensors(arrays)
    else:
        bundle_description(b"{}")
        yield (_FOLDER / "seed.json").read_bytes()
