# SPDX-License-Identifier: Apache-2.0
"""LlmShape: the sizes of a language model that its work follows from, read from config.json or from a table of names.

The table (named_models.csv) has what the `config.json` files of public models say: published, and written down from
memory of them, as no hub can be reached from here. A config.json at hand is the better source.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.llm.families import family_of
from hexforge.errors import CallError, FormatError
from hexforge.formats.json_text import read_json
from hexforge.options import did_you_mean

NAMED = Path(__file__).with_name("named_models.csv")
CONFIG = "config.json"
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models that see pictures or hear keep the sizes of their language part."""
PICTURES = ("vision_config", "visual")
"""Settings that only models that see pictures have, where the sizes of the language part are not nested."""
LARGEST, MOST_PARAMETERS, MOST, LEAST = 1 << 24, 10**13, 1e12, 1e-12
"""Sizes, counts of parameters and other numbers above these, and numbers below the last, are no model's."""
_KEYS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads"),
    "kv_heads": ("num_key_value_heads", "n_kv_heads", "num_kv_heads"),
    "head_dim": ("head_dim", "head_size", "kv_channels"),
    "ffn": ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim"),
    "vocab": ("vocab_size",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "active_experts": ("num_experts_per_tok", "experts_per_token"),
    "expert_ffn": ("moe_intermediate_size",),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len"),
}
"""The spellings of each size."""


@dataclass(frozen=True, slots=True)
class LlmShape:
    """The sizes of a decoder-only language model."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    """Whether the head is the embedding."""
    vision: bool = False
    """Whether it is the language part of a model that sees pictures."""
    experts: int = 1
    active_experts: int = 1
    attention_layers: int = 0
    """Layers with attention; 0: all. The others mix tokens by a short convolution."""
    window: int = 0
    """Positions that a windowed layer looks back; 0: there are none such."""
    windowed_layers: int = 0
    gated: bool = True
    """Whether a feed-forward part has three matrices, and not two."""
    wide_attention: bool = False
    """Whether attention multiplies with keys and values of 16 bits, and not of 8."""
    positions: int = 0
    """Positions that the model was made for; 0: its config does not say."""
    assumed: tuple[str, ...] = ()
    """What the shape takes for granted because nothing here knows better."""

    @property
    def cached_layers(self) -> int:
        """Layers that keep keys and values."""
        return self.attention_layers or self.layers

    @property
    def feed_forward_parameters(self) -> int:
        """Of one expert of one layer."""
        return (3 if self.gated else 2) * self.hidden * self.ffn

    @property
    def mixing_parameters(self) -> int:
        """Of all layers, what mixes tokens: attention's products, or those around a short convolution."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.cached_layers * attention + (self.layers - self.cached_layers) * 4 * self.hidden * self.hidden

    @property
    def active_parameters(self) -> int:
        """Of all layers, those that a token is multiplied with; embedding and head left out."""
        return self.mixing_parameters + self.layers * self.active_experts * self.feed_forward_parameters

    @property
    def layer_parameters(self) -> int:
        """Of all layers, with experts that are not asked."""
        return self.mixing_parameters + self.layers * self.experts * self.feed_forward_parameters

    @property
    def head_parameters(self) -> int:
        """Of the head, which are as many as the embedding's."""
        return self.hidden * self.vocab

    @property
    def parameters(self) -> int:
        """All of them, norms and biases left out."""
        return self.layer_parameters + self.head_parameters * (1 if self.tied else 2)

    def cached_values(self, context: int) -> int:
        """Keys and values that are kept for a context."""
        whole = self.cached_layers - min(self.windowed_layers, self.cached_layers)
        windowed = self.cached_layers - whole
        positions = whole * context + windowed * min(context, self.window or context)
        return 2 * self.kv_heads * self.head_dim * positions

    def spans(self, context: int) -> int:
        """Positions that attention looks at, summed over layers."""
        return self.cached_values(context) // (2 * self.kv_heads * self.head_dim)


