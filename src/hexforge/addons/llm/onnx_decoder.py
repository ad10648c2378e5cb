# SPDX-License-Identifier: Apache-2.0
"""OnnxDecoder: what a folder of onnxruntime-genai's builder, or of optimum, says of the ONNX decoder in it.

Names come from genai_config.json, or are those that both write; sizes from what the model declares. Caches of
GroupQueryAttention are one buffer for past and present, of the whole context or of a window; others grow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.llm.checkpoints.architecture import token_numbers
from hexforge.addons.llm.decoder_graphs import DecoderFacts
from hexforge.addons.llm.genai_config import GENAI_CONFIG, genai_settings
from hexforge.addons.llm.shape import CONFIG, read_settings
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.json_text import read_json
from hexforge.model.declarations import Declared, declare
from hexforge.model.source import open_source
from hexforge.runtime.cpu_part import states_of

MOST_CONTEXT = 4096
"""Tokens that caches hold where no other number is asked for, however long the texts are that a model was made for."""
SPARE_ROWS = 64
"""Rows of a window's cache beyond the window where settings leave them to whoever runs it: a window is moved once in
so many tokens, and as many can be forgotten."""
BRANCH = "use_cache_branch"
_NAMES = {
    "input_ids": "input_ids", "attention_mask": "attention_mask", "position_ids": "position_ids",
    "past_key_names": "past_key_values.%d.key", "past_value_names": "past_key_values.%d.value", "logits": "logits",
    "present_key_names": "present.%d.key", "present_value_names": "present.%d.value",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DecoderCache:
    """Keys or values of a layer: the input and the output that hold them."""

    past: str
    present: str
    dtype: Any
    heads: int
    rows: int
    """As many as there are; 0 where there is one for each token so far."""
    size: int
    window: int = 0
    """How far a token sees, where the rows hold no more than that needs."""
    in_place: bool = False
    """Whether past and present may be one buffer."""

    def evicted(self, tokens: int) -> int:
        """How many positions are gone from a window after so many tokens."""
        spare = self.rows - self.window + 1
        return spare * -(-max(tokens - self.rows, 0) // spare) if self.window else 0


@dataclass(frozen=True, slots=True)
class OnnxDecoder(DecoderFacts):
    """An ONNX decoder as it is."""

    file: Path
    names: Mapping[str, str]
    """What inputs and outputs are called, by the words of genai_config.json."""
    inputs: Mapping[str, Declared]
    caches: tuple[DecoderCache, ...]
    last_logits_only: bool
    """Whether logits come after the last of several tokens alone."""


def read_onnx_decoder(folder: Path, file: Path, context: int = 0, *, needs_caches: bool = True) -> OnnxDecoder:
    """What is said of a decoder's file; FormatError and UnsupportedError where that is wrong or not known.

    One without caches runs a single time; it is refused where it `needs_caches`.
    """
    graph = open_source(file, schemas=False, detach=True).proto.graph
    home = folder if folder.is_dir() else folder.parent
    settings = _Settings.of(home)
    inputs = {value.name: declare(value) for value in graph.input}
    outputs = {value.name: declare(value) for value in graph.output}
    in_place = states_of(graph)
    attentions = {node.input[3]: node for node in graph.node if _is_attention(node)}
    attentions |= {node.input[4]: node for node in graph.node if _is_attention(node)}
    names = settings.names
    longest = settings.number("context_length", "max_position_embeddings")
    if context and longest and context > longest:
        raise CallError(f"--context {context}: the model was made for texts of {longest} tokens; give fewer")
    rows = context or min(longest or MOST_CONTEXT, MOST_CONTEXT)
    caches: list[DecoderCache] = []
    layer = 0
    while names["past_key_names"].replace("%d", str(layer)) in inputs:
        for kind in ("key", "value"):
            past, present = (names[f"{side}_{kind}_names"].replace("%d", str(layer)) for side in ("past", "present"))
            if past not in inputs or present not in outputs:
                raise FormatError(f"{file}: has no input {past!r}, or no output {present!r}")
            shared = present in in_place and settings.shares_buffers
            window = _window(attentions.get(past))
            caches.append(_cache(file, inputs[past], present, settings, rows, window, shared))
        layer += 1
    if not caches and needs_caches:
        raise UnsupportedError(
            f"{file}: has no input {names['past_key_names'].replace('%d', '0')!r}; decoders with past keys and values "
            "as inputs are run, and `hexforge llm export` takes checkpoints"
        )
    rows = min([c.rows for c in caches if c.rows and not c.window] or [rows])
    logits = outputs.get(names["logits"])
    if logits is None or names["input_ids"] not in inputs:
        raise FormatError(f"{file}: has no input {names['input_ids']!r}, or no output {names['logits']!r}")
    known = {names[word] for word in ("input_ids", "attention_mask", "position_ids")} | {BRANCH}
    for name, value in inputs.items():
        if name not in known and name not in {cache.past for cache in caches}:
            raise UnsupportedError(f"{file}: input {name!r} of {list(value.shape or ())} is not known")
        if value.dtype is None or value.dtype.isbuiltin != 1:
            raise UnsupportedError(f"{file}: input {name!r} is a {value.type}, which is not known of decoders")
    shape = logits.shape or ()
    vocabulary = shape[-1] if shape and isinstance(shape[-1], int) else settings.number("vocab_size")
    if not vocabulary:
        raise FormatError(f"{settings.where}: does not say vocab_size")
    return OnnxDecoder(
        home, home.resolve().name, rows, vocabulary, layer, settings.end_tokens, file, names, inputs, tuple(caches),
        last_logits_only=len(shape) == 3 and shape[1] == 1,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Settings:
    """What genai_config.json or config.json says."""

    where: Path
    model: Mapping[str, Any]
    decoder: Mapping[str, Any]
    names: Mapping[str, str]
    shares_buffers: bool
    end_tokens: tuple[int, ...]

    @classmethod
    def of(cls, folder: Path) -> _Settings:
        """Those of a folder; none of them where it has neither file."""
        where, data = folder / GENAI_CONFIG, {}
        model: Mapping[str, Any] = {}
        decoder: Mapping[str, Any] = {}
        if where.is_file():
            data = read_json(where)
            model, decoder = genai_settings(data, where)
        else:
            where = next((at for at in (folder / CONFIG, folder.parent / CONFIG) if at.is_file()), folder / CONFIG)
            model = read_settings(where) if where.is_file() else {}
        names = dict(_NAMES)
        for side in ("inputs", "outputs"):
            said = decoder.get(side, {})
            if not isinstance(said, Mapping) or not all(isinstance(name, str) for name in said.values()):
                raise FormatError(f"{where}: decoder.{side} is no object of names")
            names |= {word: name for word, name in said.items() if word in _NAMES}
        search = data.get("search", {})
        shares = not isinstance(search, Mapping) or bool(search.get("past_present_share_buffer", True))
        return cls(where, model, decoder, names, shares, token_numbers(model, "eos_token_id"))

    def number(self, *words: str) -> int:
        """A size by one of its names; 0 where it is not told."""
        for word in words:
            value = self.decoder.get(word, self.model.get(word))
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
                    raise FormatError(f"{self.where}: {word} is {value!r}; it is a number above 0")
                return value
        return 0

    def spare_rows(self) -> int:
        """Rows of a window's cache beyond the window."""
        window = self.decoder.get("sliding_window")
        value = window.get("cache_slack", 0) if isinstance(window, Mapping) else 0
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 31:
            raise FormatError(f"{self.where}: sliding_window.cache_slack is {value!r}; it is a number, 0 or above")
        return value or SPARE_ROWS


