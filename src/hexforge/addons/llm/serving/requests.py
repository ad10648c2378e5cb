# SPDX-License-Identifier: Apache-2.0
"""Requests of clients, checked; and answers for many of them: each has a session of its own, and they take turns."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from hexforge.addons.llm.bundle import Bundle
from hexforge.addons.llm.decoder_graphs import DecoderFacts
from hexforge.addons.llm.generate import READING, AnswerPiece, LanguageModel, LlmSession, Sampling
from hexforge.addons.llm.serving.fields import field_fault
from hexforge.errors import CallError, HexforgeError

MOST_BODY = 1 << 20
DEFAULT_TOKENS = 256
MOST_STOPS, MOST_STOP_LENGTH = 4, 1000
MOST_LOGPROBS = 20
MOST_BIASED = 1024
FEWEST_SHARED = 8
"""Tokens that an answer has in common with an earlier one, for it to go on from there."""
KEPT_SESSIONS = 4
"""Of answers that ended: the next one that begins alike goes on from what one of them has read."""


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
    logprobs: int | None = None
    """How many of the likeliest tokens are told beside each; None: no logarithms of shares at all."""


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
    if (fault := field_fault(body, chat)) is not None:
        raise RequestError(400, fault[1], fault[0])
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
        _real("min_p", body.get("min_p"), 0.0, 0.0, 1.0),
        _real("presence_penalty", body.get("presence_penalty"), 0.0, -2.0, 2.0),
        _real("frequency_penalty", body.get("frequency_penalty"), 0.0, -2.0, 2.0),
        _biases(body.get("logit_bias"), model.bundle.vocabulary),
    )
    stream = body.get("stream")
    if stream not in (None, True, False):
        raise RequestError(400, "stream is true or false", "stream")
    return AnswerRequest(
        tokens, count, sampling, _stops(body.get("stop")), stream is True, usage, chat, names[name],
        _logprobs(body, chat),
    )  # fmt: skip


def _logprobs(body: Mapping[str, Any], chat: bool) -> int | None:
    """How many of the likeliest tokens are wanted: of a chat `top_logprobs`, where `logprobs` is true."""
    if not chat:
        return None if body.get("logprobs") is None else _whole("logprobs", body["logprobs"], 0, 0, MOST_LOGPROBS)
    wanted, most = body.get("logprobs"), body.get("top_logprobs")
    if wanted not in (None, True, False):
        raise RequestError(400, "logprobs is true or false", "logprobs")
    if most is not None and not wanted:
        raise RequestError(400, "top_logprobs asks for logprobs; set it to true", "top_logprobs")
    return _whole("top_logprobs", most, 0, 0, MOST_LOGPROBS) if wanted else None


def _biases(value: Any, vocabulary: int) -> tuple[tuple[int, float], ...]:
    """What is added to the scores of single tokens."""
    if value is None:
        return ()
    if not isinstance(value, Mapping) or len(value) > MOST_BIASED:
        raise RequestError(400, f"logit_bias is an object of up to {MOST_BIASED} tokens and numbers", "logit_bias")
    biases = []
    for key, bias in value.items():
        if not key.isascii() or not key.isdigit() or len(key) > 9 or int(key) >= vocabulary:
            raise RequestError(400, f"logit_bias: {key!r:.40} is no token from 0 to {vocabulary - 1}", "logit_bias")
        biases.append((int(key), _real("logit_bias", bias, 0.0, -100.0, 100.0)))
    return tuple(biases)


def _chat_tokens(body: Mapping[str, Any], model: LanguageModel) -> list[int]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise RequestError(400, "messages is a list of at least one message", "messages")
    words = body.get("chat_template_kwargs") or {}
    if not isinstance(words, Mapping) or not all(isinstance(v, str | bool | int | float) for v in words.values()):
        raise RequestError(400, "chat_template_kwargs is an object of texts, numbers and flags", "chat_template_kwargs")
    try:
        return model.text.encode(model.text.chat([_plain(message) for message in messages], words), special=False)
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
        self._kept: list[LlmSession] = []

    async def pieces(self, answer: AnswerRequest) -> AsyncGenerator[AnswerPiece]:
        """One answer, piece by piece; it ends when the client goes.

        Answers take turns after each token and after each piece of a prompt. What an earlier answer has read and this
        one begins with is not read again.
        """
        if self._open >= self._most:
            raise RequestError(429, f"{self._open} requests are open; come again later", code="rate_limit_exceeded")
        self._open += 1
        session: LlmSession | None = None
        made: Generator[AnswerPiece] | None = None
        step: asyncio.Future[AnswerPiece | None] | None = None
        try:
            async with self._places:
                session, known = self._session(answer)
                made = session.generate(
                    answer.tokens[known:], answer.count, answer.sampling, answer.stop, in_steps=True
                )
                due, given = time.monotonic(), 0
                loop = asyncio.get_running_loop()
                while True:
                    step = loop.run_in_executor(self._thread, _next, made)
                    piece = await asyncio.shield(step)
                    if piece is None:
                        return
                    if piece is READING:
                        continue
                    if self.pace is not None:
                        prompt = len(answer.tokens)
                        due += self.pace.token(prompt + given) if given else self.pace.first_token(prompt)
                        await asyncio.sleep(max(0.0, due - time.monotonic()))
                    given += 1
                    yield piece
        finally:
            self._open -= 1
            if made is not None and session is not None and (step is None or step.done()):
                made.close()
                self._kept = [*self._kept, session][-KEPT_SESSIONS:]

    def _session(self, answer: AnswerRequest) -> tuple[LlmSession, int]:
        """A session that has read the most of what the answer begins with, and how many tokens that is."""
        alike = [session for session in self._kept if session.adapter == answer.adapter]
        best = max(alike, key=lambda session: _shared(session.tokens, answer.tokens), default=None)
        if best is None or _shared(best.tokens, answer.tokens) < FEWEST_SHARED:
            return self.model.session(answer.adapter), 0
        self._kept.remove(best)
        return best, best.keep_start_of(answer.tokens[:-1])

    def close(self) -> None:
        """No more answers."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _shared(read: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginning."""
    pairs = enumerate(zip(read, tokens, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(read), len(tokens)))


def _next(made: Generator[AnswerPiece]) -> AnswerPiece | None:
    return next(made, None)
