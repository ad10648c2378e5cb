# SPDX-License-Identifier: Apache-2.0
"""GGUF files of every architecture and type of blocks that is read, written with the `gguf` package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from hexforge.addons.llm.checkpoints.architecture import weights_of
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.checkpoints.gguf_file import _PACKED
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.errors import UnsupportedError
from tests.addons.llm.test_checkpoints import SIZES

TOKENS = [int(t) for t in np.random.default_rng(0).integers(3, 160, 40)]
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "attention_bias": True, "mlp_bias": True, "rope_scaling": LLAMA3},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "phi3": {"model_type": "phi3", "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-6},
    "gemma": {"model_type": "gemma"},
    "gemma2": {"model_type": "gemma2", "sliding_window": 8, "query_pre_attn_scalar": 16},
    "gemma3": {"model_type": "gemma3_text", "sliding_window": 8, "query_pre_attn_scalar": 16, "rope_theta": 1e6,
               "num_hidden_layers": 7, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
}  # fmt: skip


def written(path: Path, name: str, source: Checkpoint, kind: gguf.GGMLQuantizationType, **more: np.ndarray) -> Path:
    """A checkpoint as llama.cpp's converter writes it."""
    arch, shape = source.architecture, source.architecture.shape
    writer = gguf.GGUFWriter(path, name)
    for add, value in (
        (writer.add_block_count, shape.layers), (writer.add_context_length, arch.positions),
        (writer.add_embedding_length, shape.hidden), (writer.add_feed_forward_length, shape.ffn),
        (writer.add_head_count, shape.heads), (writer.add_head_count_kv, shape.kv_heads),
        (writer.add_key_length, shape.head_dim), (writer.add_layer_norm_rms_eps, arch.epsilon),
        (writer.add_rope_dimension_count, arch.rotation.size),
        (writer.add_rope_freq_base, source.config.get("rope_theta", 10000.0)),
    ):  # fmt: skip
        add(value)
    if shape.window:
        writer.add_sliding_window(shape.window)
    scaling = source.config.get("rope_scaling", {})
    if scaling.get("rope_type") == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    elif scaling:
        plain = 10000.0 ** -(np.arange(0, arch.rotation.size, 2) / arch.rotation.size)
        more["rope_freqs.weight"] = (plain / np.array(arch.rotation.speeds)).astype(np.float32)

    def put(to: str, array: np.ndarray) -> None:
        own = kind if array.ndim == 2 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(to, gguf.quants.quantize(np.ascontiguousarray(array), own), raw_dtype=own)

    kinds = weights_of(arch)
    outer = [part for part in kinds if part not in source.names()]
    for layer, part in [(None, part) for part in outer] + [(i, n) for i in range(shape.layers) for n in source.names()]:
        array = source.weight(part, layer) + np.float32(arch.norm_offset * ("norm" in part))
        if name == "llama" and part.removesuffix("_bias") in ("query", "key"):
            halves = array.reshape(-1, 2, shape.head_dim // 2, *array.shape[1:])
            array = halves.swapaxes(1, 2).reshape(array.shape)
        if layer is None:
            put(kinds[part].gguf, array)
        elif not (arch.fused and part in _PACKED):
            put(f"blk.{layer}.{kinds[part].gguf}", array)
        elif part in ("value", "up"):
            joined = [source.weight(n, layer) for n, packed in _PACKED.items() if packed == _PACKED[part]]
            put(f"blk.{layer}.{_PACKED[part]}", np.concatenate(joined))
    for to, array in more.items():
        put(to, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def random_model(folder: Path, name: str) -> Checkpoint:
    (folder / "config.json").write_text(json.dumps(SIZES | FAMILIES[name]))
    return open_checkpoint(folder, random_seed=3)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_architecture_computes_the_same(name: str, tmp_path: Path) -> None:
    source = random_model(tmp_path, name)
    path = written(tmp_path / "m.gguf", name, source, gguf.GGMLQuantizationType.F32)
    expected, given = (FloatDecoder(x).logits([TOKENS])[0] for x in (source, open_checkpoint(path)))
    assert np.abs(given - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0", "Q5_1", "Q5_0", "Q4_1", "Q4_0"])
def test_every_type_of_blocks_is_near(kind: str, tmp_path: Path) -> None:
    source = random_model(tmp_path, "qwen2")
    path = written(tmp_path / "m.gguf", "qwen2", source, gguf.GGMLQuantizationType[kind])
    given, wanted = (x.weight("up", 1) for x in (open_checkpoint(path), source))
    apart = float(np.square(given - wanted).mean() / np.square(wanted).mean())
    assert 0 < apart < {"F16": 1e-6, "BF16": 1e-4, "Q8_0": 1e-4}.get(kind, 0.02)


@pytest.mark.parametrize("extra", ["rope_factors_long.weight", "blk.0.attn_sinks.weight", "blk.1.ffn_gate_exps.weight"])
def test_weights_that_nothing_is_computed_with_are_refused(extra: str, tmp_path: Path) -> None:
    more = {extra: np.zeros(8, np.float32)}
    path = written(tmp_path / "m.gguf", "qwen3", random_model(tmp_path, "qwen3"), gguf.GGMLQuantizationType.F32, **more)
    with pytest.raises(UnsupportedError, match=f"holds '{extra}', which no qwen3 has"):
        open_checkpoint(path)


@pytest.mark.parametrize("kind", ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"])
def test_blocks_that_only_llama_cpp_writes_are_expanded(kind: str, tmp_path: Path) -> None:
    """Their bytes are drawn here, with scales that are numbers."""
    own = gguf.GGMLQuantizationType[kind]
    block, size = gguf.GGML_QUANT_SIZES[own]
    (tmp_path / "config.json").write_text(json.dumps(SIZES | FAMILIES["qwen2"] | {"hidden_size": 256}))
    source = open_checkpoint(tmp_path, random_seed=3)
    rows = np.random.default_rng(1).integers(0, 60, (96, 256 // block * size)).astype(np.uint8)
    path = tmp_path / "m.gguf"
    plain = written(path, "qwen2", source, gguf.GGMLQuantizationType.F32)
    data = bytearray(plain.read_bytes())
    at = data.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 16
    data[at : at + 4] = int(own).to_bytes(4, "little")
    start = int.from_bytes(data[at + 4 : at + 12], "little")
    body = len(data) - sum(_length(x) for x in gguf.GGUFReader(plain).tensors)
    data[body + start : body + start + rows.size] = rows.tobytes()
    path.write_bytes(bytes(data))
    assert np.array_equal(open_checkpoint(path).weight("up", 1), gguf.quants.dequantize(rows, own))


def _length(tensor: gguf.ReaderTensor) -> int:
    """Bytes of a tensor with those that align the next."""
    return -(-int(tensor.n_bytes) // 32) * 32
