# SPDX-License-Identifier: Apache-2.0
"""An agent's view: the tools by the SDK's own client, a whole session, cancelling, and calls that mean harm."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
from pathlib import Path

import httpx2
import jsonschema
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from hexforge.addons.mcp.server import server
from hexforge.addons.mcp.tools import answer, tools
from hexforge.cli.command_forms import Folders
from hexforge.demo import MODEL

SECRET = "what only the owner of the file may read"
BUDGET = """
models:
  - model: night.onnx
    soc: SM8650
    precision: w8a8
    latency_ms: 1.0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model and a budget, beside one with a secret."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret.txt").write_text(SECRET)
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(MODEL, folder)
    (folder / "budget.yaml").write_text(BUDGET)
    return folder


def served(folder: Path, seconds: float = 200.0):
    """A client in this process of the server of a folder."""
    return Client(server(Folders.of([folder]), seconds))


def test_schemas_are_valid_and_name_every_tool(folder: Path) -> None:
    """Each tool has a schema of what it takes and of what it gives, which validators accept."""

    async def listed():
        async with served(folder) as client:
            return (await client.list_tools()).tools

    rows = asyncio.run(listed())
    assert [row.name for row in rows] == list(tools())
    for row in rows:
        jsonschema.Draft202012Validator.check_schema(row.input_schema)
        if row.output_schema is not None:
            jsonschema.Draft202012Validator.check_schema(row.output_schema)
        assert all("description" in field for field in row.input_schema["properties"].values()), row.name
    estimate = next(row for row in rows if row.name == "estimate")
    assert estimate.output_schema is not None
    assert estimate.output_schema["properties"]["latency_ms"]["type"] == ["number", "null"]
    assert estimate.annotations is not None
    assert estimate.annotations.read_only_hint


def test_session_of_an_agent_over_pipes(folder: Path) -> None:
    """Drop a model, ask why it is slow, apply advice, quantize, hold it to a budget, read the page that was written."""
    said: list[str] = []

    async def progress(done, total, message) -> None:
        said.append(message)

    async def session() -> dict[str, dict]:
        parameters = StdioServerParameters(command=sys.executable, args=["-m", "hexforge", "mcp", str(folder)])
        answers = {}
        async with Client(stdio_client(parameters)) as client:
            for name, given in (
                ("check", {"model": "night.onnx"}),
                ("estimate", {"model": "night.onnx", "precision": "w8a8", "report": "page.html"}),
                ("advise", {"model": "night.onnx", "precision": "w8a8", "apply": "faster.onnx"}),
                ("quantize", {"model": "night.onnx", "data": "random:4", "output": "night.qdq.onnx"}),
                ("gate", {"budget": "budget.yaml"}),
                ("explain", {"log": ["5005"]}),
            ):
                result = await client.call_tool(name, given, progress_callback=progress)
                assert not result.is_error, (name, result.content)
                answers[name] = result.structured_content
            listed = {row.name: str(row.uri) for row in (await client.list_resources()).resources}
            page = await client.read_resource(listed["page.html"])
            answers["page"] = {"text": page.contents[0].text}
        return answers

    answers = asyncio.run(session())
    assert answers["check"]["model"] == "night.onnx"
    assert 0 < answers["estimate"]["latency_ms"] < 10
    assert answers["quantize"]["placed_whole"]
    assert answers["gate"]["passes"]
    assert answers["explain"]["findings"][0]["text"] == "5005"
    assert "<html" in answers["page"]["text"]
    assert (folder / "night.qdq.onnx").is_file()
    assert any("calibrating" in line for line in said)


def test_cancelled_tool_ends_its_process(folder: Path) -> None:
    """A call that the agent no longer waits for leaves no process and no half-written file."""

    async def session() -> None:
        async with served(folder) as client:
            given = {"model": "night.onnx", "data": "random:64", "output": "late.onnx"}
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await client.call_tool("quantize", given)

    asyncio.run(session())
    running = [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if b"late.onnx" in _bytes_of(path)
    ]  # none where there is no /proc
    assert not running
    assert not list(folder.glob("late.onnx*"))


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


def test_tool_that_takes_too_long_is_ended(folder: Path) -> None:
    """Time is bounded, and the answer says so."""

    async def session():
        async with served(folder, seconds=0.2) as client:
            return await client.call_tool("check", {"model": "night.onnx"})

    result = asyncio.run(session())
    assert result.is_error
    assert "took more than 0.2 s" in result.content[0].text


@pytest.mark.parametrize("text", ["raw=../elsewhere/secret.txt", "raw=/etc/passwd", "raw={elsewhere}/secret.txt"])
def test_file_elsewhere_is_not_read_through_a_text(folder: Path, text: str) -> None:
    """What is no path to the form, as INPUT=FILE, is refused by the job's own process."""

    async def session():
        async with served(folder) as client:
            given = {"model": "night.onnx", "input": [text.format(elsewhere=folder.parent / "elsewhere")]}
            return await client.call_tool("run", given)

    result = asyncio.run(session())
    assert result.is_error
    assert "ermission" in result.content[0].text or "outside" in result.content[0].text
    assert SECRET not in result.content[0].text


