# SPDX-License-Identifier: Apache-2.0
"""What a server for this machine alone asks of each request: a host's name that is this machine's, and a token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hexforge.errors import CallError

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "::1", "[::1]")
"""Hosts that are this machine; a page from elsewhere that names another is turned away."""
_FEWEST = 8
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def token_or_new(given: str) -> str:
    """The token that is given, or a new one; CallError for one that is easily guessed."""
    if given:
        require_long(given)
    return given or secrets.token_urlsafe(24)


def require_long(token: str) -> None:
    """CallError for a token that is easily guessed."""
    if len(token) < _FEWEST:
        raise CallError(f"a token has at least {_FEWEST} characters; leave it out to have one made")


def is_this_machine(host: str) -> bool:
    """Whether a request's host is a name of this machine."""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name in NAMES


def shows(authorization: str, token: str) -> bool:
    """Whether a request's Authorization has the token."""
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and secrets.compare_digest(given.encode(), token.encode())


class LoopbackOnly:
    """An ASGI application for those on this machine who have the token: `Authorization: Bearer TOKEN`."""

    def __init__(self, inner: Application, token: str) -> None:
        self._inner, self._token = inner, token

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request, or turn it away."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] != "http" or not is_this_machine(headers.get("host", "")):
            await _answer(send, 403, "this server is for this machine alone")
        elif shows(headers.get("authorization", ""), self._token):
            await self._inner(scope, receive, send)
        else:
            await _answer(send, 401, "the token is missing or wrong; the address that was printed at the start has it")


async def _answer(send: _Send, status: int, text: str) -> None:
    kind = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": kind})
    await send({"type": "http.response.body", "body": text.encode()})
