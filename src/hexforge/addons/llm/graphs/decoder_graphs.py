# SPDX-License-Identifier: Apache-2.0
"""DecoderGraphs: what a session asks of whatever runs its model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from hexforge.ir import Array

Run = Callable[[Mapping[str, Array], Mapping[str, Array], Collection[str]], Mapping[str, Array]]
"""Outputs by name for inputs by name; an output is the array given for it where the program can write it there. Those
that are named last are not wanted."""
Caches = dict[str, Array]
"""Keys and values by the names of the inputs."""
PADDED_SHARE = 8
"""A rest of a prompt of at least an eighth of a graph's tokens goes through that graph, padded."""


class DecoderGraphs(Protocol):
    """The graphs of a decoder."""

    @property
    def has_quiet_runs(self) -> bool:
        """Whether runs without logits take less time."""
        ...

    def empty_caches(self) -> Caches:
        """Caches without a token."""
        ...

    def size(self, left: int, room: int, every: bool) -> int:
        """How many tokens the next run takes, where so many are left and fit; `every`: with logits after each."""
        ...

    def keeps(self, read: int, count: int) -> bool:
        """Whether caches that have read so many tokens still hold what the first `count` of them put there."""
        ...

    def run(
        self, size: int, chunk: Sequence[int], start: int, caches: Caches, quiet: bool
    ) -> tuple[Array | None, Caches]:
        """Read tokens after the first `start`: logits [tokens, vocabulary], or none, and the caches then."""
        ...


def graph_size(sizes: Sequence[int], left: int, room: int, pads: bool = True) -> int:
    """Of graphs for so many tokens, most first, the one for the next run; padding may not go beyond the context."""
    for size in sizes:
        if size <= room and (left >= size or (pads and left * PADDED_SHARE >= size)):
            return size
    return 1