def hostile_calls(count: int, elsewhere: Path) -> list[tuple[str, object]]:
    """Calls of random tools with random fields: wrong types, foreign paths, flags in texts, huge and odd texts."""
    draw = random.Random(20)
    odd = [
        "../elsewhere/secret.txt", str(elsewhere / "secret.txt"), "/etc/shadow", "night.onnx\0.txt", "--help", "-o",
        "--output=../out", "\ud800", "x" * 5000, "a\nb", "", ".", "~", "$HOME", "CON", "file:///etc/passwd",
        None, True, -1, 1e300, 10**30, float("nan"), [], ["../elsewhere"], {"a": 1}, [[["x"]]], [None], ["\x1b[2J"],
    ]  # fmt: skip
    paths = {"model", "output", "report", "apply", "budget", "trace", "reference", "state", "models", "quantized"}
    made: list[tuple[str, object]] = []
    while len(made) < count:
        name = draw.choice(list(tools()))
        fields = [*tools()[name].input_schema()["properties"], "no_such_field"]
        given = {field: draw.choice(odd) for field in draw.sample(fields, min(len(fields), draw.randint(1, 6)))}
        if not paths & set(given):
            given["no_such_field"] = 1  # so that it ends at the form: a process takes a second
        made.append((name, given))
    return made


def test_hostile_calls_touch_nothing_outside(folder: Path) -> None:
    """2,000 calls that mean harm: each is answered, none reaches a file elsewhere, none writes one."""
    elsewhere = folder.parent / "elsewhere"
    before = sorted(folder.parent.rglob("*"))

    async def session() -> int:
        answered = 0
        async with served(folder, seconds=20) as client:
            for name, given in hostile_calls(2000, elsewhere):
                try:
                    result = await client.call_tool(name, given)
                    text = json.dumps(result.structured_content or "") + "".join(c.text for c in result.content)
                except (MCPError, UnicodeEncodeError, ValueError) as error:  # what the client itself refuses to send
                    text = str(error)
                assert SECRET not in text
                assert "Traceback" not in text, (name, given, text)
                answered += 1
        return answered

    assert asyncio.run(session()) == 2000
    assert sorted(path for path in folder.parent.rglob("*") if folder not in path.parents) == [
        path for path in before if folder not in path.parents
    ]


def test_resources_are_files_below_the_folders(folder: Path) -> None:
    """Only what lies below the folders is listed and read, links are not followed out of them."""
    (folder / "link.txt").symlink_to(folder.parent / "elsewhere" / "secret.txt")
    (folder / "notes.md").write_text("night")

    async def session() -> tuple[list[str], list[str]]:
        refused = []
        async with served(folder) as client:
            names = [row.name for row in (await client.list_resources()).resources]
            secret = folder.parent / "elsewhere" / "secret.txt"
            for uri in ((folder / "link.txt").as_uri(), secret.as_uri(), "file:///etc/passwd", "https://a/b.txt", "x"):
                try:
                    await client.read_resource(uri)
                except MCPError as error:
                    refused.append(str(error))
        return names, refused

    names, refused = asyncio.run(session())
    assert set(names) == {"notes.md", "budget.yaml"}
    assert len(refused) == 5
    assert not any(SECRET in text for text in refused)


def test_http_asks_for_the_token(folder: Path) -> None:
    """Over HTTP a client needs the token and this machine's name; with both it has the same tools."""

    async def session() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hexforge", "mcp", str(folder), "--http", "0", stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        url, _, rest = line.partition(", with `Authorization: Bearer ")
        token = rest.split("`")[0]
        try:
            async with httpx2.AsyncClient(timeout=120) as plain:
                assert (await plain.post(url, json={})).status_code == 401
                wrong = {"Authorization": "Bearer no-such-token"}
                assert (await plain.post(url, json={}, headers=wrong)).status_code == 401
                foreign = {"Authorization": f"Bearer {token}", "Host": "evil.example"}
                assert (await plain.post(url, json={}, headers=foreign)).status_code == 403
            async with (
                httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=120) as allowed,
                Client(streamable_http_client(url, http_client=allowed)) as client,
            ):
                assert len((await client.list_tools()).tools) == len(tools())
                result = await client.call_tool("socs", {"name": "SM8650"})
                assert not result.is_error
        finally:
            process.kill()
            await process.wait()

    asyncio.run(session())


def test_answers_are_short_unless_asked_for() -> None:
    """Long lists are cut and say so; keys and everything give them whole."""
    data = {"nodes": [{"node": str(i)} for i in range(100)], "names": ["n"] * 100, "sizes": [1] * 100, "ms": 1.5}
    short = answer(data, [], False)
    assert len(short["nodes"]) == 26
    assert short["nodes"][-1] == {"left_out": "75 more; ask with keys or everything"}
    assert short["names"][-1].startswith("75 more")
    assert short["sizes"] == [1] * 25
    assert answer(data, [], True) == data
    assert answer(data, ["nodes", "mz"], False) == {"nodes": data["nodes"], "no_such_keys": ["mz"]}
    assert answer([1, 2], [], False) == {"items": [1, 2]}
