# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm run`, `chat`, `eval` and `serve`: what they say of wrong options, full contexts and odd texts."""

from __future__ import annotations

import json
import socket

import pytest
from typer.testing import CliRunner

from hexforge.addons.llm import Sampling
from hexforge.addons.llm.exporting.evaluate import evaluate_bundle
from hexforge.cli import app, main
from hexforge.errors import CallError
from tests.addons.llm.conftest import SMALL, Bundled

TEXT = SMALL / "held_out.txt"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit:
        main(["llm", *arguments])
    return int(exit.value.code or 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-p", ""), "there is nothing to read"),
        (("-p", "a", "-n", "0"), "0 tokens cannot be given"),
        (("-p", "a", "--seed", "-1"), "the seed -1 is below 0"),
        (("-p", "a", "--stop", ""), "--stop: an empty text ends nothing"),
        (("-p", "a", "--temperature", "nan"), "temperature is 0 to 100"),
        (("-p", "a", "--adapter", "nope"), "no adapter 'nope'"),
        (("-p", "word " * 600), "do not fit the context of 512"),
    ],
)
def test_a_run_refuses_what_means_nothing(
    options: tuple[str, ...], message: str, bundled: Bundled, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("run", str(bundled("w8a16")), *options) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_a_run_says_that_the_context_was_full(bundled: Bundled, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", str(bundled("w8a16")), "-p", "a", "-n", "900") == 0
    assert "of 900 tokens: the context of 512 is full" in capsys.readouterr().err


def test_texts_of_all_scripts_are_read(bundled: Bundled, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("run", str(bundled("w8a16")), "-p", "h\u00e9llo \u4e16\u754c \U0001f642", "-n", "3", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["tokens"]) == 3


def test_a_chat_helps_and_knows_its_commands(bundled: Bundled) -> None:
    lines = "/help\n/rest\n\n/adapter nope\nfrom os\n/etc/passwd holds\n/end\n"
    said = CliRunner().invoke(app, ["llm", "chat", str(bundled("w8a16")), "-n", "4", "--seed", "1"], input=lines)
    assert said.exit_code == 0
    assert "/undo forgets the last turn" in said.stderr
    assert "/rest: is no command; did you mean '/reset'?; /help lists them" in said.stderr.replace("\n", " ")
    assert "no adapter 'nope'" in said.stderr
    assert "/etc" not in said.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [(("--length", "9999"), "does not fit the context of 512"), (("--length", "0"), "2"), (("--rows", "-1"), "0")],
)
def test_rows_that_cannot_be_are_refused(
    options: tuple[str, ...], message: str, bundled: Bundled, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--checkpoint", str(SMALL), "--text", str(TEXT))
    assert run("eval", str(bundled("w8a16")), *given, *options) == 2
    assert message in capsys.readouterr().err


def test_the_python_calls_refuse_them_too(bundled: Bundled) -> None:
    with pytest.raises(CallError, match="give 2 or more tokens"):
        evaluate_bundle(bundled("w8a16"), SMALL, "text", length=0)
    with pytest.raises(CallError, match="below 0"):
        Sampling(seed=-1)


def test_a_server_that_cannot_be_names_no_address(bundled: Bundled, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("serve", str(bundled("w8a16")), "--at-device-speed", "--soc", "nope") == 2
    told = capsys.readouterr()
    assert "not a known chip" in told.err
    assert told.out == ""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert run("serve", str(bundled("w8a16")), "--port", port) == 2
    told = capsys.readouterr()
    assert f"--port {port}: Address already in use; give another" in told.err
    assert told.out == ""
