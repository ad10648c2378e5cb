# SPDX-License-Identifier: Apache-2.0
"""The float model itself, in float32 with numpy, one layer after the other: what others are compared with.

Weights are read a layer at a time, so that a model of any size fits, and `observe` sees every value under its name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import EMBEDDING, FINAL_NORM, Architecture
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.rotation import Rotation
from hexforge.ir import Array

Ranges = dict[str, tuple[float, float]]
"""The lowest and highest number of each value, by its name."""
Observe = Callable[[str, Array], None]
"""Called with the name of a value, as decoder_graph names it, and the value."""


def normalized(x: Array, weight: Array, epsilon: float) -> Array:
    """RMSNorm over the last axis."""
    mean = np.mean(np.square(x), -1, keepdims=True, dtype=np.float32)
    return x / np.sqrt(mean + np.float32(epsilon)) * weight


def activated(x: Array, kind: str) -> Array:
    """SiLU, or GELU with a tanh."""
    if kind == "silu":
        result: Array = x / (1 + np.exp(-np.clip(x, -80, 80)))
    else:
        result = 0.5 * x * (1 + np.tanh(np.float32(0.7978845608) * (x + np.float32(0.044715) * x**3)))
    return result


def turned(x: Array, rotation: Rotation, positions: Array) -> Array:
    """[..., tokens, size] with pairs of elements turned by their positions."""
    cosines, sines = (table[positions] for table in rotation.table(int(positions.max()) + 1))
    half = rotation.size // 2
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate((first * cosines - second * sines, second * cosines + first * sines, rest), -1)


def _ignore(name: str, value: Array) -> None:
    del name, value


class FloatDecoder:
    """A model in float32, computed for whole texts at once."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def logits(self, texts: Sequence[Sequence[int]], observe: Observe = _ignore) -> list[Array]:
        """For each text the logits after each of its tokens."""
        states = self.states(texts, observe)
        arch = self.checkpoint.architecture
        head = self.checkpoint.weight(arch.head_weight)
        logits = [state @ head.T * np.float32(arch.logit_scale) for state in states]
        for x in logits:
            observe("logits", x)
        if arch.logit_cap:
            logits = [np.tanh(x / arch.logit_cap) * arch.logit_cap for x in logits]
        return logits

    def states(self, texts: Sequence[Sequence[int]], observe: Observe = _ignore) -> list[Array]:
        """For each text what the head reads."""
        arch, checkpoint = self.checkpoint.architecture, self.checkpoint
        embedding = checkpoint.weight(EMBEDDING)
        states = [embedding[np.asarray(text)] * np.float32(arch.embedding_scale) for text in texts]
        for x in states:
            observe("embedded", x)
        del embedding
        for layer in range(arch.shape.layers):
            weights = {name: checkpoint.weight(name, layer) for name in checkpoint.names()}
            states = [_layer(arch, layer, weights, x, observe) for x in states]
        norm = checkpoint.weight(FINAL_NORM) + np.float32(arch.norm_offset)
        states = [normalized(x, norm, arch.epsilon) for x in states]
        for x in states:
            observe("normalized", x)
        return states


def _layer(arch: Architecture, index: int, weights: dict[str, Array], x: Array, observe: Observe) -> Array:
    def seen(name: str, value: Array) -> Array:
        observe(f"layer.{index}.{name}", value)
        return value

    def norm(name: str, value: Array) -> Array:
        return normalized(value, weights[name] + np.float32(arch.norm_offset), arch.epsilon)

    def product(name: str, value: Array) -> Array:
        scale = np.float32(arch.result_scale(name))
        y = value @ weights[name].T * scale
        return seen(f"{name}_product", y) + weights[f"{name}_bias"] * scale if f"{name}_bias" in weights else y

    shape = arch.shape
    read = seen("attention_norm", norm("attention_norm", x) if arch.inner_norms else x)
    parts = []
    for name, heads in (("query", shape.heads), ("key", shape.kv_heads), ("value", shape.kv_heads)):
        y = seen(name, product(name, read))
        if arch.joint_norms and name != "value":
            y = seen(f"{name}_norm", norm(f"{name}_norm", y))
        y = y.reshape(len(x), heads, shape.head_dim).transpose(1, 0, 2)
        if arch.head_norms and name != "value":
            y = seen(f"{name}_norm", norm(f"{name}_norm", y))
        parts.append(y)
    window = arch.windows[index] if arch.windows else 0
    places = np.arange(len(x))
    if not arch.rotated or arch.rotated[index]:
        rotation = arch.local_rotation if window else arch.rotation
        parts[0] = seen("query_turned", turned(parts[0], rotation, places))
        parts[1] = seen("key_turned", turned(parts[1], rotation, places))
    query, key, value = parts
    seen("key_cache", key)
    seen("value_cache", value)
    mixed = np.empty_like(query)
    distance = places[:, None] - places[None, :]
    allowed = (distance >= 0) & (distance < window if window else True)
    for head in range(shape.heads):
        group = head * shape.kv_heads // shape.heads
        scores = seen("scores", query[head] @ key[group].T * np.float32(arch.attention_scale))
        if arch.score_cap:
            scores = np.tanh(scores / arch.score_cap) * np.float32(arch.score_cap)
        scores = np.where(allowed, scores, np.float32(-np.inf))
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        mixed[head] = shares / shares.sum(-1, keepdims=True) @ value[group]
    out = seen("mixed", mixed.transpose(1, 0, 2).reshape(len(x), -1))
    out = seen("output", product("output", out))
    if arch.outer_norms:
        out = seen("attention_out_norm", norm("attention_out_norm", out))
    x = seen("attended", x + out)
    read = seen("feed_norm", norm("feed_norm", x) if arch.inner_norms else x)
    gate, up = seen("gate", product("gate", read)), seen("up", product("up", read))
    out = seen("gated", seen("activated", activated(gate, arch.activation)) * up)
    out = seen("down", product("down", out))
    if arch.outer_norms:
        out = seen("feed_out_norm", norm("feed_out_norm", out))
    return seen("fed", x + out)


def observed_ranges(checkpoint: Checkpoint, texts: Sequence[Sequence[int]], also: Observe = _ignore) -> Ranges:
    """The lowest and highest number of every value of a model over texts; `also` sees the values, too."""
    ranges: Ranges = {}

    def seen(name: str, value: Array) -> None:
        widen(ranges, name, value)
        also(name, value)

    FloatDecoder(checkpoint).logits(texts, seen)
    return ranges


def widen(ranges: Ranges, name: str, value: Array) -> None:
    """Let the range of a value hold these numbers, too."""
    low, high = ranges.get(name, (0.0, 0.0))
    ranges[name] = (min(low, float(value.min())), max(high, float(value.max())))
