# SPDX-License-Identifier: Apache-2.0
"""`hexforge mcp`: commands as tools for an agent, over standard input and output or over HTTP on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server


def mcp(
    folders: list[Path] = argument("Folders that tools may read and write below.", show_default=False),
    http: int = option(-1, "Serve over HTTP on this port of this machine; 0: any free one.", min=-1, max=65535),
    token: str = option(
        "", "The token that HTTP asks for; made and printed where none is given.", envvar="HEXFORGE_TOKEN"
    ),
    seconds: float = option(1800.0, "A tool that takes longer is ended.", min=1.0),
) -> None:
    """Serve hexforge's commands to an agent as tools of the Model Context Protocol.

    Tools run in processes of their own, which can touch nothing outside of the folders. An agent's program starts this
    one itself: `{"command": "hexforge", "args": ["mcp", "models/"]}`.
    """
    from hexforge.cli.command_forms import Folders

    try:
        from hexforge.addons.mcp.server import server
    except ImportError:
        raise CallError("hexforge mcp needs the package mcp: pip install 'hexforge[mcp]'") from None
    made = Folders.of(folders)
    asyncio.run(_over_pipes(server(made, seconds)) if http < 0 else _over_http(server(made, seconds), http, token))


async def _over_pipes(made: Server[Any]) -> None:
    from mcp.server.stdio import stdio_server

    async with stdio_server() as (read, write):
        await made.run(read, write, made.create_initialization_options())


async def _over_http(made: Server[Any], port: int, token: str) -> None:
    import socket

    import uvicorn

    from hexforge.cli.loopback import HOST, LoopbackOnly, token_or_new

    secret = token_or_new(token)
    application = LoopbackOnly(made.streamable_http_app(), secret)
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((HOST, port))
        except OSError as error:
            raise CallError(f"port {port}: {error.strerror}; give another, or 0 for any free one") from None
        say(f"http://{HOST}:{listening.getsockname()[1]}/mcp, with `Authorization: Bearer {secret}`", err=True)
        config = uvicorn.Config(application, log_level="warning", lifespan="on")
        await uvicorn.Server(config).serve(sockets=[listening])
