# SPDX-License-Identifier: Apache-2.0
"""What a server for this machine alone asks of each request: a host's name that is this machine's, and a token."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from hexforge.errors import CallError

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost", "::1", "[::1]")
"""Hosts that are this machine; a page from elsewhere that names another is turned away."""
COOKIE = "hexforge-token"
_FEWEST = 8
_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]


def token_or_new(given: str) -> str:
    """The token that is given, or a new one; CallError for one that is easily guessed."""
    if given and len(given) < _FEWEST:
        raise CallError(f"a token has at least {_FEWEST} characters; leave it out to have one made")
    return given or secrets.token_urlsafe(24)


class LoopbackOnly:
    """An ASGI application for those on this machine who have the token.

    The token comes as `Authorization: Bearer TOKEN`; where `for_browsers`, as `?token=TOKEN` of the first page, too,
    which then is a cookie that no other site can make the browser send.
    """

    def __init__(self, inner: Application, token: str, *, for_browsers: bool = False) -> None:
        self._inner, self._token, self._for_browsers = inner, token, for_browsers

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        """Answer a request, or turn it away."""
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if scope["type"] != "http" or not _is_here(headers.get("host", "")):
            await _answer(send, 403, "this server is for this machine alone")
        elif self._for_browsers and self._is_token(_query_token(scope)):
            cookie = f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/"
            moved = [(b"location", scope["path"].encode()), (b"set-cookie", cookie.encode())]
            await _answer(send, 303, "", moved)
        elif self._is_token(_bearer(headers)) or (self._for_browsers and self._is_token(_cookie(headers))):
            await self._inner(scope, receive, send)
        else:
            await _answer(send, 401, "the token is missing or wrong; the address that was printed at the start has it")

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _is_here(host: str) -> bool:
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return name in NAMES


def _query_token(scope: _Scope) -> str:
    text: str = scope.get("query_string", b"").decode("latin-1")
    return parse_qs(text).get("token", [""])[0]


def _bearer(headers: dict[str, str]) -> str:
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given if scheme.lower() == "bearer" else ""


def _cookie(headers: dict[str, str]) -> str:
    try:
        kept = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if kept is None else str(kept.value)


async def _answer(send: _Send, status: int, text: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    kind = [(b"content-type", b"text/plain; charset=utf-8")]
    await send({"type": "http.response.start", "status": status, "headers": [*kind, *(headers or [])]})
    await send({"type": "http.response.body", "body": text.encode()})
