# SPDX-License-Identifier: Apache-2.0
"""The stand-in of qnn_llama_runner: its flags, files and last lines."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from hexforge.addons.llm import LanguageModel
from hexforge.addons.llm.time.estimate import estimate_llm
from hexforge.addons.phone.programs import RUNNERS
from hexforge.cli import app
from tests.addons.llm import SMALL
from tests.addons.llm.conftest import Bundled

PROMPT = "If the file does not exist,"


@pytest.fixture
def runner(bundled: Bundled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)
    bundle = bundled("w8a16")
    return lambda *flags: CliRunner().invoke(app, ["llm", "llama-runner", "--model_path", str(bundle), *flags])


def observed(result: Result) -> dict[str, int]:
    line = next(line for line in result.stdout.splitlines() if line.startswith("PyTorchObserver "))
    found: dict[str, int] = json.loads(line.removeprefix("PyTorchObserver "))
    return found


@pytest.mark.parametrize("mode", ["0", "1", "2"])
def test_outputs_and_last_lines(mode: str, runner: Callable, loaded: Callable[..., LanguageModel]) -> None:
    own = ("--tokenizer_path", str(SMALL / "tokenizer.json"))
    given = runner("--prompt", PROMPT, "--seq_len=30", "--eval_mode", mode, *own)
    assert given.exit_code == 0, given.output
    said = observed(given)
    assert (said["prompt_tokens"], said["generated_tokens"]) == (7, 23)
    assert Path("outputs.txt").read_text() == PROMPT + loaded("w8a16").generate(PROMPT, 23)
    assert float(Path("inference_speed.txt").read_text()) > 0
    last = given.stderr.splitlines()[-7:]
    assert "Prompt Tokens: 7    Generated Tokens: 23" in last[0]
    assert re.search(r"Generated 23 tokens:\t[\d.]+ \(seconds\)\t\t Rate: \t[\d.]+ \(tokens/second\)", last[4])
    assert "Time to first generated token:" in last[5]
    assert "Sequence length (30 tokens) reached!" in given.stderr


def test_times_are_the_chips(runner: Callable, bundled: Bundled) -> None:
    """With a chip, rates are the estimate's, whatever this computer takes."""
    said = observed(runner("--prompt", PROMPT, "--seq_len", "40", "--soc", "SM8650"))
    estimate = estimate_llm(bundled("w8a16"), "SM8650", context=512, precision="w8a16")
    assert said["first_token_ms"] - said["inference_start_ms"] == pytest.approx(estimate.first_token_ms(), abs=1.5)
    spent = (said["generated_tokens"] - 1) * estimate.token_ms
    assert said["inference_end_ms"] - said["first_token_ms"] == pytest.approx(spent, abs=1.5)


def test_turns_tokens_and_logits(runner: Callable, loaded: Callable[..., LanguageModel]) -> None:
    model = loaded("w8a16")
    given = runner("--prompt", "A list", "--prompt", "A set", "--seq_len", "400", "--decoder_model_version", "llama3")
    assert given.exit_code == 0
    assert given.stdout.count("PyTorchObserver") == 2
    assert Path("outputs.txt").read_text().startswith(model.text.chat([{"role": "user", "content": "A list"}]))
    tokens = model.text.encode(PROMPT)
    np.array(tokens, "<u8").tofile("tokens.raw")
    given = runner("--tokenized_prompt", "tokens.raw", "--seq_len", "12", "--dump_logits_path", "logits.raw")
    assert given.exit_code == 0
    logits = np.fromfile("logits.raw", np.float32).reshape(-1, model.bundle.vocabulary)
    fresh = model.session()
    assert np.array_equal(logits[: len(tokens)], np.stack([fresh.feed([token]) for token in tokens]))
    assert Path("outputs.txt").read_text() == model.generate(tokens, 12 - len(tokens))


@pytest.mark.parametrize(
    ("flags", "fault"),
    [
        (("--decoder_model_version", "gpt2"), "Unsupported Decoder Model"),
        (("--prompt", "x", "--tokenized_prompt", "t.raw"), "not both"),
        (("--eval_mode", "1", "--dump_logits_path", "l.raw"), "Only TokenGenerator"),
        (("--prompt", "word " * 40, "--seq_len", "20"), "sequence length exceeded"),
        (("--tokenizer_path", "none.json"), "Failed to load tokenizer"),
        (("--tokenized_prompt", "none.raw"), "Unable to read tokenized prompt"),
        (("--model_path", "kv_llama_qnn.pte"), "kv_llama_qnn.pte: no such file; check the path"),
        (("--kv_updater", "Other"), "SmartMask and ShiftPointer are"),
    ],
)
def test_what_is_wrong_is_said(flags: tuple[str, ...], fault: str, runner: Callable) -> None:
    given = runner(*flags)
    assert given.exit_code != 0
    assert fault in given.stdout


def test_the_phone_has_it_by_name() -> None:
    assert RUNNERS["qnn_llama_runner"][:2] == ("llm", "llama-runner")