@functools.cache
def named_shapes() -> Mapping[str, LlmShape]:
    """The shapes of public models by their names (published)."""
    with NAMED.open(encoding="utf-8", newline="") as file:
        return {row["name"]: _from_row(row) for row in csv.DictReader(file)}


def _from_row(row: Mapping[str, str]) -> LlmShape:
    flags = {name: row[name] == "1" for name in ("tied", "vision", "wide_attention")}
    sizes = {name: int(text) for name, text in row.items() if name not in ("name", *flags)}
    return LlmShape(row["name"], **sizes, **flags)  # type: ignore[arg-type]


def read_shape(source: str | Path) -> LlmShape:
    """The shape of a model: a folder with config.json, such a file, or the name of a public model."""
    path = Path(source)
    if path.is_dir():
        if not (path / CONFIG).is_file():
            raise CallError(f"{path}: has no {CONFIG}, which says the sizes of a model")
        path = path / CONFIG
    if path.is_file():
        return shape_of_config(read_settings(path), path.parent.name or path.stem, str(path))
    known = named_shapes()
    name = str(source).lower().replace("-", "_").replace(".", "_").rpartition("/")[2]
    if name in known:
        return known[name]
    starts = [n for n in known if n.startswith(name)]
    if len(starts) == 1:
        return known[starts[0]]
    raise CallError(
        f"{source}: is no folder with {CONFIG}, no such file, and no model of the table{did_you_mean(name, known)} "
        "(`hexforge llm models` lists them)"
    )


def read_settings(path: Path) -> Mapping[str, Any]:
    """The object in a JSON file of a model; FormatError where it is none."""
    settings = read_json(path)
    if not isinstance(settings, Mapping):
        raise FormatError(f"{path}: is no object of settings")
    return settings


