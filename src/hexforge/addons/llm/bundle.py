# SPDX-License-Identifier: Apache-2.0
"""Bundle: a folder with everything that a language model runs with, and bundle.json, which says what is in it.

bundle.json          sizes, precision and files, with what tells a damaged file
ar128.onnx, ar1.onnx graphs for 128 new tokens and for one; several of each where a model is split (ar1.2.onnx)
weights.bin          the weights of all of them, once
context.bin          the same graphs compiled for a chip, weights shared (context.2.bin)
config.json, tokenizer.json, genai_config.json, ...
"""

from __future__ import annotations

import shlex
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hexforge.addons.llm.decoder_graphs import DecoderFacts
from hexforge.errors import CallError, FormatError
from hexforge.formats.json_text import read_json
from hexforge.formats.validated import Count, Positive, validated

BUNDLE, VERSION = "bundle.json", 1
MOST_CACHED = 1 << 38
"""Numbers of a cache; a larger one is believed to be a damaged description."""
TOKENS, POSITIONS, LOGITS, STATE = "input_ids", "position_ids", "logits", "hidden_states"
PAST, PRESENT = "past_key_values.{}.{}", "present.{}.{}"
"""Inputs and outputs of graphs; of caches with the layer and "key" or "value"."""


@dataclass(frozen=True, slots=True)
class BundlePart:
    """Some layers of a model: their graphs by the number of new tokens, and the context that holds them compiled."""

    first: Count
    last: Count
    graphs: dict[int, str]
    """Files of ONNX models."""
    context: str = ""
    """The file of the context; empty where nothing was compiled."""
    adapters: dict[str, str] = field(default_factory=dict)
    """The compiled file of each adapter, by its name; none where it changes nothing here or nothing was compiled."""


@dataclass(frozen=True, slots=True)
class Bundle(DecoderFacts):
    """What a bundle's folder holds."""

    precision: str
    kv_heads: Positive
    head_dim: Positive
    soc: str
    native: bool
    """Whether caches lie as HTP's matrix unit reads them."""
    keys_transposed: bool
    parts: tuple[BundlePart, ...]
    sizes: dict[str, Count]
    """Bytes of the large files."""
    checksums: dict[str, Count]
    """CRC-32 of the small ones."""

    @property
    def tokens(self) -> tuple[int, ...]:
        """How many new tokens its graphs take, most first."""
        return tuple(sorted(self.parts[0].graphs, reverse=True))

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of its LoRA adapters."""
        return tuple(self.parts[0].adapters)

    def write(self) -> dict[str, Any]:
        """What bundle.json holds."""
        data = asdict(self)
        del data["folder"]
        for part in data["parts"]:
            part["graphs"] = {str(tokens): file for tokens, file in part["graphs"].items()}
        return {"version": VERSION, **data}


def graph_name(tokens: int) -> str:
    """What the graph for so many new tokens is called in a context."""
    return f"ar{tokens}"


def adapted_file(graph: str, adapter: str) -> str:
    """The file of a graph with an adapter's factors in it; the graph itself for the base."""
    return graph if not adapter else f"{graph.removesuffix('.onnx')}.{adapter}.onnx"


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    return zlib.crc32(path.read_bytes())


def read_bundle(folder: str | Path) -> Bundle:
    """A bundle, after a look at whether its files are those that were exported; FormatError where one is not."""
    at = Path(folder)
    if not (at / BUNDLE).is_file():
        if any((at / name).is_file() for name in ("genai_config.json", "config.json")):
            command = shlex.join(["hexforge", "llm", "export", str(at), "-o", f"{at}-bundle"])
            raise CallError(f"{at}: has no {BUNDLE}; where it is a model, `{command}` makes a bundle of it")
        raise CallError(f"{at}: has no {BUNDLE}; `hexforge llm export` makes a bundle of a checkpoint")
    data = read_json(at / BUNDLE)
    bundle = _parsed(at, data)
    for name, size in bundle.sizes.items():
        path = _inside(at, name)
        if not path.is_file():
            raise FormatError(f"{path}: is missing; export the bundle again")
        if path.stat().st_size != size:
            raise FormatError(f"{path}: has {path.stat().st_size:,} bytes, and {size:,} were exported; it is truncated")
    for name, sum_ in bundle.checksums.items():
        path = _inside(at, name)
        if not path.is_file():
            raise FormatError(f"{path}: is missing; export the bundle again")
        if checksum(path) != sum_:
            raise FormatError(f"{path}: is not the file that was exported; a bundle's files belong together")
    return bundle


def _parsed(folder: Path, data: Any) -> Bundle:
    where = folder / BUNDLE
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        raise FormatError(f"{where}: is no description of a bundle of version {VERSION}; export it again")
    fields = {key: value for key, value in data.items() if key != "version"}
    bundle = validated(Bundle, {"folder": str(folder), **fields}, str(where), FormatError)
    ends_of_parts = [0, *(part.last for part in bundle.parts)]
    joined = all(part.first == end < part.last for part, end in zip(bundle.parts, ends_of_parts, strict=False))
    kinds = {(*sorted(part.graphs), *part.adapters) for part in bundle.parts}
    if not joined or ends_of_parts[-1] != bundle.layers or len(kinds) != 1:
        raise FormatError(f"{where}: its parts do not hold each of {bundle.layers} layers once")
    if 1 not in bundle.tokens:
        raise FormatError(f"{where}: has no graph for one new token")
    if bundle.layers * bundle.kv_heads * bundle.head_dim * bundle.context > MOST_CACHED:
        raise FormatError(f"{where}: caches of {bundle.layers} layers and {bundle.context} tokens are larger than any")
    for name in (n for p in bundle.parts for n in (*p.graphs.values(), p.context, *p.adapters.values()) if n):
        if name not in bundle.sizes:
            raise FormatError(f"{where}: {name!r} is no file of the bundle: its size is not told")
    return bundle


def _inside(folder: Path, name: str) -> Path:
    """A file of the folder itself; FormatError for a name that leads out of it."""
    if Path(name).name != name or not name:
        raise FormatError(f"{folder / BUNDLE}: {name!r} is no file of the bundle")
    return folder / name
