# SPDX-License-Identifier: Apache-2.0
"""The endpoint: answers, streams, many clients, clients that go, and who is turned away."""

from __future__ import annotations

import asyncio
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import uvicorn

from hexforge.addons.llm import LanguageModel, Sampling
from hexforge.addons.llm.generate import LlmSession
from hexforge.addons.llm.serving.app import application, serve
from hexforge.addons.llm.serving.requests import AnswerRequest, Answers, Pace, device_pace
from hexforge.errors import CallError
from tests import ROOT

TOKEN = "a-token-of-the-tests"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
PROMPT = "If the file does not exist,"
CHAT = "/v1/chat/completions"


class Running:
    """An endpoint on a port of its own."""

    def __init__(self, app: Any) -> None:
        self.server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        link = self.connection()
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        link.request("POST", path, data, HEADERS | headers)
        answer = link.getresponse()
        said = json.loads(answer.read())
        link.close()
        return answer.status, said

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def model(loaded: Callable[..., LanguageModel]) -> LanguageModel:
    return loaded("w8a16")


@pytest.fixture(scope="module")
def endpoint(model: LanguageModel) -> Iterator[Running]:
    running = Running(application(model, TOKEN))
    yield running
    running.stop()


def events(answer: http.client.HTTPResponse) -> Iterator[Any]:
    for line in answer:
        if line.startswith(b"data: "):
            yield line[6:].decode().strip()


def test_an_answer_is_the_models(endpoint: Running, model: LanguageModel) -> None:
    body = {"prompt": PROMPT, "max_tokens": 20, "temperature": 0}
    status, said = endpoint.ask("/v1/completions", body)
    assert status == 200
    assert said["choices"][0]["text"] == model.generate(PROMPT, 20)
    assert said["choices"][0]["finish_reason"] == "length"
    assert said["usage"] == {"prompt_tokens": 7, "completion_tokens": 20, "total_tokens": 27}


def test_a_stream_gives_the_same_text(endpoint: Running, model: LanguageModel) -> None:
    link = endpoint.connection()
    body = {
        "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 25, "seed": 5, "temperature": 0.8,
        "stream": True, "stream_options": {"include_usage": True},
    }  # fmt: skip
    link.request("POST", CHAT, json.dumps(body), HEADERS)
    given = list(events(link.getresponse()))
    link.close()
    assert given[-1] == "[DONE]"
    chunks = [json.loads(event) for event in given[:-1]]
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert text == model.generate(model.text.encode(f"{PROMPT}\n\n"), 25, Sampling(0.8, seed=5))
    assert chunks[-1]["usage"]["completion_tokens"] >= 1
    assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"]][-1] in ("stop", "length")


def test_a_hundred_clients_have_their_own_answers(endpoint: Running, model: LanguageModel) -> None:
    prompts = ["Return the", "A class that", "The file", "This module", "If the"]
    expected = {text: model.generate(text, 6) for text in prompts}

    def ask(index: int) -> bool:
        text = prompts[index % len(prompts)]
        status, said = endpoint.ask("/v1/completions", {"prompt": text, "max_tokens": 6, "temperature": 0})
        return status == 200 and said["choices"][0]["text"] == expected[text]

    with ThreadPoolExecutor(100) as pool:
        assert all(pool.map(ask, range(100)))
    assert len(set(expected.values())) > 2


def test_a_client_that_goes_leaves_its_place(model: LanguageModel) -> None:
    """With one place, an answer that would take minutes is ended by closing the connection."""
    running = Running(application(model, TOKEN, together=1, pace=Pace(lambda prompt: 0.0, lambda at: 0.2)))
    body = {"prompt": PROMPT, "max_tokens": 400, "temperature": 0.9, "seed": 1, "stream": True}
    for _ in range(3):
        link = running.connection()
        link.request("POST", "/v1/completions", json.dumps(body), HEADERS)
        answer = link.getresponse()
        assert next(events(answer)).startswith("{")
        answer.close()
        link.close()
    status, said = running.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 2, "temperature": 0})
    assert (status, said["usage"]["completion_tokens"]) == (200, 2)
    running.stop()


