# SPDX-License-Identifier: Apache-2.0
"""The endpoint: /v1/models, /v1/completions and /v1/chat/completions, by token, on this machine alone."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from hexforge.addons.llm.generate import AnswerPiece, LanguageModel
from hexforge.addons.llm.serving.logprobs import TokenShares
from hexforge.addons.llm.serving.requests import (
    MOST_BODY,
    AnswerRequest,
    Answers,
    Pace,
    RequestError,
    model_names,
    read_request,
)
from hexforge.addons.llm.text_tokens import INSTALL
from hexforge.cli.loopback import HOST, NAMES, is_this_machine, require_long, shows
from hexforge.errors import CallError

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


def application(model: LanguageModel, token: str, *, together: int = 8, pace: Pace | None = None) -> Starlette:
    """The endpoint as an ASGI application; every request must carry `Authorization: Bearer TOKEN`."""
    try:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route
    except ImportError:
        raise CallError(f"the endpoint needs starlette and uvicorn: {INSTALL}") from None
    require_long(token)
    endpoint = _Endpoint(model, token, Answers(model, together, pace=pace))

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestError)
        return JSONResponse(error.body(), error.status)

    async def refused(request: Request, error: Exception) -> Response:
        status = getattr(error, "status_code", 500)
        return JSONResponse(RequestError(status, getattr(error, "detail", "") or "failed").body(), status)

    return Starlette(
        routes=[
            Route("/v1/models", endpoint.models, methods=["GET"]),
            Route("/v1/models/{name:path}", endpoint.model, methods=["GET"]),
            Route("/v1/completions", endpoint.completions, methods=["POST"]),
            Route("/v1/chat/completions", endpoint.chat_completions, methods=["POST"]),
        ],
        exception_handlers={RequestError: failed, 404: refused, 405: refused},
    )


class _Endpoint:
    def __init__(self, model: LanguageModel, token: str, answers: Answers) -> None:
        self._model, self._token, self._answers = model, token, answers
        self._name = model.bundle.name
        self._began = int(time.time())

    async def models(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        self._require_allowed(request)
        return JSONResponse({"object": "list", "data": [self._entry(name) for name in model_names(self._model)]})

    async def model(self, request: Request) -> Response:
        from starlette.responses import JSONResponse

        self._require_allowed(request)
        name = request.path_params["name"]
        if name not in model_names(self._model):
            raise RequestError(404, f"the model {name!r:.80} is not here", "model", "model_not_found")
        return JSONResponse(self._entry(name))

    def _entry(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._began, "owned_by": "hexforge"}

    async def completions(self, request: Request) -> Response:
        return await self._answered(request, chat=False)

    async def chat_completions(self, request: Request) -> Response:
        return await self._answered(request, chat=True)

    def _require_allowed(self, request: Request) -> None:
        """RequestError for one who lacks the token, or comes through a name that is not this machine's."""
        if not is_this_machine(request.headers.get("host", "")):
            raise RequestError(403, "this endpoint is for this machine alone")
        if not shows(request.headers.get("authorization", ""), self._token):
            raise RequestError(401, "the token is missing or wrong", code="invalid_api_key")

    async def _answered(self, request: Request, chat: bool) -> Response:
        from starlette.responses import JSONResponse, StreamingResponse

        self._require_allowed(request)
        raw = b""
        async for piece in request.stream():
            raw += piece
            if len(raw) > MOST_BODY:
                raise RequestError(413, f"the body has more than {MOST_BODY:,} bytes")
        answer = read_request(raw, self._model, chat)
        made = self._answers.pieces(answer)
        if answer.stream:
            first = await anext(made, None)  # an error before the first token is a status, not a broken stream
            return StreamingResponse(self._events(answer, first, made), media_type="text/event-stream")
        texts, end, count, told = [], "length", 0, TokenShares(self._model.text, answer)
        async with aclosing(made) as pieces:
            async for piece_given in pieces:
                texts.append(piece_given.text)
                told.add(piece_given)
                end, count = piece_given.end or end, count + 1
                if await request.is_disconnected():
                    return JSONResponse(None, 499)
        text = "".join(texts)
        body = self._frame(answer, secrets.token_hex(12))
        said: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        body["choices"] = [{"index": 0, **said, "logprobs": told.record(), "finish_reason": end}]
        return JSONResponse(body | {"usage": _usage(answer, count)})

    async def _events(
        self, answer: AnswerRequest, first: AnswerPiece | None, made: AsyncGenerator[AnswerPiece]
    ) -> AsyncGenerator[str]:
        """Lines of a stream of events; a client that goes ends the answer."""
        name = secrets.token_hex(12)
        count = 0

        def event(said: dict[str, Any], end: str | None, told: Any = None) -> str:
            choice = {"index": 0, **said, "logprobs": told, "finish_reason": end}
            return f"data: {json.dumps(self._frame(answer, name, is_piece=True) | {'choices': [choice]})}\n\n"

        async with aclosing(made) as pieces:
            if answer.chat:
                yield event({"delta": {"role": "assistant", "content": ""}}, None)
            piece = first
            while piece is not None:
                count += 1
                told = TokenShares(self._model.text, answer)
                told.add(piece)
                said = {"delta": {"content": piece.text}} if answer.chat else {"text": piece.text}
                yield event(said, None, told.record())
                if piece.end:
                    yield event({"delta": {}} if answer.chat else {"text": ""}, piece.end)
                piece = await anext(pieces, None)
        if answer.usage:
            last = self._frame(answer, name, is_piece=True) | {"choices": [], "usage": _usage(answer, count)}
            yield f"data: {json.dumps(last)}\n\n"
        yield "data: [DONE]\n\n"

    def _frame(self, answer: AnswerRequest, name: str, is_piece: bool = False) -> dict[str, Any]:
        """What a whole answer, or a piece of a stream, says of itself."""
        kind = "text_completion" if not answer.chat else f"chat.completion{'.chunk' * is_piece}"
        named = f"{self._name}:{answer.adapter}" if answer.adapter else self._name
        prefix = "chatcmpl" if answer.chat else "cmpl"
        return {"id": f"{prefix}-{name}", "object": kind, "created": int(time.time()), "model": named}


def _usage(answer: AnswerRequest, count: int) -> dict[str, int]:
    prompt = len(answer.tokens)
    return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}


def serve(
    model: LanguageModel, token: str, *, host: str = "127.0.0.1", port: int = 8080, together: int = 8,
    pace: Pace | None = None,
) -> None:  # fmt: skip
    """Serve until the process is told to end; on an address of this machine alone."""
    if host not in NAMES:
        raise CallError(f"--host {host}: only this machine's own address; {HOST} is")
    app = application(model, token, together=together, pace=pace)
    import uvicorn

    uvicorn.run(app, host=host.strip("[]"), port=port, log_level="warning", timeout_graceful_shutdown=2)
