# SPDX-License-Identifier: Apache-2.0
"""Checkpoint: the weights of a language model by what they are, one at a time, from files or from random numbers."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.adapters.safetensors import map_safetensors
from hexforge.addons.llm.checkpoints.architecture import (
    EMBEDDING,
    FINAL_NORM,
    HEAD,
    Architecture,
    architecture_of_config,
    fused_rows,
    weight_shapes,
    weights_of,
)
from hexforge.addons.llm.shape import CONFIG, read_settings
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.json_text import read_json
from hexforge.ir import Array
from hexforge.options import did_you_mean

INDEX, WHOLE = "model.safetensors.index.json", "model.safetensors"
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json", "vocab.json",
    "merges.txt", "tokenizer.model", "chat_template.jinja", "added_tokens.json",
)  # fmt: skip
_PREFIXES = ("model.", "language_model.model.", "model.language_model.", "model.text_model.", "")
"""Where the embedding and the layers of a language part are."""
_UNUSED = ".rotary_emb.inv_freq"
"""A table that early checkpoints of Llamas hold, and that follows from their config."""


class Checkpoint(ABC):
    """A language model's weights. A matrix is [outputs, inputs], as torch has it."""

    def __init__(self, architecture: Architecture, config: Mapping[str, Any], folder: Path | None) -> None:
        self.architecture, self.config, self.folder = architecture, config, folder
        self._kinds, self._shapes = weights_of(architecture), weight_shapes(architecture)

    @abstractmethod
    def _stored(self, name: str, layer: int | None) -> Array:
        """A weight in whatever type it is stored."""

    def weight(self, name: str, layer: int | None = None) -> Array:
        """A weight in float32; FormatError where its shape is not the config's."""
        array = self._stored(name, layer)
        wanted = self._shapes[name]
        if array.shape != wanted:
            at = name if layer is None else f"{name} of layer {layer}"
            raise FormatError(f"{at} is {list(array.shape)}; {CONFIG} says {list(wanted)}")
        if array.dtype.kind in "iub":
            raise UnsupportedError(
                f"{name} is of {array.dtype.name}: a quantized checkpoint is not read; give its floats"
            )
        return np.ascontiguousarray(array, np.float32)

    def codes(self, name: str, layer: int | None, bits: int, block: int) -> tuple[Array, Array] | None:
        """Integers [inputs, outputs] and scales [blocks, outputs] of a matrix that is stored in just such blocks."""
        del name, layer, bits, block
        return None

    def names(self) -> tuple[str, ...]:
        """The weights of a layer."""
        return tuple(name for name in self._shapes if name not in (EMBEDDING, FINAL_NORM, HEAD))


class SafetensorsCheckpoint(Checkpoint):
    """A folder as transformers writes it: config.json and one or several mapped .safetensors files."""

    def __init__(self, folder: Path) -> None:
        config = read_settings(folder / CONFIG)
        super().__init__(architecture_of_config(config, folder.name, str(folder / CONFIG)), config, folder)
        self._arrays = _mapped(folder)
        whole = (prefix for prefix in _PREFIXES if f"{prefix}embed_tokens.weight" in self._arrays)
        self._prefix = next(whole, _PREFIXES[0])
        self._require_no_others()

    def _stored(self, name: str, layer: int | None) -> Array:
        if layer is None:
            spelled = self._spelled(name).removeprefix("model.")
            head = f"language_model.{spelled}" if f"language_model.{spelled}" in self._arrays else spelled
            return self._array(head if name == HEAD else self._prefix + spelled)
        array = self._array(f"{self._prefix}layers.{layer}.{self._spelled(name)}")
        if not self._packed(name):
            return array
        start, end, _ = fused_rows(self.architecture.shape, name)
        rows: Array = array[start:end]
        return rows

    def _packed(self, name: str) -> bool:
        """Whether a weight is some rows of a matrix that holds several."""
        return self.architecture.fused and name in ("query", "key", "value", "gate", "up")

    def _spelled(self, name: str) -> str:
        """What a layer's weight, or the matrix that holds it, is called within its layer."""
        if self._packed(name):
            return f"{fused_rows(self.architecture.shape, name)[2]}.weight"
        return self._kinds[name].transformers

    def _array(self, name: str) -> Array:
        if name not in self._arrays:
            raise FormatError(f"{self.folder}: no file holds {name!r}{did_you_mean(name, self._arrays)}")
        return self._arrays[name]

    def _require_no_others(self) -> None:
        """UnsupportedError for a layer with weights that nothing is computed with here: it is another model's."""
        known, arch = {self._spelled(name) for name in self.names()}, self.architecture
        for name in self._arrays:
            number, _, own = name.removeprefix(f"{self._prefix}layers.").partition(".")
            inside = (
                name.startswith(f"{self._prefix}layers.") and number.isdecimal() and int(number) < arch.shape.layers
            )
            if inside and own not in known and not own.endswith(_UNUSED):
                raise UnsupportedError(
                    f"{self.folder}: holds {name!r}, which no {arch.family} has that is exported here"
                )


def _mapped(folder: Path) -> dict[str, Array]:
    """All arrays of a folder, whichever file each is in; FormatError where an index names a file that is not there."""
    if (folder / INDEX).is_file():
        table = read_json(folder / INDEX)
        places = table.get("weight_map") if isinstance(table, Mapping) else None
        if not isinstance(places, Mapping) or not all(isinstance(v, str) for v in places.values()):
            raise FormatError(f"{folder / INDEX}: has no weight_map of files")
        arrays: dict[str, Array] = {}
        for file in sorted(set(places.values())):
            if Path(file).name != file or not (folder / file).is_file():
                raise FormatError(f"{folder / INDEX}: names {file!r}, which is not in the folder; fetch it again")
            arrays |= map_safetensors(folder / file)
        missing = [name for name in places if name not in arrays]
        if missing:
            raise FormatError(f"{folder}: {missing[0]!r} is in none of the files, and {INDEX} says where it is")
        return arrays
    if (folder / WHOLE).is_file():
        return map_safetensors(folder / WHOLE)
    raise CallError(f"{folder}: has neither {WHOLE} nor {INDEX}; give --random to export random weights")


class ChangedCheckpoint(Checkpoint):
    """A checkpoint whose weights are changed when they are asked for; `change` gets weight, name and layer."""

    def __init__(self, source: Checkpoint, change: Callable[[Array, str, int | None], Array]) -> None:
        super().__init__(source.architecture, source.config, source.folder)
        self._source, self._change = source, change

    def _stored(self, name: str, layer: int | None) -> Array:
        return self._change(self._source.weight(name, layer), name, layer)


class RandomCheckpoint(Checkpoint):
    """Random weights of a config's sizes: the same numbers for the same seed, made when they are asked for."""

    def __init__(self, architecture: Architecture, config: Mapping[str, Any], folder: Path | None, seed: int) -> None:
        super().__init__(architecture, config, folder)
        self._seed = seed

    def _stored(self, name: str, layer: int | None) -> Array:
        wanted = self._shapes[name]
        if "norm" in name:
            return np.full(wanted, 1.0 - self.architecture.norm_offset, np.float32)
        key = zlib.crc32(f"{name} {layer}".encode())
        random = np.random.default_rng((self._seed, key))
        size = 1.0 if name == EMBEDDING else wanted[-1] ** -0.5
        drawn: Array = random.standard_normal(wanted, np.float32)
        drawn *= np.float32(size)
        return drawn