def _is_attention(node: Any) -> bool:
    return node.op_type == "GroupQueryAttention" and len(node.input) > 4


def _window(attention: Any) -> int:
    """How far a token sees, of attention whose caches hold a window alone; 0 of other."""
    numbers = {} if attention is None else {attribute.name: attribute.i for attribute in attention.attribute}
    return int(numbers.get("local_window_size", 0)) if numbers.get("sliding_window_cache") else 0


def _cache(
    file: Path, declared: Declared, present: str, settings: _Settings, context: int, window: int, shared: bool
) -> DecoderCache:
    """A cache by what the model declares of it, and by the settings where that is open."""
    past, shape = declared.name, declared.shape
    if shape is None or len(shape) != 4:
        raise UnsupportedError(f"{file}: cache {past!r} is no tensor of [batch, heads, tokens, size]")
    heads, rows, size = shape[1:]
    heads = heads if isinstance(heads, int) else settings.number("num_key_value_heads")
    if not isinstance(size, int):
        size = settings.number("head_size", "head_dim") // (2 if declared.type == "tensor(uint8)" else 1)
    if not heads or not size:
        raise FormatError(f"{settings.where}: does not say num_key_value_heads and head_size, which {past!r} has")
    if not isinstance(rows, int):
        rows = window + settings.spare_rows() if window else context if shared else 0
    return DecoderCache(past, present, declared.dtype, heads, rows, size, window, shared)
