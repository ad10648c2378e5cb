# SPDX-License-Identifier: Apache-2.0
"""PEFT adapters: adapter_config.json and adapter_model.safetensors as low-rank factors of a model's products."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.adapters.safetensors import read_arrays
from hexforge.addons.llm.checkpoints.architecture import WEIGHTS, Architecture, fused_rows, weight_shapes
from hexforge.addons.llm.checkpoints.checkpoint import ChangedCheckpoint, Checkpoint
from hexforge.addons.llm.shape import read_settings
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.ir import Array

ADAPTER_CONFIG, ADAPTER_WEIGHTS, PICKLED = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
MOST_RANK = 512
NAME = re.compile(r"[A-Za-z][\w-]{0,63}")
"""What an adapter may be called: its name is a part of file names."""
Place = tuple[int, str]
"""A product that adapters change: its layer and name."""
_MODULES = {w.transformers.split(".")[-2]: w.name for w in WEIGHTS if w.transformers.endswith("_proj.weight")}
_FUSED = {"qkv_proj": ("query", "key", "value"), "gate_up_proj": ("gate", "up")}
_TENSOR = re.compile(
    r"(?:[\w.]+\.)?layers\.(?P<layer>\d{1,4})\.(?:self_attn|mlp)\.(?P<module>\w+)\.lora_(?P<side>[AB])(?:\.\w+)?\.weight"
)
_UNSUPPORTED: Mapping[str, Any] = {
    "use_dora": False, "fan_in_fan_out": False, "lora_bias": False, "modules_to_save": None, "layer_replication": None,
    "bias": "none", "trainable_token_indices": None,
}  # fmt: skip
"""Settings of PEFT that change more than products, with what they are where they change nothing."""


@dataclass(frozen=True, slots=True)
class LowRankAdapter:
    """Factors A [rank, inputs] and B [outputs, rank] of products, float32; the adapter's scale is in B."""

    name: str
    factors: Mapping[Place, tuple[Array, Array]]


def read_adapter(name: str, folder: str | Path, architecture: Architecture) -> LowRankAdapter:
    """The adapter in a folder as PEFT writes it, for a model of this architecture; FormatError for another model's."""
    at = Path(folder)
    if NAME.fullmatch(name) is None:
        raise CallError(f"adapter {name!r}: give a name of letters, digits, - and _ that begins with a letter")
    if not (at / ADAPTER_CONFIG).is_file():
        raise CallError(f"{at}: has no {ADAPTER_CONFIG}; give a folder as PEFT's save_pretrained writes it")
    config = read_settings(at / ADAPTER_CONFIG)
    _require_plain(config, at / ADAPTER_CONFIG)
    if not (at / ADAPTER_WEIGHTS).is_file():
        pickled = (at / PICKLED).is_file()
        raise CallError(
            f"{at}: has no {ADAPTER_WEIGHTS}"
            + (f"; {PICKLED} may run code when it is read: save it anew with safe_serialization=True" * pickled)
        )
    pairs = _pairs(read_arrays(at / ADAPTER_WEIGHTS), at / ADAPTER_WEIGHTS)
    factors: dict[Place, tuple[Array, Array]] = {}
    for (layer, module), (first, second) in pairs.items():
        scale = _scale(config, f"layers.{layer}.{module}", module, first.shape[0], at / ADAPTER_CONFIG)
        for product, rows in _products(module, architecture).items():
            part = np.ascontiguousarray(second[rows] * np.float32(scale))
            _require_fit(layer, product, first, part, second.shape[0], module, architecture, at / ADAPTER_WEIGHTS)
            factors[layer, product] = (first, part)
    return LowRankAdapter(name, factors)


def _require_plain(config: Mapping[str, Any], where: Path) -> None:
    if config.get("peft_type") != "LORA":
        raise UnsupportedError(f"{where}: peft_type is {config.get('peft_type')!r}; LORA adapters are read")
    other = [key for key, plain in _UNSUPPORTED.items() if config.get(key) not in (plain, None, [], {})]
    if other:
        raise UnsupportedError(f"{where}: {', '.join(other)} changes more than products; train without it")


def _pairs(arrays: Mapping[str, Array], where: Path) -> dict[tuple[int, str], tuple[Array, Array]]:
    """A and B of each module; every fault at once."""
    sides: dict[tuple[int, str], dict[str, Array]] = {}
    faults = []
    for name, array in arrays.items():
        match = _TENSOR.fullmatch(name)
        if match is None or match["module"] not in (*_MODULES, *_FUSED):
            faults.append(f"{name!r} is no factor of a product of a layer")
        elif array.ndim != 2 or array.dtype.kind in "iub" or not np.isfinite(array.astype(np.float32)).all():
            faults.append(f"{name!r} is no matrix of finite numbers")
        else:
            made = sides.setdefault((int(match["layer"]), match["module"]), {})
            made[match["side"]] = array.astype(np.float32)
    for (layer, module), made in sides.items():
        if len(made) != 2 or made["A"].shape[0] != made["B"].shape[1] or not 1 <= made["A"].shape[0] <= MOST_RANK:
            shapes = {side: list(array.shape) for side, array in made.items()}
            faults.append(f"{module} of layer {layer} has {shapes}, not A [rank, inputs] and B [outputs, rank]")
    if faults or not sides:
        more = f" (and {len(faults) - 4} more)" if len(faults) > 4 else ""
        raise FormatError(f"{where}: {'; '.join(faults[:4]) or 'holds no factors'}{more}")
    return {place: (made["A"], made["B"]) for place, made in sides.items()}


def _scale(config: Mapping[str, Any], place: str, module: str, rank: int, where: Path) -> float:
    """What PEFT multiplies B A with."""
    patterns = config.get("alpha_pattern") or {}
    alpha = config.get("lora_alpha", rank)
    if isinstance(patterns, Mapping):
        alpha = next((v for key, v in patterns.items() if key == module or place.endswith(f".{key}")), alpha)
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise FormatError(f"{where}: lora_alpha is {alpha!r}, no number")
    return alpha / math.sqrt(rank) if config.get("use_rslora") else alpha / rank


def _products(module: str, architecture: Architecture) -> dict[str, slice]:
    """The products that a module computes, and which rows of its outputs each is."""
    if module in _FUSED:
        return {name: slice(*fused_rows(architecture.shape, name)[:2]) for name in _FUSED[module]}
    return {_MODULES[module]: slice(None)}


def _require_fit(
    layer: int, product: str, first: Array, second: Array, rows: int, module: str, arch: Architecture, where: Path
) -> None:
    outputs, inputs = weight_shapes(arch)[product]
    if layer >= arch.shape.layers or first.shape[1] != inputs or second.shape[0] != outputs:
        raise FormatError(
            f"{where}: {module} of layer {layer} is [{rows}, {first.shape[1]}]; the model has {arch.shape.layers} "
            f"layers, and there {product} is [{outputs}, {inputs}]: it is another model's adapter"
        )


def adapted_checkpoint(base: Checkpoint, adapter: LowRankAdapter) -> Checkpoint:
    """A checkpoint with an adapter merged into its weights."""

    def merged(weight: Array, name: str, layer: int | None) -> Array:
        if layer is None or (layer, name) not in adapter.factors:
            return weight
        first, second = adapter.factors[layer, name]
        changed: Array = weight + second @ first
        return changed

    return ChangedCheckpoint(base, merged)
