# SPDX-License-Identifier: Apache-2.0
"""GGUF files as checkpoints: the header is read here with bounds, blocks are expanded by the `gguf` package."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import architecture_of_config, fused_rows
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.families import FAMILIES
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.ir import Array

MAGIC, VERSIONS = b"GGUF", (2, 3)
MOST_ENTRIES, MOST_TEXT, MOST_ITEMS = 1 << 16, 1 << 20, 1 << 22
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<B", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _ITEMS = 8, 9
_PACKED = {"query": "attn_qkv.weight", "key": "attn_qkv.weight", "value": "attn_qkv.weight", "gate": "ffn_up.weight",
           "up": "ffn_up.weight"}  # fmt: skip
_FACTORS = "rope_freqs.weight"
"""What the speed of each pair is divided by, as llama.cpp writes Llama 3's scaled rotation."""
_FAMILIES = {family.gguf: name for name, family in FAMILIES.items() if family.gguf}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where a tensor lies: its sizes (rows first), its type by number, and where it begins."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class _Reader:
    """Reads a mapped file from its start, never beyond its end."""

    def __init__(self, path: Path, data: Array) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > self.data.size - self.at:
            raise FormatError(f"{self.path}: ends in the middle of its header", self.at)
        raw = self.data[self.at : self.at + count].tobytes()
        self.at += count
        return raw

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def count(self, most: int, what: str) -> int:
        count = int(self.number("<Q"))
        if count > most:
            raise FormatError(f"{self.path}: {count} {what}, and at most {most} are read", self.at)
        return count

    def text(self) -> str:
        return self.take(self.count(MOST_TEXT, "bytes of a text")).decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self.number(_SCALARS[kind])
        if kind == _TEXT:
            return self.text()
        if kind == _ITEMS and depth < 2:
            inner, length = int(self.number("<I")), self.count(MOST_ITEMS, "items")
            if inner in _SCALARS:
                size = struct.calcsize(_SCALARS[inner])
                return list(struct.unpack(f"<{length}{_SCALARS[inner][1]}", self.take(length * size)))
            return [self.value(inner, depth + 1) for _ in range(length)]
        raise FormatError(f"{self.path}: a setting has the unknown type {kind}", self.at)


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor], Array]:
    """Settings and tensors of a GGUF file by name, and its mapped bytes; FormatError for one that is damaged."""
    try:
        size = path.stat().st_size
        data: Array = np.memmap(path, np.uint8, mode="r") if size else np.zeros(0, np.uint8)
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    reader = _Reader(path, data)
    if reader.take(4) != MAGIC:
        raise FormatError(f"{path}: is no GGUF file", 0)
    if (version := int(reader.number("<I"))) not in VERSIONS:
        raise FormatError(f"{path}: GGUF version {version} is not read; {VERSIONS[-1]} is", 4)
    tensors, entries = reader.count(MOST_ENTRIES, "tensors"), reader.count(MOST_ENTRIES, "settings")
    settings = {}
    for _ in range(entries):
        name = reader.text()
        settings[name] = reader.value(int(reader.number("<I")))
    by_name: dict[str, GgufTensor] = {}
    for _ in range(tensors):
        name, rank = reader.text(), int(reader.number("<I"))
        if rank > 4:
            raise FormatError(f"{path}: tensor {name!r} has {rank} dimensions", reader.at)
        shape = tuple(reader.count(1 << 40, "elements") for _ in range(rank))[::-1]
        by_name[name] = GgufTensor(shape, int(reader.number("<I")), int(reader.number("<Q")))
    alignment = settings.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 1 << 20:
        raise FormatError(f"{path}: an alignment of {alignment!r} bytes")
    start = -(-reader.at // alignment) * alignment
    return settings, by_name, data[min(start, data.size) :]


class GgufCheckpoint(Checkpoint):
    """A .gguf file; tokenizer files of its folder are the model's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._settings, self._tensors, self._body = read_header(path)
        config = self._config()
        super().__init__(architecture_of_config(config, path.stem, str(path)), config, path.parent)
        self._require_no_others()

    def _config(self) -> dict[str, Any]:
        """config.json's words for what the file says."""
        said = self._settings
        family = said.get("general.architecture")
        if family not in _FAMILIES:
            raise UnsupportedError(f"{self.path}: architecture {family!r} is not read; {', '.join(_FAMILIES)} are")

        def of(key: str, default: Any = None) -> Any:
            return said.get(f"{family}.{key}", default)

        tokens = said.get("tokenizer.ggml.tokens")
        heads, hidden = of("attention.head_count"), of("embedding_length")
        embedding = self._tensors.get("token_embd.weight")
        config = {
            "model_type": _FAMILIES[family], "hidden_size": hidden, "num_hidden_layers": of("block_count"),
            "num_attention_heads": heads, "num_key_value_heads": of("attention.head_count_kv", heads),
            "head_dim": of("attention.key_length"), "intermediate_size": of("feed_forward_length"),
            "vocab_size": embedding.shape[0] if embedding is not None and embedding.shape else len(tokens or ()),
            "rms_norm_eps": of("attention.layer_norm_rms_epsilon", 1e-6), "rope_theta": of("rope.freq_base", 10000.0),
            "max_position_embeddings": of("context_length", 2048), "hidden_act": "silu",
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "sliding_window": of("attention.sliding_window"),
            "attn_logit_softcapping": of("attn_logit_softcapping"),
            "final_logit_softcapping": of("final_logit_softcapping"),
            "eos_token_id": said.get("tokenizer.ggml.eos_token_id"),
            "bos_token_id": said.get("tokenizer.ggml.bos_token_id"),
            "attention_bias": family != "qwen2" and "blk.0.attn_q.bias" in self._tensors,
            "mlp_bias": "blk.0.ffn_gate.bias" in self._tensors,
            "rope_scaling": self._scaling(of("rope.scaling.type"), of("rope.scaling.factor")),
        }  # fmt: skip
        turning, size = of("rope.dimension_count"), config["head_dim"]
        whole = all(type(n) is int and n > 0 for n in (hidden, heads))
        size = hidden // heads if size is None and whole else size
        if type(turning) is int and type(size) is int and size > 0:
            config["partial_rotary_factor"] = turning / size
        if (wide := FAMILIES[_FAMILIES[family]].wide_score_layers) and whole:
            config["query_pre_attn_scalar"] = hidden // heads if config["num_hidden_layers"] == wide else size
        return {key: value for key, value in config.items() if value is not None}

    def _scaling(self, kind: Any, factor: Any) -> dict[str, Any] | None:
        """config.json's words for a scaled rotation; UnsupportedError for one that a file does not say enough of."""
        if kind == "linear":
            return {"rope_type": kind, "factor": factor}
        if kind not in (None, "none"):
            raise UnsupportedError(f"{self.path}: rotations scaled as {kind!r} are not read; export the safetensors")
        if _FACTORS not in self._tensors:
            return None
        factors = [float(v) for v in self._array(_FACTORS).reshape(-1)]
        return {"rope_type": "longrope", "short_factor": factors, "long_factor": factors, "attention_factor": 1.0}

    def _require_no_others(self) -> None:
        """UnsupportedError for a file with weights that nothing is computed with here: it is another model's."""
        inner = {self._called(name) for name in self.names()}
        outer = {_FACTORS, *(weight.gguf for name, weight in self._kinds.items() if name not in self.names())}
        for name in self._tensors:
            block, _, own = name.removeprefix("blk.").partition(".")
            inside = name.startswith("blk.") and block.isdecimal()
            if (own not in inner) if inside else name not in outer:
                raise UnsupportedError(
                    f"{self.path}: holds {name!r}, which no {self.architecture.family} has that is exported here"
                )

    def _stored(self, name: str, layer: int | None) -> Array:
        arch, shape = self.architecture, self.architecture.shape
        if layer is None:
            return self._less_offset(name, self._array(self._called(name)))
        array = self._array(f"blk.{layer}.{self._called(name)}")
        if arch.fused and name in _PACKED:
            start, end, _ = fused_rows(shape, name)
            rows: Array = array[start:end]
            return rows
        even = shape.head_dim % 2 == 0 and array.ndim > 0 and array.shape[0] % shape.head_dim == 0
        if arch.family == "llama" and name.removesuffix("_bias") in ("query", "key") and even:
            # llama.cpp turns neighbours, transformers the two halves of a head
            pairs = array.reshape(-1, shape.head_dim // 2, 2, *array.shape[1:])
            array = pairs.swapaxes(1, 2).reshape(array.shape)
        return self._less_offset(name, array)

    def _called(self, name: str) -> str:
        """What the tensor of a weight, or that of the matrix that holds it, is called within its block."""
        packed = _PACKED.get(name) if self.architecture.fused else None
        return packed or self._kinds[name].gguf

    def _less_offset(self, name: str, array: Array) -> Array:
        """Norms of GGUF files have the offset of Gemma's in them."""
        return array - np.float32(self.architecture.norm_offset) if "norm" in name else array

    def _array(self, name: str) -> Array:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise FormatError(f"{self.path}: has no tensor {name!r}")
        try:
            from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError:
            raise CallError(f"{self.path}: needs the gguf package: pip install 'hexforge[llm]'") from None
        try:
            kind = GGMLQuantizationType(tensor.kind)
            block, size = GGML_QUANT_SIZES[kind]
        except (ValueError, KeyError):
            raise FormatError(f"{self.path}: tensor {name!r} has the unknown type {tensor.kind}") from None
        count = math.prod(tensor.shape)
        length = count // block * size
        if not count:
            raise FormatError(f"{self.path}: tensor {name!r} of {list(tensor.shape)} has no elements")
        if not tensor.shape or tensor.shape[-1] % block or tensor.offset + length > self._body.size:
            raise FormatError(f"{self.path}: tensor {name!r} lies outside the file; it is truncated", tensor.offset)
        raw = np.asarray(self._body[tensor.offset : tensor.offset + length])
        try:
            array = dequantize(raw.reshape(*tensor.shape[:-1], -1), kind)
        except NotImplementedError:
            raise UnsupportedError(f"{self.path}: tensor {name!r} of type {kind.name} cannot be expanded") from None
        return np.asarray(array, np.float32).reshape(tensor.shape)
