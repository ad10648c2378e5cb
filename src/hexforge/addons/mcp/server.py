# SPDX-License-Identifier: Apache-2.0
"""The server: tools are commands that run as jobs, with progress, and end where the agent cancels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from hexforge.addons.mcp.resources import read_resource, resources
from hexforge.addons.mcp.tools import EVERYTHING, KEYS, Tool, answer, tools
from hexforge.cli.command_forms import Folders
from hexforge.cli.jobs import JobOutcome, run_job
from hexforge.errors import CallError

_TOGETHER = 2
"""Jobs that run at the same time; others wait."""

INSTRUCTIONS = (
    "hexforge says, without a phone, what a Snapdragon NPU does with a model: `check` where each node runs and why, "
    "`estimate` how long it takes, `advise` what makes it faster, `quantize` and `optimize` write the model to deploy, "
    "`compare` what that costs in accuracy, `gate` holds it to a budget. Relative paths are relative to {root}. Start "
    "with `check` and `estimate`. Long lists are cut unless `keys` or `everything` ask for them."
)
"""What an agent reads first."""


def server(folders: Folders, seconds: float) -> Server[Any]:
    """The server of these folders; no tool takes longer than `seconds`."""
    room = asyncio.Semaphore(_TOGETHER)

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in tools().values()])

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = tools().get(params.name)
        if tool is None:
            return _fault(f"there is no tool {params.name!r:.60}; there are {', '.join(tools())}")
        given = dict(params.arguments or {})
        try:
            keys, everything = _wanted(given)
            async with room:
                outcome = await _run(context, tool, given, folders, seconds)
        except CallError as error:
            return _fault(str(error))
        return _result(outcome, keys, everything)

    async def list_resources(context: Any, params: Any) -> types.ListResourcesResult:
        listed = await asyncio.to_thread(resources, folders)
        made = [types.Resource(name=each.path.name, uri=each.uri, mime_type=each.kind) for each in listed]
        return types.ListResourcesResult(resources=made)

    async def read(context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        try:
            text, kind = await asyncio.to_thread(read_resource, str(params.uri), folders)
        except (CallError, OSError) as error:
            raise MCPError(code=types.INVALID_PARAMS, message=str(error)) from None
        contents = types.TextResourceContents(uri=params.uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "hexforge",
        version=version("hexforge"),
        instructions=INSTRUCTIONS.format(root=folders.roots[0]),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read,
    )


def _described(tool: Tool) -> types.Tool:
    form = tool.form
    return types.Tool(
        name=tool.name,
        description=form.help + "".join(f"\nAs typed: {example}" for example in form.examples),
        input_schema=tool.input_schema(),
        output_schema=tool.output_schema() if form.prints_json else None,
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.writes, destructive_hint=tool.writes, idempotent_hint=True, open_world_hint=False
        ),
    )


def _wanted(given: dict[str, Any]) -> tuple[list[str], bool]:
    """How much of the answer is wanted, taken out of what is given."""
    keys, everything = given.pop(KEYS, []), given.pop(EVERYTHING, False)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or not isinstance(everything, bool):
        raise CallError(f"{KEYS} is a list of texts, and {EVERYTHING} is true or false")
    return keys, everything


async def _run(context: Any, tool: Tool, given: Mapping[str, Any], folders: Folders, seconds: float) -> JobOutcome:
    """Run the command, and tell the agent how far it is meanwhile."""
    latest: dict[str, tuple[int, int]] = {}
    news = asyncio.Event()

    def progress(what: str, done: int, of: int) -> None:
        latest[what] = done, of
        news.set()

    async def tell() -> None:
        count = 0.0
        while True:
            await news.wait()
            news.clear()
            for what, (done, of) in list(latest.items()):
                del latest[what]
                count += 1
                await context.session.report_progress(count, None, f"{what}: {done} of {of}" if of else what)

    telling = asyncio.create_task(tell())
    try:
        return await run_job(tool.form, given, folders, progress, seconds)
    finally:
        telling.cancel()


def _result(outcome: JobOutcome, keys: list[str], everything: bool) -> types.CallToolResult:
    if outcome.failed:
        return _fault(outcome.said or outcome.text or f"it ended with exit code {outcome.code}")
    if outcome.data is None:
        return types.CallToolResult(content=[types.TextContent(type="text", text=outcome.text)])
    data = answer(outcome.data, keys, everything)
    text = types.TextContent(type="text", text=json.dumps(data, ensure_ascii=False))
    return types.CallToolResult(content=[text], structured_content=data)


def _fault(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=message)], is_error=True)
