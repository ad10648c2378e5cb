# SPDX-License-Identifier: Apache-2.0
"""Tiled caches: KV caches whose bytes lie as the matrix unit reads them, which numbers and time both ask for."""

from __future__ import annotations

from hexforge.ir import Value

JOIN = "ScatterElements"
"""The op that puts new tokens into a cache."""


def tile_of(value: Value) -> int:
    """The columns of a piece where a value lies for the matrix unit: a cache, or one with new tokens in it; else 0."""
    while (node := value.producer) is not None:
        if value.tile:
            return value.tile
        if node.op.name != JOIN or node.params["reduction"] or node.inputs[0] is None:
            return 0
        value = node.inputs[0]
    return value.tile
