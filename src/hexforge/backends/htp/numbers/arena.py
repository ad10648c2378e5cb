# SPDX-License-Identifier: Apache-2.0
"""The arena: tensors that are never alive together share memory."""

from __future__ import annotations

from collections.abc import Mapping

_ALIGN = 64
_SLACK = 64  # kernels may read one vector past a tensor's end


def plan(sizes: Mapping[str, int], lives: Mapping[str, tuple[int, int]]) -> tuple[dict[str, int], int]:
    """Offsets of tensors by size in bytes and life (first and last step), and the bytes of the arena."""
    offsets: dict[str, int] = {}
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    total = 0
    for name in sorted(sizes, key=lambda n: (-sizes[n], n)):
        first, last = lives[name]
        need = -(-(sizes[name] + _SLACK) // _ALIGN) * _ALIGN
        at = 0
        for offset, end, begins, ends in placed:  # kept in order of offset
            if begins <= last and ends >= first:
                if offset - at >= need:
                    break
                at = max(at, end)
        offsets[name] = at
        placed.append((at, at + need, first, last))
        placed.sort()
        total = max(total, at + need)
    return offsets, total
