# SPDX-License-Identifier: Apache-2.0
"""Requests of clients, checked; and answers for many of them: each has a session of its own, and they take turns."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hexforge.addons.llm.bundle import Bundle
from hexforge.addons.llm.decoder_graphs import DecoderFacts
from hexforge.addons.llm.generate import AnswerPiece, LanguageModel, Sampling
from hexforge.errors import CallError, HexforgeError

MOST_BODY = 1 << 20
DEFAULT_TOKENS = 256
MOST_STOPS, MOST_STOP_LENGTH = 4, 1000
_REFUSED = ("tools", "functions", "logprobs", "logit_bias", "suffix", "best_of", "echo", "audio")
"""What is not done here; an empty or false one is no matter."""


class RequestError(CallError):
    """A request that cannot be met: an HTTP status, and which field is to blame."""

    def __init__(self, status: int, message: str, field: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.field, self.kind = status, field, code

    def body(self) -> dict[str, Any]:
        """The error as OpenAI's clients read it."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.field, "code": self.kind}}


@dataclass(frozen=True, slots=True)
class AnswerRequest:
    """What a client wants answered."""

    tokens: list[int]
    count: int
    sampling: Sampling
    stop: tuple[str, ...]
    stream: bool
    usage: bool
    """Whether a stream ends with how many tokens there were."""
    chat: bool
    adapter: str = ""
    """The LoRA adapter that answers."""


def model_names(model: LanguageModel) -> dict[str, str]:
    """What a request may name as its model, and the adapter that each name stands for."""
    name = model.bundle.name
    return {name: "", **{f"{name}:{adapter}": adapter for adapter in model.bundle.adapters}}


def read_request(raw: bytes, model: LanguageModel, chat: bool) -> AnswerRequest:
    """A request's body; RequestError with the field that is wrong."""
    if len(raw) > MOST_BODY:
        raise RequestError(413, f"the body has {len(raw):,} bytes, and at most {MOST_BODY:,} are read")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise RequestError(400, "the body is no JSON") from None
    if not isinstance(body, Mapping):
        raise RequestError(400, "the body is no JSON object")
    names, name = model_names(model), body.get("model") or model.bundle.name
    if not isinstance(name, str) or name not in names:
        here = " or ".join(map(repr, names))
        raise RequestError(404, f"the model {name!r} is not here; {here} is", "model", "model_not_found")
    for field in _REFUSED:
        if body.get(field):
            raise RequestError(400, f"{field} is not supported here; leave it out", field)
    if body.get("n", 1) not in (1, None):
        raise RequestError(400, "n is 1: one answer a request", "n")
    tokens = _chat_tokens(body, model) if chat else _prompt_tokens(body, model)
    room = model.bundle.context - len(tokens)
    if room < 1:
        raise RequestError(
            400,
            f"the prompt has {len(tokens)} tokens, and the context {model.bundle.context}; shorten it",
            "messages" if chat else "prompt",
            "context_length_exceeded",
        )
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    count = min(_whole("max_tokens", most, DEFAULT_TOKENS, 1, 1 << 30), room)
    options = body.get("stream_options")
    usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
    sampling = Sampling(
        _real("temperature", body.get("temperature"), 1.0, 0.0, 2.0),
        _whole("top_k", body.get("top_k"), 0, 0, 1 << 20),
        max(_real("top_p", body.get("top_p"), 1.0, 0.0, 1.0), 1e-6),
        _real("repetition_penalty", body.get("repetition_penalty"), 1.0, 0.01, 100.0),
        None if body.get("seed") is None else _whole("seed", body["seed"], 0, 0, (1 << 63) - 1),
    )
    return AnswerRequest(
        tokens, count, sampling, _stops(body.get("stop")), body.get("stream") is True, usage, chat, names[name]
    )


def _chat_tokens(body: Mapping[str, Any], model: LanguageModel) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "messages is a list of at least one message", "messages")
    try:
        return model.text.encode(model.text.chat([_plain(message) for message in messages]), special=False)
    except RequestError:
        raise
    except HexforgeError as error:
        raise RequestError(400, str(error), "messages") from None


def _plain(message: Any) -> dict[str, str]:
    """A message whose content is one text; parts of type text are joined."""
    if not isinstance(message, Mapping):
        raise RequestError(400, "a message is an object with role and content", "messages")
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, Mapping) and part.get("type") == "text"]
        if len(parts) != len(content) or not all(isinstance(part, str) for part in parts):
            raise RequestError(400, "content is a text, or parts of type text; pictures are not read", "messages")
        content = "".join(str(part) for part in parts)
    return {"role": message.get("role", ""), "content": content}


def _prompt_tokens(body: Mapping[str, Any], model: LanguageModel) -> list[int]:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, str):
        try:
            tokens = model.text.encode(prompt)
        except HexforgeError as error:
            raise RequestError(400, str(error), "prompt") from None
    elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
        tokens = [int(token) for token in prompt]
        if any(not 0 <= token < model.bundle.vocabulary for token in tokens):
            raise RequestError(400, f"a token is below 0 or above {model.bundle.vocabulary - 1}", "prompt")
    else:
        raise RequestError(400, "prompt is a text or a list of tokens, one for a request", "prompt")
    if not tokens:
        raise RequestError(400, "prompt is empty", "prompt")
    return tokens


def _stops(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or len(stops) > MOST_STOPS or not all(isinstance(s, str) and s for s in stops):
        raise RequestError(400, f"stop is a text or up to {MOST_STOPS} of them", "stop")
    if (longest := max(map(len, stops), default=0)) > MOST_STOP_LENGTH:
        raise RequestError(400, f"a stop text has at most {MOST_STOP_LENGTH:,} characters, not {longest:,}", "stop")
    return tuple(stops)


def _whole(field: str, value: Any, default: int, low: int, high: int) -> int:
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise RequestError(400, f"{field} is a whole number of at least {low}", field)
    return value


def _real(field: str, value: Any, default: float, low: float, high: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise RequestError(400, f"{field} is a number from {low} to {high}", field)
    return float(value)


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
