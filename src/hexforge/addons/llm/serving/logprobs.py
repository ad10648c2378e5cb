# SPDX-License-Identifier: Apache-2.0
"""Logarithms of shares: how likely the model found each token that it gave, as OpenAI's clients read it."""

from __future__ import annotations

from typing import Any

import numpy as np

from hexforge.addons.llm.generate import AnswerPiece
from hexforge.addons.llm.serving.requests import AnswerRequest
from hexforge.addons.llm.text_tokens import TextTokens


class TokenShares:
    """The tokens of an answer with the logarithms of their shares, by the model's own scores before any sampling."""

    def __init__(self, text: TextTokens, answer: AnswerRequest) -> None:
        self._text, self._answer = text, answer
        self._tokens: list[dict[str, Any]] = []

    def add(self, piece: AnswerPiece) -> None:
        """One more token."""
        if self._answer.logprobs is None or piece.logits is None:
            return
        scores = np.asarray(piece.logits, np.float64)
        logs = scores - scores.max()
        logs -= np.log(np.exp(logs).sum())
        top = np.argsort(-logs, kind="stable")[: self._answer.logprobs]
        entry = self._entry(piece.token, float(logs[piece.token]))
        self._tokens.append(entry | {"top_logprobs": [self._entry(int(t), float(logs[t])) for t in top]})

    def record(self) -> dict[str, Any] | None:
        """What the answer says of them; None where nobody asked."""
        if self._answer.logprobs is None:
            return None
        if self._answer.chat:
            return {"content": self._tokens, "refusal": None}
        top = [{each["token"]: each["logprob"] for each in entry["top_logprobs"]} for entry in self._tokens]
        return {
            "tokens": [entry["token"] for entry in self._tokens],
            "token_logprobs": [entry["logprob"] for entry in self._tokens],
            "top_logprobs": top if self._answer.logprobs else None,
        }

    def _entry(self, token: int, logarithm: float) -> dict[str, Any]:
        text = self._text.decode([token]) or self._text.tokenizer.id_to_token(token) or ""
        return {"token": text, "logprob": max(logarithm, -9999.0), "bytes": list(text.encode())}