def shape_of_config(config: Mapping[str, Any], name: str, where: str = CONFIG) -> LlmShape:
    """The shape that a config.json says; FormatError where a size is missing or is none."""
    nested = next((config[key] for key in NESTED if isinstance(config.get(key), Mapping)), None)
    text = config if nested is None else nested
    if nested is not None and isinstance(nested.get("text_config"), Mapping):
        text = nested["text_config"]
    kind = str(text.get("model_type", config.get("model_type", "")))
    family = family_of(kind)
    if config.get("is_encoder_decoder") is True:
        raise FormatError(f"{where}: is of a model with an encoder and a decoder ({kind}); decoders alone are timed")

    def size(what: str, default: int | None = None) -> int:
        for key in _KEYS[what]:
            value = text.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= LARGEST:
                raise FormatError(f"{where}: {key} is {value!r}; it is a whole number from 1 to {LARGEST}")
            return value
        default = family.sizes.get(what, default)
        if default is None:
            lacking = "; models without attention are not timed" if what == "heads" else ""
            raise FormatError(f"{where}: has no {_KEYS[what][0]}{lacking}")
        return default

    hidden, layers, heads = size("hidden"), size("layers"), size("heads")
    kv_heads = size("kv_heads", heads)
    if heads % kv_heads:
        raise FormatError(f"{where}: {heads} heads cannot share {kv_heads} of keys and values evenly")
    unsaid = None if family.gated else 4 * hidden
    experts, active = size("experts", 1), size("active_experts", 1)
    if active > experts:
        raise FormatError(f"{where}: asks {active} experts for a token and has {experts}")
    tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings"))
    if tied is not None and not isinstance(tied, bool):
        raise FormatError(f"{where}: tie_word_embeddings is {tied!r}; it is true or false")
    attention, windowed, window = _layer_kinds(text, layers, where)
    shape = LlmShape(
        name,
        hidden,
        layers,
        heads,
        kv_heads,
        size("head_dim", max(1, hidden // heads)),
        size("expert_ffn", size("ffn", 4 * hidden)) if experts > 1 else size("ffn", unsaid),
        size("vocab"),
        family.tied if tied is None else tied,
        nested is not None or any(config.get(key) for key in PICTURES),
        experts,
        active,
        attention,
        window,
        windowed,
        family.gated,
        family.wide_attention,
        size("positions", 0),
        _assumptions(text, kind),
    )
    if shape.parameters > MOST_PARAMETERS:
        raise FormatError(f"{where}: its sizes make {shape.parameters:.1e} parameters, which no model has")
    return shape


def _assumptions(text: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """What a shape takes for granted of a config that it cannot follow in all."""
    assumed = []
    if not family_of(kind).known:
        said = f"the model type {kind!r} is not known here" if kind else "the config says no model_type"
        assumed.append(f"{said}: counted as a decoder with layers like Llama's")
    if text.get("kv_lora_rank"):
        assumed.append("compressed keys and values (kv_lora_rank) are counted as whole ones")
    if text.get("n_shared_experts"):
        assumed.append("experts that every token asks (n_shared_experts) are not counted")
    return tuple(assumed)


def _layer_kinds(text: Mapping[str, Any], layers: int, where: str) -> tuple[int, int, int]:
    """How many layers have attention, how many look back a window, and how far; zeros where all are alike."""
    family = family_of(str(text.get("model_type", "")))
    window = text.get("sliding_window", family.window or None)
    if window is not None and (isinstance(window, bool) or not isinstance(window, int) or window > LARGEST):
        raise FormatError(f"{where}: sliding_window is {window!r}; it is a whole number of positions, or null")
    window = window if window and window > 0 and text.get("use_sliding_window", not family.asks_for_windows) else 0
    kinds = text.get("layer_types")
    if kinds is not None:
        if not isinstance(kinds, list) or len(kinds) != layers:
            count = len(kinds) if isinstance(kinds, list) else repr(kinds)
            raise FormatError(f"{where}: layer_types has {count} entries for {layers} layers")
        windowed = sum(kind == "sliding_attention" for kind in kinds) if window else 0
        with_attention = sum("attention" in str(kind) for kind in kinds)
        if not with_attention:
            raise FormatError(f"{where}: no entry of layer_types is an attention; models without one are not timed")
        return (with_attention if with_attention < layers else 0), windowed, window if windowed else 0
    indices = text.get("full_attn_idxs")
    if isinstance(indices, list) and 0 < len(indices) < layers:
        return len(indices), 0, 0
    windowed = sum(windowed_layers(text, layers)) if window else 0
    return 0, windowed, window if windowed else 0


def windowed_layers(text: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Which layers look back a window, of a model that has windows."""
    family, kinds = family_of(str(text.get("model_type", ""))), text.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(each == "sliding_attention" for each in kinds)
    pattern = text.get("sliding_window_pattern", family.full_every)
    if isinstance(pattern, int) and pattern > 1:
        return tuple((layer + 1) % pattern != 0 for layer in range(layers))
    if family.skips_rotation:
        return tuple(not turns for turns in rotated_layers(text, layers))
    first = text.get("max_window_layers", 28) if family.asks_for_windows else 0
    return tuple(layer >= first for layer in range(layers)) if isinstance(first, int) else (True,) * layers


def rotated_layers(text: Mapping[str, Any], layers: int, where: str = CONFIG) -> tuple[bool, ...]:
    """Which layers of a SmolLM 3 turn queries and keys: three of four, or those that no_rope_layers has as 1."""
    said, every = text.get("no_rope_layers"), text.get("no_rope_layer_interval", 4)
    if said is None and isinstance(every, int) and every > 0:
        return tuple((layer + 1) % every != 0 for layer in range(layers))
    if not isinstance(said, list) or len(said) < layers or not all(each in (0, 1) for each in said):
        raise FormatError(f"{where}: no_rope_layers has not a 0 or 1 for each of {layers} layers")
    return tuple(bool(each) for each in said[:layers])


def number_of(settings: Mapping[str, Any], key: str, default: float, where: str, *, zero: bool = False) -> float:
    """A number above 0 (or 0, where `zero` may be) that a config says, or the default; FormatError for another."""
    value = settings.get(key)
    value = default if value is None else value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (LEAST <= value <= MOST or (zero and value == 0)):
        raise FormatError(f"{where}: {key} is {value!r}; it is a number above 0")
    return float(value)
