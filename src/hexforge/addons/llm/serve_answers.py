# SPDX-License-Identifier: Apache-2.0
"""Answers for many clients: each has a session of its own, and they take turns token by token on one thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from hexforge.addons.llm.bundle import Bundle
from hexforge.addons.llm.generate import AnswerPiece, LanguageModel
from hexforge.addons.llm.graphs.decoder_graphs import DecoderFacts
from hexforge.addons.llm.serve_requests import AnswerRequest, RequestError
from hexforge.errors import CallError


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a chip answers, in seconds."""

    first_token: Callable[[int], float]
    """For a prompt of so many tokens."""
    token: Callable[[int], float]
    """The next one after so many."""


def device_pace(bundle: DecoderFacts, soc: str = "") -> Pace:
    """The estimated pace of the chip that a bundle was exported for, or of another."""
    if not isinstance(bundle, Bundle):
        raise CallError(f"{bundle.folder}: the pace of a chip is that of a bundle; `hexforge llm export` makes one")
    from hexforge.addons.llm.time.estimate import estimate_llm
    from hexforge.addons.llm.time.terms import CHUNK

    estimate = estimate_llm(
        bundle.folder, soc or bundle.soc, context=max(bundle.context, CHUNK), precision=bundle.precision
    )
    return Pace(lambda prompt: estimate.first_token_ms(prompt) / 1e3, lambda at: estimate.token_ms / 1e3)


class Answers:
    """Answers with one model, so many at a time; others wait, and too many are turned away."""

    def __init__(self, model: LanguageModel, together: int = 8, waiting: int = 256, pace: Pace | None = None) -> None:
        self.model, self.pace = model, pace
        self._places, self._most, self._open = asyncio.Semaphore(together), together + waiting, 0
        self._thread = ThreadPoolExecutor(1, "hexforge-llm")

    async def pieces(self, answer: AnswerRequest) -> AsyncGenerator[AnswerPiece]:
        """One answer, piece by piece; it ends, and its session is gone, when the client goes."""
        if self._open >= self._most:
            raise RequestError(429, f"{self._open} requests are open; come again later", code="rate_limit_exceeded")
        self._open += 1
        try:
            async with self._places:
                made = self.model.session(answer.adapter).generate(
                    answer.tokens, answer.count, answer.sampling, answer.stop
                )
                due, given = time.monotonic(), 0
                loop = asyncio.get_running_loop()
                while True:
                    piece = await loop.run_in_executor(self._thread, _next, made)
                    if piece is None:
                        return
                    if self.pace is not None:
                        prompt = len(answer.tokens)
                        due += self.pace.token(prompt + given) if given else self.pace.first_token(prompt)
                        await asyncio.sleep(max(0.0, due - time.monotonic()))
                    given += 1
                    yield piece
        finally:
            self._open -= 1

    def close(self) -> None:
        """No more answers."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _next(made: Generator[AnswerPiece]) -> AnswerPiece | None:
    return next(made, None)
