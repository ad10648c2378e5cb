# SPDX-License-Identifier: Apache-2.0
"""DecoderGraphs: what a session asks of whatever runs its model, and what a model says of itself.

Bundles, ONNX decoders of others and the decoders in .pte files of ExecuTorch are all run through this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hexforge.formats.validated import Count, Positive
from hexforge.ir import Array

Run = Callable[[Mapping[str, Array], Mapping[str, Array], Collection[str]], Mapping[str, Array]]
"""Outputs by name for inputs by name; an output is the array given for it where the program can write it there. Those
that are named last are not wanted."""
Caches = dict[str, Array]
"""What a model keeps of the tokens so far, by names that only whoever runs it knows."""
PADDED_SHARE = 8
"""A rest of a prompt of at least an eighth of a graph's tokens goes through that graph, padded."""


@dataclass(frozen=True, slots=True)
class DecoderFacts:
    """What a model says of itself."""

    folder: Path
    """Where it and its tokenizer are."""
    name: str
    context: Positive
    """Tokens that its caches hold: the most of a session."""
    vocabulary: Positive
    layers: Positive
    end_tokens: tuple[Count, ...]
    """Tokens that end an answer."""

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of its LoRA adapters."""
        return ()


class DecoderGraphs(Protocol):
    """The graphs of a decoder: tokens and caches in, logits and caches out."""

    @property
    def has_quiet_runs(self) -> bool:
        """Whether runs without logits take less time."""

    def empty_caches(self) -> Caches:
        """Caches without a token."""

    def size(self, left: int, start: int, every: bool) -> int:
        """How many tokens the run after the first `start` takes, where so many are left; `every`: logits after each."""

    def keeps(self, read: int, count: int) -> bool:
        """Whether caches that have read so many tokens still hold what the first `count` of them put there."""

    def run(
        self, size: int, chunk: Sequence[int], start: int, caches: Caches, quiet: bool
    ) -> tuple[Array | None, Caches]:
        """Read tokens after the first `start`: logits [tokens, vocabulary], or none, and the caches then."""


def graph_size(sizes: Sequence[int], left: int, room: int, pads: bool = True) -> int:
    """Of graphs for so many tokens, most first, the one for the next run; padding may not go beyond the context."""
    for size in sizes:
        if size <= room and (left >= size or (pads and left * PADDED_SHARE >= size)):
            return size
    return 1
