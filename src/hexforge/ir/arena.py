# SPDX-License-Identifier: Apache-2.0
"""The arena: tensors that are never alive together share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

_Key = TypeVar("_Key")


def arena(
    sizes: Mapping[_Key, int],
    lives: Mapping[_Key, tuple[int, int]],
    alignment: int = 64,
    slack: int = 0,
    share: bool = True,
) -> tuple[dict[_Key, int], int]:
    """Offsets of tensors by size in bytes and life (first and last step), and the bytes of the arena.

    The largest is placed first; of equals the one that comes first. `slack` bytes lie free behind each tensor.
    """
    offsets: dict[_Key, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    total = 0
    for key in sorted(sizes, key=lambda k: -sizes[k]):
        first, last = lives[key]
        need = -(-max(sizes[key] + slack, 1) // alignment) * alignment
        at = 0
        for offset, end, begins, ends in placed:  # kept in order of offset
            if not share or (begins <= last and ends >= first):
                if offset - at >= need:
                    break
                at = max(at, end)
        offsets[key] = at
        placed.append((at, at + need, first, last))
        placed.sort()
        total = max(total, at + need)
    return offsets, total
