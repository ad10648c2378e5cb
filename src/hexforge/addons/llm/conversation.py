# SPDX-License-Identifier: Apache-2.0
"""Conversation: turns over one session; what two turns' texts have in common is read once."""

from __future__ import annotations

from collections.abc import Generator

from hexforge.addons.llm.generate import AnswerPiece, LanguageModel, Sampling
from hexforge.errors import CallError


class Conversation:
    """Turns of a user and of a model."""

    def __init__(self, model: LanguageModel, system: str = "") -> None:
        self.model, self.session = model, model.session()
        self.messages: list[dict[str, str]] = [{"role": "system", "content": system}] if system else []
        self._first = len(self.messages)

    def answer(self, text: str, count: int = 256, sampling: Sampling | None = None) -> Generator[AnswerPiece]:
        """What the model says to one more message; an answer that is stopped stays as far as it was given."""
        asked = [*self.messages, {"role": "user", "content": text}]
        tokens = self.model.text.encode(self.model.text.chat(asked), special=False)
        if len(tokens) >= self.model.bundle.context:
            raise CallError(f"the conversation has {len(tokens)} tokens, and the context {self.model.bundle.context}")
        known = self.session.keep_start_of(tokens[:-1])
        given: list[str] = []
        self.messages = asked
        try:
            for piece in self.session.generate(tokens[known:], count, sampling):
                given.append(piece.text)
                yield piece
        finally:
            self.messages = [*asked, {"role": "assistant", "content": "".join(given)}]

    def use(self, adapter: str) -> None:
        """Let the next answers come with another LoRA adapter, or ("") with the base; the messages stay."""
        self.session.use(adapter)

    def undo(self, *, whole: bool = False) -> None:
        """Forget the last turn, or all of them."""
        del self.messages[self._first if whole else max(self._first, len(self.messages) - 2) :]
