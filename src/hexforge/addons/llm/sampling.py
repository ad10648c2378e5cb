# SPDX-License-Identifier: Apache-2.0
"""Sampling: how a next token is chosen from logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.request_fields import spelled

TEMPERATURE = spelled("0: the most likely token always.")
TOP_K = spelled("Only so many of the most likely; 0: all.")
TOP_P = spelled("Only the most likely that have this share together.")
PENALTY = spelled("Above 1: what was there is less likely.")
SEED = spelled("The same seed chooses the same tokens.")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; without a temperature the most likely one always."""

    temperature: float = field(default=0.0, metadata=TEMPERATURE)
    top_k: int = field(default=0, metadata=TOP_K)
    top_p: float = field(default=1.0, metadata=TOP_P)
    repetition_penalty: float = field(default=1.0, metadata=PENALTY)
    """Logits of tokens that were there are divided by it where they are positive, else multiplied."""
    seed: int | None = field(default=None, metadata=SEED)

    def __post_init__(self) -> None:
        """CallError for numbers that mean nothing."""
        if not 0 <= self.temperature <= 100 or not 0 < self.top_p <= 1 or self.top_k < 0:
            raise CallError("sampling: temperature is 0 to 100, top_p above 0 and at most 1, top_k at least 0")
        if not 0 < self.repetition_penalty <= 100:
            raise CallError("sampling: repetition_penalty is above 0 and at most 100")
        if self.seed is not None and self.seed < 0:
            raise CallError(f"sampling: the seed {self.seed} is below 0; give a whole number from 0 on")


@dataclass(frozen=True, slots=True)
class ChatSampling(Sampling):
    """How tokens of a conversation are chosen where nobody says it otherwise: with some chance."""

    temperature: float = field(default=0.7, metadata=TEMPERATURE)
    top_k: int = field(default=40, metadata=TOP_K)
    top_p: float = field(default=0.95, metadata=TOP_P)
    repetition_penalty: float = field(default=1.1, metadata=PENALTY)


class Sampler:
    """Chooses one token after another; the same seed chooses the same."""

    def __init__(self, sampling: Sampling) -> None:
        self.sampling = sampling
        self._random = np.random.default_rng(sampling.seed)

    def shares(self, logits: Array, before: Sequence[int] = ()) -> Array:
        """The share of each token [vocabulary] in float64; one token has all of it without a temperature."""
        sampling = self.sampling
        scores: Array = np.asarray(logits, np.float64)
        if sampling.repetition_penalty != 1.0 and before:
            seen = np.unique(np.asarray(before))
            scores = scores.copy()
            scores[seen] = np.where(
                scores[seen] > 0, scores[seen] / sampling.repetition_penalty, scores[seen] * sampling.repetition_penalty
            )
        if sampling.temperature == 0:
            shares: Array = np.zeros(scores.shape)
            shares[int(scores.argmax())] = 1.0
            return shares
        scores = scores / sampling.temperature
        if sampling.top_k and sampling.top_k < scores.size:
            scores = np.where(scores >= np.partition(scores, -sampling.top_k)[-sampling.top_k], scores, -np.inf)
        shares = np.exp(scores - scores.max())
        shares = shares / shares.sum()
        if sampling.top_p < 1:
            order = np.argsort(-shares, kind="stable")
            kept = order[: int(np.searchsorted(np.cumsum(shares[order]), sampling.top_p)) + 1]
            few = np.zeros(shares.shape)
            few[kept] = shares[kept]
            shares = few / few.sum()
        return shares

    def choose(self, shares: Array) -> int:
        """A token, drawn by the shares."""
        if self.sampling.temperature == 0:
            return int(shares.argmax())
        return min(int(np.searchsorted(np.cumsum(shares), self._random.random(), side="right")), shares.size - 1)

    def accepts(self, probability: float) -> bool:
        """True with a probability."""
        return bool(self._random.random() < probability)