def test_a_killed_client_leaves_its_place(model: LanguageModel) -> None:
    """A process that dies in the middle of a stream: the one place is free, and the next answer is the model's own."""
    running = Running(application(model, TOKEN, together=1, pace=Pace(lambda prompt: 0.0, lambda at: 0.2)))
    asked = json.dumps({"prompt": PROMPT, "max_tokens": 400, "temperature": 0.9, "seed": 1, "stream": True})
    code = (
        "import http.client, sys\n"
        "link = http.client.HTTPConnection('127.0.0.1', int(sys.argv[1]))\n"
        "link.request('POST', '/v1/completions', sys.argv[2], "
        "{'Authorization': sys.argv[3], 'Content-Type': 'application/json'})\n"
        "answer = link.getresponse()\n"
        "print(answer.read1(64), flush=True)\n"
        "sys.stdin.read()\n"
    )
    client = subprocess.Popen(
        [sys.executable, "-S", "-c", code, str(running.port), asked, HEADERS["Authorization"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    assert b"data:" in client.stdout.readline()
    client.kill()
    client.communicate()
    status, said = running.ask("/v1/completions", {"prompt": PROMPT, "max_tokens": 3, "temperature": 0})
    assert (status, said["choices"][0]["text"]) == (200, model.generate(PROMPT, 3))
    running.stop()


def test_the_pace_of_a_chip_is_the_estimates(model: LanguageModel) -> None:
    from hexforge.addons.llm.time.estimate import estimate_llm

    estimate = estimate_llm(model.bundle.folder, "SM8550", context=512, precision="w8a16")
    pace, other = device_pace(model.bundle, "SM8550"), device_pace(model.bundle)
    assert pace.token(7) == estimate.token_ms / 1e3
    assert pace.first_token(300) == estimate.first_token_ms(300) / 1e3
    assert other.token(7) != pace.token(7)


def test_a_pace_is_kept(model: LanguageModel) -> None:
    running = Running(application(model, TOKEN, pace=Pace(lambda prompt: 0.05 * prompt, lambda at: 0.03)))
    began = time.monotonic()
    running.ask("/v1/completions", {"prompt": [1, 2, 3, 4], "max_tokens": 5, "temperature": 0.9, "seed": 3})
    assert time.monotonic() - began >= 0.05 * 4
    running.stop()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "no JSON"),
        (b"[]", 400, "no JSON object"),
        (b"[" * 5000, 400, "no JSON"),
        ({"messages": []}, 400, "at least one message"),
        ({"messages": [{"role": "user"}]}, 400, "role and content"),
        ({"messages": [{"role": "boss", "content": "x"}]}, 400, "role is system"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "pictures are not read"),
        ({"messages": "x"}, 400, "messages is a list"),
        ({"messages": [{"role": "user", "content": "x"}], "model": "gpt-4"}, 404, "'gpt-4' is not here"),
        ({"messages": [{"role": "user", "content": "x"}], "n": 2}, 400, "ask once for each answer"),
        ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}, 400, "max_tokens is a whole"),
        ({"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}, 400, "temperature is a number"),
        ({"messages": [{"role": "user", "content": "x"}], "seed": -1}, 400, "seed is"),
        ({"messages": [{"role": "user", "content": "x"}], "stop": [1]}, 400, "stop is a text"),
        ({"messages": [{"role": "user", "content": "x"}], "stop": "a" * 1_000_000}, 400, "at most 1,000 characters"),
        ({"messages": [{"role": "user", "content": "x"}], "tools": [{}]}, 400, "tools is not supported"),
        ({"messages": [{"role": "user", "content": "x"}], "temprature": 1}, 400, "did you mean 'temperature'?"),
        ({"messages": [{"role": "user", "content": "x"}], "prompt": "x"}, 400, "is of the other endpoint"),
        ({"messages": [{"role": "user", "content": "x"}], "stream": "yes"}, 400, "stream is true or false"),
        ({"messages": [{"role": "user", "content": "x"}], "min_p": 2}, 400, "min_p is a number"),
        ({"messages": [{"role": "user", "content": "x"}], "logit_bias": {"-1": 1}}, 400, "is no token from 0"),
        ({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2}, 400, "asks for logprobs"),
        ({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": []}}, 400, "texts, numbers"),
        ({"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}, 400, "ask for"),
        ({"messages": [{"role": "user", "content": "word " * 2000}]}, 400, "and the context 512; shorten it"),
        (b" " * 1_100_000, 413, "more than 1,048,576 bytes"),
    ],
)
def test_bad_requests_are_told_so(body: Any, status: int, said: str, endpoint: Running) -> None:
    got, answer = endpoint.ask(CHAT, body)
    assert got == status
    assert said in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


def test_only_who_has_the_token_is_answered(endpoint: Running) -> None:
    body = {"prompt": PROMPT, "max_tokens": 1}
    for wrong in ("", "Bearer wrong", f"Basic {TOKEN}", TOKEN):
        status, said = endpoint.ask("/v1/completions", body, Authorization=wrong)
        assert (status, said["error"]["code"]) == (401, "invalid_api_key")
    assert endpoint.ask("/v1/completions", body, Host="attacker.example:80")[0] == 403
    assert endpoint.ask("/v1/nothing", body)[0] == 404
    link = endpoint.connection()
    link.request("GET", "/v1/models", headers=HEADERS)
    assert json.loads(link.getresponse().read())["data"][0]["id"] == "small"
    link.close()


def test_it_is_for_this_machine_alone(model: LanguageModel) -> None:
    with pytest.raises(CallError, match="only this machine's own address"):
        serve(model, TOKEN, host="0.0.0.0")
    with pytest.raises(CallError, match="at least 8 characters"):
        application(model, "short")


def test_fields_that_ask_for_nothing_are_taken(endpoint: Running) -> None:
    """What a client always sends along is no reason to refuse it."""
    body = {"prompt": PROMPT, "max_tokens": 2, "n": 1, "user": "me", "best_of": None, "echo": False, "logit_bias": {}}
    assert endpoint.ask("/v1/completions", body)[0] == 200


def test_tokens_tell_how_likely_they_were(endpoint: Running, model: LanguageModel) -> None:
    """Logarithms of shares are the model's own, and the likeliest token is the first of the top."""
    body = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0, "logprobs": 3}
    _, said = endpoint.ask("/v1/completions", body)
    told = said["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == 4
    logits = np.asarray(model.session().feed(model.text.encode(PROMPT)), np.float64)
    logs = logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())
    assert told["token_logprobs"][0] == pytest.approx(logs.max())
    assert max(told["top_logprobs"][0].values()) == pytest.approx(logs.max())
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "logprobs": True, "top_logprobs": 2}
    _, said = endpoint.ask(CHAT, chat)
    entries = said["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2] * len(entries)
    assert all(entry["logprob"] <= 0 and bytes(entry["bytes"]).decode() == entry["token"] for entry in entries)


def test_bias_and_penalties_change_what_is_chosen(endpoint: Running, model: LanguageModel) -> None:
    """A token that is forbidden is not given, and what the answer has comes less often."""
    body = {"prompt": PROMPT, "max_tokens": 24, "temperature": 0}
    plain = model.text.encode(endpoint.ask("/v1/completions", body)[1]["choices"][0]["text"], special=False)
    _, other = endpoint.ask("/v1/completions", body | {"logit_bias": {str(plain[0]): -100}})
    assert model.text.encode(other["choices"][0]["text"], special=False)[0] != plain[0]
    _, varied = endpoint.ask("/v1/completions", body | {"frequency_penalty": 2.0, "presence_penalty": 2.0})
    tokens = model.text.encode(varied["choices"][0]["text"], special=False)
    assert len(set(tokens)) / len(tokens) > len(set(plain)) / len(plain)


def test_what_was_read_is_not_read_again(model: LanguageModel) -> None:
    """An answer that begins as an earlier one did goes on from there, with the same tokens as alone."""
    answers = Answers(model)
    text = f"{PROMPT} the function returns an error and the caller must try again."

    async def asked(prompt: str) -> list[int]:
        tokens = model.text.encode(prompt)
        request = AnswerRequest(tokens, 12, Sampling(), (), stream=False, usage=False, chat=False)
        return [piece.token async for piece in answers.pieces(request)]

    def alone(prompt: str) -> list[int]:
        return [piece.token for piece in model.session().generate(prompt, 12)]

    reads: list[int] = []
    run = LlmSession._run

    def counted(self: LlmSession, size: int, chunk: Any, quiet: bool) -> Any:
        reads.append(len(chunk))
        return run(self, size, chunk, quiet)

    expected = [alone(text), alone(f"{text} Then"), alone("Another beginning altogether"), alone(text)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LlmSession, "_run", counted)
        got = []
        for prompt in (text, f"{text} Then", "Another beginning altogether", text):
            reads.clear()
            got.append(asyncio.run(asked(prompt)))
            counts = sum(reads)
            if prompt.startswith(text) and len(got) > 1:
                assert counts < len(model.text.encode(prompt)) + 4
    assert got == expected
    answers.close()


def test_long_prompts_let_others_go_on(model: LanguageModel) -> None:
    """While one client's long prompt is read, another's short answer comes whole."""
    order: list[str] = []

    async def ask(answers: Answers, name: str, tokens: list[int], count: int) -> None:
        request = AnswerRequest(tokens, count, Sampling(), (), stream=False, usage=False, chat=False)
        async for _ in answers.pieces(request):
            order.append(name)

    async def both() -> None:
        answers = Answers(model)
        word = model.text.encode("word ", special=False)
        long = asyncio.create_task(ask(answers, "long", (word * 500)[:480], 1))
        await asyncio.sleep(0)
        await asyncio.gather(long, ask(answers, "short", model.text.encode("A"), 3))
        answers.close()

    asyncio.run(both())
    assert order[0] == "short"


PYTHON = ROOT / ".venv-genai" / "bin" / "python"


@pytest.mark.genai
@pytest.mark.skipif(not PYTHON.exists(), reason="make genai")
def test_the_openai_client_is_served(endpoint: Running, model: LanguageModel) -> None:
    script = ROOT / "tests" / "addons" / "llm" / "with_openai.py"
    made = subprocess.run(
        [PYTHON, script, f"http://127.0.0.1:{endpoint.port}/v1", TOKEN], capture_output=True, text=True, check=True
    )
    said = json.loads(made.stdout)
    expected = model.generate(model.text.encode(f"{PROMPT}\n\n"), 30)
    assert said["plain"] == said["streamed"] == said["after_cancel"] == expected
    assert said["refused"] == 401
    assert said["models"] == ["small"]
